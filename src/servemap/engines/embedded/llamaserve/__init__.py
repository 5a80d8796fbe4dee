"""llama.cpp's HTTP server in a process of its own; `python -m llamaserve --help`."""

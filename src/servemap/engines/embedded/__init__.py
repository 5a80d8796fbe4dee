"""The engine that comes with servemap: llama.cpp's own HTTP server and a tiny random model."""

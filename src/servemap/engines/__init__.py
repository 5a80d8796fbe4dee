"""Engine adapters: argv, endpoints, read-back and failure signatures."""

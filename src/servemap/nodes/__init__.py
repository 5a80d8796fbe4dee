"""How a node is reached: run, put, get, spawn, alive, stop."""

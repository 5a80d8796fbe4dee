"""How far a decode case is from what the memory bandwidth of its cards allows."""

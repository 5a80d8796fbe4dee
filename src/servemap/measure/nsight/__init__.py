"""Captures by Nsight Systems: the server is launched by it, all nodes are traced at once."""

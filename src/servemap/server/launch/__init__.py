"""A server on its nodes: started in ranks, gated, looked at, ended."""

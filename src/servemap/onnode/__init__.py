"""The node agent and load client: standard library only, shipped to nodes as one .pyz."""

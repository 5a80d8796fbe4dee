"""Checks of nodes and servers: each says what it saw and what to do."""

"""The container form of a server: its command and its image."""

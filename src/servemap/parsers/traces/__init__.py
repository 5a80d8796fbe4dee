"""Files of profilers to one event table."""

"""Tool output to records: pure functions, text in, records out."""

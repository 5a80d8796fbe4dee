"""Metrics, verdicts and tables, derived from raw files; every formula lives here."""

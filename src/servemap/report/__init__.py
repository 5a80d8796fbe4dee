"""report.md and the self-contained HTML report."""

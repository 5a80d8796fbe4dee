"""Numbers that are raised when the meaning of a measurement changes, so that it is done again."""

CASE = 1
LAUNCH = 1
PATCH = 1
BASELINE = 1
CAPTURE = 1
FREEZE = 1
CALIBRATION = 1

SCHEMA = 1
"""Schema of every JSON and parquet file under `results/`."""

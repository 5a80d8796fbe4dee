"""Where everything lies under `results/RUN` (the results contract)."""

from pathlib import Path

RESULTS = Path("results")


def run_dir(run: str) -> Path:
    """Return the folder of a run."""
    return RESULTS / run


def freeze_file(run: str, node: str) -> Path:
    """Return the frozen facts of a node."""
    return run_dir(run) / "freeze" / f"{node}.json"


def baseline_history(run: str, baseline: str) -> Path:
    """Return the folder that keeps every record of a baseline."""
    return run_dir(run) / "baselines" / "raw" / baseline


def capture_dir(run: str, variant: str, case: str) -> Path:
    """Return the folder of a capture: its record, its traces, what they say."""
    return run_dir(run) / "captures" / variant / case


def capture_history(run: str, variant: str, case: str) -> Path:
    """Return the folder that keeps the record of every try of a capture."""
    return run_dir(run) / "captures" / "raw" / variant / case


def calibration_history(run: str) -> Path:
    """Return the folder that keeps every record of the calibration, with its raw files."""
    return run_dir(run) / "calibration"


def variant_dir(run: str, variant: str) -> Path:
    """Return the folder of a variant's server records."""
    return run_dir(run) / "server" / variant


def repeat_dir(run: str, variant: str, case: str, repeat: int) -> Path:
    """Return the folder of a planned repetition of a case."""
    return run_dir(run) / "cases" / variant / case / f"r{repeat}"

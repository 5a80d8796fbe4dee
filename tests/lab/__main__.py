"""`python -m tests.lab FOLDER`: a lab, a campaign on it, its report; then the lab is taken down."""

import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.lab.lab import Lab, LabError
from tests.lab.project import LabProject, make_seed
from tests.parts import PARTS


def main(folder: Path) -> int:
    """Run the lab's campaign in a new project folder; Snakemake's exit code."""
    find, missing = PARTS["lab"]
    if find() is None:
        print(f"error: {missing}", file=sys.stderr)
        return 1
    if (folder / "campaign.yaml").exists():
        shutil.rmtree(folder)
    elif folder.exists():
        print(f"error: {folder} is no folder of an earlier lab", file=sys.stderr)
        return 1
    began = time.monotonic()
    try:
        with (
            tempfile.TemporaryDirectory() as scratch,
            Lab(make_seed(Path(scratch) / "seed")) as lab,
        ):
            say(began, f"two machines are up: {', '.join(lab.machines)}")
            project = LabProject.on(lab, folder)
            try:
                code = run(project, "all")
                # A command of its own: nothing orders the gate after the cases of the same one.
                code = run(project, "gate") or code
            finally:
                project.clean_up()
            say(began, f"snakemake ended with {code}")
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    say(began, "the machines are down, nothing is left of them")
    report = project.results / "report" / "index.html"
    print(f"report: {report}" if report.exists() else f"no report; see {project.results}")
    return code


def run(project: LabProject, target: str) -> int:
    """Run a target to its end, show Snakemake's log and return its exit code."""
    project.start(target)
    try:
        return project.wait(timeout=1200)
    finally:
        print(project.log())


def say(began: float, text: str) -> None:
    print(f"lab {time.monotonic() - began:6.1f} s: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))

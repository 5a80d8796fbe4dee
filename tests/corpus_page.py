"""docs/corpus.md, from a run over the whole index: `python -m tests.corpus_page docs/corpus.md`."""

import importlib
import sys
from functools import cache
from pathlib import Path

from servemap.model.errors import ParseError
from tests.corpus import CHECKS, index

UNIT = Path(__file__).parent / "unit"
# Why a sample is not judged through `servemap parse`, by the start of its name; the first counts.
REASONS = {
    "kineto_": "a trace, read by `servemap trace`",
    "nsys/": "an export of a recording, read by `servemap trace`",
    "server_logs/": "a server's log, read by `servemap diagnose`",
    "server_metrics/006": "a list of names, refused",
    "own/vllm_metrics_idle": "the scrape under load is judged instead",
    "own/vllm_bench": "read as a load client's result file",
    "own/sglang_TP0": "a trace, read by `servemap trace`",
    "own/vllm_tp2": "a trace, read by `servemap trace`",
    "own/vllm_asyncllm": "a trace, read by `servemap trace`",
    "own/": "read as a load client's result file",
    "bench_results/004": "a test of its own: the whole withdraws figures that a part shows",
    "bench_results/015": "read as a load client's result file",
    "bench_results/032": "read as a load client's result file",
    "bench_results/": "no kind reads it",
}
_HEAD = """# The recorded samples, and what is read of them

A run over every sample of the corpus' index. A sample is right where all values that its test
compares are read as they should be, wrong where one is not; one that two kinds read counts for
each. The others are skipped, with the reason and the tests of other commands that name them.

This page is generated: `python -m tests.corpus_page docs/corpus.md`, with `SERVEMAP_CORPUS`.

| kind | samples | right | wrong |
|---|---|---|---|
"""


@cache
def judged() -> dict[tuple[str, str], bool]:
    """Return by file and kind whether all its tests pass.

    Anything but a failed comparison or the parsers' own error is raised: it is no judgement.
    """
    for module in sorted((UNIT / "parsers").glob("test_corpus_*.py")):
        importlib.import_module(f"tests.unit.parsers.{module.stem}")
    found: dict[tuple[str, str], bool] = {}
    for file, kind, test in CHECKS:
        try:
            test()
        except (AssertionError, ParseError):
            found[file, kind] = False
        else:
            found.setdefault((file, kind), True)
    return found


def reason(file: str) -> str:
    """Return why a sample is skipped; KeyError where no reason is written down."""
    for start, text in REASONS.items():
        if file.startswith(start):
            return text
    raise KeyError(file)


@cache
def named_in(file: str) -> list[str]:
    """Return the test modules that name a sample."""
    name = file.rpartition("/")[2]
    stem = name.partition(".")[0]
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(UNIT.rglob("test_*.py"))}
    return sorted(path.name for path, text in texts.items() if stem in text)


def page() -> str:
    """Return the whole page."""
    results = judged()
    rows = []
    for kind in sorted({kind for _, kind in results}):
        own = [right for (_, name), right in results.items() if name == kind]
        rows.append(f"| `{kind}` | {len(own)} | {sum(own)} | {len(own) - sum(own)} |")
    right = sum(results.values())
    rows.append(f"| all | {len(results)} | {right} | {len(results) - right} |")
    rows += ["", "## Skipped", "", "| sample | reason | named in |", "|---|---|---|"]
    files = {file for file, _ in results}
    rows += [
        f"| {file} | {reason(file)} | {', '.join(named_in(file)) or '-'} |"
        for file in index()
        if file not in files
    ]
    return _HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")

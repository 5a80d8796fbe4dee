"""What stands on disk for one planned repeat, whatever is missing or of another attempt."""

from pathlib import Path
from typing import Any, NamedTuple

from servemap.analysis.metrics import CONTROL
from servemap.model.files import read_json_value
from servemap.parsers.values import integer, mapping, sequence, text

SCHEMA = 1
_LEVELS = {"concurrency": "concurrency", "rate": "rate_rps"}


class Lengths(NamedTuple):
    """Whether a case ran at its planned lengths or at its fall-back ones, and these."""

    kind: str
    isl: int | None
    osl: int | None


class Repeat(NamedTuple):
    """One planned repeat: its record, and its derived figures if they are of the same attempt."""

    variant: str
    case: str
    repeat: int
    folder: Path
    meta: dict[str, Any]
    metrics: dict[str, Any]
    status: str
    verdict: str
    reasons: list[str]

    @property
    def attempt(self) -> int | None:
        """Number of the attempt that the record is of."""
        return integer(self.meta.get("attempt"))

    @property
    def valid(self) -> bool:
        """Whether the figures may be averaged, compared and plotted."""
        return self.verdict == "valid"

    @property
    def spec(self) -> dict[str, Any]:
        """The resolved case as it was asked for."""
        return mapping(mapping(self.meta.get("spec")).get("case"))

    @property
    def steady(self) -> dict[str, Any]:
        """The case's steady load: the background of a mixed case, else the case itself.

        A search has the level of its answer.
        """
        level = {_LEVELS.get(str(self.spec.get("over")), ""): (self.answer or {}).get("level")}
        own = {**self.spec, **level} if self.answer else self.spec
        return mapping(self.spec.get("background")) or own

    @property
    def answer(self) -> dict[str, Any] | None:
        """The most within the SLO that a search found; None where there is none."""
        return mapping(mapping(self.metrics.get("search")).get("within_slo")) or None

    @property
    def lengths(self) -> Lengths:
        """The lengths that the requests really had."""
        used = mapping(mapping(self.meta.get("fallback")).get("used"))
        kind = "fallback" if self.meta.get("fallback") else "planned"
        return Lengths(
            kind,
            integer(used.get("isl", self.steady.get("isl"))),
            integer(used.get("osl", self.steady.get("osl"))),
        )

    @property
    def segments(self) -> list[dict[str, Any]]:
        """The measured segments' figures; empty where nothing was derived."""
        return [mapping(s) for s in sequence(self.metrics.get("segments"))]

    @property
    def headline(self) -> dict[str, Any]:
        """The segment that stands for the case.

        It is `control` of a mixed case, the probe that the answer of a search rests on, if it has
        one, else the first.
        """
        if self.spec.get("kind") == "search":
            probe = (self.answer or {}).get("probe")
            return next((s for s in self.segments if s.get("name") == probe), {})
        named = [s for s in self.segments if s.get("name") == CONTROL]
        return next(iter(named or self.segments), {})


def read_repeat(run_dir: Path, row: dict[str, Any]) -> Repeat:
    """Return what is known of a planned repeat {variant, case, repeat}, whatever its files hold."""
    variant, case, repeat = str(row["variant"]), str(row["case"]), int(row["repeat"])
    folder = run_dir / "cases" / variant / case / f"r{repeat}"
    meta, trouble = read_object(folder / "meta.json")
    if trouble is not None:
        missing = not (folder / "meta.json").exists()
        status = "not_run" if missing else "failed"
        reason = say_unrecorded(folder) if missing else trouble
        return Repeat(variant, case, repeat, folder, {}, {}, status, "invalid", [reason])
    status = text(meta.get("status")) or "failed"
    recorded = [str(reason) for reason in sequence(meta.get("reasons"))]
    metrics, trouble = read_object(folder / "metrics.json")
    if trouble is None and metrics.get("attempt") != meta.get("attempt"):
        trouble = (
            f"metrics.json is of attempt {metrics.get('attempt')}, "
            f"the record is of attempt {meta.get('attempt')}"
        )
    if trouble is not None:
        reasons = [*recorded, trouble] if status == "ok" or not recorded else recorded
        return Repeat(variant, case, repeat, folder, meta, {}, status, "invalid", reasons)
    verdict = text(metrics.get("verdict")) or "invalid"
    derived = [str(reason) for reason in sequence(metrics.get("reasons"))]
    reasons = list(dict.fromkeys([*recorded, *derived]))
    return Repeat(variant, case, repeat, folder, meta, metrics, status, verdict, reasons)


def say_unrecorded(folder: Path) -> str:
    """Return what a repeat without meta.json is: never tried, interrupted, or robbed of the file.

    Snakemake removes the file before a job and after one that was interrupted; attempts stay.
    """
    numbers = sorted(int(p.name) for p in folder.glob("attempts/*") if p.name.isdigit())
    if not numbers:
        return "not measured"
    newest, _ = read_object(folder / "attempts" / f"{numbers[-1]:03d}" / "meta.json")
    cut = not newest or newest.get("cause") == "interrupted"
    tries = f"{len(numbers)} attempt{'s' if len(numbers) > 1 else ''}"
    return f"{'interrupted' if cut else 'its meta.json is gone'}, {tries}"


def read_object(path: Path) -> tuple[dict[str, Any], str | None]:
    """Return the JSON object in `path` and None, or {} and why there is none."""
    try:
        value = read_json_value(path)
    except FileNotFoundError:
        return {}, f"{path.name} is missing"
    except OSError as error:
        return {}, f"{path.name} cannot be read: {error.strerror}"
    except ValueError:
        return {}, f"{path.name} is damaged: it is not JSON"
    if not isinstance(value, dict):
        return {}, f"{path.name} is damaged: it holds no object"
    if value.get("schema") != SCHEMA:
        return {}, f"{path.name} has schema {value.get('schema')!r}, this version reads {SCHEMA}"
    return value, None

"""Section on the load client's own error, beside the figures that it may change."""

from typing import Any

from servemap.analysis.calibration import LARGE_SHARE, ClientError, client_error, in_flight
from servemap.analysis.summary import Row
from servemap.model.calibration import say_status
from servemap.model.clients import OWN
from servemap.parsers.values import mapping, number, sequence, text
from servemap.report.document import MISSING, Cell, Section, Table, cell
from servemap.report.numbers import percent, plain
from servemap.report.run import Run

NOT_CALIBRATED = "not calibrated"
TITLE = "The load client's own error"
_SMALL = f"Both within {percent(LARGE_SHARE, 0)}"


def section(run: Run) -> Section:
    """Return the client's error at each case's number in flight, and how large it is against it."""
    columns = [
        "Case", "Variant", "In flight", "Measured at", "TTFT error P50 / P99 ms", "of TTFT P50",
        "ITL error P99 ms", "of ITL P50", _SMALL,
    ]  # fmt: skip
    if not run.calibration:
        return Section("client-error", TITLE, [_none(run)])
    rows = [_row(row, error) for row, error in _errors(run)]
    notes = [
        _made(run.calibration),
        "Measured with the reference server, whose log says what it really sent and when. The "
        "TTFT error holds connecting and sending, so it only adds; a gap's error is early or "
        "late, and TPOT, a mean over an answer, has less of it. The shares are of the P99 of the "
        f"error; above {percent(LARGE_SHARE, 0)} it is not small. No figure is corrected and no "
        "verdict depends on it.",
    ]
    numeric = frozenset(columns) - {"Case", "Variant", "Measured at", _SMALL}
    return Section(
        "client-error", TITLE, notes, [Table(columns, rows, numeric), *_points(run.calibration)]
    )


def caption(run: Run) -> str:
    """Return the error in one sentence, to stand beside the results."""
    errors = [error for _, error in _errors(run)]
    points = [error.point for error in errors if error.point]
    said = {point["concurrency"]: say_point(point) for point in points}
    words = [said[count] for count in sorted(said)]
    missing = sum(error.point is None for error in errors)
    if missing and points:
        words.append(f"{NOT_CALIBRATED} for {missing} of {len(errors)} rows")
    large = sum(error.large for error in errors)
    if large:
        words.append(f"not small against {large} of {len(errors)} rows: see {TITLE.lower()}")
    return f"{TITLE}: {'; '.join(words) or NOT_CALIBRATED}."


def say_point(point: dict[str, Any]) -> str:
    """Return `TTFT +0.3 ms, ITL ±0.2 ms at c=64`: the median error of TTFT, P99 of one gap's."""
    gap = number(mapping(point.get("gap_error_ms")).get("p99"))
    itl = "" if gap is None else f", ITL ±{plain(gap)} ms"
    return f"TTFT {_signed(point, 'p50')} ms{itl} at c={point['concurrency']}"


def _signed(point: dict[str, Any], name: str) -> str:
    value = number(mapping(point.get("ttft_error_ms")).get(name))
    if value is None:
        return "-"
    return f"{'-' if value < 0 else '+'}{plain(abs(value))}"


def _errors(run: Run) -> list[tuple[Row, ClientError]]:
    found = []
    for row in run.aggregates:
        own = [r for r in run.repeats if (r.variant, r.case) == (row["variant"], row["case"])]
        other = next((mapping(r.spec.get("client")) for r in own if r.spec.get("client")), None)
        if other:
            why = f"measured with {text(other.get('name')) or 'another client'}, not {OWN}'s own"
            error = ClientError(None, None, None, None, why)
        else:
            medians = row["ttft_p50_ms_mean"], row["itl_p50_ms_mean"]
            error = client_error(run.calibration, in_flight(own), *medians)
        found.append((row, error))
    return found


def _row(row: Row, error: ClientError) -> list[Cell]:
    head = [Cell(row["case"]), Cell(row["variant"]), cell(error.in_flight)]
    point = error.point
    if point is None:
        return [*head, Cell(NOT_CALIBRATED, error.why or "", "warn"), *[MISSING] * 5]
    gap = mapping(point.get("gap_error_ms")).get("p99")
    known = (error.ttft_share, error.itl_share) != (None, None)
    small = Cell("no" if error.large else "yes", tone="warn" if error.large else "")
    return [
        *head,
        Cell(f"c={point['concurrency']}"),
        Cell(f"{_signed(point, 'p50')} / {_signed(point, 'p99')}"),
        _share_cell(error.ttft_share),
        Cell(f"±{plain(gap)}") if gap is not None else MISSING,
        _share_cell(error.itl_share),
        small if known else MISSING,
    ]


def _share_cell(share: float | None) -> Cell:
    said = "> 1000 %" if (share or 0) > 10 else percent(share)
    return Cell(said, tone="warn" if (share or 0) > LARGE_SHARE else "")


def _none(run: Run) -> str:
    switched = mapping(run.campaign.get("policy")).get("calibrate") is False
    why = "policy.calibrate is off" if switched else "there is no calibration.json"
    return f"{NOT_CALIBRATED.capitalize()}: {why}. What the client adds is not known."


def _made(record: dict[str, Any]) -> str:
    """Return where and under which load the calibration was made."""
    load = text(record.get("load_before"))
    loads = f"load average {load.split()[0]}" if load else "load average not known"
    cpus = record.get("cpus")
    reasons = [str(reason) for reason in sequence(record.get("reasons"))]
    said = f"Measured on {text(record.get('node'))} before the first case, {loads} before it"
    said += f" on {plain(cpus)} CPUs" if number(cpus) is not None else ""
    return f"{said}. Status: {say_status(record)}{': ' + '; '.join(reasons) if reasons else ''}."


def _points(record: dict[str, Any]) -> list[Table]:
    """Return every point that was measured, the unusable ones too."""
    rows = []
    for point in map(mapping, sequence(record.get("rows"))):
        late = mapping(point.get("server_late_ms")).get("p99")
        rows.append(
            [
                cell(point.get("concurrency")),
                cell(point.get("requests")),
                Cell(plain(point.get("gap_ms"))),
                Cell(f"{_signed(point, 'p50')} / {_signed(point, 'p99')}"),
                Cell(plain(mapping(point.get("gap_error_ms")).get("p99"))),
                Cell(plain(late)),
                Cell(percent(point.get("client_cpu_share"), 0)),
                Cell(plain(point.get("load_average"))),
                Cell(
                    text(point.get("status")) or "-",
                    text(point.get("reason")) or "",
                    "" if point.get("status") == "ok" else "warn",
                ),
            ]
        )
    columns = [
        "Streams", "Requests", "Gap ms", "TTFT error P50 / P99 ms", "Gap error P99 ms",
        "Server late P99 ms", "Client CPU", "Load average", "Status",
    ]  # fmt: skip
    note = "The calibration, point by point; one whose server was late is not used"
    return [Table(columns, rows, frozenset(columns[:8]), note, folded=True)] if rows else []

"""`calibrate`: the load client's own error on this machine, measured with the reference server.

Both run here, each in a process of its own. TTFT error is the client's TTFT minus the time from the
server's receipt of the request to its first write, so that connecting and sending count as error;
gap error is the client's gap between two chunks minus the one between their writes. That the server
was late is no error: what it really did is in its log. But a server that was late by more than a
limit did not make the load that was asked for: such a point is marked and must not be used.
"""

import argparse
import json
import os
import signal
import sys
from typing import Any, Dict, List, Optional, Tuple

from .bench_options import spec_from_options
from .bench_words import CALIBRATE, by_option
from .checked import SpecError
from .load_output import WriteError, write_json
from .load_prompts import parse_target
from .load_run import Run
from .load_spec import parse_spec
from .load_summary import percentile
from .ref_script import Script, parse_script
from .ref_server import Server

Json = Dict[str, Any]

TTFT_MS = 100.0
ISL = 128
GAP_MS = 20.0
ANSWER_MS = 640.0
"""Tokens of an answer come within so long, whatever the gap."""
MOST_EVENTS_S = 10_000
"""Tokens a second that the reference server is asked for at most: more streams, longer gaps."""
LATE_LIMIT_MS = 5.0
"""P99 of how late the server wrote, above which a point is not used: a quarter of the usual gap."""
SPARE_S = 60


def main(argv: List[str]) -> int:
    """Run the command; 0, or 1 where a point failed, 2 on refused input."""
    parser = argparse.ArgumentParser(
        prog="servemap calibrate", description=__doc__, allow_abbrev=False
    )
    add = parser.add_argument
    add("--out", required=True, metavar="DIR", help="folder for calibration.json and raw files")
    add("--concurrency", default="1,16,64", metavar="C,..", help="streams (1,16,64)")
    gap = "between tokens (20; more from 200 streams on, for 10,000 tokens a second in all)"
    add("--gap-ms", type=float, metavar="G", help=gap)
    add("--tokens", type=int, metavar="N", help="of each answer (those of 640 ms, 32 at 20 ms)")
    add("--waves", type=int, default=4, metavar="N", help="requests of each stream (4)")
    options = parser.parse_args(argv)
    rows: List[Json] = []
    try:
        counts = _counts(options.concurrency)
        os.makedirs(options.out)
        for count in counts:
            rows.append(_point(os.path.join(options.out, f"c{count}"), count, options))
            print("\n".join(table([rows[-1]])[len(rows) > 1 :]), flush=True)
        whole = {"schema": 1, "cpus": os.cpu_count(), "late_limit_ms": LATE_LIMIT_MS, "rows": rows}
        write_json(options.out, "calibration.json", whole)
    except FileExistsError:
        return _complain(f"--out: {options.out} exists; name another folder", 2)
    except SpecError as error:
        return _complain(str(by_option(error, CALIBRATE)), 2)
    except (WriteError, OSError) as error:
        return _complain(str(error), 1)
    failed = [str(row["reason"]) for row in rows if row["status"] == "failed"]
    return _complain("; ".join(failed), 1) if failed else 0


def _counts(text: str) -> List[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise SpecError(f"--concurrency: {text!r} is refused: give counts, e.g. 1,16") from error


def _complain(message: str, code: int) -> int:
    print(f"calibrate: {message}", file=sys.stderr)
    return code


def shape(count: int, gap_ms: Optional[float], tokens: Optional[int]) -> Tuple[float, int]:
    """Return the gap in ms and the tokens of an answer for a number of streams."""
    gap = max(GAP_MS, 1e3 * count / MOST_EVENTS_S) if gap_ms is None else gap_ms
    return gap, max(2, round(ANSWER_MS / max(gap, 1.0))) if tokens is None else tokens


def _point(out: str, count: int, options: argparse.Namespace) -> Json:
    """Measure one number of streams; a load that fails is a row that says so."""
    os.makedirs(out)
    gap, tokens = shape(count, options.gap_ms, options.tokens)
    row: Json = {
        "concurrency": count,
        "gap_ms": gap,
        "tokens": tokens,
        "load_average": round(os.getloadavg()[0], 2),
    }
    try:
        found = _measure(out, count, options.waves, parse_script(_script(gap)), tokens)
    except (PointError, OSError) as error:
        return {**row, "status": "failed", "reason": str(error)}
    late = found["server_late_ms"]["p99"]
    if late <= LATE_LIMIT_MS:
        return {**row, "status": "ok", "reason": None, **found}
    reason = f"the server wrote {late:.1f} ms late (P99), limit {LATE_LIMIT_MS:g} ms"
    return {**row, "status": "server late", "reason": reason, **found}


def _script(gap_ms: float) -> Json:
    return {"schema": 1, "answer": {"ttft_ms": TTFT_MS, "gap_ms": gap_ms}}


class PointError(Exception):
    """A point of the calibration gave no figures."""


def _measure(out: str, count: int, waves: int, script: Script, tokens: int) -> Json:
    log = os.path.join(out, "server.jsonl")
    gap_ms = script.answer.gap_ms[0]
    planned_s = waves * (TTFT_MS + tokens * gap_ms) / 1e3
    pid, port = _serve(script, log, int(3 * planned_s) + SPARE_S)
    try:
        spec = parse_spec(
            spec_from_options(
                {
                    "url": f"http://127.0.0.1:{port}",
                    "model": "reference",
                    "isl": ISL,
                    "osl": tokens,
                    "concurrency": count,
                    "num_prompts": count * waves,
                }
            )
        )
        run = Run(spec, parse_target(spec.url, spec.endpoint), None, out)
        run.execute()
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
    if run.client["status"] != "ok" or run.client["counts"]["ok"] != count * waves:
        reasons = run.client["reasons"] or [first for _, first in run.errors.values()]
        raise PointError(f"the load with {count} streams failed: {'; '.join(reasons)}")
    ttft, gaps, late = read_errors(os.path.join(out, "requests.jsonl"), log, run.client)
    window = sum(item["end_ns"] - item["start_ns"] for item in run.client["segments"]) / 1e9
    return {
        "requests": len(ttft),
        "ttft_error_ms": _spread(ttft),
        "gap_error_ms": _spread([abs(gap) for gap in gaps]) if gaps else None,
        "server_late_ms": _spread(late),
        "client_cpu_share": round(run.client["cpu_s"] / window, 3),
        "client_lag_ms": run.client["max_lag_ms"],
    }


def _serve(script: Script, log: str, most_s: int) -> Tuple[int, int]:
    """Fork a reference server that lives `most_s` at most; returns its pid and port."""
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        with os.fdopen(read, encoding="ascii") as pipe:
            said = pipe.read()
        if not said:
            os.waitpid(pid, 0)
            raise PointError("the reference server did not start")
        return pid, int(said)
    code = 1
    try:
        # It must not outlive a parent that was killed.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(most_s)
        with open(log, "w", encoding="utf-8") as handle:
            server = Server(script, ("127.0.0.1", 0), handle)
            signal.signal(signal.SIGTERM, lambda *_: server.end())
            os.write(write, str(server.port).encode("ascii"))
            os.close(write)
            server.run()
        code = 0
    finally:
        # Nothing of the parent's may run in this process.
        os._exit(code)


def read_errors(
    requests: str, log: str, client: Json
) -> Tuple[List[float], List[float], List[float]]:
    """Return, in ms, the TTFT errors, the gap errors and how late the server wrote.

    Args:
        requests: the client's requests.jsonl.
        log: the server's log of the same load.
        client: client.json, for the client's clock.
    """
    with open(log, encoding="utf-8") as handle:
        head, *lines = [json.loads(line) for line in handle]
    served = {line["id"].partition("-")[2]: line for line in lines}
    shift = _epoch(client["clock"]) - _epoch(head["clock"])
    ttft: List[float] = []
    gaps: List[float] = []
    late: List[float] = []
    with open(requests, encoding="utf-8") as handle:
        for record in map(json.loads, handle):
            own = served.get(record["id"])
            if record["warmup"] or record["status"] != "ok" or own is None:
                continue
            places = [index for index, kind in enumerate(record["kinds"]) if kind in "tkc"]
            seen = [record["t_ns"][place] for place in places]
            sent = [own["t_ns"][place] + shift for place in places]
            received = own["received_ns"] + shift
            ttft.append((seen[0] - record["sent_ns"] - (sent[0] - received)) / 1e6)
            gaps += [
                (seen[i] - seen[i - 1] - (sent[i] - sent[i - 1])) / 1e6 for i in range(1, len(seen))
            ]
            late += [(own["t_ns"][place] - own["due_ns"][place]) / 1e6 for place in places]
    return ttft, gaps, late


def _epoch(clock: Json) -> int:
    return int(clock["wall_ns"]) - int(clock["mono_ns"])


def _spread(values: List[float]) -> Json:
    points = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: round(percentile(values, share), 4) for name, share in points.items()}


def table(rows: List[Json]) -> List[str]:
    """Lay calibration rows out: a head and a line each."""
    lines = ["streams  TTFT error p50 / p99 / max ms  gap error p99 / max ms  client CPU  load"]
    for row in rows:
        if row["status"] == "failed":
            lines.append(f"{row['concurrency']:>7}  failed: {row['reason']}")
            continue
        ttft, gap = row["ttft_error_ms"], row["gap_error_ms"]
        gaps = "-" if gap is None else f"{gap['p99']:.2f} / {gap['max']:.2f}"
        errors = f"{ttft['p50']:.2f} / {ttft['p99']:.2f} / {ttft['max']:.2f}"
        cpu = f"{row['client_cpu_share']:.0%}"
        line = f"{row['concurrency']:>7}  {errors:>30}  {gaps:>22}  {cpu:>10}  "
        line += f"{row['load_average']:>4}"
        lines.append(line if row["status"] == "ok" else f"{line}  {row['reason']}: not used")
    return lines

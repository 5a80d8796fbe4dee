"""`calibrate`: the load client's own error on this machine, measured with the reference server.

Both run here, each in a process of its own. TTFT error is the client's TTFT minus the time from the
server's receipt of the request to its first write, so that connecting and sending count as error;
gap error is the client's gap between two chunks minus the one between their writes. That the server
was late is no error: what it really did is in its log.
"""

import argparse
import json
import os
import signal
import sys
from typing import Any, Dict, List, Tuple

from .bench import spec_from_options
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


def main(argv: List[str]) -> int:
    """Run the command; 0, or 1 where a load failed, 2 on refused input."""
    parser = argparse.ArgumentParser(prog="calibrate", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--out", required=True, metavar="DIR", help="folder for calibration.json and raw files")
    add("--concurrency", default="1,16,64", metavar="C,..", help="streams (1,16,64)")
    add("--gap-ms", type=float, default=20.0, metavar="G", help="between tokens (20)")
    add("--tokens", type=int, default=64, metavar="N", help="of each answer (64)")
    add("--waves", type=int, default=2, metavar="N", help="requests of each stream (2)")
    options = parser.parse_args(argv)
    rows: List[Json] = []
    try:
        counts = _counts(options.concurrency)
        os.makedirs(options.out)
        for count in counts:
            rows.append(_calibrate(os.path.join(options.out, f"c{count}"), count, options))
            print("\n".join(table([rows[-1]])[len(rows) > 1 :]), flush=True)
        write_json(options.out, "calibration.json", {"schema": 1, "rows": rows})
    except FileExistsError:
        return _complain(f"--out: {options.out} exists; name another folder", 2)
    except SpecError as error:
        return _complain(str(error), 2)
    except (WriteError, OSError) as error:
        return _complain(str(error), 1)
    return 0


def _counts(text: str) -> List[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise SpecError(f"--concurrency: {text!r} is refused: give counts, e.g. 1,16") from error


def _complain(message: str, code: int) -> int:
    print(f"calibrate: {message}", file=sys.stderr)
    return code


def _calibrate(out: str, count: int, options: argparse.Namespace) -> Json:
    os.makedirs(out)
    answer = {"ttft_ms": TTFT_MS, "gap_ms": options.gap_ms}
    log = os.path.join(out, "server.jsonl")
    pid, port = _serve(parse_script({"schema": 1, "answer": answer}), log)
    try:
        spec = parse_spec(
            spec_from_options(
                {
                    "url": f"http://127.0.0.1:{port}",
                    "model": "reference",
                    "isl": ISL,
                    "osl": options.tokens,
                    "concurrency": count,
                    "num_prompts": count * options.waves,
                }
            )
        )
        run = Run(spec, parse_target(spec.url, spec.endpoint), None, out)
        run.execute()
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
    if run.client["status"] != "ok" or run.client["counts"]["ok"] != count * options.waves:
        reasons = run.client["reasons"] or [first for _, first in run.errors.values()]
        raise WriteError(f"the load with {count} streams failed: {'; '.join(reasons)}")
    ttft, gaps, late = read_errors(os.path.join(out, "requests.jsonl"), log, run.client)
    window = sum(item["end_ns"] - item["start_ns"] for item in run.client["segments"]) / 1e9
    return {
        "concurrency": count,
        "gap_ms": options.gap_ms,
        "requests": len(ttft),
        "ttft_error_ms": _spread(ttft),
        "gap_error_ms": _spread([abs(gap) for gap in gaps]) if gaps else None,
        "server_late_ms": _spread(late),
        "client_cpu_share": round(run.client["cpu_s"] / window, 3),
        "client_lag_ms": run.client["max_lag_ms"],
        "load_average": round(os.getloadavg()[0], 2),
    }


def _serve(script: Script, log: str) -> Tuple[int, int]:
    """Fork a reference server; returns its pid and port."""
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        with os.fdopen(read, encoding="ascii") as pipe:
            said = pipe.read()
        if not said:
            os.waitpid(pid, 0)
            raise WriteError("the reference server did not start")
        return pid, int(said)
    code = 1
    try:
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
        ttft, gap = row["ttft_error_ms"], row["gap_error_ms"]
        gaps = "-" if gap is None else f"{gap['p99']:.2f} / {gap['max']:.2f}"
        errors = f"{ttft['p50']:.2f} / {ttft['p99']:.2f} / {ttft['max']:.2f}"
        cpu = f"{row['client_cpu_share']:.0%}"
        lines.append(
            f"{row['concurrency']:>7}  {errors:>30}  {gaps:>22}  {cpu:>10}  {row['load_average']}"
        )
    return lines

"""`collect --spec FILE`: sample telemetry on a node until told to stop.

Spec (JSON): `{"schema": 1, "out": DIR, "node": NAME, "ready_file": FILE, "collectors": [...]}` and
optionally `"renew": FILE`, a heartbeat that is touched while sampling goes on, `"until": FILE`,
whose appearance ends it as SIGTERM does, `"server": {"pids": [...], "gone_s": N}`, whose end ends
it N seconds later, `"max_s": N`, after which it ends in any case, and `"load_id": TEXT`, which
its record repeats.
Collectors are of kind `proc` (root_pids, interval_s), `http` (url, interval_s), `files` (paths,
which are glob patterns, interval_s), `command` (argv, and `otherwise`: more of them, for tools
that do not know every option; each is tried where the one before it ended without a second line),
`poll` (argv, run again for each sample, interval_s; `each`: `interfaces` for a call per network
interface, named by `{each}`; `any_status`: its exit status says nothing) and `log` (path). Of the
last two `keep` are words of which a line that is kept has one. In an argv `{pids}` stands for the
process tree below `pids`, by commas, and `{pid}` for a word of each; a collector with `unless`
gives way to that program.
One whose program or files are not on the node ends as `absent`. Each writes OUT/NAME.jsonl; every
line carries t_ns (epoch) and mono_ns. The ready file holds one instant on both clocks, from which
the lines' times can be rebuilt after a step of the first. OUT/collect.events.jsonl tells of those
that ended by themselves (`exited`) and whose tool failed in several runs in a row (`failing`).
SIGTERM takes one last sample of the polled ones; then all that their tools started is ended, and
OUT/collectors.json is written last.
"""

import argparse
import ctypes
import os
import resource
import select
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any, Dict, List

from .clock import epoch_ns
from .collector import Collector, Sink, check_collectors
from .files import read_spec, write_json_atomic
from .load_clock import Anchor, take_anchor
from .reaping import stop_all
from .supervise import PR_SET_CHILD_SUBREAPER
from .watched import Watched

SPEC_KEYS = {"out": str, "node": str, "ready_file": str, "collectors": list}
# A collector that does not end in this time after a stop is recorded as failed. What any of them
# left is ended after that, in AFTER_KILL_S at most.
STOP_S = 12.0


def catch_stop() -> int:
    """Return a file descriptor that turns readable when we are told to stop."""
    readable, writable = os.pipe()
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return readable


def watch(collectors: List[Collector], spec: Dict[str, Any], told: int, anchor: Anchor) -> None:
    """Return when it is time to end; keep the ready file, the heartbeat and the early ends."""
    deadline_s = time.monotonic() + spec.get("max_s", float("inf"))
    server = Watched(**spec.get("server", {"pids": [], "gone_s": 0.0}))
    events = Sink(os.path.join(spec["out"], "collect.events.jsonl"))
    reported = set()
    failing = set()
    ready = False
    while True:
        if not ready and all(collector.sampled.is_set() for collector in collectors):
            write_json_atomic(
                spec["ready_file"],
                {"pid": os.getpid(), "t_ns": anchor.wall_ns, "mono_ns": anchor.mono_ns},
            )
            ready = True
        for collector in collectors:
            if not collector.thread.is_alive() and collector.name not in reported:
                reported.add(collector.name)
                tell(events, collector.record["ended_ns"], collector, "exited")
            elif collector.failing is not None and collector.name not in failing:
                failing.add(collector.name)
                tell(events, epoch_ns(), collector, "failing")
        if time.monotonic() > deadline_s or server.gone():
            break
        if "renew" in spec:
            renew(spec["renew"])
        if "until" in spec and ready and os.path.exists(spec["until"]):
            break
        if select.select([told], [], [], 0.5 if ready else 0.02)[0]:
            break
    events.close()


def tell(events: Sink, t_ns: int, collector: Collector, event: str) -> None:
    """Write down that a collector ended by itself, or that its tool goes on failing."""
    error = collector.record["error"] if event == "exited" else collector.failing
    events.write({"t_ns": t_ns, "collector": collector.name, "event": event, "error": error})


def renew(path: str) -> None:
    """Touch a heartbeat, so that what is measured outlives a controller that died."""
    with suppress(OSError):
        os.utime(path)


def cpu_s() -> float:
    """Return the CPU seconds used so far by this process and by its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def summary(
    spec: Dict[str, Any], collectors: List[Collector], used_s: float, wall_s: float, step_ns: int
) -> Dict[str, Any]:
    """Return the contents of collectors.json.

    `self` is the cost of collecting itself, `clock.step_ns` how far the node's clock was set while
    they ran.
    """
    return {
        "schema": 1,
        "node": spec["node"],
        "load_id": spec.get("load_id"),
        "self": {"cpu_s": used_s, "wall_s": wall_s},
        "clock": {"step_ns": step_ns},
        "collectors": {collector.name: collector.record for collector in collectors},
    }


def collect(spec: Dict[str, Any]) -> int:
    """Run the collectors of a spec until a stop; 0, whatever became of single collectors."""
    started_s, started_cpu_s = time.monotonic(), cpu_s()
    anchor = take_anchor()
    told = catch_stop()
    # What a tool left behind becomes our child, whatever session it moved to.
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    os.makedirs(spec["out"], exist_ok=True)
    stop = threading.Event()
    collectors = [Collector(one, spec["out"], stop) for one in spec["collectors"]]
    for collector in collectors:
        collector.thread.start()
    try:
        watch(collectors, spec, told, anchor)
    finally:
        stop.set()
        deadline_s = time.monotonic() + STOP_S
        for collector in collectors:
            collector.thread.join(max(0.0, deadline_s - time.monotonic()))
            if collector.thread.is_alive():
                collector.record.update(status="failed", error="did not end when told to stop")
        stop_all(os.getpid(), 0.0)
        path = os.path.join(spec["out"], "collectors.json")
        used_s, wall_s = cpu_s() - started_cpu_s, time.monotonic() - started_s
        step_ns = take_anchor().epoch_ns - anchor.epoch_ns
        write_json_atomic(path, summary(spec, collectors, used_s, wall_s, step_ns))
    return 0


def main(argv: List[str]) -> int:
    """Run `collect --spec FILE`; 2 on a bad spec, 3 when results cannot be written."""
    parser = argparse.ArgumentParser(prog="collect")
    parser.add_argument("--spec", required=True)
    arguments = parser.parse_args(argv)
    try:
        spec = read_spec(arguments.spec, SPEC_KEYS)
        check_collectors(spec["collectors"])
    except ValueError as error:
        print("collect: %s" % error, file=sys.stderr)
        return 2
    try:
        return collect(spec)
    except OSError as error:
        print("collect: %s" % error, file=sys.stderr)
        return 3

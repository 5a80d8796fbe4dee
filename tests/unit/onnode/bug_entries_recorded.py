"""Public bug reports about telemetry, NCCL and resuming, each met by a parser or a record.

The inputs are made up after the reports; recorded samples of the same kinds are in the tests of the
corpus. Entries are added to those of `bug_entries.py`.
"""

import json
from pathlib import Path
from typing import Any

from bug_entries import entry

from servemap.analysis.summary import summarize
from servemap.model.attempts import read_records, state, token
from servemap.parsers.jsonl import parse_jsonl
from servemap.parsers.kinds import parse
from servemap.parsers.proc import parse_proc
from servemap.parsers.records import Sample
from servemap.parsers.series import series_of
from servemap.telemetry.align import Segment, align
from servemap.telemetry.clock import NodeClock
from tests.plain_align import rows_of
from tests.samples import samples

S = 10**9


def read(kind: str, *lines: str) -> dict[str, Any]:
    return parse(kind, "".join(f"{line}\n" for line in lines).encode()).data


@entry(
    "C23",
    "utkuozdemir/nvidia_gpu_exporter#68, netdata/netdata#4892, microsoft/pai#949",
    "cells of [N/A], N/A, [Not Supported], [Unknown Error] and [GPU is lost] beside numbers",
    "null in that cell, every other cell kept",
)
def _(_folder: Path) -> str:
    heading = "index, uuid, utilization.gpu [%], memory.used [MiB], power.draw [W]"
    words = ("[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[GPU is lost]")
    lines = [f"{k}, GPU-{k}, {word}, 512 MiB, 70.50 W" for k, word in enumerate(words)]
    rows = read("nvidia-smi-csv", heading, *lines)["rows"]
    assert [row["utilization_gpu_percent"] for row in rows] == [None] * len(words)
    assert {row["memory_used_bytes"] for row in rows} == {512 * 2**20}
    assert {row["power_draw_watts"] for row in rows} == {70.5}
    dmon = read("nvidia-smi-dmon", "# gpu   pwr gtemp    sm", "# Idx     W     C     %",
                "    0     -    40   N/A", "    1    75    41    10")["rows"]  # fmt: skip
    assert [(row["pwr_watts"], row["sm_percent"]) for row in dmon] == [(None, None), (75, 10)]
    return f"{len(words)} spellings null, {3 * len(words)} cells beside them kept; dmon the same"


@entry(
    "C25",
    "guilbaults/slurm-job-exporter#53",
    "DCGM's blank codes of int32, int64 and float64, each with its reasons, as a utilisation",
    "missing, not 9.2e18 or 1.4e16 percent",
)
def _(_folder: Path) -> str:
    blanks = [0x7FFFFFF0, 0x7FFFFFF3, 0x7FFFFFFFFFFFFFF0, 0x7FFFFFFFFFFFFFF3, 140737488355328.0]
    lines = [
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="{k}",UUID="GPU-{k}"}} {blank}'
        for k, blank in enumerate([*blanks, "9.223372036854776e+18", 97])
    ]
    entities = read("dcgm-exporter", *lines)["entities"]
    found = [one["fields"]["gpu_util_percent"] for one in entities]
    assert found == [None] * 6 + [97]
    return "6 codes null, 97 % kept"


@entry(
    "C26",
    "NVIDIA/dcgm-exporter#662, #700, NVIDIA/gpu-monitoring-tools#189",
    "GR_ENGINE_ACTIVE and SM_ACTIVE 0 while GPU_UTIL is 99; beside it an idle and a counting GPU",
    "a contradiction that names the fields; they are missing, not 0; true zeros stay",
)
def _(_folder: Path) -> str:
    def scrape(gpu: int, busy: int, active: float) -> list[str]:
        labels = f'{{gpu="{gpu}",UUID="GPU-{gpu}"}}'
        return [
            f"DCGM_FI_DEV_GPU_UTIL{labels} {busy}",
            f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{labels} {active}",
            f"DCGM_FI_PROF_SM_ACTIVE{labels} {active}",
            f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{labels} 0",
        ]

    data = read("dcgm-exporter", *scrape(0, 99, 0), *scrape(1, 0, 0), *scrape(2, 99, 0.8))
    stuck, idle, counting = (one["fields"] for one in data["entities"])
    names = ["gr_engine_active_ratio", "sm_active_ratio", "pipe_tensor_active_ratio"]
    assert data["contradictions"] == [{"at": 0, "fields": names}]
    assert [stuck[name] for name in names] == [None] * 3
    assert [idle[name] for name in names] == [0] * 3
    assert [counting[name] for name in names] == [0.8, 0.8, 0]
    dmon = read("dcgmi-dmon", "#Entity GPUTL GRACT SMACT", "GPU 0 99 0.000 0.000",
                "GPU 0 3 0.000 0.000")  # fmt: skip
    assert [row["gract_ratio"] for row in dmon["rows"]] == [None, 0]
    series = read("dcgm-csv", "timestamp,DCGM_FI_DEV_GPU_UTIL,DCGM_FI_PROF_GR_ENGINE_ACTIVE",
                  *(f"{1_700_000_000 + 60 * k},99,0" for k in range(11)))  # fmt: skip
    assert len(series["contradictions"]) == 11
    return "1 of 3 GPUs named, its 3 fields null; 10 min as csv: 11 of 11 rows"


@entry(
    "C28",
    "SemiAnalysisAI/InferenceX#1574",
    "2 nodes x 8 GPUs, sampled once a second, their clocks 300 ms apart",
    "16 GPUs, by what names them and not by rows a moment; the offset is taken off",
)
def _(_folder: Path) -> str:
    segment = [Segment("main", 0, 10 * S)]
    rows = []
    for node, offset in (("a", 0), ("b", 300 * 10**6)):
        samples = [
            Sample(t * S + offset, None, f"gpu{gpu}", "power", "watts", 100.0)
            for t in range(10)
            for gpu in range(8)
        ]
        clock = NodeClock(offset_ns=offset)
        rows += rows_of(align(node, "gpus", series_of(samples), clock, segment))
    assert len({(row.node, row.entity) for row in rows}) == 16
    assert len({row.t_ns for row in rows}) == 10
    watts = sum(row.value for row in rows) / 10
    assert watts == 1600.0
    heading = "timestamp, index, uuid, power.draw [W]"
    half = [f"2031/01/02 03:04:0{t}.{gpu}00, {gpu}, GPU-{gpu}, 100.00 W"
            for t in range(3) for gpu in range(8)]  # fmt: skip
    assert read("nvidia-smi-csv", heading, *half)["gpus"] == 8
    return "16 GPUs, 1600 W of 16 x 100 W; 10 moments of 20; one node's csv with 24 times: 8 GPUs"


@entry(
    "C29",
    "hubblo-org/scaphandre#441, polarsignals/gpu-metrics-agent#36",
    "the wall clock steps back by an hour; two samples 10 ms apart; times since boot in a csv",
    "rates over the monotonic clock; no rate over 10 ms; no data in 1970",
)
def _(_folder: Path) -> str:
    def line(mono_s: float, wall_s: float, received: int) -> dict[str, Any]:
        net = {"eth0": [received, 0, 0, 0, 0, 0, 0, 0]}
        return {"t_ns": int(wall_s * S), "mono_ns": int(mono_s * S), "net": net}

    lines = [line(10, 5000, 0), line(11, 1401, 1000), line(11.01, 1401.01, 1500),
             line(12, 1402, 2000), line(12, 1402, 9000)]  # fmt: skip
    text = "".join(json.dumps(one) + "\n" for one in lines).encode()
    found = samples(parse_proc(parse_jsonl(text).lines, 1.0))
    rates = [one.value for one in found if one.metric == "net_rx"]
    assert rates == [1000.0, 1000.0]
    csv = parse("dcgm-csv", b"timestamp,DCGM_FI_DEV_POWER_USAGE\n86400.5,300\n1700000000,300\n")
    assert len(csv.data["rows"]) == 1
    assert csv.skipped[0].reason == "no time that can be placed"
    return "1000 and 1000 bytes/s, none over 10 or 0 ms; the time since boot is refused with a line"


DEVICE = "#  Rank  {rank} Group  0 Pid {pid} on head01 device  {rank} [0x00] Made-up GPU"


@entry(
    "D31",
    "NVIDIA/nccl-tests#107, #294, #71",
    "two processes without MPI that each print rank 0; the same told apart by mpirun; one GPU",
    "not distributed",
)
def _(_folder: Path) -> str:
    start = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20"
    row = "8 2 float sum -1 5.00 0.00 0.00 0 5.00 0.00 0.00 0"
    ranks = [DEVICE.format(rank=0, pid=pid) for pid in (10, 11)]
    mixed = read("nccl-tests", start, start, *ranks, row, row)["runs"]
    tagged = [f"[1,{k}]<stdout>:{line}" for k in (0, 1) for line in (start, ranks[k], row)]
    apart = read("nccl-tests", *tagged)["runs"]
    said = [(run["ranks"], run["duplicate_ranks"], run["distributed"]) for run in mixed + apart]
    assert said == [(1, [0], False), (1, [], False), (1, [], False)]
    whole = [DEVICE.format(rank=rank, pid=10 + rank) for rank in (0, 1)]
    (good,) = read("nccl-tests", start, *whole, row)["runs"]
    assert (good["ranks"], good["distributed"]) == (2, True)
    return "rank 0 twice: not distributed; 2 runs of 1 rank: not distributed; 2 ranks: distributed"


@entry(
    "D32",
    "NVIDIA/nccl-tests#78",
    "error 1e+00 in place and 1e-07 out of place, the summary says 0 OK; the same with #wrong",
    "in place is wrong at that size, apart from out of place; the summary is contradicted",
)
def _(_folder: Path) -> str:
    device = DEVICE.format(rank=0, pid=10)
    old = "# size count type redop time algbw busbw error time algbw busbw error"
    new = old.replace("error", "#wrong")
    end = "# Out of bounds values : 0 OK"
    wanted: dict[str, Any] = {"out_of_place": [], "in_place": [64]}
    for heading, good, bad in ((old, "1e-07", "1e+00"), (new, "0", "3")):
        fine = f"32 8 float sum 5.0 0.01 0.01 {good} 5.0 0.01 0.01 {good}"
        row = f"64 16 float sum 5.0 0.01 0.01 {good} 5.0 0.01 0.01 {bad}"
        (run,) = read("nccl-tests", device, heading, fine, row, end)["runs"]
        assert run["wrong_at_bytes"] == wanted
        assert (run["out_of_bounds"], run["summary_contradicted"]) == (0, True)
        (run,) = read("nccl-tests", device, heading, fine, end)["runs"]
        assert run["summary_contradicted"] is False
    unchecked = "64 16 float sum 5.0 0.01 0.01 N/A 5.0 0.01 0.01 N/A"
    (run,) = read("nccl-tests", device, new, unchecked)["runs"]
    assert run["wrong_at_bytes"] == {"out_of_place": None, "in_place": None}
    return "in place wrong at 64 bytes, out of place at none, summary contradicted; N/A: not known"


@entry(
    "D34",
    "llm-d/llm-d-benchmark#250, bnnr-team/bnnr#204, hyunhwan-bcm/MARRVEL_MCP#315, "
    "issp-center-dev/H-wave#68",
    "a complete record, a cut one, one that failed, one of another configuration; 2 experiments "
    "appended to one file",
    "only the first is skipped; failed ones are tried up to a limit; a repeat has one row",
)
def _(folder: Path) -> str:
    def record(name: str, *texts: str) -> tuple[str, int]:
        for number, text in enumerate(texts, start=1):
            path = folder / name / f"{number:03d}" / "meta.json"
            path.parent.mkdir(parents=True)
            path.write_text(text)
        records = read_records(folder / name)
        return state(records, "this", 2), token(records, "this", 2)

    def meta(status: str, spec: str = "this", number: int = 1) -> str:
        return json.dumps({"schema": 1, "status": status, "spec_sha256": spec, "token": number})

    said = {
        "complete": record("complete", meta("ok")),
        "cut": record("cut", meta("ok")[:-9]),
        "failed": record("failed", meta("failed")),
        "failed twice": record("twice", meta("failed"), meta("failed", number=2)),
        "other": record("other", meta("ok", "that")),
        "none": record("none"),
    }
    assert said == {
        "complete": ("done", 1),
        "cut": ("damaged", 2),
        "failed": ("failed", 2),
        "failed twice": ("gave_up", 2),
        "other": ("changed", 2),
        "none": ("missing", 1),
    }
    attempts = folder / "run/cases/baseline/c/r1"
    attempts.mkdir(parents=True)
    (attempts / "meta.json").write_text(meta("failed", number=2))
    rows = summarize(folder / "run", [{"variant": "baseline", "case": "c", "repeat": 1}])
    assert [(row["case"], row["status"]) for row in rows] == [("c", "failed")]

    def line(rate: int, dataset: str) -> str:
        return json.dumps({"request_rate": rate, "dataset_name": dataset, "completed": 9})

    two = [line(4, "random"), line(8, "random"), line(4, "sharegpt"), line(4, "sharegpt")]
    repeated = read("bench-result", *two)["repeated"]
    assert [(one["request_rate"], one["at"], one["differ_in"]) for one in repeated] == [
        (4, [0, 2, 3], ["dataset_name"])
    ]
    states = "; ".join(f"{name}: {word[0]}" for name, word in said.items())
    return f"{states}; one row; rate 4 three times, of 2 data sets"

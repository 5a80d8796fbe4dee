"""Every collector's raw lines give the same samples as columns and one by one, damage included."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servemap.parsers.jsonl import JsonLine
from servemap.parsers.proc import parse_proc
from servemap.parsers.prometheus import parse_scrapes
from servemap.parsers.readings import parse_raw
from servemap.parsers.records import Sample
from servemap.telemetry.catalogue import catalogue
from servemap.telemetry.collectors import Collector
from tests.plain_readings import plain_counters, plain_samples, plain_scrapes
from tests.samples import samples

S = 1_000_000_000
MADE = Path(__file__).parent / "made"
ROUNDS = 12
# Where the kind's made-up texts are not what the collector asks for, or there is none.
TEXTS = {
    "nvidia_smi": """\
index, utilization.gpu [%], memory.used [MiB], power.draw [W], temperature.memory, pstate, \
clocks_event_reasons.sw_power_cap, ecc.errors.corrected.volatile.total
0, 97 %, 32362 MiB, 627.40 W, 440, P0, Active, 1200
1, 12 %, 32362 MiB, [N/A], N/A, P8, Not Active, 3400
""",
    "amd_smi": json.dumps(
        [
            {
                "gpu": gpu,
                "usage": {"gfx_activity": {"value": 970, "unit": "%"}},
                "ecc": {"total_correctable_count": 1200, "total_uncorrectable_count": 300},
            }
            for gpu in (0, 1)
        ]
    ),
    "nvidia_pmon": """\
# gpu         pid   type     sm    mem    enc    dec    fb    command
# Idx           #    C/G      %      %      %      %    MB    name
    0      47110     C     97     41      -      -   700    python3
    1      47111   C+G     12     10      -      -   800    gpu burn
""",
    "pressure": "/proc/pressure/cpu:some avg10=1.00 avg60=0.50 avg300=0.10 total=5150\n"
    "/proc/pressure/io:full avg10=0.00 avg60=0.00 avg300=0.00 total=1213\n",
    "numa": "".join(
        f"/sys/devices/system/node/node{node}/numastat:{name} {count}\n"
        for node in (0, 1)
        for name, count in (("numa_hit", 987654), ("numa_miss", 120), ("local_node", 5555))
    ),
    "tcp": "/proc/net/snmp:Tcp: InSegs OutSegs RetransSegs\n/proc/net/snmp:Tcp: 500 600 70\n"
    "/proc/net/netstat:TcpExt: TCPTimeouts ListenDrops\n/proc/net/netstat:TcpExt: 30 40\n",
}
READ = {name: one for name, one in catalogue().items() if one.reading is not None}


def texts(name: str, collector: Collector) -> list[str]:
    if name in TEXTS:
        return [TEXTS[name]]
    found = [path.read_text() for path in sorted(MADE.glob(f"{collector.parser}.*"))]
    assert found, f"there is no text of {collector.parser}"
    return found


def moved(said: str, draw: random.Random) -> str:
    """Return a text whose counts grew, and now and then fell; numbers of entities stay."""
    by = draw.choice((0, 1, 30, 30, 30, -20))
    return re.sub(
        r"(?<![\w.:/-])[1-9][0-9]{2,}(?![\w:/-])",
        lambda found: str(max(int(found[0]) + by * draw.randrange(4), 0)),
        said,
    )


def rounds(name: str, collector: Collector, draw: random.Random) -> Iterator[list[str]]:
    """Yield what comes together: lines of a tool that prints on, else one whole text."""
    said = draw.choice(texts(name, collector))
    for _ in range(ROUNDS):
        said = moved(said, draw)
        whole = said if draw.random() < 0.8 else said[: draw.randrange(len(said))]
        if collector.kind in ("command", "log"):
            lines = whole.split("\n")
            if draw.random() < 0.2:
                lines.insert(draw.randrange(len(lines)), "a message, 12 of\x1b[0m 13 words\r")
            yield lines
        else:
            yield [whole]


def raw(name: str, collector: Collector, seed: int) -> list[JsonLine]:
    """Return raw lines: late ones, too early ones, a clock that was set, and broken records."""
    draw = random.Random(f"{name} {seed}")
    records: list[dict[str, Any]] = []
    now = 5 * S
    for said in rounds(name, collector, draw):
        now += draw.choice((S, S, S, S, 4 * S, S // 100, -3 * S))
        for one in said:
            now += draw.randrange(S // 1000)
            record: dict[str, Any] = {"t_ns": 1_800_000_000 * S + now, "mono_ns": now}
            record |= {"line": one} if collector.kind in ("command", "log") else {"text": one}
            if name == "ethtool":
                record["of"] = draw.choice(("eth0", "eth1"))
            if draw.random() < 0.03:
                record |= draw.choice(({"t_ns": None}, {"mono_ns": 1.5}, {"line": 1, "text": 2}))
            records.append(record)
    return [JsonLine(line, json.loads(json.dumps(one))) for line, one in enumerate(records, 1)]


def by_series(found: list[Sample]) -> dict[tuple[str, str], list[Sample]]:
    series: dict[tuple[str, str], list[Sample]] = {}
    for sample in found:
        own = series.setdefault((sample.entity, sample.metric), [])
        own.append(sample._replace(value=float(sample.value)))
    return {
        place: sorted(own, key=lambda one: (one.t_ns, one.value)) for place, own in series.items()
    }


@pytest.mark.parametrize("name", READ)
def test_columns_hold_what_single_samples_say(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = READ[name]
    assert collector.reading is not None
    count = rates = 0
    for seed in range(8):
        # How many rows become an array at once.
        monkeypatch.setattr("servemap.parsers.sampler.PENDING", 1 + seed)
        lines = raw(name, collector, seed)
        wanted = plain_samples(lines, 1.0, collector.reading)
        found = samples(parse_raw(iter(lines), 1.0, collector.reading).parsed)
        assert by_series(found) == by_series(wanted)
        count += len(found)
        rates += any(one.from_ns is not None for one in found)
    assert count > 20, "the texts say nothing"
    if any(field.counter or field.over for field in collector.reading.fields):
        assert rates, "no rate was compared"


def snapshots(draw: random.Random) -> list[JsonLine]:
    """Return `proc` lines of cores and interfaces that come, go, are reset and are damaged."""
    records = []
    now, ticks = 5 * S, 0
    for _ in range(40):
        now += draw.choice((S, S, S, S, 4 * S, S // 100, -3 * S))
        ticks += draw.choice((0, 100, 100, 100, -50))
        cpu: dict[str, Any] = {
            f"cpu{core}": [ticks * one + draw.randrange(9) for one in range(8)]
            for core in range(draw.choice((3, 3, 3, 2)))
        }
        net: dict[str, Any] = {"lo": [ticks] * 8, f"veth{draw.randrange(3)}": [now] * 8}
        if draw.random() < 0.2:
            damaged = (
                None,
                [1] * 7,
                [True] * 8,
                [1, None] + [2] * 7,
                "x",
                [10**400] * 8,
                [1.5] * 8,
            )
            draw.choice((cpu, net))["cpu0"] = draw.choice(damaged)
        record = {"t_ns": 1_800_000_000 * S + now, "mono_ns": now, "cpu": cpu, "net": net}
        records.append(record if draw.random() < 0.95 else {**record, "cpu": 3, "mono_ns": None})
    return [JsonLine(line, one) for line, one in enumerate(records, 1)]


@pytest.mark.parametrize("pending", [1, 3, 512])
def test_counters_of_proc_are_the_same_whenever_they_become_arrays(
    pending: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("servemap.parsers.grown.PENDING", pending)
    for seed in range(20):
        lines = snapshots(random.Random(seed))
        wanted = by_series(plain_counters(lines, 1.0))
        assert by_series(samples(parse_proc(iter(lines), 1.0))) == wanted
        assert wanted


PAGE = """\
# HELP vllm:num_requests_running Running.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a } b"} 2.0
vllm:num_requests_running{engine="1",model_name="a } b"} 120
# TYPE vllm:prompt_tokens counter
vllm:prompt_tokens_total{model_name="a } b"} 1000.0
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{le="1"} 100
vllm:e2e_request_latency_seconds_bucket{le="+Inf"} 200
vllm:e2e_request_latency_seconds_sum 123.5
vllm:e2e_request_latency_seconds_count 200
process_start_time_seconds 1.8e+09
odd_total 17
"""
ODD = [
    "NaN",
    "+Inf",
    "1_0",
    "x",
    "5 1800000000000",
    '7 # {trace="x"} 1.0',
    "",
    "12345678901234567890",
]


def test_scrapes_that_are_read_by_their_form_say_the_same() -> None:
    odd = 0
    for seed in range(60):
        draw = random.Random(seed)
        records = []
        now, page = 5 * S, PAGE
        for _ in range(10):
            now += draw.choice((S, S, S, S, 4 * S, S // 100, -3 * S))
            page = moved(page, draw)
            said = page.split("\n")
            if draw.random() < 0.3:
                at = draw.randrange(len(said) - 1)
                said[at] = said[at].rpartition(" ")[0] + " " + draw.choice(ODD)
                odd += 1
            if draw.random() < 0.2:
                del said[draw.randrange(len(said))]
            text = "\n".join(said)
            records.append({"t_ns": 1_800_000_000 * S + now, "mono_ns": now, "text": text})
        lines = [JsonLine(line, one) for line, one in enumerate(records, 1)]
        found = [one._replace(unit="") for one in samples(parse_scrapes(iter(lines), 1.0))]
        wanted = plain_scrapes(lines, 1.0)
        assert by_series(found) == by_series(wanted)
        assert wanted
    assert odd

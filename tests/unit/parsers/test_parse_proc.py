import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.parsers.jsonl import JsonLine
from servemap.parsers.proc import parse_proc, process_names
from tests.samples import samples

S = 1_000_000_000


def line(second, **changes):
    ticks = 100 * second
    record = {
        "t_ns": (1_000_000 + second) * S,
        "mono_ns": (50 + second) * S,
        "hz": 100,
        "page": 4096,
        "cpu": {
            "cpu0": [ticks * 0.5, 0, ticks * 0.25, ticks * 0.25, 0, 0, 0, 0],
            "cpu1": [0, 0, 0, ticks * 0.9, ticks * 0.1, 0, 0, 0],
        },
        "mem": {"MemTotal": 100, "MemAvailable": 40, "SwapTotal": 10, "SwapFree": 8},
        "net": {"eth0": [1000 * second, 2 * second, 0, 0, 500 * second, second, 0, 0]},
        "procs": [process(42, second), process(43, second)],
        "ctxt": 7 * second,
        "load": [1.5, 1, 1],
    }
    record.update(changes)
    return record


def process(pid, second, start=7, **changes):
    record = {
        "pid": pid,
        "ppid": 1,
        "comm": "llama",
        "start": start,
        "utime": 40 * second,
        "stime": 10 * second,
        "threads": 3,
        "rss_pages": 10,
        "vcsw": 20 * second,
        "ivcsw": 2 * second,
    }
    record.update(changes)
    return record


def parse(*records, interval=1.0):
    return parse_proc([JsonLine(n, r) for n, r in enumerate(records, 1)], interval)


def values(parsed, entity, metric):
    return [s.value for s in samples(parsed) if (s.entity, s.metric) == (entity, metric)]


def test_rates_come_from_counters_over_the_monotonic_clock():
    parsed = parse(line(0), line(2))
    assert values(parsed, "cpu0", "cpu_util") == [75.0]
    assert values(parsed, "cpu1", "cpu_util") == [0.0]
    assert values(parsed, "cpu1", "cpu_iowait") == [10.0]
    assert values(parsed, "cpu_all", "cpu_util") == [37.5]
    assert values(parsed, "eth0", "net_rx") == [1000.0]
    assert values(parsed, "eth0", "net_tx") == [500.0]
    assert values(parsed, "pid:42", "proc_cpu") == [50.0]
    assert values(parsed, "server", "proc_cpu") == [100.0]
    assert values(parsed, "server", "proc_voluntary_switches") == [40.0]
    assert values(parsed, "system", "context_switches") == [7.0]


def test_gauges_are_there_from_the_first_sample():
    parsed = parse(line(0))
    assert values(parsed, "memory", "mem_used") == [60 * 1024]
    assert values(parsed, "memory", "swap_used") == [2 * 1024]
    assert values(parsed, "server", "proc_rss") == [2 * 10 * 4096]
    assert values(parsed, "server", "proc_threads") == [6.0]
    assert values(parsed, "system", "load1") == [1.5]
    assert values(parsed, "cpu0", "cpu_util") == []


def test_a_rate_spans_its_interval_and_carries_its_end():
    rate = next(s for s in samples(parse(line(0), line(2))) if s.metric == "cpu_util")
    assert (rate.from_ns, rate.t_ns) == (1_000_000 * S, 1_000_002 * S)


def test_a_stepped_wall_clock_changes_no_rate():
    later = line(2, t_ns=999_000 * S)
    assert values(parse(line(0), later), "eth0", "net_rx") == [1000.0]


def cores(second, **ticks):
    return line(second, cpu={core: [*own, 0, 0, 0] for core, own in ticks.items()})


def test_iowait_may_run_backwards_and_its_core_stays_in_the_whole():
    parsed = parse(
        cores(0, cpu0=[0, 0, 0, 0, 0], cpu1=[0, 0, 0, 0, 50]),
        cores(1, cpu0=[100, 0, 0, 0, 0], cpu1=[0, 0, 0, 100, 40]),
    )
    assert values(parsed, "cpu1", "cpu_util") == [0.0]
    assert values(parsed, "cpu_all", "cpu_util") == [50.0]
    assert values(parsed, "cpu1", "cpu_iowait") == [0.0]


def test_all_cores_are_not_known_without_one_that_was_reset():
    parsed = parse(
        cores(0, cpu0=[0, 0, 0, 0, 0], cpu1=[9, 0, 0, 50, 0]),
        cores(1, cpu0=[100, 0, 0, 0, 0], cpu1=[0, 0, 0, 100, 0]),
        cores(2, cpu0=[150, 0, 0, 50, 0], cpu1=[0, 0, 0, 200, 0]),
    )
    assert values(parsed, "cpu0", "cpu_util") == [100.0, 50.0]
    assert values(parsed, "cpu1", "cpu_util") == [0.0]
    assert values(parsed, "cpu_all", "cpu_util") == [25.0]


def test_a_counter_that_ran_backwards_is_missing_not_negative():
    reset = line(1, net={"eth0": [0, 0, 0, 0, 0, 0, 0, 0]})
    parsed = parse(line(0, net={"eth0": [9, 9, 0, 0, 9, 9, 0, 0]}), reset, line(2))
    assert values(parsed, "eth0", "net_rx") == [2000.0]


def test_a_reused_pid_starts_anew():
    other = line(1, procs=[process(42, 100, start=8)])
    parsed = parse(line(0), other)
    assert values(parsed, "pid:42", "proc_cpu") == []
    assert values(parsed, "server", "proc_cpu") == []
    assert len(values(parsed, "pid:42", "proc_rss")) == 2


def test_server_rate_covers_the_processes_that_lived_through_the_interval():
    grown = line(1, procs=[process(42, 1), process(44, 1)])
    assert values(parse(line(0), grown), "server", "proc_cpu") == [50.0]


def test_a_sample_right_after_another_is_no_interval():
    soon = copy.deepcopy(line(1))
    soon["mono_ns"] += S // 100
    soon["t_ns"] += S // 100
    parsed = parse(line(0), line(1), soon, line(2))
    assert values(parsed, "eth0", "net_rx") == [1000.0, 1000.0]
    assert len(parsed.times_ns) == 4


def test_a_reboot_between_samples_gives_no_rate():
    parsed = parse(line(5), line(6, mono_ns=1 * S), line(7, mono_ns=2 * S))
    assert values(parsed, "eth0", "net_rx") == [1000.0]


@pytest.mark.parametrize(
    "damage",
    [
        {"cpu": None},
        {"cpu": {"cpu0": [1, 2]}},
        {"cpu": {"cpu0": ["x"] * 8}},
        {"net": {"eth0": None}},
        {"procs": [None, {"pid": "x"}, {"pid": 1}]},
        {"mem": {"MemTotal": None}},
        {"load": []},
        {"ctxt": None},
    ],
)
def test_a_missing_part_is_missing_and_the_rest_is_kept(damage):
    parsed = parse(line(0), line(1, **damage), line(2))
    assert len(parsed.times_ns) == 3
    assert parsed.skipped == []
    assert all(s.value >= 0 for s in samples(parsed))
    gone = {"cpu": ("cpu0", "cpu_util"), "net": ("eth0", "net_rx")}.get(next(iter(damage)))
    if gone:
        assert values(parsed, *gone) == []


def test_a_line_without_time_is_skipped():
    parsed = parse(line(0, t_ns=None), line(1))
    assert [s.line for s in parsed.skipped] == [1]
    assert len(parsed.times_ns) == 1


def test_process_names():
    lines = [JsonLine(1, line(0)), JsonLine(2, {"procs": [{"pid": 9, "comm": "python"}, 3]})]
    assert list(map(process_names, lines)) == [
        {"pid:42": "llama", "pid:43": "llama"},
        {"pid:9": "python"},
    ]


counter = st.integers(0, 10**9)


@given(st.lists(st.lists(counter, min_size=8, max_size=8), min_size=2, max_size=6))
def test_shares_stay_between_0_and_100_percent(rows):
    records = [line(k, cpu={"cpu0": row}) for k, row in enumerate(rows)]
    parsed = parse(*records)
    for sample in samples(parsed):
        if sample.unit == "percent":
            assert -1e-9 <= sample.value <= 100 + 1e-9


def test_switches_that_were_not_read_cost_no_other_figure() -> None:
    """The sampler writes null where reading them would cost too much: CPU and RSS stay."""
    lines = []
    for index in range(5):
        switches = 100 * index if index % 2 == 0 else None
        process = {
            "pid": 7, "ppid": 1, "comm": "srv", "start": 5, "utime": 10 * index, "stime": 0,
            "threads": 200, "rss_pages": 3, "vcsw": switches, "ivcsw": switches,
        }  # fmt: skip
        record = {
            "t_ns": index * 500_000_000, "mono_ns": index * 500_000_000, "hz": 100, "page": 4096,
            "procs": [process],
        }  # fmt: skip
        lines.append(JsonLine(index + 1, record))
    own = [s for s in samples(parse_proc(lines, 0.5)) if s.entity == "pid:7"]
    by_metric = {m: [s.value for s in own if s.metric == m] for m in {s.metric for s in own}}
    assert by_metric["proc_rss"] == [12288.0] * 5
    assert by_metric["proc_cpu"] == [20.0] * 4
    assert by_metric["proc_voluntary_switches"] == [200.0, 200.0]

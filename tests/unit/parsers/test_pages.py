"""Tools' whole answers over time to samples: rounds, averages, counts, wraps, and damage."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.model.errors import ParseError
from servemap.parsers.jsonl import JsonLine
from servemap.parsers.kernel_counters import parse_numa_nodes, parse_tcp_counters
from servemap.parsers.readings import Readings, parse_raw
from servemap.parsers.records import Sample
from servemap.telemetry.catalogue import catalogue
from tests.corpus import read_sample
from tests.samples import samples

S = 1_000_000_000
T0 = 1_800_000_000 * S


def at(second: float, **content: Any) -> dict[str, Any]:
    return {"t_ns": T0 + round(second * S), "mono_ns": round((7 + second) * S), **content}


def read(name: str, records: list[dict[str, Any]], interval: float = 1.0) -> Readings:
    reading = catalogue()[name].reading
    assert reading is not None
    lines = [JsonLine(number, record) for number, record in enumerate(records, start=1)]
    return parse_raw(lines, interval, reading)


def printed(rounds: list[str], step_s: float = 1.0) -> list[dict[str, Any]]:
    """The lines of each round, a millisecond after one another."""
    return [
        at(number * step_s + place / 1000, line=line)
        for number, text in enumerate(rounds)
        for place, line in enumerate(text.split("\n"))
    ]


def series(found: Readings, entity: str, metric: str) -> list[Sample]:
    return [s for s in samples(found.parsed) if (s.entity, s.metric) == (entity, metric)]


def values(found: Readings, entity: str, metric: str) -> list[float]:
    return [sample.value for sample in series(found, entity, metric)]


BANNER = "Linux 6.8.0 (node-a) \t03/01/26 \t_x86_64_\t(2 CPU)"
CORES = """
04:05:0{n}     CPU    %usr   %nice    %sys    %irq   %soft  %steal  %guest  %gnice   %idle
04:05:0{n}     all   {a}.00    0.00    2.00    0.00    1.00    0.00    0.00    0.00   87.00
04:05:0{n}       1   {b}.50    0.00    2.00    0.00    1.00    0.00    0.00    0.00   87.00"""


def test_a_round_of_mpstat_tells_of_the_time_since_the_one_before() -> None:
    rounds = [BANNER, *(CORES.format(n=n, a=10 * n, b=n) for n in (1, 2, 3))]
    found = read("mpstat", printed(rounds))
    assert found.parsed.skipped == []
    assert values(found, "cpuall", "cpu_user") == [10, 20, 30]
    assert values(found, "cpu1", "cpu_user") == [1.5, 2.5, 3.5]
    # A page is of the time of its first line, behind the blank one.
    stamps = [T0 + n * S + S // 1000 for n in (1, 2, 3)]
    assert found.parsed.times_ns == stamps
    own = series(found, "cpu1", "cpu_softirq")
    assert [(s.from_ns, s.t_ns) for s in own] == [(t - S, t) for t in stamps]


def test_a_round_that_comes_in_two_pieces_is_one() -> None:
    records = printed([CORES.format(n=1, a=1, b=1), CORES.format(n=2, a=2, b=2)])
    late = [{**one, **at(0.9, line=one["line"])} if n == 3 else one
            for n, one in enumerate(records)]  # fmt: skip
    found = read("mpstat", late)
    assert values(found, "cpu1", "cpu_user") == [1.5, 2.5]
    assert found.parsed.skipped == []


def test_a_round_that_is_cut_costs_no_other() -> None:
    cut = CORES.format(n=2, a=2, b=2)[:-60]
    found = read("mpstat", printed([CORES.format(n=1, a=1, b=1), cut, CORES.format(n=3, a=3, b=3)]))
    assert values(found, "cpu1", "cpu_user") == [1.5, 3.5]
    (skipped,) = found.parsed.skipped
    assert skipped.line == 6
    # The interval after it began with the row before it.
    last = series(found, "cpu1", "cpu_user")[-1]
    assert last.from_ns is not None
    assert last.t_ns - last.from_ns == 2 * S


TASKS = """
# Time        UID       PID    %usr %system   %wait   CPU  minflt/s  majflt/s     RSS Command
04:05:01        0      {pid}    {usr}.00    1.00    3.00     1      6.00      0.00   18600 server"""


def test_processes_of_pidstat_have_names() -> None:
    rounds = [TASKS.format(pid=4711, usr=usr) for usr in (150, 250)]
    found = read("pidstat", printed([BANNER, *rounds]))
    assert values(found, "pid:4711", "proc_user") == [150, 250]
    assert values(found, "pid:4711", "proc_wait") == [3, 3]
    assert values(found, "pid:4711", "proc_minor_faults") == [6, 6]
    assert found.names == {"pid:4711": "server"}


PERF = """\
     {t}.000644728,{clock},msec,task-clock,871588,100.00,0.002,CPUs utilized
     {t}.000644728,{switches},,context-switches:u,871588,100.00,2.295,K/sec
     {t}.000644728,<not supported>,,cycles,0,100.00,,
     {t}.000644728,1000,,instructions,871588,100.00,1.25,insn per cycle"""


def test_counts_of_perf_are_divided_by_their_interval() -> None:
    rounds = [PERF.format(t=2, clock=1000, switches=10), PERF.format(t=4, clock=500, switches=30)]
    found = read("perf_stat", printed(rounds, step_s=2.0), interval=2.0)
    # 1000 msec of a core in 2 s, then 500: shares of one core; of the first the interval is asked.
    assert values(found, "server", "perf_cpu") == [50, 25]
    assert values(found, "server", "perf_context_switches") == [5, 15]
    assert values(found, "server", "perf_ipc") == [1.25, 1.25]
    assert values(found, "server", "perf_cycles") == [], "what is not counted is not 0"
    assert len(found.parsed.times_ns) == 2, "lines of one round are one delivery"


def test_a_count_after_one_that_is_missing_is_of_its_own_interval() -> None:
    counts = ["1000", "<not counted>", "1000"]
    rounds = [PERF.format(t=n + 1, clock=count, switches=1) for n, count in enumerate(counts)]
    found = read("perf_stat", printed(rounds))
    assert values(found, "server", "perf_cpu") == [100, 100]
    own = series(found, "server", "perf_cpu")
    assert [s.t_ns - (s.from_ns or 0) for s in own] == [S, S]


ONE = """
Per-node process memory usage (in MBs) for PID 77 (bash)
                           Node 0          Node 1           Total
                  --------------- --------------- ---------------
Heap                         0.25            0.00            0.25
Private                      3.75            1.00            4.75
----------------  --------------- --------------- ---------------
Total                        4.00            1.00            5.00
"""
TWO = """
Per-node process memory usage (in MBs)
PID                        Node 0          Node 1           Total
----------------  --------------- --------------- ---------------
77 (bash)                    4.00            1.00            5.00
78 (my server)               8.00            0.00            8.00
----------------  --------------- --------------- ---------------
Total                       12.00            1.00           13.00
"""


def test_memory_of_processes_by_node() -> None:
    one = read("numa_processes", [at(0, text=ONE)])
    assert values(one, "pid:77/node0", "numa_process_mem") == [4 << 20]
    assert values(one, "pid:77/node1", "numa_process_mem") == [1 << 20]
    two = read("numa_processes", [at(0, text=TWO)])
    assert values(two, "pid:78/node0", "numa_process_mem") == [8 << 20]
    assert {s.entity for s in samples(two.parsed)} == {
        f"pid:{pid}/node{node}" for pid in (77, 78) for node in (0, 1)
    }


def nic(of: str, **counters: int) -> dict[str, Any]:
    lines = "".join(f"     {name}: {count}\n" for name, count in counters.items())
    return {"of": of, "text": f"NIC statistics:\n{lines}"}


def test_counters_of_interfaces_are_named_by_the_driver() -> None:
    def state(second: int, drops: int) -> list[dict[str, Any]]:
        first = nic("eth0", rx_discards_phy=drops, rx_prio3_pause=7, rx_packets=99, rx3_xdp_drop=5)
        return [at(second, **first), at(second + 0.01, **nic("eth1", tx_timeout=drops))]

    found = read("ethtool", [*state(0, 5), *state(2, 9)], interval=2.0)
    assert values(found, "eth0", "eth_rx_discards_phy") == [2]
    assert values(found, "eth0", "eth_rx_prio3_pause") == [0]
    assert values(found, "eth1", "eth_tx_timeout") == [2]
    # Packets are no error, and single queues would drown the rest.
    assert {s.metric for s in samples(found.parsed)} == {
        "eth_rx_discards_phy",
        "eth_rx_prio3_pause",
        "eth_tx_timeout",
    }
    assert found.parsed.times_ns == [T0, T0 + 2 * S]


def test_recorded_pause_frames_of_a_connectx() -> None:
    text = read_sample("hca/011_ethtool_S_prio3_pause.txt").decode()
    later = text.replace("1290418", "1290518")
    found = read("ethtool", [at(0, of="eth0", text=text), at(1, of="eth0", text=later)])
    assert values(found, "eth0", "eth_tx_prio3_pause") == [100]


def rdma(count: int) -> str:
    return f'[{{"ifname":"mlx5_0","port":1,"out_of_sequence":{count},"rx_write_requests":8}}]'


def test_rdma_counters_wrap_and_are_missing_for_that_interval() -> None:
    counts = [2**32 - 5, 2**32 - 1, 3, 13]
    found = read("rdma_statistic", [at(n, text=rdma(count)) for n, count in enumerate(counts)])
    own = series(found, "mlx5_0:1", "rdma_out_of_sequence")
    assert [(s.t_ns - T0, s.value) for s in own] == [(S, 4), (3 * S, 10)]
    assert {s.metric for s in samples(found.parsed)} == {"rdma_out_of_sequence"}


def tcp(sent: int, again: int) -> str:
    return (
        "/proc/net/snmp:Tcp: RtoAlgorithm MaxConn OutSegs RetransSegs\n"
        f"/proc/net/snmp:Tcp: 1 -1 {sent} {again}\n"
        "/proc/net/netstat:TcpExt: TCPTimeouts ListenDrops\n"
        f"/proc/net/netstat:TcpExt: {again} 0\n"
    )


def test_segments_that_were_sent_again() -> None:
    counts = [(100, 1), (300, 5), (10, 0), (20, 2)]
    found = read("tcp", [at(n, text=tcp(*both)) for n, both in enumerate(counts)])
    assert values(found, "host", "tcp_retransmits") == [4, 2], "a reset is no rate"
    assert values(found, "host", "tcp_sent") == [200, 10]
    assert values(found, "host", "tcp_timeouts") == [4, 2]
    assert values(found, "host", "udp_receive_errors") == []


def test_pairs_of_names_and_values_that_do_not_fit() -> None:
    data, skipped = parse_tcp_counters("Tcp: A B\nTcp: 1\nUdp: C\nUdp: 5\nTcp: 7\nodd\n")
    assert data["rows"] == [{"Udp.C": 5}]
    assert [one.line for one in skipped] == [2, 5, 6]
    with pytest.raises(ParseError, match="Tcp"):
        parse_tcp_counters("nothing\n")


def test_pages_of_numa_nodes() -> None:
    def page(miss: int) -> str:
        base = "/sys/devices/system/node/node1/numastat"
        return f"{base}:numa_hit 10\n{base}:numa_miss {miss}\nodd\n"

    found = read("numa", [at(0, text=page(3)), at(2, text=page(9))], interval=2.0)
    assert values(found, "node1", "numa_miss") == [3]
    assert values(found, "node1", "numa_hit") == [0]
    assert len(found.parsed.skipped) == 2
    with pytest.raises(ParseError, match="numastat"):
        parse_numa_nodes("nothing\n")


VLLM = (
    "(APIServer pid=1) INFO 07-01 10:00:00 [loggers.py:127] Engine 000: Avg prompt throughput: "
    "{prompt} tokens/s, Avg generation throughput: 50.5 tokens/s, Running: 3 reqs, "
    "Waiting: 1 reqs, GPU KV cache usage: 12.5%, Prefix cache hit rate: 0.0%"
)
SGLANG = (
    "[2026-07-01 10:00:00 TP0] Decode batch, #running-req: 2, #token: 100, token usage: 0.25, "
    "gen throughput (token/s): 80.5, #queue-req: 4"
)


def test_throughput_lines_of_a_log() -> None:
    lines = [at(0, line=VLLM.format(prompt=10.0)), at(10, line=VLLM.format(prompt=30.0))]
    found = read("engine_log", [*lines, at(11, line="odd batch")], interval=10.0)
    assert values(found, "000", "log_prompt_throughput") == [10, 30]
    assert values(found, "000", "log_kv_usage") == [0.125, 0.125]
    (first, second) = series(found, "000", "log_generation_throughput")
    assert (first.from_ns, second.from_ns) == (T0 - 10 * S, T0)
    assert [s.from_ns for s in series(found, "000", "log_running")] == [None, None]
    assert [one.line for one in found.parsed.skipped] == [3]
    other = read("engine_log", [at(0, line=SGLANG)], interval=10.0)
    assert values(other, "tp0", "log_generation_throughput") == [80.5]
    assert values(other, "tp0", "log_waiting") == [4]
    assert values(other, "tp0", "log_kv_usage") == [0.25]


@given(st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=20))
def test_no_rate_is_negative_whatever_counters_do(counts: list[int]) -> None:
    found = read("rdma_statistic", [at(n, text=rdma(count)) for n, count in enumerate(counts)])
    own = series(found, "mlx5_0:1", "rdma_out_of_sequence")
    assert all(sample.value >= 0 for sample in own)
    grown = sum(b >= a for a, b in pairwise(counts))
    assert len(own) <= grown


PAGED = sorted(name for name, one in catalogue().items() if one.reading is not None)


@given(st.lists(st.text(max_size=80), max_size=8), st.sampled_from(PAGED), st.booleans())
def test_whatever_a_tool_says_nothing_is_raised(said: list[str], name: str, whole: bool) -> None:
    key = "text" if whole else "line"
    records = [at(n, **{key: line}, of="eth0") for n, line in enumerate(said)]
    parsed = read(name, records).parsed
    # Of a file without a line, the first is said to lack the heading.
    assert all(1 <= one.line <= max(len(said), 1) for one in parsed.skipped)
    assert len(parsed.times_ns) <= len(said)

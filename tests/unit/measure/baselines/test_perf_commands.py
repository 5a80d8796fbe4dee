"""Command lines of nccl-tests, mpirun and the programs that copy between cards."""

from hypothesis import given
from hypothesis import strategies as st

from servemap.measure.baselines.perf_commands import (
    Host,
    Sweep,
    copies_argv,
    mpirun_argv,
    perf_arguments,
    sweeps,
)

K, M, G = 1 << 10, 1 << 20, 1 << 30


def test_a_geometric_series_is_one_run_and_what_stands_beside_it_another() -> None:
    doubled = [8 * K << power for power in range(14)]
    assert sweeps(doubled) == [Sweep(8 * K, 64 * M, 2)]
    assert sweeps([*doubled, G]) == [Sweep(8 * K, 64 * M, 2), Sweep(G, G, 2)]
    assert sweeps([8 * K, 32 * K, 128 * K]) == [Sweep(8 * K, 128 * K, 4)]
    assert sweeps([3000, 5000]) == [Sweep(3000, 3000, 2), Sweep(5000, 5000, 2)]


def taken(sweep: Sweep) -> list[int]:
    """Sizes as the program steps through them (`-b`, `-e`, `-f`)."""
    size, found = sweep.least, []
    while size <= sweep.most:
        found.append(size)
        size *= sweep.factor
    return found


@given(st.lists(st.integers(1, 1 << 34), min_size=1, max_size=12))
def test_the_runs_take_exactly_the_sizes_that_are_asked_for(sizes: list[int]) -> None:
    assert [size for sweep in sweeps(sizes) for size in taken(sweep)] == sorted(set(sizes))


def test_one_process_drives_all_cards_of_a_node() -> None:
    arguments = perf_arguments(Sweep(8 * K, 64 * M, 2), cards=8, iterations=20, warmup=5)
    assert " ".join(arguments) == "-b 8192 -e 67108864 -f 2 -g 8 -n 20 -w 5 -c 1"


def test_mpirun_starts_the_ranks_of_each_node_next_to_each_other() -> None:
    hosts = [Host("10.0.0.1", 8), Host("10.0.0.2", 8)]
    argv = mpirun_argv("mpirun", hosts, ["NCCL_DEBUG", "NCCL_CROSS_NIC"], ["/p/all_reduce_perf"])
    assert argv == [
        "mpirun", "--bind-to", "none", "-np", "16", "--map-by", "slot",
        "--host", "10.0.0.1:8,10.0.0.2:8", "-x", "NCCL_CROSS_NIC", "-x", "NCCL_DEBUG",
        "/p/all_reduce_perf",
    ]  # fmt: skip


def test_the_campaigns_own_binding_is_taken() -> None:
    options = ["--allow-run-as-root", "--bind-to", "numa"]
    argv = mpirun_argv("mpirun", [Host("a", 2)], [], ["p"], options=options)
    assert argv[1:4] == options and argv.count("--bind-to") == 1


def test_copies() -> None:
    assert copies_argv("nvbandwidth", "/p/nvbandwidth") == [
        "/p/nvbandwidth", "-t", "device_to_device_memcpy_read_ce",
    ]  # fmt: skip
    assert copies_argv("p2pBandwidthLatencyTest", "/p/p2p") == ["/p/p2p"]

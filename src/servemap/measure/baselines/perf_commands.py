"""Command lines of tools that measure communication; nothing here runs anything.

Options: README.md of nccl-tests and of rccl-tests, which take the same ones and name their programs
alike; README.md of nvbandwidth; mpirun(1) of Open MPI.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

PROGRAMS = {
    "all_reduce": "all_reduce_perf",
    "all_gather": "all_gather_perf",
    "reduce_scatter": "reduce_scatter_perf",
    "all_to_all": "alltoall_perf",
}
"""Programs of nccl-tests and rccl-tests by operation."""

LOGGED = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,NET,GRAPH,TUNING"}
"""What makes NCCL and RCCL say paths, devices and, for each size, algorithm and protocol.

Not COLL: every rank would write a line for every call, which says nothing that TUNING does not, and
small messages take no longer than that.
"""

COPY_PROGRAMS = ("nvbandwidth", "p2pBandwidthLatencyTest")
"""Programs that copy between all pairs of cards, the preferred one first."""


class Sweep(NamedTuple):
    """Sizes that one run of a program takes: from `least` to `most` bytes, times `factor`."""

    least: int
    most: int
    factor: int


class Host(NamedTuple):
    """A node as mpirun reaches it, and how many ranks it starts there."""

    address: str
    ranks: int


def sweeps(sizes: Sequence[int]) -> list[Sweep]:
    """Return the fewest runs that take exactly some sizes, as found from the smallest one up."""
    found: list[list[int]] = []
    for size in sorted(set(sizes)):
        run = found[-1] if found else []
        fits = size % run[0] == 0 if len(run) == 1 else run and size * run[0] == run[1] * run[-1]
        if fits:
            run.append(size)
        else:
            found.append([size])
    return [Sweep(run[0], run[-1], run[1] // run[0] if len(run) > 1 else 2) for run in found]


def perf_arguments(sweep: Sweep, *, cards: int, iterations: int, warmup: int) -> list[str]:
    """Return the arguments of a program of nccl-tests or rccl-tests.

    Args:
        sweep: sizes.
        cards: how many each process drives (`-g`).
        iterations: timed ones of each size.
        warmup: those before, not timed.
    """
    return [
        *("-b", str(sweep.least), "-e", str(sweep.most), "-f", str(sweep.factor)),
        *("-g", str(cards), "-n", str(iterations), "-w", str(warmup), "-c", "1"),
    ]


def mpirun_argv(
    mpirun: str,
    hosts: Sequence[Host],
    names: Iterable[str],
    command: Sequence[str],
    *,
    options: Sequence[str] = (),
) -> list[str]:
    """Return the mpirun that starts one process a rank, those of a node next to each other.

    Args:
        mpirun: of Open MPI.
        hosts: the nodes, in the order of their ranks.
        names: variables that the ranks get, with the values that mpirun itself has.
        command: the program and its arguments.
        options: the campaign's own, such as `--allow-run-as-root`; without a `--bind-to` among
            them processes are not bound, since NCCL binds its threads near to their cards.
    """
    bound = any(word.partition("=")[0] == "--bind-to" for word in options)
    return [
        mpirun,
        *options,
        *(() if bound else ("--bind-to", "none")),
        *("-np", str(sum(host.ranks for host in hosts))),
        *("--map-by", "slot"),
        *("--host", ",".join(f"{host.address}:{host.ranks}" for host in hosts)),
        *(word for name in sorted(set(names)) for word in ("-x", name)),
        *command,
    ]


def copies_argv(name: str, program: str) -> list[str]:
    """Return the command that copies between all pairs of cards, one direction at a time.

    nvbandwidth prints text: its JSON (`-j`) came later than what it measures.

    Args:
        name: one of COPY_PROGRAMS.
        program: its path.
    """
    return (
        [program, "-t", "device_to_device_memcpy_read_ce"] if name == "nvbandwidth" else [program]
    )

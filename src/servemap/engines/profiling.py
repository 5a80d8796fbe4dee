"""How engines take a profile: what their server must be started with, what its endpoint is told.

Read in the sources of vLLM 0.32.0 (`vllm/config/profiler.py`, `vllm/profiler/wrapper.py`,
`vllm/distributed/utils.py`) and of SGLang 0.5.23 (`managers/scheduler_components/
profiler_manager.py`). vLLM has its endpoint only if it was started with a profiler, ends a profile
by itself after `max_iterations` steps and makes a relative folder absolute where it starts; its
front end's own trace would go on from start to stop, so it is left out. SGLang always has it and
takes folder and steps with the call; its start for captures is told apart by the folder in its
environment. Its `start_step` counts from the server's birth and is never less than the next step
(`max(start_step, steps so far + 1)`): 1 is the next one, so that the profile holds whole steps
without anybody reading the counter, which no endpoint tells. By stage it begins by
itself with the first step of each stage; where the other stage comes in between, that trace holds
fewer steps.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from servemap.engines.nsys import MARK as NSYS
from servemap.engines.spelling import option_name
from servemap.model.errors import ConfigError
from servemap.model.server_spec import ServerSpec

FOLDER = "servemap-profiles"
"""Where ranks write their traces, below the folder that they are started in."""

INSIDE = f"/{FOLDER}"
"""The same in a container: a mount of the folder below the run's own on each node."""

Stage = Literal["prefill", "decode"]


class Asked(NamedTuple):
    """What one profile is to be.

    `name` begins the names of its files where the engine's version takes one; by it they are told
    from those of another profile.
    """

    steps: int
    folder: str
    name: str
    stage: Stage | None = None


@dataclass(frozen=True)
class Profiler:
    """An engine's profiler.

    Attributes:
        start_with: from number of steps and folder, keys of a variant's `set` that its server
            needs.
        body: what its start endpoint is given.
        ranks: how many processes of a server write a trace.
        rank_of: which rank wrote a trace, by the name of its file; None where that says nothing.
        stages: by stage, how the name of its trace ends; empty where there is none by stage.
        stop_always: it must be told to stop also where it ended by itself.
        options: its command-line options.
        variables: environment variables that turn it on.
    """

    start_with: Callable[[int, str], dict[str, Any]]
    body: Callable[[Asked], dict[str, Any]]
    ranks: Callable[[ServerSpec], int]
    rank_of: Callable[[str, ServerSpec], int | None]
    stages: Mapping[Stage, str] = field(default_factory=dict)
    stop_always: bool = False
    options: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()


def folder_of(server: ServerSpec) -> str:
    """Return the folder of the traces as a server is told it."""
    return INSIDE if server.container is not None else FOLDER


def _vllm(steps: int, folder: str) -> dict[str, Any]:
    config = {
        "profiler": "torch",
        "torch_profiler_dir": folder,
        "ignore_frontend": True,
        "max_iterations": steps,
    }
    return {"args.profiler-config": json.dumps(config, sort_keys=True)}


def _vllm_rank(name: str, server: ServerSpec) -> int | None:
    sizes = server.topology
    parts = re.search(r"dp(\d+)_pp(\d+)_tp(\d+)_", name)
    if parts is not None:
        dp, pp, tp = map(int, parts.groups())
        return (dp * sizes.pp + pp) * sizes.tp + tp
    # Where its groups are not set up, as on a CPU.
    alone = re.search(r"(?:^|_)rank(\d+)\.", name)
    return int(alone[1]) if alone else None


def _sglang(asked: Asked) -> dict[str, Any]:
    body: dict[str, Any] = {
        "output_dir": asked.folder,
        "num_steps": asked.steps,
        "activities": ["CPU", "GPU"],
        "profile_prefix": asked.name,
    }
    return {**body, **({"profile_by_stage": True} if asked.stage else {"start_step": 1})}


def _sglang_rank(name: str, server: ServerSpec) -> int | None:
    tp, pp = re.search(r"-TP-(\d+)", name), re.search(r"-PP-(\d+)", name)
    if tp is None:
        return None
    return (int(pp[1]) if pp else 0) * server.topology.tp + int(tp[1])


PROFILERS: Mapping[str, Profiler] = {
    "vllm": Profiler(
        _vllm,
        lambda asked: {"max_iterations": asked.steps, "profile_prefix": asked.name},
        lambda server: server.topology.tp * server.topology.pp * server.topology.dp,
        _vllm_rank,
        # The front end takes it for running until then, and refuses the next start.
        stop_always=True,
        options=frozenset({"profiler-config"}),
        # That of versions before the option.
        variables=frozenset({"VLLM_TORCH_PROFILER_DIR"}),
    ),
    "sglang": Profiler(
        # Steps are told with the call.
        lambda _, folder: {"env.SGLANG_TORCH_PROFILER_DIR": folder},
        _sglang,
        # Its sizes are of one group of processes, which data parallelism divides.
        lambda server: server.topology.tp * server.topology.pp,
        _sglang_rank,
        stages={"prefill": "-EXTEND", "decode": "-DECODE"},
    ),
}


def refuse_profiler(server: ServerSpec) -> None:
    """Refuse a spec of a server whose cases would be measured with a profiler at hand.

    Raises:
        ConfigError: names the key.
    """
    known = PROFILERS.get(server.engine)
    options = known.options if known else frozenset()
    variables = (known.variables if known else frozenset()) | {NSYS}
    found = [f"args.{name}" for name in server.args if _option(name) in options]
    found += [f"env.{name}" for name in server.env if name in variables]
    if found:
        raise ConfigError(
            "a server that is started for profiling gives no results",
            f"server.{found[0]}",
            "remove it and name the case under a phase's `captures`: its profile is taken from a "
            "start of its own",
        )


def _option(name: str) -> str:
    """Return an option without what stands behind a dot: `--profiler-config.KEY` is one too."""
    return option_name(name).partition(".")[0]

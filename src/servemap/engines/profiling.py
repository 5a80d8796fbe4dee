"""How engines take a profile: what their server must be started with, what its endpoint is told.

Read in the sources of vLLM 0.32.0 (`vllm/config/profiler.py`, `vllm/profiler/wrapper.py`) and of
SGLang 0.5.23 (`managers/scheduler_components/profiler_manager.py`). vLLM has its endpoint only if
it was started with a profiler, ends a profile by itself after `max_iterations` steps and makes a
relative folder absolute where it starts; its front end's own trace would go on from start to stop,
so it is left out. SGLang always has it and takes folder and steps with the call; its start for
captures is told apart by the folder in its environment.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from servemap.engines.nsys import MARK as NSYS
from servemap.engines.spelling import option_name
from servemap.model.errors import ConfigError
from servemap.model.server_spec import ServerSpec

FOLDER = "servemap-profiles"
"""Where ranks write their traces, below the folder that they are started in."""


@dataclass(frozen=True)
class Profiler:
    """An engine's profiler.

    Attributes:
        start_with: from the number of steps, keys of a variant's `set` that its server needs.
        body: from the number of steps, what its start endpoint is given.
        stop_always: it must be told to stop also where it ended by itself.
        options: its command-line options.
        variables: environment variables that turn it on.
    """

    start_with: Callable[[int], dict[str, Any]]
    body: Callable[[int], dict[str, Any]]
    stop_always: bool = False
    options: frozenset[str] = frozenset()
    variables: frozenset[str] = frozenset()


def _vllm(steps: int) -> dict[str, Any]:
    config = {
        "profiler": "torch",
        "torch_profiler_dir": FOLDER,
        "ignore_frontend": True,
        "max_iterations": steps,
    }
    return {"args.profiler-config": json.dumps(config, sort_keys=True)}


PROFILERS: Mapping[str, Profiler] = {
    "vllm": Profiler(
        _vllm,
        lambda steps: {"max_iterations": steps},
        # The front end takes it for running until then, and refuses the next start.
        stop_always=True,
        options=frozenset({"profiler-config"}),
        # That of versions before the option.
        variables=frozenset({"VLLM_TORCH_PROFILER_DIR"}),
    ),
    "sglang": Profiler(
        lambda steps: {"env.SGLANG_TORCH_PROFILER_DIR": FOLDER},  # noqa: ARG005 - with the call
        lambda steps: {"output_dir": FOLDER, "num_steps": steps, "activities": ["CPU", "GPU"]},
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

"""What an engine adapter offers: how a server is started, reached and understood."""

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from servemap.model.errors import ConfigError
from servemap.model.files import parse_json
from servemap.model.server_spec import ModelSpec, Secret, ServerSpec
from servemap.onnode.supervise import KEEP_MARK


@dataclass(frozen=True)
class Endpoints:
    """Absolute URLs of a server; None for what the engine does not have."""

    health: str
    models: str
    completions: str
    metrics: str | None = None
    cache_flush: str | None = None
    profile_start: str | None = None
    profile_stop: str | None = None
    info: Mapping[str, str] = field(default_factory=dict)
    """Where the server says more about itself, by the name under which `read_back` gets it."""


@dataclass(frozen=True)
class Effective:
    """What a running server says about itself; None and empty where it says nothing.

    Attributes:
        engine_version: its version.
        model_names: names that it answers to.
        context: longest sequence (tokens).
        module_path: file that its package was imported from.
        settings: what is in force, in the words of `model.server_spec` (`Settings`, `Topology`)
            where these have one; further facts under the engine's own names.
        notes: lines of its log that say that it does something else than it was asked.
    """

    engine_version: str | None = None
    model_names: tuple[str, ...] = ()
    context: int | None = None
    module_path: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RankMemory:
    """What one process of a server holds on its card, in bytes; None where its log is silent.

    `rest` is what the engine counts beside weights, KV cache and graphs: activations, buffers of
    the communication library.
    """

    rank: str
    weights_bytes: int | None = None
    kv_bytes: int | None = None
    graphs_bytes: int | None = None
    rest_bytes: int | None = None


@dataclass(frozen=True)
class Capability:
    """Whether the engine can do a thing, and why not, in words for the report."""

    available: bool
    reason: str = ""


@dataclass(frozen=True)
class Capabilities:
    """What can be asked of an engine beyond answering requests."""

    torch_profile: Capability


@dataclass(frozen=True)
class Placement:
    """Where one rank of a server runs, and how it finds the others.

    Attributes:
        node: id of its node.
        rank: its number; 0 is the head's, at which clients reach the server.
        ranks: how many nodes the server has.
        address: address of its node.
        master: address of the head.
        master_port: port on the head at which the ranks meet.
    """

    node: str
    rank: int = 0
    ranks: int = 1
    address: str = "127.0.0.1"
    master: str = "127.0.0.1"
    master_port: int = 29500


class Attachable(Protocol):
    """A server that can be measured."""

    @property
    def name(self) -> str:
        """Name as in the campaign file's `server.engine`."""

    @property
    def capabilities(self) -> Capabilities:
        """What can be asked of it."""

    def cache_flush(self, env: Mapping[str, Any]) -> Capability:
        """Return whether the prefix cache of a server with these variables can be emptied."""

    def endpoints(self, base_url: str) -> Endpoints:
        """Return the absolute URLs below `http://HOST:PORT`."""

    def read_back(self, log_text: str, models_json: Any, info: Mapping[str, Any]) -> Effective:
        """Return what the log and the answers say, whatever of them is garbage.

        Args:
            log_text: what the head's log gained since the start; empty for an attached server.
            models_json: the parsed answer to `Endpoints.models`.
            info: answers to `Endpoints.info` by name: parsed JSON, or text where it is none;
                without those that the server refused.
        """

    def memory(self, log_text: str) -> tuple[RankMemory, ...]:
        """Return what the processes that write to one node's log say that they hold."""

    def asked(self, server: ServerSpec, model: ModelSpec) -> dict[str, Any]:
        """Return what the spec asks for, under the names that `Effective.settings` has for it."""


class Engine(Attachable, Protocol):
    """A server that can also be started."""

    def argv(
        self,
        server: ServerSpec,
        model: ModelSpec,
        placement: Placement,
        *,
        python: str,
        workdir: str,
    ) -> list[str]:
        """Return the command that starts one rank of the server on its node.

        Args:
            server: the variant's server spec.
            model: the model it serves.
            placement: the rank and its node.
            python: interpreter to use where the spec names none.
            workdir: absolute folder on the node that relative paths of the spec lie in.

        Raises:
            ConfigError: the engine cannot do what the spec asks for; names the key.
        """

    def defaults(self, placement: Placement) -> dict[str, str]:
        """Return a rank's variables that measurement needs; the node's and the spec's prevail."""


TRACEABLE = {**KEEP_MARK, "PYTHONFAULTHANDLER": "1"}
"""Variables by which processes of vLLM and SGLang stay findable, and say where they crashed."""


def on_node(path: str, workdir: str) -> str:
    """Return a path of the spec as an absolute path on the node."""
    return posixpath.normpath(posixpath.join(workdir, path))


def model_path(server: ServerSpec, model: ModelSpec, workdir: str) -> str:
    """Return the model's absolute path as the server sees it, from within its container."""
    inside = server.container.model_path if server.container else None
    return on_node(inside or model.path, workdir)


def interpreter(server: ServerSpec, python: str, workdir: str) -> str:
    """Return the server's interpreter: `python` is the one outside, which no image has to have.

    One that is given by its path lies where other relative paths of the spec do; links stay, since
    an environment's interpreter is one.
    """
    if server.python is None:
        return "python3" if server.container else python
    return program(server.python, workdir) if server.container is None else server.python


def program(name: str, workdir: str) -> str:
    """Return a program of the spec as the node finds it: by its path, or by its name on PATH."""
    return posixpath.join(workdir, name) if "/" in name else name


def python_env(server: ServerSpec, workdir: str) -> dict[str, str | Secret]:
    """Return the spec's environment, by which its package is found before an installed one.

    Raises:
        ConfigError: PYTHONPATH is a secret, so the package's root cannot be put before it.
    """
    env: dict[str, str | Secret] = {"PYTHONUNBUFFERED": "1", **server.env}
    if server.package is None:
        return env
    given = server.env.get("PYTHONPATH", "")
    if isinstance(given, Secret):
        raise ConfigError(
            "PYTHONPATH is a secret",
            "server.env.PYTHONPATH",
            "write the folders out; server.package.root comes before them",
        )
    root = on_node(server.package.root, workdir)
    env["PYTHONPATH"] = f"{root}:{given}" if given else root
    # Byte code is trusted by size and whole seconds, which a patch may leave as they were.
    env["PYTHONDONTWRITEBYTECODE"] = "1"
    return env


def flags(args: Mapping[str, Any]) -> list[str]:
    """Return free-form arguments as options, in the order of the file.

    `n_batch: 512` gives `--n-batch 512`; true gives the bare option, false `--no-...`; a list
    gives the option once with all its values.
    """
    words: list[str] = []
    for name, value in args.items():
        option = f"--{name.lstrip('-').replace('_', '-')}"
        if value is True:
            words.append(option)
        elif value is False:
            words.append(f"--no-{option.removeprefix('--')}")
        elif isinstance(value, list):
            words += [option, *map(str, value)]
        else:
            words += [option, str(value)]
    return words


def served_models(models_json: Any) -> list[dict[str, Any]]:
    """Return the entries of an OpenAI `/v1/models` answer; empty for anything else."""
    data = models_json.get("data") if isinstance(models_json, dict) else None
    entries = data if isinstance(data, list) else []
    return [
        entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)
    ]


def longest_sequence(models: list[dict[str, Any]], props_json: Any | None) -> int | None:
    """Return the longest sequence that every served model takes, in tokens; None if not said.

    llama.cpp says it in `/props` and as `meta.n_ctx` of the model, vLLM and SGLang as the
    model's `max_model_len`.
    """
    if isinstance(props_json, dict):
        defaults = props_json.get("default_generation_settings")
        if isinstance(defaults, dict) and (found := positive(defaults.get("n_ctx"))):
            return found
    said: list[int] = []
    for model in models:
        meta = model.get("meta")
        values = [model.get("max_model_len"), meta.get("n_ctx") if isinstance(meta, dict) else None]
        said += [found for value in values if (found := positive(value))][:1]
    return min(said, default=None)


def positive(value: Any) -> int | None:
    """Return a positive whole number, None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def last_json_line(log_text: str, prefix: str) -> dict[str, Any]:
    """Return the object behind `prefix` on the last line that starts with it; {} if none.

    The last one, because a log may hold several starts.
    """
    found: dict[str, Any] = {}
    for line in log_text.splitlines():
        if line.startswith(prefix):
            try:
                value = parse_json(line[len(prefix) :])
            except ValueError:
                continue
            found = value if isinstance(value, dict) else found
    return found

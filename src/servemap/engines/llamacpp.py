"""llama.cpp's HTTP server, started through the embedded package `llamaserve`."""

from collections.abc import Mapping
from typing import Any

from servemap.engines.base import (
    Capabilities,
    Capability,
    Effective,
    Endpoints,
    Placement,
    RankMemory,
    flags,
    interpreter,
    last_json_line,
    longest_sequence,
    model_path,
    served_models,
)
from servemap.engines.log_text import sound
from servemap.engines.spelling import Spelling
from servemap.model.errors import ConfigError
from servemap.model.server_spec import ModelSpec, ServerSpec

MODULE = "llamaserve"

SPELLING = Spelling(
    values={"context": "context", "max_active": "max-active", "max_batched_tokens": "n-batch"},
    switches={"prefix_cache": ({"prefix-cache": True}, {"prefix-cache": False})},
    own={
        "model": "model.path",
        "alias": "model.name",
        "host": "server.bind",
        "port": "server.port",
        "context": "server.settings.context",
        "max-active": "server.settings.max_active",
        "prefix-cache": "server.settings.prefix_cache",
        "rank": "server.nodes",
        "ranks": "server.nodes",
        "master": "the head's nodes.address and server.master_port",
    },
)


class LlamaCpp:
    """Adapter for one server process, and ranks that join it, without accelerators."""

    name = "llamacpp"
    capabilities = Capabilities(
        torch_profile=Capability(
            False, "llama.cpp is not built on PyTorch, so there is no Kineto trace to take"
        ),
    )

    def argv(
        self,
        server: ServerSpec,
        model: ModelSpec,
        placement: Placement,
        *,
        python: str,
        workdir: str,
    ) -> list[str]:
        """Return the command that starts a rank (see `Engine.argv`).

        Ranks beyond the first hold no part of the model: they join the first one before it loads
        and end with it, so that servers on several nodes can be driven without accelerators.
        """
        _refuse(server)
        words = [interpreter(server, python, workdir), "-m", MODULE]
        words += ["--model", model_path(server, model, workdir), "--alias", model.name]
        words += ["--host", server.bind, "--port", str(server.port)]
        if placement.ranks > 1:
            words += ["--rank", str(placement.rank), "--ranks", str(placement.ranks)]
            words += ["--master", f"{placement.master}:{placement.master_port}"]
        given = server.settings.model_dump(exclude_none=True)
        given.setdefault("context", model.context)
        return words + SPELLING.words(given) + flags(server.args)

    def defaults(self, placement: Placement) -> dict[str, str]:  # noqa: ARG002 - no variables
        """Return nothing: measurement needs no variables (see `Engine.defaults`)."""
        return {}

    def cache_flush(self, env: Mapping[str, Any]) -> Capability:  # noqa: ARG002 - never there
        """Return that it cannot be emptied (see `Attachable.cache_flush`).

        `POST /slots/N?action=erase` empties one slot, of servers with `--slot-save-path` alone.
        """
        return Capability(False, "llama.cpp has no call that empties the prefix cache of all slots")

    def endpoints(self, base_url: str) -> Endpoints:
        """Return the server's URLs."""
        base = base_url.rstrip("/")
        return Endpoints(
            health=f"{base}/health",
            models=f"{base}/v1/models",
            completions=f"{base}/v1/completions",
            metrics=f"{base}/metrics",
            info={"props": f"{base}/props"},
        )

    def read_back(self, log_text: str, models_json: Any, info: Mapping[str, Any]) -> Effective:
        """Return what the start line, `/v1/models` and `/props` say."""
        start = last_json_line(log_text, f"{MODULE}: starting ")
        models = served_models(models_json)
        version, module, said = (start.get(key) for key in ("xllamacpp", "module", "settings"))
        settings = dict(said) if isinstance(said, dict) else {}
        if "n_batch" in settings:
            settings["max_batched_tokens"] = settings["n_batch"]
        return Effective(
            engine_version=f"xllamacpp {version}" if isinstance(version, str) else None,
            model_names=tuple(model["id"] for model in models),
            context=longest_sequence(models, info.get("props")),
            module_path=module if isinstance(module, str) else None,
            settings=sound(settings),
        )

    def memory(self, log_text: str) -> tuple[RankMemory, ...]:  # noqa: ARG002 - no cards
        """Return nothing: the server runs without cards."""
        return ()

    def asked(self, server: ServerSpec, model: ModelSpec) -> dict[str, Any]:
        """Return what the spec asks for (see `Attachable.asked`)."""
        return SPELLING.asked(server, model)


def _refuse(server: ServerSpec) -> None:
    SPELLING.refuse(server)
    for key, value in server.topology.model_dump().items():
        if value != 1:
            raise ConfigError(
                f"the engine llamacpp runs in one process, {key}={value} was asked",
                f"server.topology.{key}",
                "leave the topology out, or use an engine that splits models",
            )

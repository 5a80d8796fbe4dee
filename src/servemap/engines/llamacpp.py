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
    python_env,
    served_models,
)
from servemap.model.errors import ConfigError
from servemap.model.server_spec import ModelSpec, Secret, ServerSpec

MODULE = "llamaserve"

_SETTINGS = {
    "context": "--context",
    "max_active": "--max-active",
    "max_batched_tokens": "--n-batch",
}
_OWN_FLAGS = {"model", "alias", "host", "port", "context", "max_active", "prefix_cache"} | {
    "rank",
    "ranks",
    "master",
}


class LlamaCpp:
    """Adapter for one server process, and ranks that join it, without accelerators."""

    name = "llamacpp"
    capabilities = Capabilities(
        torch_profile=Capability(
            False, "llama.cpp is not built on PyTorch, so there is no Kineto trace to take"
        ),
        cache_flush=Capability(
            False, "llama.cpp has no call that empties the prefix cache of all slots"
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
        for key, option in _SETTINGS.items():
            if key in given:
                words += [option, str(given[key])]
        if "prefix_cache" in given:
            words += flags({"prefix_cache": given["prefix_cache"]})
        return words + flags(server.args)

    def defaults(self, placement: Placement) -> dict[str, str]:  # noqa: ARG002 - no variables
        """Return nothing: measurement needs no variables (see `Engine.defaults`)."""
        return {}

    def env(self, server: ServerSpec, *, workdir: str) -> dict[str, str | Secret]:
        """Return the environment to add (see `Engine.env`)."""
        return python_env(server, workdir)

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
            settings=settings,
        )

    def memory(self, log_text: str) -> tuple[RankMemory, ...]:  # noqa: ARG002 - no cards
        """Return nothing: the server runs without cards."""
        return ()

    def asked(self, server: ServerSpec, model: ModelSpec) -> dict[str, Any]:
        """Return the spec's settings (see `Attachable.asked`)."""
        return {"context": model.context, **server.settings.model_dump(exclude_none=True)}


def _refuse(server: ServerSpec) -> None:
    where = "server"
    for key, value in server.topology.model_dump().items():
        if value != 1:
            raise ConfigError(
                f"the engine llamacpp runs in one process, {key}={value} was asked",
                f"{where}.topology.{key}",
                "leave the topology out, or use an engine that splits models",
            )
    known = {*_SETTINGS, "prefix_cache"}
    for key in server.settings.model_dump(exclude_none=True):
        if key not in known:
            raise ConfigError(
                f"the engine llamacpp has no setting {key}",
                f"{where}.settings.{key}",
                f"remove it; llamacpp has {', '.join(sorted(known))}",
            )
    for key in server.args:
        if key.replace("-", "_") in _OWN_FLAGS:
            raise ConfigError(
                f"the argument {key} is set from another key of the campaign",
                f"{where}.args.{key}",
                "use model, server.bind, server.port or server.settings",
            )

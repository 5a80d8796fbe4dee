"""A running OpenAI-compatible server that is measured and never started, stopped or changed."""

from typing import Any

from servemap.engines.base import (
    Capabilities,
    Capability,
    Effective,
    Endpoints,
    longest_sequence,
    served_models,
)

_NO = Capability(False, "the server is attached to: it is measured and never changed")


class AttachedServer:
    """Read-only adapter: it has no command to start a server and no call that changes one."""

    capabilities = Capabilities(torch_profile=_NO, cache_flush=_NO)

    def __init__(self, engine: str) -> None:
        self._engine = engine

    @property
    def name(self) -> str:
        """Name of the engine that the campaign file says is running."""
        return self._engine

    def endpoints(self, base_url: str) -> Endpoints:
        """Return the server's URLs; whether it serves `/metrics` shows when that is read."""
        base = base_url.rstrip("/").removesuffix("/v1")
        return Endpoints(
            health=f"{base}/health",
            models=f"{base}/v1/models",
            completions=f"{base}/v1/completions",
            props=f"{base}/props" if self._engine == "llamacpp" else None,
            metrics=f"{base}/metrics",
        )

    def read_back(
        self,
        log_text: str,  # noqa: ARG002 - the log of a foreign server is not ours to read
        models_json: Any,
        props_json: Any | None = None,
    ) -> Effective:
        """Return what `/v1/models` and `/props` say."""
        models = served_models(models_json)
        return Effective(
            model_names=tuple(model["id"] for model in models),
            context=longest_sequence(models, props_json),
        )

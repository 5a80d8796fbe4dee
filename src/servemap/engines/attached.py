"""A running OpenAI-compatible server that is measured and never started, stopped or changed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from servemap.engines.base import (
    Attachable,
    Capabilities,
    Capability,
    Effective,
    Endpoints,
    RankMemory,
)
from servemap.model.server_spec import ModelSpec, ServerSpec

_NO = Capability(False, "the server is attached to: it is measured and never changed")


class AttachedServer:
    """Adapter without a command: nothing changes the server.

    Its prefix cache is emptied where a case asks for that, if the engine has a call for it.
    """

    capabilities = Capabilities(torch_profile=_NO)

    def __init__(self, engine: Attachable) -> None:
        self._engine = engine

    @property
    def name(self) -> str:
        """Name of the engine that the campaign file says is running."""
        return self._engine.name

    def cache_flush(self, env: Mapping[str, Any]) -> Capability:  # noqa: ARG002 - not its own
        """Return what the engine offers; how the server was started is not known."""
        return self._engine.cache_flush({})

    def endpoints(self, base_url: str) -> Endpoints:
        """Return the server's URLs; whether it serves `/metrics` shows when that is read."""
        found = self._engine.endpoints(base_url.rstrip("/").removesuffix("/v1"))
        return replace(found, profile_start=None, profile_stop=None)

    def read_back(
        self,
        log_text: str,  # noqa: ARG002 - the log of a foreign server is not ours to read
        models_json: Any,
        info: Mapping[str, Any],
    ) -> Effective:
        """Return what its answers say."""
        return self._engine.read_back("", models_json, info)

    def memory(self, log_text: str) -> tuple[RankMemory, ...]:  # noqa: ARG002 - as above
        """Return nothing: only a log says it."""
        return ()

    def asked(self, server: ServerSpec, model: ModelSpec) -> dict[str, Any]:  # noqa: ARG002
        """Return the settings and sizes that the spec states of the running server."""
        topology = {key: value for key, value in server.topology.model_dump().items() if value > 1}
        return server.settings.model_dump(exclude_none=True) | topology

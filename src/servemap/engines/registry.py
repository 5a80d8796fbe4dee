"""Which adapter serves which engine."""

from servemap.engines.attached import AttachedServer
from servemap.engines.base import Attachable, Engine
from servemap.engines.llamacpp import LlamaCpp
from servemap.model.errors import ConfigError
from servemap.model.server_spec import ServerSpec


def get_engine(name: str) -> Engine:
    """Return the adapter that starts an engine.

    Raises:
        ConfigError: this version cannot start that engine.
    """
    if name == LlamaCpp.name:
        return LlamaCpp()
    raise ConfigError(
        f"this version can plan for the engine {name} and attach to it, but not start it",
        "server.engine",
        "start the server yourself and give its URL as `server.attach`, or use llamacpp",
    )


def get_adapter(server: ServerSpec) -> Attachable:
    """Return the adapter by which a server is measured, started by us or attached to.

    Raises:
        ConfigError: it would have to be started and this version cannot do that.
    """
    return AttachedServer(server.engine) if server.attach else get_engine(server.engine)

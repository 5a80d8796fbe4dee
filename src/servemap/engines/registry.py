"""Which adapter serves which engine."""

from servemap.engines.attached import AttachedServer
from servemap.engines.base import Attachable, Engine
from servemap.engines.llamacpp import LlamaCpp
from servemap.engines.sglang import SGLang
from servemap.engines.vllm import Vllm
from servemap.model.server_spec import ServerSpec

ENGINES: dict[str, Engine] = {engine.name: engine for engine in (LlamaCpp(), Vllm(), SGLang())}


def get_engine(name: str) -> Engine:
    """Return the adapter that starts an engine; the name is one that `ServerSpec` takes."""
    return ENGINES[name]


def get_adapter(server: ServerSpec) -> Attachable:
    """Return the adapter by which a server is measured, started by us or attached to."""
    engine = get_engine(server.engine)
    return AttachedServer(engine) if server.attach else engine

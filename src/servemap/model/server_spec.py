"""The server under test as the campaign file describes it: engine, topology, patches, nodes."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from servemap.model.base import EnvName, Model, Program, Slug
from servemap.model.transport import Transport

MAX_TOKENS = 10_000_000
"""Largest length and token id that the load client takes."""


class Secret(Model):
    """A value that is read from the controller's environment when a process is started."""

    secret: EnvName


class Rail(Model):
    """One high-speed link of a node: an IP interface and the RDMA device behind it."""

    netdev: str
    hca: str | None = None


class NodeSpec(Model):
    """One machine and how it is reached."""

    id: Slug
    role: Literal["head", "worker"] = "head"
    transport: Literal["local", "ssh"] = "local"
    address: str = Field("127.0.0.1", description="Address that the server and its peers use.")
    host: str | None = Field(None, description="Name or address for ssh; `address` if absent.")
    user: str | None = None
    port: Annotated[int, Field(ge=1, le=65535)] = 22
    key_file: str | None = Field(None, description="ssh private key; the agent's keys if absent.")
    jump: str | None = Field(None, description="ssh host in between: [USER@]HOST[:PORT].")
    proxy: str | None = Field(
        None, description="Command whose stdin and stdout lead to the node's sshd, as ProxyCommand."
    )
    known_hosts: str | None = Field(
        None, description="File of trusted host keys; ~/.ssh/known_hosts if absent."
    )
    python: Program | None = Field(
        None, description="Interpreter of the node agent, 3.8 or newer; python3 over ssh if absent."
    )
    become: bool = Field(
        False, description="Use `sudo -n` for the container runtime and to see others' open files."
    )
    accelerators: Annotated[int, Field(ge=0)] = 0
    memory_bandwidth_gb_s: Annotated[float, Field(gt=0)] | None = Field(
        None,
        description="Memory bandwidth (10^9 bytes/s) of one accelerator, or of the node where it "
        "has none; the table of cards is asked if absent.",
    )
    idle_memory_bytes: Annotated[int, Field(ge=0)] = Field(
        1_000_000_000, description="Memory that a card may show as used when nothing runs on it."
    )
    rails: list[Rail] = []
    env: dict[EnvName, str] = {}
    workdir: str | None = Field(None, description="Node-local work folder; per user by default.")


class ModelSpec(Model):
    """The model that is served."""

    name: str = Field(description="Name that the server answers to.")
    path: str = Field(description="File or folder on the nodes.")
    context: Annotated[int, Field(ge=1, le=MAX_TOKENS)] = Field(
        description="Longest sequence, in tokens."
    )
    vocab: tuple[int, int] = Field(
        (1000, 30000), description="Range of token ids that prompts are drawn from: low, high."
    )

    @model_validator(mode="after")
    def _ordered(self) -> "ModelSpec":
        low, high = self.vocab
        if not 0 <= low < high:
            raise ValueError("vocab: the low id must be below the high id")
        if high - low < 2 or high > MAX_TOKENS:
            raise ValueError(f"vocab: give at least two ids, the high one at most {MAX_TOKENS}")
        return self


class Topology(Model):
    """How the model is split over accelerators."""

    tp: Annotated[int, Field(ge=1)] = 1
    dp: Annotated[int, Field(ge=1)] = 1
    pp: Annotated[int, Field(ge=1)] = 1
    ep: Annotated[int, Field(ge=1)] = 1


class Settings(Model):
    """Engine settings in the field's terms; the adapter spells them for its engine."""

    context: Annotated[int, Field(ge=1)] | None = None
    max_active: Annotated[int, Field(ge=1)] | None = None
    memory_fraction: Annotated[float, Field(gt=0, le=1)] | None = None
    kv_dtype: str | None = None
    prefix_cache: bool | None = None
    chunked_prefill: bool | None = None
    max_batched_tokens: Annotated[int, Field(ge=1)] | None = None
    cuda_graph: bool | None = None
    attention_backend: str | None = None
    moe_backend: str | None = None
    speculative_method: str | None = None
    speculative_model: str | None = None
    speculative_tokens: Annotated[int, Field(ge=1)] | None = None
    tool_parser: str | None = None
    reasoning_parser: str | None = None
    chat_template: str | None = None


class Verify(Model):
    """One proof that a patch is in place; exactly one of the keys."""

    marker: str | None = Field(None, description="Text that the target must contain.")
    sha256: str | None = Field(None, description="Digest that the target must have.")
    python: Program | None = Field(
        None, description="Expression that must be true; `text` is the target's content."
    )
    file: str | None = Field(None, description="File below a folder target; the target if absent.")

    @model_validator(mode="after")
    def _one(self) -> "Verify":
        if sum(value is not None for value in (self.marker, self.sha256, self.python)) != 1:
            raise ValueError("give exactly one of marker, sha256, python")
        return self


class PatchSpec(Model):
    """A change to the server's files that belongs to a variant."""

    id: Slug
    kind: Literal["file", "folder", "diff", "script", "symlink"] = "file"
    source: str = Field(description="File, folder, diff or script here; for a symlink its goal.")
    target: str = Field(description="What is replaced or changed on the node.")
    root: str = Field(description="Folder that the target must lie in.")
    eol: Literal["lf", "keep"] = "lf"
    verify: list[Verify] = []


class Package(Model):
    """The Python package that must be the one imported: the patched copy, not a shadow of it."""

    name: str
    root: str = Field(description="Folder that contains the package's folder.")


class Build(Model):
    """An image that is built on the nodes from committed files only (`git archive`)."""

    repo: str = Field(description="Git repository here.")
    ref: str = Field("HEAD", description="Commit, tag or branch.")
    file: str = Field("Dockerfile", description="Container file within it.")


class Container(Model):
    """The container that the server runs in."""

    image: str
    runtime: Literal["docker", "podman"] = "docker"
    pull: Literal["never", "missing"] = "never"
    load: str | None = Field(
        None, description="Archive on the nodes that holds the image, loaded where it is missing."
    )
    build: Build | None = None
    mounts: list[str] = Field([], description="HOST:CONTAINER[:OPTIONS]")
    devices: list[str] = []
    shm_size: str | None = None
    log_max_bytes: Annotated[int, Field(ge=1_000_000)] = Field(
        1_000_000_000, description="The runtime's own log of the container is kept below this."
    )
    model_path: str | None = Field(
        None, description="The model's path inside the container; model.path if absent."
    )
    args: list[str] = Field([], description="Further options of `run`.")


ArgValue = bool | int | float | str | list[str]


class ServerSpec(Model):
    """Engine, topology, arguments, environment, container and patches; or a server to attach to."""

    engine: Literal["llamacpp", "vllm", "sglang"]
    attach: str | None = Field(None, description="URL of a running server; it is only measured.")
    bind: str = Field("127.0.0.1", description="Address that the server listens on.")
    port: Annotated[int, Field(ge=1, le=65535)] = 18080
    nodes: list[Slug] = Field([], description="Nodes it runs on; the head alone if absent.")
    master_port: Annotated[int, Field(ge=1, le=65535)] = Field(
        29500, description="Port on the head at which the ranks of several nodes meet."
    )
    start_order: Literal["head_first", "workers_first"] = Field(
        "head_first", description="Order in which the ranks of several nodes are started."
    )
    topology: Topology = Topology()
    settings: Settings = Settings()
    args: dict[str, ArgValue] = {}
    env: dict[EnvName, str | Secret] = {}
    python: Program | None = Field(None, description="Interpreter on the node that has the engine.")
    cwd: str | None = None
    container: Container | None = None
    package: Package | None = None
    patches: list[PatchSpec] = []
    transport: Transport | None = Field(
        None, description="What the paths between cards must be; the gates of that name."
    )
    request: dict[str, bool | int | float | str] = Field(
        {"ignore_eos": True}, description="Extra fields of every measured request."
    )

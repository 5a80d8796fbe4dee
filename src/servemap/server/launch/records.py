"""What a node's files say of a server, checked: a damaged record is no record."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field


class Record(BaseModel):
    """A JSON object; keys that are not known here are kept as they are."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True)


class ProcessRecord(Record):
    """A process; `start` is None where it was gone before it was looked at."""

    pid: int
    start: int | None


class SupervisorRecord(Record):
    """The identity of a supervisor."""

    pid: int
    start: int
    boot_id: str


class RunningRecord(Record):
    """`current.json`: the server that was last started on a node."""

    model_config = ConfigDict(extra="forbid")

    variant: str
    fingerprint: str
    boot_id: str
    port: int
    supervisor: SupervisorRecord
    started_ns: int


class ExitRecord(Record):
    """How a server ended."""

    reason: str | None = None
    code: int | None = None
    signal: int | None = None
    oom_killed: bool | None = None


class ContainerRecord(Record):
    """The container of a server; `runtime` is the command line that it is reached with."""

    runtime: Annotated[list[str], Field(min_length=1)]


class StateRecord(Record):
    """`BOOT.state.json`, as `onnode.supervise` writes it."""

    machine_boot_id: str | None = None
    server: ProcessRecord | None = None
    started_ns: int | None = None
    ended_ns: int | None = None
    exit: ExitRecord | None = None
    container: ContainerRecord = Field(default_factory=lambda: ContainerRecord(runtime=["none"]))


def running_fields(text: str | None) -> dict[str, Any] | None:
    """Return what `current.json` says; None where it names no server.

    Raises:
        ValueError: it is damaged.
    """
    if text is None or text.strip() == "{}":
        return None
    return RunningRecord.model_validate_json(text).model_dump()


def state_fields(text: str | None) -> dict[str, Any]:
    """Return what the supervisor wrote of a start; empty where it wrote nothing.

    Raises:
        ValueError: it is damaged.
    """
    if text is None:
        return {}
    return StateRecord.model_validate_json(text).model_dump(exclude_unset=True)

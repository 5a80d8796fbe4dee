"""Gates: each check says what it saw and what to do; a failed question is a failed check."""

import posixpath
from dataclasses import asdict, dataclass, field
from typing import Any

from servemap.engines.base import Attachable, Effective, Endpoints, served_models
from servemap.model.server_spec import ModelSpec
from servemap.nodes.base import Node
from servemap.onnode.ask import shorten
from servemap.onnode.redact import redact_text
from servemap.onnode.ref_frames import OWNER
from servemap.server.gates.ask import Question, Reply, ask
from servemap.server.gates.ports import NodeView, is_running, port_owners, process_tree


@dataclass(frozen=True)
class Check:
    """One check; `ok` is None where the question has no answer and none is needed."""

    name: str
    ok: bool | None
    evidence: str
    remedy: str = ""

    def record(self) -> dict[str, Any]:
        """Return the check as it is stored: without what looks like a credential."""
        return {**asdict(self), "evidence": redact_text(self.evidence)}


@dataclass(frozen=True)
class Started:
    """The server's process on its node, as the gates need it.

    Attributes:
        pid: the server's process.
        start: its start time, field 22 of `/proc/PID/stat`.
        bind: address that the server listens on.
        port: port that it listens on.
        package_root: absolute folder, symbolic links resolved on the node, that the engine's
            package must be imported from; None if any will do.
        log: what the server's log gained since this start.
        view: the node's `/proc` after the start.
        also: further processes that are its own, such as those in its container, which are not
            descendants of `pid`.
    """

    pid: int
    start: int
    bind: str
    port: int
    package_root: str | None
    log: str
    view: NodeView
    also: frozenset[int] = frozenset()


@dataclass(frozen=True)
class GateResult:
    """The checks of one server and what the server says about itself."""

    checks: list[Check] = field(default_factory=list)
    effective: Effective = field(default_factory=Effective)

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return all(check.ok is not False for check in self.checks)


def run_gates(
    node: Node,
    adapter: Attachable,
    base_url: str,
    model: ModelSpec,
    started: Started | None = None,
    *,
    timeout_s: float = 30,
) -> GateResult:
    """Check a server; one that was only attached to (`started` None) by its answers alone.

    Args:
        node: where the server is asked: it may listen on the loopback of its head only.
        adapter: adapter of the engine.
        base_url: `http://HOST:PORT` at which the server is asked.
        model: the model that was asked for.
        started: the process on its node.
        timeout_s: limit of each question.
    """
    endpoints = adapter.endpoints(base_url)
    checks: list[Check] = []
    if started is not None:
        checks += [check_process(started), check_port(started)]
    completion, models, *said = ask(
        node,
        _one_token(endpoints, model, timeout_s),
        *(Question(url, timeout_s) for url in (endpoints.models, *endpoints.info.values())),
    )
    checks.append(_judge_completion(endpoints, completion, attached=started is None))
    info = {
        name: reply.text if reply.json is None else reply.json
        for name, reply in zip(endpoints.info, said, strict=True)
        if reply.error is None
    }
    effective = adapter.read_back(started.log if started else "", models.json, info)
    checks.append(check_model(effective, models, model.name))
    checks.append(check_context(effective, model.context, needed=started is not None))
    if started is not None and started.package_root is not None:
        checks.append(check_module(effective.module_path, started.package_root))
    return GateResult(checks, effective)


def check_process(started: Started) -> Check:
    """Check that the very process that was started runs."""
    process = started.view.processes.get(started.pid)
    if is_running(started.view.processes, started.pid, started.start):
        command = process.command if process else ""
        return Check("process", True, f"pid {started.pid} runs: {command}")
    if process is None:
        evidence = f"there is no process {started.pid}"
    elif process.start != started.start:
        evidence = f"pid {started.pid} is another process by now: {process.command}"
    else:
        evidence = f"pid {started.pid} has ended (state {process.state})"
    return Check("process", False, evidence, "the end of the server's log says why it stopped")


def check_port(started: Started) -> Check:
    """Check that our process or a descendant of it, and nobody else, listens on the port."""
    tree: frozenset[int] = frozenset()
    if is_running(started.view.processes, started.pid, started.start):
        tree = process_tree(started.view.processes, started.pid) | started.also
    owners = port_owners(started.view, started.port, started.bind)
    foreign = [owner for owner in owners if owner.process is None or owner.process.pid not in tree]
    if foreign:
        return Check(
            "port",
            False,
            "not ours: " + "; ".join(owner.text for owner in foreign),
            "stop that process if it is yours, or give another server.port",
        )
    if not owners:
        return Check(
            "port",
            False,
            f"nobody listens on {started.bind} port {started.port}",
            "see the server's log; server.port and server.bind must be what it listens on",
        )
    return Check("port", True, "; ".join(owner.text for owner in owners))


def check_completion(node: Node, endpoints: Endpoints, model: ModelSpec, timeout_s: float) -> Check:
    """Check that the model produces one token for a prompt of token ids, as cases send it."""
    (reply,) = ask(node, _one_token(endpoints, model, timeout_s))
    return _judge_completion(endpoints, reply, attached=False)


def _one_token(endpoints: Endpoints, model: ModelSpec, timeout_s: float) -> Question:
    low, high = model.vocab
    body = {
        "model": model.name,
        "prompt": list(range(low, min(low + 4, high))),
        "max_tokens": 1,
        "temperature": 0,
        "stream": False,
    }
    return Question(endpoints.completions, timeout_s, body)


def _judge_completion(endpoints: Endpoints, reply: Reply, *, attached: bool) -> Check:
    text = _text(reply.json) if reply.error is None else None
    if text is not None:
        silent = "" if text else " without any text: does the model's folder hold its tokenizer?"
        return Check("completion", True, f"{reply.url} produced a token{silent}")
    remedy = "see the server's log; the answer to /v1/completions must be a completion"
    if attached and reply.status is None:
        base = endpoints.completions.removesuffix("/v1/completions")
        remedy = f"nothing answers at {base}: start that server or mend server.attach"
    return Check("completion", False, reply.evidence, remedy)


def _text(answer: Any) -> str | None:
    """Return the text of a completion; None for an answer that is none."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return None
    text = choices[0].get("text")
    return text if isinstance(text, str) else None


def check_model(effective: Effective, reply: Reply, asked: str) -> Check:
    """Check that the asked model is among the served ones."""
    remedy = "give model.name as the server knows it; another server may answer at this address"
    if any(entry.get("owned_by") == OWNER for entry in served_models(reply.json)):
        evidence = f"{reply.url} is answered by {OWNER}, which simulates answers and is no engine"
        return Check("model", False, evidence, "give the address of the server to be measured")
    if not effective.model_names:
        return Check("model", False, reply.evidence, remedy)
    served = f"served: {shorten(', '.join(effective.model_names))}; asked: {asked}"
    if asked in effective.model_names:
        return Check("model", True, served)
    return Check("model", False, served, remedy)


def check_context(effective: Effective, asked: int, *, needed: bool) -> Check:
    """Check that a sequence may be as long as the campaign's; `needed`: the server must say it."""
    remedy = "lower model.context to what the server has"
    if needed:
        remedy = f"raise server.settings.context, or {remedy}"
    if effective.context is None:
        evidence = f"the server does not say its context length; asked: {asked}"
        return Check("context", False if needed else None, evidence, remedy)
    evidence = f"longest sequence {effective.context} tokens; asked: {asked}"
    if effective.context >= asked:
        return Check("context", True, evidence)
    return Check("context", False, evidence, remedy)


def check_module(module_path: str | None, package_root: str, *, needed: bool = True) -> Check:
    """Check that the engine was imported from the folder that the patches go to.

    `needed`: the log must say it; ranks beyond the first need not.
    """
    if module_path is None:
        return Check(
            "module",
            False if needed else None,
            "the server's log does not say which file was imported",
            "see the server's log; remove server.package if this engine cannot say it"
            if needed
            else "nothing: the files of the nodes are compared by the gate nodes_agree",
        )
    root = posixpath.normpath(package_root)
    evidence = f"imported {module_path}; wanted below {root}"
    if posixpath.normpath(module_path).startswith(root.rstrip("/") + "/"):
        return Check("module", True, evidence)
    return Check(
        "module",
        False,
        evidence,
        "another copy shadows the package: `python -m` looks in the start folder first; set "
        "server.cwd to a folder without such a copy, or set server.package.root to the copy",
    )

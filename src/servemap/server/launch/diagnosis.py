"""What the logs of a start that failed say: causes that are known, or the evidence there is."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from servemap.engines.failures import Finding, explain, memory_error
from servemap.engines.unknown import Unknown, explain_unknown
from servemap.model.errors import NodeError
from servemap.nodes.parallel import each
from servemap.onnode.redact import redact_text
from servemap.server.context import Context
from servemap.server.gates.checks import Check
from servemap.server.launch import exits, process
from servemap.server.launch.node_log import read_log
from servemap.server.launch.process import Running


@dataclass(frozen=True)
class Diagnosis:
    """What one rank's log says; `unknown` is the evidence where no cause is found in it."""

    findings: list[Finding]
    unknown: Unknown | None
    exit: str | None
    """How the rank ended, in words; None where it still runs."""

    @property
    def told(self) -> Finding | None:
        """What the log comes down to; None where it names nothing."""
        return next((f for f in self.findings if f.role != "request"), None)

    def say(self) -> str:
        """Return in words what the log comes down to; empty where it tells nothing."""
        return self._join(f" ({self.told.remedy})" if self.told else "")

    def say_with_evidence(self, known: str) -> str:
        """Return the same with the line that tells it, unless that is in the text `known`.

        Remedies speak of that line: it holds sizes, names, paths.
        """
        line = self.told.line if self.told else ""
        return self._join(f": {line}" if line and line not in known else "")

    def _join(self, after: str) -> str:
        words = [self.told.means.removesuffix(".") + after] if self.told else []
        if self.unknown is not None:
            words.append(self.unknown.say())
        return "; ".join(words)

    def record(self) -> dict[str, Any]:
        """Return the diagnosis as it is stored in `gate.json` and `launch.json`."""
        return {
            "findings": [asdict(finding) for finding in self.findings],
            "unknown": asdict(self.unknown) if self.unknown else None,
            "exit": self.exit,
        }


def diagnose(
    log_text: str, engine: str | None, *, exit_words: str | None, ready: bool
) -> Diagnosis:
    """Return what a log says about a start that failed.

    Args:
        log_text: the rank's log.
        engine: the engine that wrote it; None where that is not known.
        exit_words: how the rank ended; None where it still runs.
        ready: whether the server answered before a gate refused it, so that its log need not tell.
    """
    text = redact_text(log_text)
    findings = explain(text, engine, alive=exit_words is None)
    known = any(finding.role in ("cause", "stop") for finding in findings)
    silent = ready and exit_words is None
    return Diagnosis(findings, None if known or silent else explain_unknown(text), exit_words)


def diagnose_ranks(
    context: Context, engine: str, ranks: Mapping[str, Running], *, ready: bool
) -> dict[str, Diagnosis]:
    """Return what the log of each rank says, by node."""

    def look(node_id: str) -> Diagnosis:
        node, workdir, boot_id = (
            context.nodes[node_id],
            context.workdir(node_id),
            ranks[node_id].boot_id,
        )
        state = process.supervisor_state(node, workdir, boot_id)
        text = read_log(node, process.log_path(workdir, boot_id))
        ended = exits.say_exit(state) if state.get("exit") else None
        return diagnose(text, engine, exit_words=ended, ready=ready)

    return each(list(ranks), look)


def why_failed(diagnoses: Mapping[str, Diagnosis], failed: list[Check]) -> str:
    """Return what a failed start comes down to: what its logs mean, the checks, how it ended."""
    checks = [f"{check.name}: {check.evidence}" for check in failed]
    said = (one.say_with_evidence("; ".join(checks)) for one in diagnoses.values())
    words = dict.fromkeys(text for text in said if text)
    several = len(diagnoses) > 1
    ends = [
        f"{one.exit} (node {node_id})" if several else one.exit
        for node_id, one in diagnoses.items()
        if one.exit
    ]
    return "; ".join([*words, *checks, *ends])


def to_do(diagnoses: Mapping[str, Diagnosis], failed: list[Check]) -> str:
    """Return the remedy of a failed start: that of its first check, else what its logs ask for."""
    known = [one.told.remedy for one in diagnoses.values() if one.told is not None]
    return failed[0].remedy or " ".join(dict.fromkeys(known)) or "read the log there"


def why_lost(context: Context, variant: str, ranks: Mapping[str, Running]) -> list[str]:
    """Return what the logs of the ranks of a lost server say, each thing once.

    A rank that was killed says nothing of it: its last lines are then no evidence, nor is the
    orderly end of what it left. One that still runs tells only where its log names a cause, as that
    of a front end does whose workers ended. A node that gives no answer now says nothing.
    """
    try:
        found = diagnose_ranks(context, context.server(variant).engine, ranks, ready=True)
    except NodeError:
        return []
    telling = [one for one in found.values() if _tells(one)]
    return list(dict.fromkeys(said for one in telling if (said := one.say())))


def _tells(rank: Diagnosis) -> bool:
    if any(finding.role == "cause" for finding in rank.findings):
        return True
    if rank.exit is None or exits.KILLED not in rank.exit:
        return rank.exit is not None
    return rank.unknown is not None and bool(rank.unknown.errors)


def memory_errors(context: Context, variant: str, ranks: Mapping[str, Running]) -> list[str]:
    """Return in words which ranks ran out of memory, by their log or by how they ended.

    A node that gives no answer now says nothing.
    """
    engine = context.server(variant).engine

    def look(node_id: str) -> str | None:
        node, workdir = context.nodes[node_id], context.workdir(node_id)
        boot_id = ranks[node_id].boot_id
        try:
            state = process.supervisor_state(node, workdir, boot_id)
            log = read_log(node, process.log_path(workdir, boot_id))
        except NodeError:
            return None
        found = memory_error(redact_text(log), engine)
        if found is not None:
            return f"the server's memory was used up on {node_id}: {found.line}"
        killed = (state.get("exit") or {}).get("oom_killed")
        return f"{exits.say_exit(state)} (node {node_id})" if killed else None

    return [text for text in each(list(ranks), look).values() if text]

"""Lines of NCCL's and RCCL's own log, also where several writers share one file."""

import re
from collections.abc import Collection
from typing import NamedTuple

# What launchers put before a line: mpirun --tag-output, srun -l, mpiexec -l, torchrun --tee,
# kubectl --prefix, docker compose, pdsh.
_TAG = re.compile(
    r"\s{0,8}(?:\[([\w.@-]{1,99},\d{1,7})\]<std(?:out|err|diag)>:|(\d{1,6}): ?"
    r"|\[(\d{1,6})\] (?=[\s#\w])(?!NCCL )|\[([a-z]{1,20}\d{1,6})\]: ?|\[(pod/[\w./-]{1,200})\] "
    r"|([\w.-]{1,80})\s{0,20}\| |([A-Za-z][\w.-]{0,80}): (?=\s{0,20}(?:#|\d{1,20}\s{1,20}\d)))"
)
# Most lines are so; they are read in one step.
_PLAIN = re.compile(
    r"(?:\[([\w.@-]{1,99},\d{1,7})\]<std(?:out|err|diag)>:|(\d{1,6}): ?)?"
    r"([^\s:\[]{1,255}):(\d{1,10}):\d{1,10} \[(\d{1,4})\] NCCL INFO (.*)"
)
_MARK = re.compile(r"(?:^|(?<=\s))NCCL (INFO|WARN|ABORT|TRACE|CALL)(?: |$)")
# HOST:PID:TID [DEVICE] FILE:LINE (FUNCTION), as ncclDebugLogV of NCCL's src/debug.cc writes it.
_HEAD = re.compile(
    r"(?<!\S)(?P<host>[^\s:]{1,255}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10})"
    r"(?: \[(?P<device>-?\d{1,4})\])?"
    r"(?: [\d.]{1,30})?(?: (?P<place>[^\s:]{1,200}:\d{1,7}))?(?: \([^\s()]{1,200}\))? ?$"
)
_DEVICE_ONLY = re.compile(r"(?<!\S)\[(-?\d{1,4})\] ?$")
_HEAD_LENGTH = 900
# Ray writes once what several workers print.
_REPEATED = re.compile(r" {0,9}\[repeated \d{1,7}x across cluster\]")


class NcclLine(NamedTuple):
    """One message of one process.

    `lead` is what other writers left before it in the same line; the last of its characters may be
    the first ones of `host`, where both touch. `host`, `pid` and `device` are None where the head
    of the line was cut off.
    """

    level: str
    message: str
    lead: str
    host: str | None
    pid: int | None
    device: int | None
    place: str | None


def untag(line: str) -> tuple[str, str]:
    """Return what a launcher wrote before a line (a rank, a pod; else empty) and the rest."""
    match = _TAG.match(line)
    if match is None:
        return "", line
    return next(filter(None, match.groups()), ""), line[match.end() :]


def plain_line(line: str) -> tuple[str, NcclLine] | None:
    """Return the label of a launcher and the message of a line that is one message and no more."""
    match = _PLAIN.fullmatch(line)
    if match is None:
        return None
    label, rank, host, pid, device, message = match.groups()
    if "NCCL " in message or message.endswith("across cluster]"):
        return None
    found = NcclLine("INFO", message.strip(), "", host, int(pid), int(device), None)
    return label or rank or "", found


def nccl_lines(line: str) -> list[NcclLine]:
    """Return the messages of NCCL in a line: none, one, or several that ran into each other."""
    if "NCCL " not in line:
        return []
    marks = list(_MARK.finditer(line))
    heads = []
    for mark, before in zip(marks, [0, *(mark.end() for mark in marks)], strict=False):
        start = max(before, mark.start() - _HEAD_LENGTH)
        heads.append((_HEAD.search(line[start : mark.start()]), start, before))
    found = []
    for number, (mark, (head, start, before)) in enumerate(zip(marks, heads, strict=True)):
        end = len(line)
        if number + 1 < len(marks):
            next_head, next_start, _ = heads[number + 1]
            end = next_start + next_head.start() if next_head else marks[number + 1].start()
        lead = line[before : start + head.start() if head else mark.start()] if not number else ""
        message = _REPEATED.sub("", line[mark.end() : end]).strip()
        if head is None:
            device = _DEVICE_ONLY.search(line[start : mark.start()])
            number_of = int(device[1]) if device else None
            found.append(NcclLine(mark[1], message, lead, None, None, number_of, None))
            continue
        found.append(
            NcclLine(
                level=mark[1],
                message=message,
                lead=lead,
                host=head["host"],
                pid=int(head["pid"]),
                device=int(head["device"]) if head["device"] else None,
                place=head["place"],
            )
        )
    return found


def separated(messages: list[NcclLine], hosts: Collection[str]) -> list[NcclLine]:
    """Return the messages of one line with the names of their hosts set right.

    Where two messages touch, the end of the first stands before the host of the second; the hosts
    that other lines named tell them apart.
    """
    found: list[NcclLine] = []
    for message in messages:
        host = message.host
        if (found or message.lead) and host and host not in hosts:
            end = before_host(host, hosts)
            if end and found:
                found[-1] = found[-1]._replace(message=f"{found[-1].message} {end}")
            if end is not None:
                message = message._replace(host=host[len(end) :])
            elif found:
                message = message._replace(host=None)
        found.append(message)
    return found


def before_host(word: str, hosts: Collection[str]) -> str | None:
    """Return what stands before the known host with which `word` ends, or None."""
    return next((word[:start] for start in range(len(word)) if word[start:] in hosts), None)

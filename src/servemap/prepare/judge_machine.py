"""Judging a node's connection, Python, disk, clock, ports, limits and tools: pure functions."""

from collections.abc import Collection, Mapping
from typing import Any

from servemap.prepare.lines import Line, count_bytes, ok, unknown
from servemap.prepare.needs import needs
from servemap.prepare.survey import Answer
from servemap.prepare.wanted import Wanted

OLDEST_PYTHON = (3, 8)
NETWORK_FILE_SYSTEMS = frozenset(
    {
        "9p", "afs", "beegfs", "ceph", "cifs", "fuse.ceph", "fuse.glusterfs", "fuse.juicefs",
        "fuse.s3fs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2",
        "panfs", "pvfs2", "smb3", "wekafs",
    }
)  # fmt: skip
SMALLEST_ROOM = 200_000_000
CLOCK_OFFSET_NS = 100_000_000
CLOCK_ERROR_NS = 5_000_000
PERF_LEVEL = 0


def ssh_line(node: str, answer: Answer) -> Line:
    """Return whether the node can be reached, with the error's own words."""
    if answer.unreachable is not None:
        error = answer.unreachable
        return Line(node, "ssh", "FAIL", f"{error.what} ({error.where})", error.remedy)
    return ok(node, "ssh", answer.way)


def python_line(node: str, answer: Answer) -> Line:
    """Return whether the node's own program runs there."""
    if answer.broken is not None:
        error = answer.broken
        return Line(node, "python", "FAIL", error.what, error.remedy)
    found = answer.found.get("python")
    version = found.get("version") if isinstance(found, Mapping) else None
    if not isinstance(version, list) or not isinstance(found, Mapping):
        return unknown(node, "python", "no version was said", "look at it by hand on the node")
    text = ".".join(map(str, version))
    if tuple(version[:2]) < OLDEST_PYTHON:
        return Line(
            node,
            "python",
            "FAIL",
            f"{text}, {found.get('executable')}",
            "install Python 3.8 or newer and name it as nodes.python",
        )
    return ok(node, "python", f"{text}, {found.get('executable')}")


def work_folder_line(node: str, disk: Mapping[str, Any]) -> Line:
    """Return whether the work folder is writable and on a local disk."""
    check, folder, kind = "work folder", str(disk["path"]), disk.get("type")
    if not disk["writable"]:
        return Line(
            node,
            check,
            "FAIL",
            f"{folder}: this user may not write in {disk['folder']}",
            "give the folder to this user, or name another as nodes.workdir",
        )
    if kind in NETWORK_FILE_SYSTEMS:
        return Line(
            node,
            check,
            "warn",
            f"{folder} is on {kind}, a network file system",
            "name a folder on a local disk as nodes.workdir: what is written while a case runs "
            "shares its network",
        )
    return ok(node, check, f"{folder} on {kind or 'an unknown file system'}")


def room_line(node: str, check: str, free: int, planned: int, elsewhere: str) -> Line:
    """Return whether planned bytes fit into free ones, with room for attempts that are repeated."""
    seen = f"{count_bytes(free)} free, {count_bytes(planned)} planned"
    if planned > free or free < SMALLEST_ROOM:
        return Line(node, check, "FAIL", seen, f"make room, or {elsewhere}")
    if 2 * planned > free:
        return Line(
            node, check, "warn", seen, f"repeated attempts may double the plan: {elsewhere}"
        )
    return ok(node, check, seen)


def clock_line(node: str, offset_ns: int, error_ns: int) -> Line:
    """Return how far the node's clock is from ours, and how well that is known."""
    seen = f"{offset_ns / 1e6:+.2f} ms from here, known to {error_ns / 1e6:.2f} ms"
    if error_ns > CLOCK_ERROR_NS:
        return Line(
            node,
            "clock",
            "warn",
            seen,
            "look at the way to the node: its answers take long or vary, and events of different "
            "nodes can be told apart no better than this",
        )
    if abs(offset_ns) > CLOCK_OFFSET_NS:
        return Line(
            node,
            "clock",
            "warn",
            seen,
            "start a time service there (chronyc tracking); the offset is taken out of the "
            "results, a step in the middle of a case is not",
        )
    return ok(node, "clock", seen)


def kernel_line(
    wanted: Wanted, found: Mapping[str, Any], machines: Mapping[str, Mapping[str, Any]]
) -> Line:
    """Return whether the node is a machine of its own with the kernel of the others.

    Args:
        wanted: the node.
        found: which machine it is.
        machines: the same of all nodes that said it, the first one is compared with.
    """
    node, release = wanted.spec.id, str(found.get("release"))
    for other, machine in machines.items():
        if other != node and all(
            found.get(key) and found.get(key) == machine.get(key) for key in ("boot_id", "hostname")
        ):
            return Line(
                node,
                "machine",
                "FAIL",
                f"it is the same machine as {other}, {found['hostname']}",
                "mend nodes.address and nodes.host: each node is a machine of its own",
            )
    first, reference = next(iter(machines.items()), (node, found))
    if wanted.meets_others and reference.get("release") != found.get("release"):
        return Line(
            node,
            "machine",
            "FAIL",
            f"kernel {release} here and {reference.get('release')} on {first}",
            "bring the nodes to the same kernel, or set policy.on_drift: mark",
        )
    return ok(node, "machine", f"{found.get('hostname')}, kernel {release}")


def address_line(wanted: Wanted, found: Mapping[str, Any]) -> Line:
    """Return whether the address that others use is one of this machine's."""
    node, address = wanted.spec.id, wanted.spec.address
    if found.get("ours"):
        return ok(node, "address", address)
    return Line(
        node,
        "address",
        "FAIL",
        f"{address} is no address of this machine: {found.get('reason')}",
        "give as nodes.address one that `ip address` shows there; what ssh connects to is "
        "nodes.host",
    )


def ports_line(
    wanted: Wanted, rows: list[Mapping[str, Any]], own_boots: Collection[str] = ()
) -> Line:
    """Return whether the ports of the server are free, or held by a server that we started.

    `own_boots` are the starts of servers that the campaign's run tells of.
    """
    node = wanted.spec.id
    named = ", ".join(f"{port} ({key})" for port, key in sorted(wanted.ports.items()))
    if not rows:
        return ok(node, "ports", f"free: {named}")
    held = []
    for row in rows:
        owner = (
            f"pid {row['pid']} ({row['comm']})"
            if row.get("pid") is not None
            else f"a process of uid {row['uid']}, whose pid this user cannot see"
        )
        boot = row.get("boot_id")
        if boot:
            whose = "of this run" if boot in own_boots else "of another run"
            owner += f", a server that servemap started, {whose} (start {boot})"
        held.append(f"{row['port']}: {owner}")
    said = f"held: {'; '.join(dict.fromkeys(held))}"
    if all(row.get("boot_id") in own_boots for row in rows):
        return Line(
            node,
            "ports",
            "warn",
            said,
            "nothing: the run's own server is used again, or is ended before another one starts",
        )
    return Line(
        node,
        "ports",
        "FAIL",
        said,
        "stop it (`servemap status` names what is ours), or choose another port: "
        + ", ".join(sorted({wanted.ports.get(int(row["port"]), "server.port") for row in rows})),
    )


def tools_line(wanted: Wanted, found: Mapping[str, Any]) -> Line:
    """Return whether the tools of collectors, baselines and facts are there."""
    node, install = wanted.spec.id, needs().install
    missing = [tool for tool in sorted(wanted.tools) if not found.get(tool)]
    if not missing:
        names = ", ".join(sorted(wanted.tools)) or "none is needed"
        return ok(node, "tools", names)
    return Line(
        node,
        "tools",
        "FAIL" if wanted.required & set(missing) else "warn",
        "; ".join(f"no {tool}, for {', '.join(wanted.tools[tool])}" for tool in missing),
        "; ".join(install.get(tool, f"install {tool}") for tool in missing),
    )


def sudo_line(node: str, found: Mapping[str, Any]) -> Line:
    """Return whether `sudo -n` works where the campaign says become."""
    if found.get("works"):
        return ok(node, "sudo", "sudo -n works")
    return Line(
        node,
        "sudo",
        "FAIL",
        f"sudo -n: {found.get('said')}",
        "allow it without a password (NOPASSWD in sudoers), or set become: false",
    )


def memlock_line(wanted: Wanted, found: Mapping[str, Any]) -> Line:
    """Return whether a server may pin memory for RDMA."""
    node, soft = wanted.spec.id, found.get("soft_bytes")
    if not wanted.bare:
        return ok(node, "memlock", "the container is started with an unlimited one")
    if soft is None:
        return ok(node, "memlock", "unlimited")
    return Line(
        node,
        "memlock",
        "FAIL",
        f"{count_bytes(float(soft))}, and a rail has an RDMA device",
        "put `USER - memlock unlimited` into /etc/security/limits.d/ and log in anew",
    )


def perf_line(node: str, found: Mapping[str, Any], user: Mapping[str, Any]) -> Line:
    """Return whether this user may count hardware events of the whole machine."""
    level = found.get("level")
    if level is None:
        return unknown(
            node,
            "perf events",
            f"no perf_event_paranoid: {found.get('reason')}",
            "a kernel with perf events is needed for hardware counters only",
        )
    if level <= PERF_LEVEL or user.get("uid") == 0:
        return ok(node, "perf events", f"perf_event_paranoid {level}, uid {user.get('uid')}")
    return Line(
        node,
        "perf events",
        "warn",
        f"perf_event_paranoid {level}: this user sees its own processes only",
        "sysctl kernel.perf_event_paranoid=0 for hardware counters of the whole machine",
    )

"""Judging cards, container runtime, image and model files of a node: pure functions."""

from collections.abc import Mapping
from typing import Any

from servemap.model.server_spec import Container
from servemap.prepare.lines import WAITS, Line, count_bytes, ok, some, unknown
from servemap.prepare.wanted import Wanted


def cards_line(wanted: Wanted, found: Mapping[str, Any]) -> Line:
    """Return whether the node has as many cards as the campaign says."""
    node, planned, count = wanted.spec.id, wanted.spec.accelerators, found.get("count")
    said = "; ".join(found.get("errors") or [])
    if count is None:
        return Line(
            node,
            "accelerators",
            "FAIL",
            said or "no tool for accelerators is on PATH",
            "install the driver and its tool (nvidia-smi, rocm-smi, ixsmi), or mend the driver",
        )
    seen = f"{count} by {found.get('tool')}, {planned} in the campaign"
    if count != planned:
        return Line(
            node, "accelerators", "FAIL", seen, "mend nodes.accelerators, or look for lost cards"
        )
    return ok(node, "accelerators", seen)


def runtime_line(wanted: Wanted, found: Mapping[str, Any]) -> Line:
    """Return whether the container runtime answers this user."""
    node = wanted.spec.id
    if found.get("error"):
        return Line(
            node,
            "container runtime",
            "FAIL",
            str(found["error"]),
            "install and start it; put the user into its group, or set become: true for sudo -n",
        )
    become = " by sudo -n" if wanted.spec.become else ""
    return ok(node, "container runtime", f"{found.get('version')}{become}")


def image_line(
    node: str,
    check: str,
    container: Container,
    found: Mapping[str, Any] | None,
    reference: tuple[str, Mapping[str, Any]] | None,
) -> Line:
    """Return whether an image is there and the same as on the node that is compared with."""
    name = container.image
    if found is None:
        return _missing_image(node, check, container)
    identity = short_id(str(found["id"]))
    if reference is not None and not same_image(found, reference[1]):
        other = short_id(str(reference[1]["id"]))
        return Line(
            node,
            check,
            "FAIL",
            f"{name} is {identity} here and {other} on {reference[0]}",
            "bring one image to all nodes: save and load it, or pull it by digest",
        )
    return ok(node, check, f"{name} {identity}")


def _missing_image(node: str, check: str, container: Container) -> Line:
    comes = None
    if container.load:
        comes = f"loaded from {container.load}"
    elif container.build:
        comes = f"built from {container.build.repo}"
    elif container.pull == "missing":
        comes = "pulled"
    if comes:
        return Line(
            node,
            check,
            "warn",
            f"{container.image} is not there; it is {comes} at the first start",
            "have it there before, so that the first start takes no longer than others",
        )
    return Line(
        node,
        check,
        "FAIL",
        f"{container.image} is not there, and container.pull is never",
        "load or pull it on the node, or set container.pull, load or build",
    )


def same_image(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two images have one id or share a digest."""
    return bool(one["id"] == other["id"] or set(one["digests"]) & set(other["digests"]))


def short_id(identity: str) -> str:
    """Return an image's id as people write it."""
    return identity.removeprefix("sha256:")[:12]


def engine_line(
    node: str,
    check: str,
    asked: Mapping[str, Any],
    found: Mapping[str, Any],
    reference: tuple[str, Mapping[str, str]] | None,
) -> Line:
    """Return whether the server's interpreter has the engine, the same as the node compared with.

    Args:
        node: the node.
        check: name of the line.
        asked: interpreter, modules and the folder that is searched first.
        found: what the survey says of them.
        reference: a node and {package: version} of its interpreter.
    """
    python = str(asked["python"])
    if "error" in found:
        return Line(
            node,
            check,
            "FAIL",
            f"{python}: {_plain(found['error'], python)}",
            "give as server.python the interpreter on the node that has the engine",
        )
    missing = [name for name, place in found["modules"].items() if place is None]
    if missing:
        root = f" or {asked['root']}" if asked["root"] else ""
        return Line(
            node,
            check,
            "FAIL",
            f"{python}{root} has no module {', '.join(missing)}",
            "install the engine there, or mend server.python and server.package.root",
        )
    if reference is not None:
        different = different_packages(found["packages"], reference[1])
        if different:
            return Line(
                node,
                check,
                "FAIL",
                f"{python} differs from that of {reference[0]}: {some(different, 3)}",
                "bring the nodes to the same versions, or set policy.on_drift: mark",
            )
    modules = ", ".join(found["modules"])
    return ok(node, check, f"{modules} in {found.get('executable')}, {found.get('version')}")


def client_line(node: str, name: str, found: Mapping[str, Any]) -> Line:
    """Return whether the interpreter of a load client of others has it.

    Args:
        node: the node that the load runs on.
        name: the client.
        found: `asked`, the request to the survey, and `answer`, what it says.
    """
    check, python, answer = f"client {name}", str(found["asked"]["python"]), found["answer"]
    remedy = f"install it there, or name as clients.{name}.python the interpreter that has it"
    if "error" in answer:
        return Line(node, check, "FAIL", f"{python}: {_plain(answer['error'], python)}", remedy)
    (package,) = found["asked"]["modules"]
    if answer["modules"].get(package) is None:
        return Line(node, check, "FAIL", f"{python} has no module {package}", remedy)
    version = answer["packages"].get(package, "of unknown version")
    return ok(node, check, f"{package} {version} in {python}")


def _plain(error: str, python: str) -> str:
    """Return why an interpreter gave no answer, without its path, which stands before it."""
    return error.removeprefix("ValueError: ").removesuffix(f": {python}")


def different_packages(here: Mapping[str, str], there: Mapping[str, str]) -> list[str]:
    """Return what differs between two listings of {package: version}, in words."""
    return [
        f"{name} {here.get(name, 'missing')} (there {there.get(name, 'missing')})"
        for name in sorted({*here, *there})
        if here.get(name) != there.get(name)
    ]


def model_line(
    node: str,
    path: str,
    found: Mapping[str, Any],
    reference: tuple[str, Mapping[str, int]] | None,
) -> Line:
    """Return whether the model is readable and its files are those of the node compared with.

    Names and sizes are compared, no contents: the campaign's own freeze hashes them.
    """
    files: Mapping[str, int] = found["files"]
    remedy = f"copy the model to {path}, readable for this user, or mend model.path"
    if found["errors"]:
        return Line(node, "model", "FAIL", f"{path}: {some(found['errors'], 2)}", remedy)
    if not files:
        return Line(node, "model", "FAIL", f"{path} holds no file", remedy)
    if reference is not None:
        differences = different_files(files, reference[1])
        if differences:
            return Line(
                node,
                "model",
                "FAIL",
                f"{path} differs from that of {reference[0]}: {some(differences, 3)}",
                "copy the model anew from one node to the other",
            )
    size = count_bytes(sum(files.values()))
    return ok(node, "model", f"{len(files)} file{'s' if len(files) > 1 else ''}, {size}: {path}")


def different_files(here: Mapping[str, int], there: Mapping[str, int]) -> list[str]:
    """Return what differs between two listings of {name: bytes}, in words."""
    words = []
    for name in sorted({*here, *there}):
        if name not in here:
            words.append(f"{name} is missing")
        elif name not in there:
            words.append(f"{name} is only here")
        elif here[name] != there[name]:
            words.append(f"{name} has {here[name]} bytes instead of {there[name]}")
    return words


def no_answer(node: str, check: str) -> Line:
    """Return the line of a check that needs an answer of a node that gave none."""
    return unknown(node, check, "the node gave no answer", WAITS)

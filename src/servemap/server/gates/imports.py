"""The gate `patches`: what a server's processes imported of the files that patches changed."""

import posixpath
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from servemap.onnode.ask import shorten
from servemap.server.gates.checks import Check

MAX_NAMED = 8
PROCESS_CHARS = 60
_PYTHON = re.compile(r"^(python|pypy)[\d.]*\w*( \(deleted\))?$")


@dataclass(frozen=True)
class Import:
    """A module that a process compiled; `inherited` from the process that it was forked from."""

    module: str
    file: str
    sha256: str
    inherited: bool


@dataclass(frozen=True)
class Importer:
    """A running process of a server and what it noted of the files that are watched.

    Attributes:
        pid: its number on the node.
        command: its command line, or the name that it gave itself.
        program: the file that it executes; None where this user may not see it.
        began: whether it notes its imports at all.
        imports: what it noted.
    """

    pid: int
    command: str
    program: str | None
    began: bool
    imports: tuple[Import, ...] = ()

    @property
    def silent(self) -> bool:
        """Whether it may import what is watched without a word: Python without the hook."""
        name = posixpath.basename(self.program) if self.program else None
        return not self.began and (name is None or _PYTHON.match(name) is not None)

    @property
    def text(self) -> str:
        """The process in words."""
        return f"pid {self.pid} ({shorten(self.command, PROCESS_CHARS)})"


def parse_importers(data: Any, commands: Mapping[int, str]) -> list[Importer]:
    """Return the processes that the on-node program `patch-notes` told of.

    Args:
        data: its answer.
        commands: command lines by pid.

    Raises:
        ValueError: the answer is of another shape.
    """
    try:
        return [
            Importer(
                int(one["pid"]),
                commands.get(one["pid"], ""),
                None if one["program"] is None else str(one["program"]),
                one["began"] is True,
                tuple(map(_import, one["imports"])),
            )
            for one in data["processes"]
        ]
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"not what processes imported ({error})") from error


def _import(item: Any) -> Import:
    module, file, digest = (str(item[key]) for key in ("module", "file", "sha256"))
    return Import(module, file, digest, item["inherited"] is True)


def final_files(record: Mapping[str, Any]) -> dict[str, str | None]:
    """Return each file that patches of a node's record changed, with the sha256 that it has now.

    None for what is no file with contents, such as a link.
    """
    patches = record.get("patches") or {}
    return {
        str(file["path"]): file.get("sha256_after")
        for name in record.get("order") or patches
        for file in patches[name]["files"]
    }


def watchable(record: Mapping[str, Any]) -> list[str]:
    """Return the files of a node's record whose import can be noted: Python sources."""
    return [
        path
        for path, digest in final_files(record).items()
        if digest and path.endswith(".py") and not set("\n\t\r") & set(path)
    ]


def inside_path(path: str, mounts: Mapping[str, str]) -> str:
    """Return the path that a container has for a file of its node; the same where it has none.

    `mounts` are folders and files of the node and where the container has them.
    """
    for host in sorted(mounts, key=len, reverse=True):
        if path == host or path.startswith(host.rstrip("/") + "/"):
            return posixpath.normpath(mounts[host] + "/" + path[len(host) :])
    return path


def judge_imports(record: Mapping[str, Any], importers: Sequence[Importer]) -> list[Check]:
    """Return a check for each patch of a node: which processes run what it made.

    It fails where a process compiled other bytes than the patches left, or another copy of a
    patched module. It has no answer where no process imported anything that the patch changed, so
    that the patch does nothing, or where a process does not note its imports.
    """
    final = final_files(record)
    watched = watchable(record)
    patches = record.get("patches") or {}
    checks = []
    for name in record.get("order") or patches:
        paths = list(dict.fromkeys(str(file["path"]) for file in patches[name]["files"]))
        seen = [
            (one, item)
            for one in importers
            for item in one.imports
            if any(_stands_for(item, path, final) for path in paths)
        ]
        check = _judge(paths, watched, seen, final, [one for one in importers if one.silent])
        checks.append(replace(check, name=f"patches.{name}"))
    return checks


def import_rows(importers: Sequence[Importer]) -> list[dict[str, Any]]:
    """Return what the processes imported, as it is stored."""
    return [
        {"pid": one.pid, "process": shorten(one.command, PROCESS_CHARS), **asdict(item)}
        for one in importers
        for item in one.imports
    ]


Seen = Sequence[tuple[Importer, Import]]


def _judge(
    paths: Sequence[str],
    watched: Sequence[str],
    seen: Seen,
    final: Mapping[str, str | None],
    silent: Sequence[Importer],
) -> Check:
    wrong = [(one, item) for one, item in seen if item.sha256 != final.get(item.file)]
    if wrong:
        said = "; ".join(
            f"{one.text} imported {item.module} from {_say(item.file, item.sha256)}"
            for one, item in wrong[:MAX_NAMED]
        )
        left = [path for path in paths if any(_stands_for(i, path, final) for _, i in wrong)]
        patched = "; ".join(_say(path, final[path]) for path in left[:MAX_NAMED])
        return Check(
            "",
            False,
            f"{said}; patched is {patched}",
            "where the file is another one, a copy shadows the package: set server.cwd or "
            "server.package so that the patched one is found; where its contents are, somebody "
            "changes it while the server starts",
        )
    if silent:
        return Check(
            "",
            None,
            f"not known: {_list(one.text for one in silent)} "
            f"{'does' if len(silent) == 1 else 'do'} not note what is imported; {_right(seen)}",
            "the hook comes first on PYTHONPATH: see that what starts these processes hands the "
            "environment on, without python -I, -E or -S",
        )
    told = _right(seen)
    sources = [path for path in paths if path in watched]
    never = [path for path in sources if not any(_stands_for(i, path, final) for _, i in seen)]
    unseen = [path for path in paths if path not in watched]
    if never:
        told += f"; never imported: {_list(never)}"
    if unseen:
        told += f"; no Python source, so not seen from inside: {_list(unseen)}"
    if seen:
        return Check("", True, told)
    remedy = "if nothing imports it later, the patch changes nothing: patch the file that is used"
    return Check("", None, told, remedy if never else "prove it by what the server does")


def _stands_for(item: Import, path: str, patched: Collection[str]) -> bool:
    """Whether an import is that of a file, or of a copy of it under the same module name.

    A patched module of one word is not the one of the same name inside a package.
    """
    if item.file == path:
        return True
    module = path.removesuffix(".py").removesuffix("/__init__")
    other = "." not in item.module and item.file in patched
    return not other and module.endswith("/" + item.module.replace(".", "/"))


def _right(seen: Seen) -> str:
    """Return in words which processes imported which file."""
    by_file: dict[str, list[str]] = {}
    for one, item in seen:
        by_file.setdefault(_say(item.file, item.sha256), []).append(
            one.text + (", by a fork" if item.inherited else "")
        )
    said = [f"{file} imported by {_list(texts)}" for file, texts in by_file.items()]
    return _list(said) if said else "no process of the server imported a file that it changed"


def _say(path: str, digest: str | None) -> str:
    return f"{path} (sha256 {digest[:12]})" if digest else path


def _list(texts: Iterable[str]) -> str:
    found = list(texts)
    more = len(found) - MAX_NAMED
    return ", ".join(found[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")

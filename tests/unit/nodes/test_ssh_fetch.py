"""Folders that arrive: whole, checked, inside; the sender and the receiver of `pack`."""

import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.model.errors import NodeError
from servemap.nodes.ssh import SshNode
from servemap.nodes.ssh_fetch import Stream, known_files, receive, target_of
from servemap.onnode import pack


def stream_of(data: bytes, piece: int = 7) -> Stream:
    source = io.BytesIO(data)
    return Stream(lambda: source.read(piece))


def packed(folder: Path, have: dict[str, Any] | None = None, limit: int | None = None) -> bytes:
    out = io.BytesIO()
    pack.pack({"folder": str(folder), "have": have or {}, "max_bytes": limit}, out)
    return out.getvalue()


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source folder"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a b\n'c").write_bytes(b"text\n0\n")
    (folder / "empty").touch()
    (folder / "deep" / "er" / "big").write_bytes(os.urandom(3_000_000))
    os.utime(folder / "empty", ns=(5, 1_700_000_000_123_456_789))
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "deep" / "link").symlink_to("/etc")
    os.mkfifo(folder / "pipe")
    return folder


def test_a_folder_comes_over_ssh(node: SshNode, source: Path, tmp_path: Path) -> None:
    local = tmp_path / "local"
    found = node.fetch(str(source), local)
    assert tree(local) == tree(source)
    assert {item.path: (item.size, item.sha256, item.changed) for item in found} == {
        name: (len(data), hashlib.sha256(data).hexdigest(), False)
        for name, data in tree(source).items()
    }
    assert (local / "empty").stat().st_mtime_ns == 1_700_000_000_123_456_789
    assert sorted(path.name for path in local.rglob("*")) == [
        "a b\n'c",
        "big",
        "deep",
        "empty",
        "er",
    ]
    # what is here already stays, what is not the same any more is replaced
    kept = (local / "deep" / "er" / "big").stat().st_ino
    damaged = local / "a b\n'c"
    status = damaged.stat()
    damaged.write_bytes(b"damaged")
    os.utime(damaged, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert node.fetch(str(source), local) == found
    assert tree(local) == tree(source)
    assert (local / "deep" / "er" / "big").stat().st_ino == kept


def test_what_cannot_be_fetched_is_said(node: SshNode, source: Path, tmp_path: Path) -> None:
    with pytest.raises(NodeError, match="no such folder") as caught:
        node.fetch("/no/such/folder", tmp_path / "x")
    assert "/no/such/folder" in caught.value.where
    with pytest.raises(NodeError, match="holds 3000007 bytes, allowed are 1000"):
        node.fetch(str(source), tmp_path / "y", max_bytes=1000)
    assert tree(tmp_path / "y") == {}
    (tmp_path / "file").touch()
    with pytest.raises(NodeError, match="failed here"):
        node.fetch(str(source), tmp_path / "file")


@given(
    files=st.dictionaries(st.sampled_from("abcdef"), st.binary(max_size=300), max_size=4),
    piece=st.integers(1, 50),
)
def test_what_is_packed_arrives(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], piece: int
) -> None:
    source = tmp_path_factory.mktemp("from")
    local = tmp_path_factory.mktemp("to")
    for name, data in files.items():
        (source / name).write_bytes(data)
    found = receive(stream_of(packed(source), piece), local, {}, None)
    assert tree(local) == files
    again = packed(source, known_files(local))
    assert len(again) < 400 * len(files) + 100
    assert receive(stream_of(again, piece), local, known_files(local), None) == found


@given(cut=st.floats(0, 0.999))
def test_a_stream_that_ends_early_leaves_whole_files_only(
    tmp_path_factory: pytest.TempPathFactory, cut: float
) -> None:
    source = tmp_path_factory.mktemp("from")
    local = tmp_path_factory.mktemp("to")
    for name in "abc":
        (source / name).write_bytes(name.encode() * 500)
    data = packed(source)
    with pytest.raises(EOFError):
        receive(stream_of(data[: int(cut * len(data))], 64), local, {}, None)
    assert set(tree(local).items()) <= set(tree(source).items())


@given(data=st.binary(max_size=300))
def test_garbage_is_an_error_that_is_expected(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    local = tmp_path_factory.mktemp("to")
    with pytest.raises((EOFError, ValueError, NodeError)):
        receive(stream_of(data), local, {}, None)
    assert tree(local) == {}


def lines(*values: dict[str, Any] | bytes) -> bytes:
    return b"".join(
        value if isinstance(value, bytes) else json.dumps(value).encode() + b"\n"
        for value in values
    )


def one_file(name: str, data: bytes, **end: Any) -> bytes:
    return lines(
        {"files": 1, "bytes": len(data)},
        {"path": name, "size": len(data), "mtime_ns": 1},
        f"{len(data)}\n".encode() + data + b"0\n",
        {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "changed": False, **end},
        {"end": True},
    )


@pytest.mark.parametrize(
    "name", ["../x", "/x", "a/../../x", "", ".", "a//b", "out/x", "out", "a\0b", "folder"]
)
def test_no_path_leaves_the_folder(tmp_path: Path, name: str) -> None:
    local = tmp_path / "local"
    (local / "folder").mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (local / "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="folder"):
        receive(stream_of(one_file(name, b"data")), local, {}, None)
    assert tree(tmp_path) == {}
    assert target_of(local, "folder/x") == local / "folder" / "x"


def test_a_wrong_digest_is_refused(tmp_path: Path) -> None:
    for wrong in ({"sha256": "0" * 64}, {"size": 3}):
        with pytest.raises(NodeError, match="another digest"):
            receive(stream_of(one_file("x", b"data", **wrong)), tmp_path, {}, None)
    with pytest.raises(ValueError, match="is not here"):
        same = {"path": "x", "size": 4, "mtime_ns": 1, "same": True, "sha256": "0"}
        receive(stream_of(lines({"files": 1, "bytes": 4}, same)), tmp_path, {}, None)
    assert tree(tmp_path) == {}


def test_a_file_that_grows_beyond_the_limit_is_not_taken(tmp_path: Path) -> None:
    data = one_file("x", b"d" * 100).replace(b'"bytes": 100', b'"bytes": 10')
    with pytest.raises(NodeError, match="grew"):
        receive(stream_of(data), tmp_path, {}, 50)
    assert tree(tmp_path) == {}


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.replace(b'"mtime_ns": 1', b'"mtime_ns": ' + b"1" + b"0" * 40),
        lambda data: data.replace(b'"mtime_ns": 1', b'"mtime_ns": -1'),
        lambda data: b"[" * 100_000 + b"\n",
        lambda data: data.replace(b'"path": "x"', b'"path": "\\ud800"'),
    ],
)
def test_a_malicious_stream_is_an_error_that_is_expected(tmp_path: Path, change: Any) -> None:
    data = change(one_file("x", b"data"))
    with pytest.raises(ValueError, match=r"\w"):
        receive(stream_of(data), tmp_path, {}, None)
    assert tree(tmp_path) == {}


def test_a_name_as_long_as_names_can_be_arrives(tmp_path: Path) -> None:
    name = "a" * 255
    receive(stream_of(one_file(name, b"data")), tmp_path, {}, None)
    assert tree(tmp_path) == {name: b"data"}


def test_too_many_files_are_refused_on_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, local = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    local.mkdir()
    for number in range(3):
        (source / str(number)).write_bytes(b"")
    whole = packed(source)
    assert len(receive(stream_of(whole), local, {}, None)) == 3
    monkeypatch.setattr("servemap.nodes.ssh_fetch.MAX_FILES", 2)
    with pytest.raises(ValueError, match="more than 2 files"):
        receive(stream_of(whole), local, {}, None)
    monkeypatch.setattr("servemap.onnode.pack.MAX_FILES", 2)
    with pytest.raises(OSError, match="more than 2 files"):
        packed(source)


class Meddling(io.BytesIO):
    """Changes a file while it is sent."""

    def __init__(self, path: Path, change: Any) -> None:
        super().__init__()
        self._path, self._change = path, change

    def write(self, data: Any) -> int:
        if self._change is not None and len(data) > 100_000:
            self._change(self._path)
            self._change = None
        return super().write(data)


def grow(path: Path) -> None:
    with path.open("ab") as handle:
        handle.write(b"more")


def shrink(path: Path) -> None:
    with path.open("r+b") as handle:
        handle.truncate(pack.BLOCK + 5)


@pytest.mark.parametrize(("change", "size"), [(grow, 3 << 20), (shrink, pack.BLOCK + 5)])
def test_a_file_that_changes_while_it_is_read_is_marked(
    tmp_path: Path, change: Any, size: int
) -> None:
    source, local = tmp_path / "from", tmp_path / "to"
    source.mkdir()
    local.mkdir()
    (source / "a").write_bytes(os.urandom(3 << 20))
    (source / "b").write_bytes(b"quiet")
    out = Meddling(source / "a", change)
    pack.pack({"folder": str(source), "have": {}, "max_bytes": None}, out)
    first, second = receive(stream_of(out.getvalue(), 1 << 16), local, {}, None)
    assert (first.changed, first.size) == (True, size)
    assert first.sha256 == hashlib.sha256((local / "a").read_bytes()).hexdigest()
    assert (second.changed, second.size) == (False, 5)


def test_a_file_that_changed_since_it_was_listed_is_marked(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"first")
    listed = os.lstat(path)
    path.write_bytes(b"second")
    out: BinaryIO = io.BytesIO()
    pack.send_file(str(tmp_path), "a", listed, out)
    out.seek(0)
    assert json.loads(out.read().splitlines()[-1])["changed"] is True


def test_files_that_vanish_or_become_links_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.touch()
    listed = os.lstat(path)
    path.unlink()
    out = io.BytesIO()
    pack.send_file(str(tmp_path), "a", listed, out)
    path.symlink_to("/etc/passwd")
    pack.send_file(str(tmp_path), "a", listed, out)
    assert out.getvalue() == b""

"""What lies where a JSON file should: a pipe, a device, a folder, garbage. Nobody waits for it."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servemap.analysis.repeats import read_object
from servemap.analysis.store import read_table
from servemap.measure.client import error_classes, last_words
from servemap.model.attempts import read_json
from servemap.model.canon import file_sha256
from servemap.model.errors import ConfigError, NodeError, ResultsError
from servemap.model.files import parse_json, read_bytes
from servemap.model.load import assemble, read_yaml
from servemap.nodes.local import LocalNode
from servemap.parsers.jsonl import stream_jsonl
from servemap.server.events import append_event, read_events
from servemap.server.locks import read_holder, try_lock

DEEP = "[" * 200_000

pytestmark = pytest.mark.timeout(120)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path) -> None:
    path.mkdir()


@pytest.fixture(params=[fifo, device, folder])
def odd(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    make: Callable[[Path], None] = request.param
    return make


def test_readers_of_results_take_it_for_unreadable(
    tmp_path: Path, odd: Callable[[Path], None]
) -> None:
    path = tmp_path / "x.json"
    odd(path)
    assert read_json(path) is None
    assert read_holder(path) == {}
    value, trouble = read_object(path)
    assert value == {}
    assert trouble is not None
    assert "cannot be read" in trouble
    assert read_table(path, 1) is None
    for read in (read_bytes, lambda path: list(stream_jsonl(path, [])), file_sha256):
        with pytest.raises(OSError, match=r"regular file|directory"):
            read(path)


def test_the_event_log(tmp_path: Path, odd: Callable[[Path], None]) -> None:
    odd(tmp_path / "events.jsonl")
    assert read_events(tmp_path) == []
    with pytest.raises(OSError, match=r"regular file|directory|No such device"):
        append_event(tmp_path, "stop")


def test_a_lock(tmp_path: Path, odd: Callable[[Path], None]) -> None:
    odd(tmp_path / ".lock")
    with pytest.raises(ResultsError, match=r"cannot be written: (not a regular|Is a dir|No such)"):
        try_lock(tmp_path / ".lock", {})


def test_a_node_s_file(tmp_path: Path, odd: Callable[[Path], None]) -> None:
    odd(tmp_path / "current.json")
    with pytest.raises(NodeError, match=r"regular file|directory"):
        LocalNode("head").read_text(str(tmp_path / "current.json"))


def test_what_the_client_left(tmp_path: Path, odd: Callable[[Path], None]) -> None:
    odd(tmp_path / "client.log")
    odd(tmp_path / "requests.jsonl")
    assert last_words(tmp_path) is None
    assert error_classes(tmp_path) == {}


@pytest.mark.parametrize("key", ["extends", "inventory"])
def test_what_a_campaign_names(tmp_path: Path, odd: Callable[[Path], None], key: str) -> None:
    odd(tmp_path / "x.yaml")
    with pytest.raises(ConfigError, match="cannot read the file") as caught:
        assemble({"run": "r", key: str(tmp_path / "x.yaml")})
    assert caught.value.where == str(tmp_path / "x.yaml")


def test_deep_nesting_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(DEEP)
    with pytest.raises(ValueError, match="too deeply"):
        parse_json(DEEP)
    assert read_json(path) is None
    assert read_holder(path) == {}
    assert read_events(tmp_path) == []
    with pytest.raises(ConfigError):
        read_yaml(path)


def test_what_is_no_number_is_missing_and_integers_are_kept() -> None:
    values = parse_json("[NaN, -Infinity, 1e400, -1e999, 1e308, 9999999999999999999999999]")
    assert values == [None, None, None, None, 1e308, 9999999999999999999999999]


@pytest.mark.parametrize("data", [b'{"a": "\xff"}', b"\x00", b"", b"{", b"[1]"])
def test_bytes_that_are_no_mapping(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(data)
    assert read_json(path) is None
    assert read_holder(path) == {}


def test_events_beside_damage_are_kept(tmp_path: Path) -> None:
    append_event(tmp_path, "one")
    with (tmp_path / "events.jsonl").open("ab") as handle:
        handle.write(b"\xff\xfe\n")
    append_event(tmp_path, "two")
    assert [item["event"] for item in read_events(tmp_path)] == ["one", "two"]


@pytest.mark.parametrize("error", ["cut", ["cut"], 7])
def test_an_error_of_no_known_shape_is_counted(tmp_path: Path, error: Any) -> None:
    (tmp_path / "requests.jsonl").write_text(json.dumps({"error": error}) + "\n[]\n7\n")
    assert error_classes(tmp_path) == {"unknown": 1}

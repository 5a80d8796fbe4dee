"""An attempt on disk: numbered for ever, closed once, its files named with their digests."""

import hashlib
import json
from pathlib import Path

from servemap.measure.record import close_attempt, known_attempts, open_attempt
from servemap.model.attempts import intact, read_records


def test_opened_noted_closed(tmp_path: Path) -> None:
    attempt = open_attempt(tmp_path, {"identity": {"run": "r"}})
    attempt.note({"client": 1})
    assert attempt.opening()["client"] == 1
    assert attempt.opening()["identity"] == {"run": "r"}
    assert not attempt.closed
    (attempt.raw / "a.txt").write_text("abc")
    (attempt.folder / "raw-planned").mkdir()
    (attempt.folder / "raw-planned" / "b.txt").write_text("")
    meta = close_attempt(attempt, {"status": "ok", "token": 3, "spec_sha256": "x", "files": {}})
    assert attempt.closed
    assert attempt.opening() == {}
    assert meta["files"]["raw/a.txt"]["sha256"] == hashlib.sha256(b"abc").hexdigest()
    assert set(meta["files"]) == {"raw/a.txt", "raw-planned/b.txt"}
    assert meta["started_ns"] <= meta["ended_ns"]
    assert json.loads((attempt.folder / "meta.json").read_text()) == meta
    (record,) = read_records(tmp_path / "attempts")
    assert intact(record)
    (attempt.raw / "a.txt").write_text("abd")
    assert not intact(record)


def test_numbers_are_never_used_again(tmp_path: Path) -> None:
    assert known_attempts(tmp_path) == []
    for number in (1, 2, 3):
        assert open_attempt(tmp_path, {}).number == number
    for path in (tmp_path / "attempts/002/raw", tmp_path / "attempts/002"):
        for item in path.glob("*.json"):
            item.unlink()
        path.rmdir()
    (tmp_path / "attempts" / "notes.txt").write_text("")
    assert [item.number for item in known_attempts(tmp_path)] == [1, 3]
    assert open_attempt(tmp_path, {}).number == 4


def test_a_lost_opening_does_not_keep_an_attempt_from_being_closed(tmp_path: Path) -> None:
    attempt = open_attempt(tmp_path, {})
    (attempt.folder / "open.json").write_text("{")
    meta = close_attempt(attempt, {"status": "failed", "reasons": ["x"]})
    assert meta["started_ns"] is None


def test_a_closed_attempt_tells_no_credential(tmp_path: Path) -> None:
    attempt = open_attempt(tmp_path, {})
    close_attempt(attempt, {"status": "failed", "reasons": ["HTTP 401: Bearer s3cr3t", "plain"]})
    meta = json.loads((attempt.folder / "meta.json").read_text())
    assert meta["reasons"] == ["HTTP 401: Bearer <redacted>", "plain"]

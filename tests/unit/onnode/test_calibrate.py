"""The client's own error: worked out by hand, and measured in a whole run."""

import json
from pathlib import Path
from typing import Any

import pytest

from servemap.onnode import calibrate
from servemap.onnode.calibrate import PointError, main, read_errors, shape

MS = 1_000_000


def written(folder: Path, records: list[dict[str, Any]], rows: list[dict[str, Any]]) -> Any:
    """Write both files; the server's clock is 5 s ahead of the client's."""
    head = {"clock": {"wall_ns": 105_000 * MS, "mono_ns": 0}}
    (folder / "requests.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    (folder / "server.jsonl").write_text("".join(json.dumps(r) + "\n" for r in [head, *rows]))
    client = {"clock": {"wall_ns": 100_000 * MS, "mono_ns": 0}}
    return read_errors(str(folder / "requests.jsonl"), str(folder / "server.jsonl"), client)


def test_errors_by_hand(tmp_path):
    record = {"id": "main-1", "warmup": False, "status": "ok", "kinds": "rtkud"}
    record |= {"sent_ns": 0, "t_ns": [9 * MS, 103 * MS, 125 * MS, 126 * MS, 126 * MS]}
    ahead = 5_000 * MS
    times = [ahead + t * MS for t in (8, 101, 121, 121, 121)]
    row = {"id": "tag-main-1", "received_ns": ahead + 2 * MS, "t_ns": times}
    row |= {"due_ns": [ahead + t * MS for t in (8, 100, 120, 120, 120)]}
    others = [
        {**record, "id": "main-2"},
        {**record, "warmup": True},
        {**record, "status": "failed"},
    ]
    ttft, gaps, late = written(tmp_path, [record, *others], [row])
    # Sent at 0, seen after 103 ms; the server took 99 ms from its receipt to its first token.
    assert ttft == [4.0]
    # A gap of 22 ms was seen where 20 ms were sent.
    assert gaps == [2.0]
    assert late == [1.0, 1.0]


def test_a_whole_run(tmp_path, capsys):
    line = f"--out {tmp_path / 'c'} --concurrency 1,4 --gap-ms 2 --tokens 5 --waves 3"
    assert main(line.split()) == 0
    found = json.loads((tmp_path / "c" / "calibration.json").read_text())["rows"]
    assert [(row["concurrency"], row["requests"]) for row in found] == [(1, 3), (4, 12)]
    # What the client saw came after it was sent, and it had sent it before it was received.
    assert all(row["ttft_error_ms"]["p50"] >= 0 for row in found)
    assert all(row["gap_error_ms"]["max"] >= row["gap_error_ms"]["p99"] >= 0 for row in found)
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in shown] == ["streams", "1", "4"]
    one_token = f"--out {tmp_path / 'd'} --concurrency 2 --tokens 1"
    assert main(one_token.split()) == 0
    (row,) = json.loads((tmp_path / "d" / "calibration.json").read_text())["rows"]
    assert row["gap_error_ms"] is None


def rows_of(folder: Path) -> list[dict[str, Any]]:
    return list(json.loads((folder / "calibration.json").read_text())["rows"])


def test_a_late_server_is_marked_and_no_failure(tmp_path, capsys, monkeypatch):
    # However early the server wrote, this limit was passed.
    monkeypatch.setattr(calibrate, "LATE_LIMIT_MS", -1.0)
    line = f"--out {tmp_path / 'c'} --concurrency 2 --gap-ms 2 --tokens 2 --waves 1"
    assert main(line.split()) == 0
    (row,) = rows_of(tmp_path / "c")
    assert (row["status"], row["requests"]) == ("server late", 2)
    assert "limit -1 ms" in row["reason"]
    assert "not used" in capsys.readouterr().out.splitlines()[-1]


def test_a_point_that_fails_costs_no_other(tmp_path, capsys, monkeypatch):
    whole = calibrate._measure

    def once(out: str, count: int, *more: Any) -> Any:
        if count == 2:
            raise PointError("the reference server did not start")
        return whole(out, count, *more)

    monkeypatch.setattr(calibrate, "_measure", once)
    monkeypatch.setattr(calibrate, "LATE_LIMIT_MS", 1e9)
    line = f"--out {tmp_path / 'c'} --concurrency 2,1 --gap-ms 2 --tokens 2 --waves 1"
    assert main(line.split()) == 1
    failed, good = rows_of(tmp_path / "c")
    assert (failed["status"], failed["reason"]) == ("failed", "the reference server did not start")
    assert (good["status"], good["requests"]) == ("ok", 1)
    assert "ttft_error_ms" not in failed
    assert "did not start" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("count", "gap_ms", "tokens", "found"),
    [
        (1, None, None, (20.0, 32)),
        (200, None, None, (20.0, 32)),
        (1000, None, None, (100.0, 6)),
        (1000, 5.0, None, (5.0, 128)),
        (1, 0.0, None, (0.0, 640)),
        (1, None, 1, (20.0, 1)),
    ],
)
def test_many_streams_have_longer_gaps_in_the_same_time(count, gap_ms, tokens, found):
    assert shape(count, gap_ms, tokens) == found


@pytest.mark.parametrize(
    ("line", "code", "says"),
    [
        ("--out {tmp}", 2, "exists"),
        ("--out {tmp}/x --concurrency many", 2, "--concurrency"),
        ("--out {tmp}/x --concurrency 0", 2, "concurrency"),
        ("--out {tmp}/x --tokens 0", 2, "calibrate: --tokens: 0 "),
        ("--out {tmp}/x --gap-ms -1", 2, "calibrate: --gap-ms: -1.0 "),
        ("--out {tmp}/file/x", 1, "Not a directory"),
    ],
)
def test_bad_input_is_one_line(tmp_path, capsys, line, code, says):
    (tmp_path / "file").write_text("")
    assert main(line.format(tmp=tmp_path).split()) == code
    shown = capsys.readouterr().err
    assert says in shown
    assert len(shown.splitlines()) == 1

"""Records of starts, and the circuit breaker that is derived from them."""

from dataclasses import replace
from pathlib import Path

import pytest

from servemap.server.launch.boots import Boot, boot_dir, deaths, mark_ended, read_boots, write_boot

BOOT = Boot("v", "b1", "s1", "f", ["serve"], 1, 10)


def test_written_and_read_in_the_order_of_their_starts(tmp_path: Path) -> None:
    write_boot(tmp_path, replace(BOOT, boot_id="b2", started_ns=5))
    write_boot(tmp_path, replace(BOOT, drift=["kernel changed"]))
    write_boot(tmp_path, replace(BOOT, variant="w"))
    found = read_boots(tmp_path, "v")
    assert [boot.boot_id for boot in found] == ["b2", "b1"]
    assert found[1] == replace(BOOT, drift=["kernel changed"])
    assert read_boots(tmp_path, "none") == []


@pytest.mark.parametrize("text", ["", "[]", '{"schema": 1, "variant": "v"}', '{"schema": 2}'])
def test_damaged_records_are_left_out(tmp_path: Path, text: str) -> None:
    write_boot(tmp_path, BOOT)
    path = boot_dir(tmp_path, "v", "b2") / "boot.json"
    path.parent.mkdir()
    path.write_text(text)
    assert read_boots(tmp_path, "v") == [BOOT]


def test_the_first_end_stays(tmp_path: Path) -> None:
    write_boot(tmp_path, replace(BOOT, status="ready"))
    mark_ended(tmp_path, "v", "b1", "died", "signal 9")
    mark_ended(tmp_path, "v", "b1", "stopped", "variant w is next")
    (boot,) = read_boots(tmp_path, "v")
    assert (boot.status, boot.reason) == ("died", "signal 9")
    assert boot.ended_ns is not None
    mark_ended(tmp_path, "v", "unknown", "died", "no record, no error")


def test_deaths_count_per_variant_and_session(tmp_path: Path) -> None:
    ends = {"b1": "failed", "b2": "died", "b3": "stopped", "b4": "ready", "b5": "starting"}
    for boot_id, status in ends.items():
        write_boot(tmp_path, replace(BOOT, boot_id=boot_id, status=status))
    write_boot(tmp_path, replace(BOOT, boot_id="b6", session="s2", status="died"))
    write_boot(tmp_path, replace(BOOT, boot_id="b7", variant="w", status="died"))
    assert {boot.boot_id for boot in deaths(tmp_path, "v", "s1")} == {"b1", "b2"}
    assert [boot.boot_id for boot in deaths(tmp_path, "v", "s2")] == ["b6"]

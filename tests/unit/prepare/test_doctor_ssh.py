"""The doctor over real ssh, on loopback: what it says of keys, trust and addresses."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servemap.engines import embedded
from servemap.measure.setup import load_context
from servemap.prepare.doctor import examine
from servemap.prepare.lines import Line
from tests.fakes import campaign
from tests.parts import need
from tests.unit.nodes.sshd import Sshd, free_port, keygen

ENGINE = {
    "engine": "llamacpp",
    "python": sys.executable,
    "package": {"name": "llamaserve", "root": str(Path(embedded.__file__).parent)},
}


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    need("sshd")
    running = Sshd(tmp_path / "sshd")
    try:
        running.start()
        yield running
    finally:
        running.stop()


def look(sshd: Sshd, tmp_path: Path, **keys: Any) -> dict[str, Line]:
    node = sshd.spec(**keys).model_dump(mode="json", exclude_defaults=True)
    model = tmp_path / "model.gguf"
    model.write_text("12345")
    config = campaign(
        nodes=[{**node, "role": "head"}],
        model={"name": "m", "path": str(model), "context": 2048},
        server={**ENGINE, "port": free_port()},
    )
    lines = examine(load_context(config))
    return {line.check: line for line in lines if line.node == "far"}


def test_a_node_that_is_ready(sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = look(sshd, tmp_path)
    assert {
        check: line.seen for check, line in found.items() if line.state not in ("ok", "warn")
    } == {}
    assert found["ssh"].seen.startswith("connected in")
    assert str(sshd.home) in found["work folder"].seen, "a home with a space in its name"
    assert "ms from here" in found["clock"].seen


def test_ssh_that_fails_says_why(
    sshd: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    empty = tmp_path / "known"
    empty.write_text("")
    other = keygen(tmp_path / "other")
    seen = {}
    for what, keys in {
        "unknown host key": {"known_hosts": str(empty)},
        "auth refused": {"key_file": str(other)},
        "host down": {"port": free_port()},
    }.items():
        found = look(sshd, tmp_path, **keys)
        assert found["ssh"].state == "FAIL", what
        assert found["ssh"].remedy
        assert {line.state for check, line in found.items() if check != "ssh"} == {"?"}
        seen[what] = found["ssh"].seen
    sshd.trust(other)
    seen["changed host key"] = look(sshd, tmp_path)["ssh"].seen
    assert len(set(seen.values())) == 4, "each has its own words"
    assert "known" in seen["unknown host key"]
    assert "refused" in seen["host down"].lower()

"""Round trips and bandwidth over loopback, and what happens when the other side fails."""

import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_process import WAIT_S, agent_argv, wait_for
from hypothesis import given
from hypothesis import strategies as st

from servemap.onnode.tcp import percentile, probe, summarise_rtt
from tests.waiting import longer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[dict[str, Any]]:
    ready = tmp_path / "ready.json"
    process = subprocess.Popen(
        agent_argv(
            "tcp-serve", "--bind", "127.0.0.1", "--port", "0", "--ready", str(ready),
            "--idle-exit", "600",
        ),
        stderr=subprocess.PIPE,
    )  # fmt: skip
    wait_for(ready.exists, "the ready file")
    yield json.loads(ready.read_text())
    process.terminate()
    process.communicate(timeout=WAIT_S)


def probe_program(port: int, *more: str) -> tuple[int, dict[str, Any]]:
    argv = agent_argv("tcp-probe", "--host", "127.0.0.1", "--port", str(port), *more)
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=WAIT_S)
    return done.returncode, json.loads(done.stdout)


def test_both_measures_one_after_the_other(server: dict[str, Any]) -> None:
    for _ in range(2):
        code, result = probe_program(
            server["port"], "--pings", "50", "--bytes", "1000001", "--seconds", "60"
        )
        assert (code, result["error"]) == (0, None)
        rtt = result["rtt_us"]
        assert rtt["n"] == 50
        assert 0 < rtt["p50"] <= rtt["p95"] <= rtt["p99"] <= rtt["max"]
        assert result["bytes"] == 1000001
        expected = result["bytes"] / result["seconds"]
        assert result["bandwidth_bytes_per_s"] == pytest.approx(expected)


def test_time_limit_ends_an_endless_transfer(server: dict[str, Any]) -> None:
    for limit_s in longer(0.2):
        result = probe("127.0.0.1", server["port"], pings=10**9, count=10**15, seconds=limit_s)
        if result["bytes"] and result["rtt_us"]:
            break
    assert result["error"] is None
    assert 0 < result["bytes"] < 10**15
    assert 0 < result["rtt_us"]["n"] < 10**9


def test_nobody_there_is_a_reason_and_nulls() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        code, result = probe_program(taken.getsockname()[1])
    assert code == 1
    assert "Refused" in result["error"]
    assert result["rtt_us"] is None
    assert result["bandwidth_bytes_per_s"] is None


@pytest.mark.parametrize("reply", [b"", b"\0" * 7, b"\0" * 64])
def test_server_that_answers_wrongly_is_a_reason(reply: bytes) -> None:
    def serve() -> None:
        while True:
            connection, _peer = listener.accept()
            with connection:
                mode = connection.recv(1)
                if not mode:
                    return
                if mode == b"S":
                    while connection.recv(1 << 20):
                        continue
                connection.sendall(reply)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        address = listener.getsockname()
        result = probe(*address, pings=1, count=100, seconds=1)
        socket.create_connection(address).close()
        thread.join()
    assert result["error"] is not None
    assert result["bandwidth_bytes_per_s"] is None


def test_server_survives_a_probe_that_vanishes(server: dict[str, Any]) -> None:
    for mode in (b"", b"x", b"E", b"Sabc"):
        with socket.create_connection(("127.0.0.1", server["port"])) as connection:
            connection.sendall(mode)
    assert probe_program(server["port"], "--pings", "5", "--bytes", "10")[0] == 0


def test_idle_server_leaves_by_itself(tmp_path: Path) -> None:
    ready = str(tmp_path / "ready")
    argv = agent_argv("tcp-serve", "--bind", "127.0.0.1", "--ready", ready, "--idle-exit", "0.1")
    assert subprocess.run(argv, check=False, timeout=WAIT_S).returncode == 0


def test_port_that_is_taken_is_one_line(tmp_path: Path, server: dict[str, Any]) -> None:
    argv = agent_argv(
        "tcp-serve", "--bind", "127.0.0.1", "--port", str(server["port"]), "--ready", "r"
    )
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("tcp-serve: cannot serve on 127.0.0.1")
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("bad", [["--seconds", "0"], ["--bytes", "-1"], ["--seconds", "inf"]])
def test_limits_must_be_positive(bad: list[str]) -> None:
    argv = agent_argv("tcp-probe", "--host", "h", "--port", "1", *bad)
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "not a positive number" in done.stderr


def test_percentiles_are_linear_between_ranks() -> None:
    assert summarise_rtt([4.0, 1.0, 2.0, 3.0]) == {
        "p50": 2.5,
        "p95": pytest.approx(3.85),
        "p99": pytest.approx(3.97),
        "max": 4.0,
        "n": 4,
    }


@given(st.lists(st.floats(0, 1e9), min_size=1), st.floats(0, 1))
def test_percentile_lies_within_the_values(values: list[float], share: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, share)
    assert ordered[0] <= found or found == pytest.approx(ordered[0])
    assert found <= ordered[-1] or found == pytest.approx(ordered[-1])

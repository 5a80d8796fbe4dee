"""The collectors, run as a program against a page, a command and a process tree."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from agent_process import WAIT_S, agent_argv, wait_for

from servemap.onnode.collect import check_collectors
from servemap.onnode.ident import read_stat
from servemap.onnode.watched import Watched

Starter = Callable[..., subprocess.Popen[bytes]]
TICKING = "import time\nfor n in range(10**6): print('tick', n, flush=True); time.sleep(0.02)"


@pytest.fixture
def collecting(tmp_path: Path) -> Iterator[Starter]:
    started: list[subprocess.Popen[bytes]] = []

    def start(*collectors: dict[str, Any], **more: Any) -> subprocess.Popen[bytes]:
        spec = {
            "schema": 1,
            "out": str(tmp_path / "out"),
            "node": "head",
            "ready_file": str(tmp_path / "out" / "collect.ready"),
            "collectors": list(collectors),
            **more,
        }
        path = tmp_path / "spec.json"
        path.write_text(json.dumps(spec))
        process = subprocess.Popen(
            agent_argv("collect", "--spec", str(path)), stderr=subprocess.PIPE
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.terminate()
        process.communicate(timeout=WAIT_S)


@pytest.fixture
def page() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            status = 200 if self.path.startswith("/metrics") else 503
            body = f"accept {self.headers['Accept']} größe".encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            # A server that drops idle connections: the client must not take that for an error.
            self.close_connection = "close" in self.path

        def log_message(self, *args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    path = folder / "out" / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def ready(folder: Path) -> None:
    wait_for((folder / "out" / "collect.ready").exists, "the ready file")


def stop(process: subprocess.Popen[bytes], folder: Path) -> dict[str, Any]:
    process.send_signal(signal.SIGTERM)
    assert process.wait(WAIT_S) == 0
    return json.loads((folder / "out" / "collectors.json").read_text())


def test_all_kinds_sample_until_the_stop(collecting: Starter, page: str, tmp_path: Path) -> None:
    before_ns = time.time_ns()
    process = collecting(
        {"name": "proc", "kind": "proc", "interval_s": 0.05, "root_pids": [os.getpid()]},
        {"name": "metrics", "kind": "http", "url": page + "/metrics?close", "interval_s": 0.05},
        {"name": "ticks", "kind": "command", "argv": [sys.executable, "-c", TICKING]},
    )
    ready(tmp_path)
    assert lines(tmp_path, "proc.jsonl"), "ready before the first sample"
    assert lines(tmp_path, "metrics.jsonl"), "ready before the first page"
    wait_for(lambda: len(lines(tmp_path, "ticks.jsonl")) > 2, "lines of the command")
    stopped_ns = time.time_ns()
    summary = stop(process, tmp_path)
    after_ns = time.time_ns()

    assert (summary["schema"], summary["node"]) == (1, "head")
    assert summary["self"]["cpu_s"] > 0 and summary["self"]["wall_s"] > 0
    for name, interval_s in (("proc", 0.05), ("metrics", 0.05), ("ticks", None)):
        record = summary["collectors"][name]
        rows = lines(tmp_path, f"{name}.jsonl")
        assert (record["status"], record["error"], record["interval_s"]) == ("ok", None, interval_s)
        assert record["samples"] == len(rows) > 0
        stamps = [row["t_ns"] for row in rows]
        assert stamps == sorted(stamps)
        assert before_ns < stamps[0] and stamps[-1] < after_ns
        assert before_ns < record["started_ns"] < record["ended_ns"] < after_ns
        assert [row["mono_ns"] for row in rows] == sorted({row["mono_ns"] for row in rows})
    for name in ("proc", "metrics"):
        assert lines(tmp_path, f"{name}.jsonl")[-1]["t_ns"] > stopped_ns, "no sample after the stop"
    text = lines(tmp_path, "metrics.jsonl")[0]
    assert text["text"] == "accept text/plain größe"
    assert text["ms"] > 0
    assert lines(tmp_path, "ticks.jsonl")[0]["line"] == "tick 0"
    assert os.getpid() in [row["pid"] for row in lines(tmp_path, "proc.jsonl")[0]["procs"]]


def test_page_that_fails_is_recorded_sample_by_sample(
    collecting: Starter, page: str, tmp_path: Path
) -> None:
    process = collecting(
        {"name": "m", "kind": "http", "url": page + "/absent", "interval_s": 0.02},
    )
    ready(tmp_path)
    record = stop(process, tmp_path)["collectors"]["m"]
    rows = lines(tmp_path, "m.jsonl")
    assert {row["error"] for row in rows} == {"HTTPException: HTTP 503"}
    assert all("text" not in row and "ms" not in row for row in rows)
    assert (record["status"], record["samples"], record["errors"]) == ("failed", 0, len(rows))
    assert "503" in record["error"]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (
            [sys.executable, "-c", "import sys; print('one'); sys.exit('no device')"],
            "status 1 after 1 lines: no device",
        ),
        (
            [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"],
            "signal 9 after 0 lines",
        ),
    ],
)
def test_command_that_ends_early_is_recorded_at_once(
    collecting: Starter, tmp_path: Path, argv: list[str], said: str
) -> None:
    process = collecting({"name": "tool", "kind": "command", "argv": argv})
    (event,) = wait_for(lambda: lines(tmp_path, "collect.events.jsonl"), "an event")
    assert process.poll() is None
    assert (event["collector"], event["event"]) == ("tool", "exited")
    assert said in event["error"]
    record = stop(process, tmp_path)["collectors"]["tool"]
    assert (record["status"], record["error"]) == ("failed", event["error"])


@pytest.mark.parametrize(
    ("collector", "said"),
    [
        ({"kind": "command", "argv": ["no-such-tool", "-x"]}, "no program no-such-tool on"),
        ({"kind": "files", "paths": ["/no/such/*"], "interval_s": 0.05}, "matches /no/such/*"),
    ],
)
def test_what_a_node_does_not_have_is_absent(
    collecting: Starter, tmp_path: Path, collector: dict[str, Any], said: str
) -> None:
    process = collecting({"name": "x", **collector})
    (event,) = wait_for(lambda: lines(tmp_path, "collect.events.jsonl"), "an event")
    assert event["event"] == "exited"
    record = stop(process, tmp_path)["collectors"]["x"]
    assert (record["status"], record["samples"]) == ("absent", 0)
    assert said in record["error"] == event["error"]


def script(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_tool_that_refuses_its_options_is_asked_otherwise(
    collecting: Starter, tmp_path: Path
) -> None:
    tool = script(
        tmp_path,
        "tool",
        "import sys, time\n"
        "if sys.argv[1] == 'new': sys.exit(print('Field \"new\" is not valid') or 2)\n"
        "print('heading', flush=True)\n"
        "while True: print('row', flush=True); time.sleep(0.02)",
    )
    process = collecting(
        {"name": "t", "kind": "command", "argv": [tool, "new"], "otherwise": [[tool, "old"]]}
    )
    ready(tmp_path)
    wait_for(lambda: len(lines(tmp_path, "t.jsonl")) > 3, "rows")
    record = stop(process, tmp_path)["collectors"]["t"]
    assert (record["status"], record["program"], record.get("simulated")) == ("ok", tool, None)
    said = [row["line"] for row in lines(tmp_path, "t.jsonl")]
    assert said[:3] == ['Field "new" is not valid', "heading", "row"]


def test_a_tool_that_refuses_all_its_options_says_so(collecting: Starter, tmp_path: Path) -> None:
    tool = script(tmp_path, "tool", "import sys; print('no such field', sys.argv[1]); sys.exit(2)")
    collecting({"name": "t", "kind": "command", "argv": [tool, "a"], "otherwise": [[tool, "b"]]})
    (event,) = wait_for(lambda: lines(tmp_path, "collect.events.jsonl"), "an event")
    assert event["error"] == "ended early with status 2 after 1 lines: no such field b"


def test_a_tool_that_replays_a_recording_is_marked(collecting: Starter, tmp_path: Path) -> None:
    tool = script(tmp_path, "tool", f"# servemap: simulated\n{TICKING}")
    process = collecting({"name": "t", "kind": "command", "argv": [tool]})
    wait_for(lambda: lines(tmp_path, "t.jsonl"), "a line")
    assert stop(process, tmp_path)["collectors"]["t"]["simulated"] is True


def test_files_are_read_at_every_tick(collecting: Starter, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_text("1\n")
    (tmp_path / "a" / "y").write_text("two\nlines\n")
    process = collecting(
        {"name": "f", "kind": "files", "paths": [f"{tmp_path}/a/*"], "interval_s": 0.02}
    )
    ready(tmp_path)
    (tmp_path / "a" / "x").write_text("2\n")
    wait_for(lambda: ":2\n" in lines(tmp_path, "f.jsonl")[-1]["text"], "the new value")
    assert stop(process, tmp_path)["collectors"]["f"]["status"] == "ok"
    first = lines(tmp_path, "f.jsonl")[0]
    assert first["text"].replace(f"{tmp_path}/", "") in (
        "a/x:1\na/y:two\na/y:lines\n",
        "a/x:2\na/y:two\na/y:lines\n",
    )
    assert first["ms"] >= 0 and first["mono_ns"] > 0


def test_one_broken_collector_leaves_the_others_alone(collecting: Starter, tmp_path: Path) -> None:
    process = collecting(
        {"name": "bad", "kind": "http", "url": "ftp://x", "interval_s": 0.05},
        {"name": "proc", "kind": "proc", "interval_s": 0.05, "root_pids": []},
    )
    ready(tmp_path)
    collectors = stop(process, tmp_path)["collectors"]
    assert (collectors["bad"]["status"], collectors["proc"]["status"]) == ("failed", "ok")


def test_stubborn_command_is_killed_with_its_children(collecting: Starter, tmp_path: Path) -> None:
    code = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = os.fork()\n"
        "if child: print(child, flush=True)\n"
        "time.sleep(600)"
    )
    process = collecting({"name": "tool", "kind": "command", "argv": [sys.executable, "-c", code]})
    (row,) = wait_for(lambda: lines(tmp_path, "tool.jsonl"), "a line")
    assert stop(process, tmp_path)["collectors"]["tool"]["status"] == "ok"

    def ended() -> bool:
        stat = read_stat(int(row["line"]))
        return stat is None or stat.state == "Z"

    wait_for(ended, "the end of its child")


@pytest.mark.parametrize("limit", ["until", "max_s"])
def test_collecting_ends_by_itself_and_renews_the_heartbeat(
    collecting: Starter, tmp_path: Path, limit: str
) -> None:
    heartbeat, until = tmp_path / "heartbeat", tmp_path / "client.json"
    heartbeat.touch()
    os.utime(heartbeat, (1, 1))
    process = collecting(
        {"name": "proc", "kind": "proc", "interval_s": 0.05, "root_pids": []},
        renew=str(heartbeat),
        **({"until": str(until)} if limit == "until" else {"max_s": 0.2}),
    )
    ready(tmp_path)
    wait_for(lambda: heartbeat.stat().st_mtime > 1, "a renewed heartbeat")
    if limit == "until":
        assert process.poll() is None
        until.touch()
    assert process.wait(WAIT_S) == 0
    summary = json.loads((tmp_path / "out" / "collectors.json").read_text())
    assert summary["collectors"]["proc"]["samples"] > 0


def test_collecting_ends_after_the_server_that_it_watches(
    collecting: Starter, tmp_path: Path
) -> None:
    with subprocess.Popen(["sleep", "600"]) as server:
        try:
            process = collecting(
                {"name": "proc", "kind": "proc", "interval_s": 0.05, "root_pids": [server.pid]},
                server={"pids": [server.pid, 0], "gone_s": 0.2},
            )
            ready(tmp_path)
            assert process.poll() is None
        finally:
            server.kill()
    assert process.wait(WAIT_S) == 0
    summary = json.loads((tmp_path / "out" / "collectors.json").read_text())
    assert summary["collectors"]["proc"]["status"] == "ok"


def test_who_watches_none_or_waits_sees_nobody_gone() -> None:
    assert not Watched([], 0).gone()
    with subprocess.Popen(["sleep", "600"]) as server:
        at_once, later = Watched([server.pid], 0), Watched([server.pid], 600)
        assert not at_once.gone()
        server.kill()
    assert at_once.gone()
    assert not later.gone()
    # Nobody that ran before.
    assert not Watched([server.pid], 0).gone()


def test_full_disk_fails_the_collector_in_one_line(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "proc.jsonl").symlink_to("/dev/full")
    spec = {
        "out": str(out),
        "node": "head",
        "ready_file": str(out / "ready"),
        "collectors": [{"name": "proc", "kind": "proc", "interval_s": 0.05, "root_pids": []}],
    }
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    process = subprocess.Popen(agent_argv("collect", "--spec", str(tmp_path / "spec.json")))
    (event,) = wait_for(lambda: lines(tmp_path, "collect.events.jsonl"), "an event")
    assert "No space left" in event["error"]
    record = stop(process, tmp_path)["collectors"]["proc"]
    assert (record["status"], record["samples"]) == ("failed", 0)


@pytest.mark.parametrize(
    ("collectors", "said"),
    [
        (["x"], "lacks a name"),
        ([{"kind": "proc"}], "lacks a name"),
        ([{"name": "../x", "kind": "proc"}], "lacks a name"),
        ([{"name": "a", "kind": "gpu"}], "unknown kind 'gpu'"),
        ([{"name": "a", "kind": "http", "url": "u"}], "lacks interval_s"),
        ([{"name": "a", "kind": "proc", "root_pids": [], "interval_s": 0}], "interval 0"),
        ([{"name": "a", "kind": "command", "argv": ["x"]}] * 2, "lacks a name of its own"),
    ],
)
def test_bad_collectors_are_named(collectors: list[Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_collectors(collectors)


def test_bad_spec_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text('{"out": "x", "node": "n", "ready_file": "r", "collectors": [{"name": "a"}]}')
    result = subprocess.run(
        agent_argv("collect", "--spec", str(path)), capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert result.stderr == "collect: collector a has the unknown kind None\n"

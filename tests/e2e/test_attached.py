"""A server that somebody else runs: measured, and never started, stopped, patched or renewed."""

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from servemap.analysis.derive import derive_attempt
from servemap.measure.baseline import run_baseline
from servemap.measure.case import run_case
from servemap.measure.job import Job
from servemap.measure.setup import load_context
from servemap.onnode.ask import ask
from servemap.server.context import Context
from servemap.server.hold import session
from servemap.server.launch.stage import launch_variant
from tests.e2e.by_hand import llamaserve
from tests.fakes import campaign, everything_written

pytestmark = pytest.mark.e2e

JOB = Job("baseline", "c", 1, 1)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("SERVEMAP_LEASE_DIR", str(tmp_path / "lease"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def attached(url: str, engine: str) -> Context:
    cases = [{"id": "c", "isl": 16, "osl": 4, "concurrency": 2, "num_prompts": 4}]
    return load_context(
        campaign(
            server={"engine": engine, "attach": url},
            variables=[],
            variants=[{"id": "baseline"}],
            cases=cases,
        )
    )


def measure(context: Context) -> dict[str, Any]:
    """A whole session: launch record, baseline, case, end."""
    session._ended.clear()
    session.begin(context)
    try:
        launch_variant(context, "baseline", 1, Path("launch.json"))
        run_baseline(context, "net", 1, Path("net.json"))
        return run_case(context, JOB, context.run_dir / "cases/baseline/c/r1/meta.json")
    finally:
        session.end(context, "the campaign ended", [])
        while session._run_lock:
            session._run_lock.pop().close()


@pytest.fixture
def started(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    with llamaserve(tmp_path / "demo", context=4096, max_active=2) as found:
        yield found


def test_a_server_that_runs_already(
    started: tuple[str, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    url, process = started
    context = attached(url, "llamacpp")
    meta = measure(context)
    assert meta["status"] == "ok", meta["reasons"]
    assert meta["counts"]["ok"] == 4
    assert meta["server"]["boot_id"] is None
    assert meta["collectors"]["n1/engine_metrics"]["status"] == "ok"
    telemetry = tmp_path / "results/r/cases/baseline/c/r1/attempts/001/raw/telemetry/n1"
    samples = [json.loads(line) for line in (telemetry / "proc.jsonl").read_text().splitlines()]
    assert samples
    assert all(sample["procs"] == [] for sample in samples), "its processes are not known"
    assert process.poll() is None, "the end of the campaign leaves it alone"
    assert ask(f"{url}/v1/models", 60)["error"] is None
    record = json.loads(Path("launch.json").read_text())
    assert (record["status"], record["attached"], record["argv"]) == ("ok", True, [])
    assert not list((context.run_dir / "server").glob("*/boots"))
    events = [json.loads(line)["event"] for line in Path(
        "results/r/events.jsonl").read_text().splitlines()]  # fmt: skip
    assert not {"launch", "stop", "patch"} & set(events)


class Plain(BaseHTTPRequestHandler):
    """The least that an OpenAI-compatible server can be: no metrics, no health."""

    protocol_version = "HTTP/1.1"

    def answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            models = {"data": [{"id": "tiny", "max_model_len": 4096}]}
            self.answer(200, json.dumps(models).encode())
        else:
            self.answer(404, b"{}")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not asked.get("stream"):
            self.answer(200, b'{"choices": [{"text": "a"}]}')
            return
        number = asked["max_tokens"]
        events: list[dict[str, Any]] = [{"choices": [{"index": 0, "text": "a"}]}] * number
        usage = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": number}
        events.append({"choices": [], "usage": usage})
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in events) + "data: [DONE]\n\n"
        self.answer(200, text.encode(), "text/event-stream")

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def plain() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Plain)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_a_server_without_metrics_is_measured_all_the_same(plain: str, tmp_path: Path) -> None:
    context = attached(f"{plain}/v1", "vllm")
    meta = measure(context)
    assert meta["status"] == "ok", meta["reasons"]
    metrics = meta["collectors"]["n1/engine_metrics"]
    assert (metrics["status"], metrics["required"]) == ("failed", False)
    assert "404" in metrics["error"]
    assert meta["collectors"]["n1/proc"]["status"] == "ok"
    folder = context.run_dir / "cases/baseline/c/r1"
    derive_attempt(folder, context.plan.spec_data("derive"))
    derived = json.loads((folder / "metrics.json").read_text())
    assert derived["attempt"] == 1
    assert not [reason for reason in derived["reasons"] if "engine_metrics" in reason]
    assert "404" in everything_written(folder)

"""A stand-in for vLLM that answers as its front end does, and leaves a made-up trace of each rank.

It has no model: `install` puts it where `python -m vllm.entrypoints.openai.api_server` finds it, so
that servemap starts, gates and ends it like the real one. What is seen with it is `simulated`.
`KINETO_FAULT` says what goes wrong with a profile (see `profile`), `KINETO_FAULT_ONCE` names a file
without which nothing does any more: the fault removes it.
"""

import argparse
import gzip
import json
import os
import shutil
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

STEP_NS = 1_000_000


def install(folder: Path) -> Path:
    """Write it below a folder as the package `vllm`; return the folder."""
    package = folder / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    for one in (package, package.parent, package.parent.parent):
        (one / "__init__.py").touch()
    shutil.copy2(__file__, package / "api_server.py")
    return folder


def trace(rank: int, ranks: int, steps: int) -> bytes:
    """Return a Kineto trace of some decode steps on a host, times in us."""
    events = []
    for step in range(steps):
        begin = step * 100.0
        name = "execute_context_0(0)_generation_2(2)"
        step_event = {"cat": "user_annotation", "name": name, "ts": begin, "dur": 90.0}
        operator = {"cat": "cpu_op", "name": "aten::mm", "ts": begin + 1, "dur": 50.0}
        events += [{"ph": "X", "pid": 1, "tid": 1, **one} for one in (step_event, operator)]
    return json.dumps(
        {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "gloo", "rank": rank, "world_size": ranks},
            "baseTimeNanoseconds": time.time_ns(),
            "traceEvents": events,
        }
    ).encode()


def fault() -> str:
    """Return what is to go wrong now; empty for nothing."""
    once = os.environ.get("KINETO_FAULT_ONCE")
    if once is not None:
        try:
            Path(once).unlink()
        except FileNotFoundError:
            return ""
    return os.environ.get("KINETO_FAULT", "")


def profile(folder: Path, ranks: int, asked: dict[str, Any]) -> int:
    """Leave the traces; return the HTTP status. A fault is a status, or one of the names below."""
    wrong = fault()
    if wrong.isdigit():
        return int(wrong)
    if wrong == "never":
        return 200
    try:
        _write(folder, ranks, asked, wrong)
    except OSError as error:
        # The real one says so in its log and answers as ever.
        print(f"Failed to stop profiler: {error}", flush=True)
    return 200


def _write(folder: Path, ranks: int, asked: dict[str, Any], wrong: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        path = folder / f"{asked['profile_prefix']}_rank{rank}.{time.time_ns()}.pt.trace.json.gz"
        text = gzip.compress(trace(rank, ranks, asked["max_iterations"]))
        if wrong == "die" and rank == ranks - 1:
            path.write_bytes(text[: len(text) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        path.write_bytes(text[: len(text) // 2] if wrong == "cut" else text)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    options: argparse.Namespace

    def do_GET(self) -> None:
        model = {"id": self.options.served_model_name, "max_model_len": self.options.max_model_len}
        found: dict[str, Any] = {
            "/health": {},
            "/version": {"version": "0.32.0"},
            "/v1/models": {"object": "list", "data": [model]},
        }
        self._answer(200 if self.path in found else 404, found.get(self.path, {}))

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or b"{}")
        profiler = json.loads(self.options.profiler_config)
        if self.path == "/v1/completions":
            self._complete(asked)
        elif self.path == "/start_profile" and profiler:
            ranks = self.options.tensor_parallel_size
            self._answer(profile(Path(profiler["torch_profiler_dir"]), ranks, asked), {})
        else:
            self._answer(200 if self.path == "/stop_profile" and profiler else 404, {})

    def _complete(self, asked: dict[str, Any]) -> None:
        given, wanted = len(asked["prompt"]), asked["max_tokens"]
        usage = {"prompt_tokens": given, "completion_tokens": wanted}
        choice = {"index": 0, "text": "a", "finish_reason": "length"}
        if not asked.get("stream"):
            self._answer(200, {"choices": [choice], "usage": usage})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for number in range(wanted):
            time.sleep(STEP_NS / 1e9)
            last = number == wanted - 1
            self._event({"choices": [{**choice, "finish_reason": "length" if last else None}]})
        self._event({"choices": [], "usage": usage})
        self._chunk(b"data: [DONE]\n\n")
        self._chunk(b"")

    def _event(self, data: dict[str, Any]) -> None:
        self._chunk(b"data: " + json.dumps(data).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def _answer(self, status: int, data: dict[str, Any]) -> None:
        text = json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def main() -> None:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    for name in ("model", "served-model-name", "host"):
        parser.add_argument(f"--{name}", default="127.0.0.1")
    parser.add_argument("--profiler-config", default="{}")
    for name in ("port", "tensor-parallel-size", "max-model-len"):
        parser.add_argument(f"--{name}", type=int, default=1)
    Handler.options = parser.parse_known_args()[0]
    server = ThreadingHTTPServer((Handler.options.host, Handler.options.port), Handler)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown).start())
    print("API server version 0.32.0", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()

"""The reference server as a process of its own, and one load measured against it."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from servemap.analysis.checks.requests import check_requests
from servemap.analysis.metrics import segment_figures
from servemap.analysis.requests import Request, parse_requests
from servemap.analysis.verdict import Check, default_limits
from servemap.onnode import bench
from servemap.parsers.jsonl import stream_jsonl
from servemap.telemetry.align import Segment
from tests.reference import reference_server


@dataclass
class Load:
    """What the client recorded and the server logged of one load, and what is derived from it."""

    code: int
    client: dict[str, Any]
    records: list[dict[str, Any]]
    rows: list[Request]
    log: list[dict[str, Any]]
    server_clock: dict[str, int]

    def segment(self) -> dict[str, Any]:
        noted = self.client["segments"][0]
        whole = Segment("main", noted["start_ns"], noted["end_ns"])
        return segment_figures(whole, self.rows, frozenset(), None, None)

    def figures(self) -> dict[str, Any]:
        return self.segment()["metrics"]

    def checks(self, fixed: bool = True, planned: bool = False) -> dict[str, Check]:
        sent = self.client["counts"]["sent"]
        found = check_requests(self.rows, sent, fixed, planned, None, default_limits())
        return {check.name: check for check in found}

    def served(self, record: dict[str, Any]) -> dict[str, Any]:
        """Return what the server logged of the last try of a request, on the client's clock."""
        own = [row for row in self.log if row["id"].endswith("-" + record["id"])][-1]
        clocks = (self.client["clock"], self.server_clock)
        here, there = (clock["wall_ns"] - clock["mono_ns"] for clock in clocks)
        moved = {key: [t - there + here for t in own[key]] for key in ("t_ns", "due_ns")}
        return {**own, **moved, "received_ns": own["received_ns"] - there + here}

    def check_causality(self) -> None:
        """Nothing is received before it was sent, and every event is at its place."""
        for record in self.records:
            served = self.served(record)
            assert record["sent_ns"] <= served["received_ns"]
            assert len(record["t_ns"]) == len(served["t_ns"])
            assert record["kinds"] == served["kinds"]
            pairs = zip(record["t_ns"], served["t_ns"], strict=True)
            assert all(seen >= sent for seen, sent in pairs)


def load(folder: Path, url: str, log: Path, **spec: Any) -> tuple[int, Path]:
    """Run the client with one closed stream; the keys of the stream may be given beside others."""
    shape = {"isl": 8, "osl": 4, "concurrency": 1, "num_prompts": 1}
    stream = {key: spec.pop(key, value) for key, value in shape.items()}
    whole = {
        "schema": 1,
        "url": url,
        "model": "reference",
        "seed": "s",
        "vocab": [300, 4000],
        "timeout_s": 60,
        "case_timeout_s": 240,
        "segments": [
            {"name": "main", "streams": [{"name": "main", "kind": "closed", **stream}]},
        ],
        **spec,
    }
    path, out = folder / "load.json", folder / "out"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(whole))
    return bench.main(["--spec", str(path), "--out", str(out)]), out


def read_load(code: int, out: Path, log: Path) -> Load:
    """Read what a finished load left."""
    lines = list(stream_jsonl(out / "requests.jsonl", []))
    head, *logged = [json.loads(line) for line in log.read_text().splitlines()]
    return Load(
        code,
        json.loads((out / "client.json").read_text()),
        [line.value for line in lines if not line.value["warmup"]],
        parse_requests(lines, {}).rows,
        logged,
        head["clock"],
    )


def measure(folder: Path, script: dict[str, Any], **spec: Any) -> Load:
    """Run one load against a server of its own."""
    with reference_server(folder, script) as (url, log):
        code, out = load(folder, url, log, **spec)
    return read_load(code, out, log)

"""One case with servemap's client and those of vLLM, SGLang and NVIDIA on one embedded server."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from servemap.engines.embedded.tiny_hf import write_folder
from tests.parts import PARTS, need
from tests.workflow.harness import Project, free_port

pytestmark = pytest.mark.e2e
pytest.importorskip("xllamacpp", reason="the embedded engine is not installed: xllamacpp")

NEEDS = {"vllm-bench": "vllm", "sglang-bench": "sglang", "aiperf": "aiperf"}
PROMPTS = 32
CASE = {"isl": 64, "osl": 32, "concurrency": 4, "num_prompts": PROMPTS, "case_timeout_s": 200}
OWN = "servemap"
PROCESSING = re.compile(r"^llamacpp:requests_processing (\S+)", re.MULTILINE)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project in which the case was measured with every client that is here."""
    found = {name: PARTS[part][0]() for name, part in NEEDS.items()}
    here = {name: python for name, python in found.items() if python}
    made = Project.create(tmp_path_factory.mktemp("clients") / "project", free_port())
    tokenizer = made.folder / "tokenizer"
    write_folder(tokenizer)
    campaign = made.campaign()
    campaign["variants"] = campaign["variants"][:1]
    campaign["clients"] = {
        name: {"python": python, "tokenizer": str(tokenizer)} for name, python in here.items()
    }
    campaign["cases"] = [{"id": name, "client": name, **CASE} for name in (OWN, *here)]
    campaign["phases"] = [{"id": "phase1", "cases": [OWN, *here]}]
    campaign["policy"] |= {"max_attempts": 1}
    made.write_campaign(campaign)
    run = made.snakemake(timeout=600)
    assert run.code == 0, run.text[-3000:]
    yield made
    made.clean_up()


def read(project: Project, client: str, name: str = "metrics.json") -> dict[str, Any]:
    path = Path(project.results, "cases/baseline", client, "r1", name)
    return dict(json.loads(path.read_text()))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("client", NEEDS)
def test_a_client_is_measured_and_its_summary_holds(project: Project, client: str) -> None:
    need(NEEDS[client])
    meta, metrics = read(project, client, "meta.json"), read(project, client)
    assert meta["status"] == "ok", meta["reasons"]
    assert meta["counts"]["sent"] == PROMPTS
    # llama.cpp closes a connection that was idle for a few seconds; a client that kept one for
    # each of its streams since its warm-up loses as many requests when it uses them again.
    assert meta["counts"]["ok"] >= PROMPTS - CASE["concurrency"]
    (check,) = [one for one in metrics["checks"] if one["name"] == "client_summary"]
    assert check["ok"] is True, check
    (segment,) = meta["segments"]
    assert segment["error_ns"] < 1_000_000_000
    figures = metrics["segments"][0]["metrics"]
    assert figures["ttft_s"]["n"] == meta["counts"]["ok"]
    assert figures["itl_s"]["n"] > 0


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("client", [OWN, *NEEDS])
def test_the_server_was_busy_within_the_window_and_idle_around_it(
    project: Project, client: str
) -> None:
    """The window against what the server says of itself all the time, sampled every 0.1 s."""
    if client != OWN:
        need(NEEDS[client])
    meta = read(project, client, "meta.json")
    (segment,) = meta["segments"]
    raw = Path(project.results, "cases/baseline", client, "r1/attempts/001/raw")
    warmed_ns = json.loads((raw / "client.json").read_text())["warmup"]["end_ns"]
    slack_ns = 200_000_000 + segment["error_ns"]
    busy = [
        sample["t_ns"]
        for line in (raw / "telemetry/local/engine_metrics.jsonl").read_text().splitlines()
        if (found := PROCESSING.search((sample := json.loads(line))["text"]))
        and float(found[1]) > 0
    ]
    assert busy, "the window is long enough to be seen"
    outside = [
        t_ns
        for t_ns in busy
        if not segment["start_ns"] - slack_ns <= t_ns <= segment["end_ns"] + slack_ns
    ]
    assert all(t_ns <= warmed_ns + slack_ns for t_ns in outside), "but for the warm-up"
    assert len(outside) < len(busy)


@pytest.mark.timeout(1800)
def test_clients_differ_where_their_definitions_do(project: Project) -> None:
    for part in NEEDS.values():
        need(part)
    tokens = {name: read(project, name)["tokens"] for name in (OWN, *NEEDS)}
    ok = {name: read(project, name, "meta.json")["counts"]["ok"] for name in NEEDS}
    assert tokens[OWN]["output_actual"] == PROMPTS * 32, "the server's own count"
    assert tokens["aiperf"]["output_actual"] == ok["aiperf"] * 32, "the server's own count"
    assert tokens["sglang-bench"]["output_actual"] == ok["sglang-bench"] * 32, "as asked for"
    assert tokens["sglang-bench"]["input_actual"] is None, "never counted"
    # llama.cpp sends its usage with the last chunk of text, where vLLM's client does not look.
    assert tokens["vllm-bench"]["output_actual"] != ok["vllm-bench"] * 32
    flags = {n: read(project, n)["segments"][0]["metrics"]["flags"] for n in NEEDS}
    assert flags["sglang-bench"]["start_not_known"] == PROMPTS
    own = read(project, "aiperf")["client_summary"]["figures"]
    assert own["total_osl.avg"] != tokens["aiperf"]["output_actual"], "its own tokenizer's count"

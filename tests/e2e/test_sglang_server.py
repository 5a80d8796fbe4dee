"""SGLang itself on a CPU, driven as a campaign does: launch, gates, a case, the end."""

from pathlib import Path

import pytest

from servemap.analysis.captures import analyse_capture
from servemap.engines.profiling import FOLDER
from servemap.measure import capture_take
from servemap.measure.capture import run_capture
from servemap.measure.case import run_case
from servemap.measure.job import Job
from servemap.onnode.ask import ask
from servemap.server.context import Context
from servemap.server.launch.ensure import ensure_server
from servemap.server.launch.served import Served
from tests.e2e.sglang_here import SETTINGS, completion, here, model, sglang
from tests.e2e.started import begun, gate
from tests.e2e.talks import TALKS, check_flush, talked, talking

__all__ = ["here", "model"]
EMPTIED = TALKS[-1]
CASES = [
    # Long enough that no prefill comes into the steps, however slow the machine is just then.
    {"id": "decode", "isl": 64, "osl": 1500, "concurrency": 2, "num_prompts": 4},
    {"id": "prefill", "isl": 256, "osl": 1, "concurrency": 1, "num_prompts": 4},
    {"id": "staged", "isl": 64, "osl": 1500, "concurrency": 2, "num_prompts": 4},
]
CAPTURES = [
    {"case": "decode", "num_steps": 5},
    {"case": "prefill", "num_steps": 3, "stage": "prefill"},
    {"case": "staged", "num_steps": 4, "stage": "decode"},
]
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]


def test_launch_gates_a_case_captures_and_the_end(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsers = {"tool_parser": "hermes", "reasoning_parser": "deepseek-r1"}
    settings = {**SETTINGS, **parsers}
    cases = [EMPTIED, *CASES]
    context = sglang(talking(model), cases=cases, captures=CAPTURES, settings=settings)
    with begun(context):
        served = ensure_server(context, "baseline")
        assert served.engine_version == "0.5.23"
        assert [check for check in served.checks if check["ok"] is False] == []
        record = gate(context, served)
        said = record["effective"]["settings"]
        asked = {"context": 2048, "max_active": 4, "prefix_cache": True, "cuda_graph": False}
        assert {key: said[key] for key in asked} == asked
        assert (said["tp"], said["kv_tokens"]) == (1, 16384)
        assert said["attention_backend"] == "torch_native"
        (rank,) = record["memory"]["n1"]
        assert rank["kv_bytes"] > 0
        meta = run_case(
            context, Job("baseline", "c", 1, 1), context.run_dir / "cases/baseline/c/r1/meta.json"
        )
        assert meta["status"] == "ok", meta["reasons"]
        assert meta["counts"]["ok"] == 4
        assert meta["server"]["boot_id"] == served.boot_id
        client, rows = talked(context, EMPTIED)
        check_flush(client, rows)
        assert {row.reasoning_tokens for row in rows} == {8}
        tokens = list(range(400, 500))
        used = [completion(served.url, tokens)["usage"] for _ in range(2)]
        assert used[1]["prompt_tokens_details"]["cached_tokens"] == 99
        assert ask(f"{served.url}/flush_cache", 60, {})["status"] == 200
        emptied = completion(served.url, tokens)["usage"]["prompt_tokens_details"]
        assert emptied["cached_tokens"] == 0
        check_captures(context, served, monkeypatch)


def check_captures(context: Context, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Captures of whole steps, and by stage, from the server that runs.

    A campaign starts one of its own for them, as for all engines; SGLang's has the same profiler
    as this one, and another start would cost CI a minute.
    """
    monkeypatch.setattr(capture_take, "ensure_server", lambda *_: served)
    assert ask(f"{served.url}/stop_profile", 60, {})["status"] == 500, "nothing of it runs"
    for case, steps in (("decode", 5), ("prefill", 3), ("staged", 4)):
        folder = context.run_dir / "captures/baseline" / case
        record = run_capture(context, "baseline", case, 1, folder / "capture.json")
        assert (record["status"], record["reasons"]) == ("ok", [])
        assert record["window"]["ended_by"] == "steps"
        (trace,) = [name for name in record["files"] if name.startswith("n1/")]
        assert "-TP-0" in trace
        said = analyse_capture(folder / "capture.json", folder / "analysis.json", 1)
        assert said["status"] == "ok", said
        (file,) = said["files"]
        phases = [step["phase"] for step in file["host_steps"]]
        stage = "prefill" if case == "prefill" else "decode"
        assert phases == [stage] * steps, (case, phases)
    assert ask(f"{served.url}/stop_profile", 60, {})["status"] == 500, "nothing of it runs"
    assert not Path(context.workdir("n1"), FOLDER).exists()

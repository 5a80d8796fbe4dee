"""SGLang itself on a CPU, driven as a campaign does: launch, gates, a case, the end."""

from pathlib import Path

import pytest

from servemap.measure.case import run_case
from servemap.measure.job import Job
from servemap.onnode.ask import ask
from servemap.server.launch.ensure import ensure_server
from tests.e2e.sglang_here import SETTINGS, completion, here, model, sglang
from tests.e2e.started import begun, gate
from tests.e2e.talks import TALKS, check_flush, talked, talking

__all__ = ["here", "model"]
EMPTIED = TALKS[-1]
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]


def test_launch_gates_a_case_and_the_end(model: Path, tmp_path: Path) -> None:
    parsers = {"tool_parser": "hermes", "reasoning_parser": "deepseek-r1"}
    context = sglang(talking(model), cases=[EMPTIED], settings={**SETTINGS, **parsers})
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
        asked_for = {"output_dir": str(tmp_path / "traces"), "activities": ["CPU"]}
        assert ask(f"{served.url}/start_profile", 60, asked_for)["status"] == 200
        completion(served.url, tokens)
        assert ask(f"{served.url}/stop_profile", 60, {})["status"] == 200
        assert list((tmp_path / "traces").glob("*TP-0.trace.json.gz"))

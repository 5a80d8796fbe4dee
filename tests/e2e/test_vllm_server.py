"""vLLM itself in one process, driven as a campaign does: launch, gates, a case, faults, the end."""

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from servemap.onnode.ask import ask
from servemap.server.context import Context
from servemap.server.launch import process
from servemap.server.launch.ending import stop_server
from servemap.server.launch.ensure import ensure_server
from tests.e2e.started import gate, named
from tests.e2e.talks import TALKS, check_flush, talked, talking, uncounted
from tests.e2e.vllm_here import (
    CASES,
    SETTINGS,
    assert_replaced_while_health_says_200,
    begun,
    family,
    front_end,
    measured,
    project,
    serving,
    starts,
    vllm,
    wait_for_requests,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    """One session for all tests: each breaks the server that the one before it left."""
    with project(tmp_path_factory.getbasetemp(), "one") as (model, temporary):
        parsers = {"tool_parser": "hermes", "reasoning_parser": "deepseek_r1"}
        context = vllm(
            talking(model),
            policy={"on_unhealthy": "relaunch"},
            cases=[*CASES, *TALKS],
            settings={**SETTINGS, **parsers},
        )
        with begun(context, temporary):
            yield context


def test_launch_gates_and_a_case(context: Context) -> None:
    served = ensure_server(context, "baseline")
    assert served.engine_version == "0.32.0"
    assert [check for check in served.checks if check["ok"] is False] == []
    record = gate(context, served)
    said = record["effective"]["settings"]
    assert {key: said[key] for key in ("context", "max_active", "prefix_cache", "tp")} == {
        "context": 2048, "max_active": 4, "prefix_cache": True, "tp": 1,
    }  # fmt: skip
    assert said["cuda_graph"] is False
    assert said["kv_tokens"] > 2048
    (rank,) = record["memory"]["n1"]
    assert rank["kv_bytes"] == pytest.approx(134217728, rel=0.05)
    (command,) = served.ranks
    assert command["env"]["VLLM_SERVER_DEV_MODE"] == "1"
    meta = measured(context, "short")
    assert meta["status"] == "ok", meta["reasons"]
    assert meta["counts"]["ok"] == 4
    assert meta["server"]["boot_id"] == served.boot_id
    flushed = ask(f"{served.url}/reset_prefix_cache", 60, {})
    assert flushed["status"] == 200
    assert len(family(context)) > 1


@pytest.mark.parametrize("case", TALKS, ids=[case["id"] for case in TALKS])
def test_chat_and_tools(context: Context, case: dict[str, Any]) -> None:
    client, rows = talked(context, case)
    # The parser that is set counts from a token that the prompt should have ended with: it says 0.
    assert uncounted(rows)
    if case["id"] == "chat":
        # Each begins with a user's own words.
        assert {row.cached_tokens for row in rows} == {0}
    elif case["id"] == "tools":
        # Tools and system message, of which the warm-up left whole blocks.
        assert {row.cached_tokens for row in rows} == {256}
        assert "flushes" not in client
    else:
        check_flush(client, rows)


def test_a_server_that_is_killed_in_a_case_fails_it_and_is_replaced(context: Context) -> None:
    served = ensure_server(context, "baseline")

    def kill() -> None:
        wait_for_requests(served.url)
        front_end(context).kill()

    killer = threading.Thread(target=kill)
    killer.start()
    meta = measured(context, "decode")
    killer.join()
    assert meta["status"] == "failed"
    assert "the server was ended by signal 9 during the case" in meta["reasons"]
    assert meta["server"]["boot_id"] == served.boot_id
    killed = starts(context)[-1]
    assert (killed.boot_id, killed.status) == (served.boot_id, "died")
    assert "signal 9" in (killed.reason or "")
    assert serving(context) == [], "its engine and its worker are ended with it"
    again = measured(context, "decode")
    assert again["status"] == "ok", again["reasons"]
    assert again["server"]["boot_id"] == starts(context)[-1].boot_id != served.boot_id


def test_health_without_completions_is_no_health(context: Context) -> None:
    """A stopped process does what a hung collective does: nothing."""
    served = ensure_server(context, "baseline")
    named(context, "EngineCore").send_signal(signal.SIGSTOP)
    assert_replaced_while_health_says_200(context, served)


def test_a_server_that_ignores_sigterm_is_killed_and_seen_gone(context: Context) -> None:
    """A stopped process does not take the signal, and its workers are no children of it."""
    served = ensure_server(context, "baseline")
    assert served.boot_id is not None
    processes = family(context)
    front_end(context).send_signal(signal.SIGSTOP)
    stop_server(context, "the campaign went on")
    assert [one for one in processes if one.is_running()] == []
    state = process.supervisor_state(context.head, context.workdir("n1"), served.boot_id)
    assert (state["exit"]["signal"], state["exit"]["reason"]) == (9, "stopped")
    assert "left" not in state["exit"]
    assert starts(context)[-1].status == "stopped"

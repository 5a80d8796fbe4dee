"""vLLM with tensor parallelism over two processes of this machine: a rank that is lost."""

import resource
import signal
import threading
from collections.abc import Iterator

import psutil
import pytest

from servemap.server.context import Context
from servemap.server.launch.ensure import ensure_server
from tests.e2e.started import gate, named
from tests.e2e.vllm_here import (
    TWO_ENV,
    assert_replaced_while_health_says_200,
    begun,
    family,
    measured,
    project,
    serving,
    starts,
    vllm,
    wait_for_requests,
    whole_log,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Context]:
    """One session for all tests: each breaks the server that the one before it left."""
    with project(tmp_path_factory.getbasetemp(), "two") as (model, temporary):
        # Each larger allocation then asks the kernel: else threads have room that they reserved.
        env = {**TWO_ENV, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_ARENA_MAX": "1"}
        context = vllm(model, policy={"on_unhealthy": "relaunch"}, topology={"tp": 2}, env=env)
        with begun(context, temporary):
            yield context


def test_two_ranks_serve(context: Context) -> None:
    served = ensure_server(context, "baseline")
    record = gate(context, served)
    assert record["effective"]["settings"]["tp"] == 2
    assert [rank["rank"] for rank in record["memory"]["n1"]] == ["Worker_TP0", "Worker_TP1"]
    meta = measured(context, "short")
    assert meta["status"] == "ok", meta["reasons"]


def test_a_dead_rank_is_noticed_while_health_says_200(context: Context) -> None:
    """Its engine, which would notice and end the server, is held; the front end answers on."""
    served = ensure_server(context, "baseline")
    named(context, "EngineCore").send_signal(signal.SIGSTOP)
    rank = named(context, "Worker_TP1")
    rank.kill()
    while rank.is_running() and rank.status() != psutil.STATUS_ZOMBIE:
        pass
    assert_replaced_while_health_says_200(context, served)


def test_a_stopped_rank_is_noticed_while_health_says_200(context: Context) -> None:
    served = ensure_server(context, "baseline")
    named(context, "Worker_TP1").send_signal(signal.SIGSTOP)
    assert_replaced_while_health_says_200(context, served)


def test_a_rank_that_is_killed_in_a_case_fails_it_and_its_log_says_why(context: Context) -> None:
    """Left alone, vLLM 0.32 notices a dead worker: its engine and its front end then end."""
    served = ensure_server(context, "baseline")

    def kill() -> None:
        wait_for_requests(served.url)
        named(context, "Worker_TP1").kill()

    killer = threading.Thread(target=kill)
    killer.start()
    meta = measured(context, "decode")
    killer.join()
    assert meta["status"] == "failed"
    # It asks for the exit code at once, and has none where the kernel is not done yet.
    said = "was killed with SIGKILL", "A worker of the server ended without a word"
    assert [one for one in meta["reasons"] if any(text in one for text in said)] != []
    assert "Worker proc VllmWorker-1 died unexpectedly (exit code: " in whole_log(context)
    again = ensure_server(context, "baseline")
    assert again.boot_id != served.boot_id
    assert starts(context)[-2].status == "died"


def test_a_rank_without_memory_ends_all_ranks_and_the_next_case_has_a_new_server(
    context: Context,
) -> None:
    """The limit is the kernel's and the error is the allocator's own.

    The first run makes all kernels of that shape, so that the limit meets the allocator alone.
    """
    assert measured(context, "prefill")["status"] == "ok"
    old = family(context)
    rank = named(context, "Worker_TP0")
    rank.rlimit(resource.RLIMIT_AS, (rank.memory_info().vms, resource.RLIM_INFINITY))
    meta = measured(context, "prefill", 2)
    assert meta["status"] == "failed"
    assert [one for one in meta["reasons"] if "memory" in one and "used up" in one] != []
    assert [one for one in old if one.is_running()] == []
    assert serving(context) == []
    again = measured(context, "prefill", 3)
    assert again["status"] == "ok", again["reasons"]
    assert again["server"]["boot_id"] != meta["server"]["boot_id"]

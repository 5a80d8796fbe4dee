"""A few launch and stop cycles as `benchmarks.cycles` counts them: nothing is left of a server."""

from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks import cycles
from servemap.server.hold import session
from tests.parts import need

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

NOTHING = {"processes": [], "segments": [], "ports": [], "temporary": []}


@pytest.fixture(autouse=True)
def _session() -> Iterator[None]:
    session._ended.clear()
    yield
    while session._run_lock:
        session._run_lock.pop().close()


@pytest.mark.parametrize(
    ("engine", "variants"), [("llamacpp", ["baseline"] * 2), ("vllm", ["baseline", "tp2"])]
)
def test_nothing_is_left_after_a_launch_and_a_stop(
    engine: str, variants: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "vllm":
        monkeypatch.setenv("SERVEMAP_VLLM", need("vllm"))
    found = list(cycles.measure(engine, 2))
    assert [one["variant"] for one in found] == variants
    assert [one["left"] for one in found] == [NOTHING] * 2
    assert engine == "llamacpp" or found[1]["segments"] > 0  # what two ranks share
    for one in found:
        assert one["engine_s"] > 0
        assert one["launch_to_gate_s"] == pytest.approx(one["engine_s"] + one["over_s"], abs=0.01)


def one_cycle(**keys: Any) -> dict[str, Any]:
    return {"variant": "v", "over_s": 0.5, "load_average": 0.0, "left": NOTHING, **keys}


def test_what_breaks_a_limit() -> None:
    assert cycles.broken([one_cycle()]) == []
    left = {**NOTHING, "segments": ["/dev/shm/psm_1"]}
    assert cycles.broken([one_cycle(), one_cycle(left=left)]) == [
        "1 segments left after cycle 2: ['/dev/shm/psm_1']"
    ]
    slow = [one_cycle(over_s=2.5), one_cycle(over_s=2.2), one_cycle(over_s=0.1)]
    assert cycles.broken(slow) == ["v: 2.2 s over the engine, limit 2.0"]
    busy = [one_cycle(over_s=9.0, load_average=1000.0), one_cycle(over_s=None)]
    assert cycles.broken(busy) == []

"""The load client starts and stops a server's profiler at known times, and says what came of it."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from load_server import ScriptServer, answer, stream
from test_load_bench import Results, closed, run, spec_of

from servemap.onnode.checked import SpecError
from servemap.onnode.load_profile import BEGUN_FILE, ENOUGH_FILE
from servemap.onnode.load_spec import parse_spec

PROFILE = {"segment": "main", "after_s": 0.0, "start": "/start_profile", "stop": "/stop_profile"}
WARMUP = {"isl": 5, "osl": 2, "concurrency": 1, "num_prompts": 1}


class Engine:
    """Streams tokens; takes the two calls of a profiler, and does something when it is started."""

    def __init__(self, start: bytes = answer("200 OK", b""), first: float = 0.0) -> None:
        self.start, self.first = start, first
        self.asked: list[tuple[str, dict[str, Any], int]] = []
        self.on_start: Any = lambda: None

    def __call__(self, number: int, body: dict[str, Any]) -> Iterator[bytes | float]:
        path = self.server.requests[number].head.split(" ")[1]
        self.asked.append((path, body, time.time_ns()))
        if path == "/start_profile":
            self.on_start()
            yield self.start
        elif path == "/stop_profile":
            yield answer("200 OK", b"")
        else:
            yield from stream(body, gap=0.005, first=self.first)

    @property
    def paths(self) -> list[str]:
        return [path for path, _, _ in self.asked]


def profiled(tmp_path: Path, engine: Engine, min_window_s: float = 0.0, **profile: Any) -> Results:
    with ScriptServer(engine) as server:
        engine.server = server
        spec = spec_of(
            server.url,
            closed(osl=20, num_prompts=2),
            warmup=WARMUP,
            min_window_s=min_window_s,
            profile={**PROFILE, **profile},
        )
        return run(tmp_path, spec)


def test_started_in_the_window_and_stopped_at_its_end(tmp_path: Path) -> None:
    engine = Engine()
    got = profiled(tmp_path, engine, body={"num_steps": 8})
    assert got.client["status"] == "ok"
    assert engine.paths[0] == "/v1/completions", "the warm-up comes before"
    assert [body for path, body, _ in engine.asked if path == "/start_profile"] == [
        {"num_steps": 8}
    ]
    assert engine.paths[-1] == "/stop_profile"
    said = got.client["profile"]
    (segment,) = got.client["segments"]
    assert said["problem"] is None
    assert said["whole_ns"] is None
    assert not said["whole"]
    assert segment["start_ns"] <= said["start_ns"] < said["started_ns"]
    assert segment["end_ns"] <= said["stop_ns"] <= said["stopped_ns"]
    assert said["start_ns"] <= engine.asked[engine.paths.index("/start_profile")][2]


def test_the_load_ends_when_the_traces_are_seen_whole(tmp_path: Path) -> None:
    engine = Engine()
    seen = tmp_path / "out" / ENOUGH_FILE
    engine.on_start = lambda: threading.Timer(0.2, seen.write_text, ["whole"]).start()
    got = profiled(tmp_path, engine, min_window_s=50)
    said, (segment,) = got.client["profile"], got.client["segments"]
    assert got.client["status"] == "ok", "the requests that it cut off are no failure of the load"
    assert said["whole"]
    assert said["started_ns"] < said["whole_ns"]
    assert said["stop_ns"] is None
    assert "/stop_profile" not in engine.paths, "SGLang calls that an error"
    assert segment["end_ns"] - segment["start_ns"] < 40e9


def test_an_engine_that_must_be_told_is_stopped_also_when_all_is_there(tmp_path: Path) -> None:
    engine = Engine()
    seen = tmp_path / "out" / ENOUGH_FILE
    engine.on_start = lambda: threading.Timer(0.1, seen.write_text, ["whole"]).start()
    got = profiled(tmp_path, engine, min_window_s=50, stop_always=True)
    said = got.client["profile"]
    assert said["started_ns"] < said["whole_ns"] <= said["stop_ns"] <= said["stopped_ns"]
    assert engine.paths.count("/stop_profile") == 1
    assert got.client["status"] == "ok"


def test_where_the_profile_is_taken_by_somebody_else_it_is_said_that_it_is_time(
    tmp_path: Path,
) -> None:
    engine, begun = Engine(), tmp_path / "out" / BEGUN_FILE
    over = threading.Event()

    def take() -> None:
        while not begun.exists() and not over.wait(0.01):
            pass
        (tmp_path / "out" / ENOUGH_FILE).write_text("whole")

    taker = threading.Thread(target=take)
    taker.start()
    try:
        with ScriptServer(engine) as server:
            engine.server = server
            profile = {"segment": "main", "after_s": 0.0, "outside": True}
            spec = spec_of(server.url, closed(osl=20, num_prompts=2), min_window_s=50)
            got = run(tmp_path, {**spec, "warmup": None, "profile": profile})
    finally:
        over.set()
        taker.join()
    said = got.client["profile"]
    assert (got.client["status"], said["problem"], said["whole"]) == ("ok", None, True)
    assert said["start_ns"] <= said["whole_ns"] and said["started_ns"] is None
    assert set(engine.paths) == {"/v1/completions"}, "the server is asked nothing"


def test_a_profiler_that_refuses_ends_the_load_with_its_words(tmp_path: Path) -> None:
    engine = Engine(answer("404 Not Found", b'{"detail":"Not Found"}'))
    got = profiled(tmp_path, engine, min_window_s=50)
    assert "404" in got.client["profile"]["problem"]
    assert "Not Found" in got.client["profile"]["problem"]
    assert "/stop_profile" not in engine.paths


def test_a_load_that_is_over_before_is_named(tmp_path: Path) -> None:
    engine = Engine()
    got = profiled(tmp_path, engine, after_s=30.0)
    assert got.client["profile"]["problem"] == "the load ended before the profile was to begin"
    assert "/start_profile" not in engine.paths


def test_the_first_wave_is_let_through_its_prefill(tmp_path: Path) -> None:
    engine = Engine(first=0.3)
    got = profiled(tmp_path, engine, settled=True)
    (segment,) = got.client["segments"]
    assert got.client["profile"]["start_ns"] - segment["start_ns"] >= 0.3e9


def test_a_load_without_a_profile_says_nothing_of_it(tmp_path: Path) -> None:
    engine = Engine()
    with ScriptServer(engine) as server:
        engine.server = server
        got = run(tmp_path, spec_of(server.url))
    assert "profile" not in got.client


@pytest.mark.parametrize(
    ("profile", "where"),
    [
        ({"segment": "none"}, "profile.segment"),
        ({"start": "start_profile"}, "profile.start"),
        ({"stop": "/stop profile"}, "profile.stop"),
        ({"body": [1]}, "profile.body"),
        ({"after_s": -1}, "profile.after_s"),
        ({"more": 1}, "profile"),
    ],
)
def test_what_is_wrong_is_named(profile: dict[str, Any], where: str) -> None:
    spec = spec_of("http://127.0.0.1:1", profile={**PROFILE, **profile}, min_window_s=0)
    with pytest.raises(SpecError, match=where):
        parse_spec({**spec, "warmup": None})

"""A controller's session: what it takes, what it refuses, what it gives back."""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from servemap.measure.setup import load_context
from servemap.model.canon import write_json_atomic
from servemap.model.errors import ConfigError, LockedError, ResultsError, ServemapError
from servemap.server import session
from servemap.server.context import Context
from servemap.server.events import append_event, read_events
from servemap.server.lease import lease_dir
from servemap.server.locks import describe_self, read_holder, try_lock
from servemap.server.manifest import check_manifest, write_manifest
from servemap.server.stop import request_stop, stop_request
from tests.fakes import FakeNode, campaign, fake_context


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Context]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("SERVEMAP_LEASE_DIR", str(tmp_path / "lease"))
    session._ended.clear()
    yield fake_context(FakeNode(), campaign())
    session._ended.set()
    while session._run_lock:
        session._run_lock.pop().close()


def names(context: Context) -> list[str]:
    return [event["event"] for event in read_events(context.run_dir)]


def snakemake_log() -> list[Path]:
    path = Path("snakemake.log")
    path.write_text("rule case:\n")
    return [path]


def test_begin_and_end(context: Context) -> None:
    before = context.session
    session.begin(context)
    assert context.session not in ("", before)
    assert read_holder(lease_dir() / "lease.json")["run"] == str(context.run_dir.resolve())
    manifest = json.loads((context.run_dir / "run_manifest.json").read_text())
    assert manifest["campaign"]["run"] == "r"
    assert [item["session"] for item in manifest["sessions"]] == [context.session]
    heartbeat = Path(context.head_workdir) / "server" / "heartbeat"
    deadline = time.monotonic() + 20
    while not heartbeat.exists():
        assert time.monotonic() < deadline, "nobody renews the server's lease"
        time.sleep(0.01)
    session.end(context, "the campaign ended", snakemake_log())
    assert read_holder(lease_dir() / "lease.json") == {}
    assert names(context) == ["session_begin", "session_end"]
    assert (context.run_dir / "run.log").read_text() == "rule case:\n"


def test_a_run_that_is_driven_is_refused_and_left_alone(context: Context) -> None:
    other = try_lock(context.run_dir / ".lock", describe_self(session="theirs"))
    assert other is not None
    with pytest.raises(LockedError, match="run 'r' is already driven by pid") as caught:
        session.begin(context)
    assert "`servemap stop r --after-case --reason TEXT`" in caught.value.remedy
    session.end(context, "the campaign ended with an error", snakemake_log())
    assert names(context) == []
    assert context.session == "s1"
    assert not lease_dir().exists()
    other.close()


def test_a_refused_controller_leaves_nothing_of_a_run_that_never_began(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(context.run_dir)

    def held(node: str) -> None:
        raise LockedError(f"node {node} is driven by somebody", "lease.json", "wait")

    monkeypatch.setattr(session, "check_lease", held)
    with pytest.raises(LockedError, match="node n1 is driven by somebody"):
        session.begin(context)
    assert not Path("results/r").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"server": {"engine": "vllm"}}, "engine vllm"),
        ({"server": {"engine": "sglang"}}, "engine sglang"),
    ],
)
def test_what_can_only_be_planned_is_refused_before_anything_is_touched(
    context: Context, change: dict[str, object], said: str
) -> None:
    shutil.rmtree(context.run_dir)
    variants = [{"id": "baseline"}]
    other = load_context(campaign(**change, variables=[], variants=variants))
    with pytest.raises(ConfigError, match=said):
        session.begin(other)
    session.end(other, "the campaign ended with an error", snakemake_log())
    assert not Path("results").exists() or not list(Path("results").iterdir())
    assert not lease_dir().exists()


def test_an_attached_server_of_any_engine_may_be_measured(context: Context) -> None:
    server = {"engine": "vllm", "attach": "http://127.0.0.1:9"}
    variants = [{"id": "baseline"}]
    session.begin(
        fake_context(FakeNode(), campaign(server=server, variables=[], variants=variants))
    )
    assert names(context) == ["session_begin"]


def test_a_folder_that_cannot_be_written_is_an_error_in_words(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> None:
        raise OSError(28, "No space left on device", "results/r/.session.json")

    monkeypatch.setattr(session, "write_json_atomic", full)
    with pytest.raises(ResultsError, match="No space left on device") as caught:
        session.begin(context)
    assert caught.value.where == "results/r/.session.json"


def test_the_end_says_its_errors_and_goes_on(
    context: Context, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    session.begin(context)

    def stuck(*args: object) -> bool:
        raise ServemapError("the server does not end", "n1", "end it by hand")

    monkeypatch.setattr(session, "stop_server", stuck)
    monkeypatch.setattr(session, "release_lease", lambda run: append_to_full_disk())
    session.end(context, "the campaign ended", snakemake_log())
    said = capsys.readouterr().err
    assert "the server does not end" in said
    assert "No space left" in said
    assert names(context)[-1] == "session_end"


def append_to_full_disk() -> None:
    raise OSError(28, "No space left on device")


def test_an_orphan_is_fenced_and_named(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "fence_orphan", lambda run: {"pid": 7, "job": "case a/b r1"})
    session.begin(context)
    fence = read_events(context.run_dir)[-1]
    assert (fence["event"], fence["pid"], fence["job"]) == ("fence", 7, "case a/b r1")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": {"name": "x", "path": "model.gguf", "context": 2048}}, "its model is"),
        ({"nodes": [{"id": "n1", "address": "10.0.0.1"}]}, "its nodes is"),
        ({"server": {"engine": "vllm", "attach": "http://h:1"}, "variables": [],
          "variants": [{"id": "baseline"}]}, "its engine is"),
    ],
)  # fmt: skip
def test_results_of_another_campaign_are_refused(
    context: Context, change: dict[str, object], said: str
) -> None:
    write_manifest(context.run_dir, context.plan.campaign, {})
    check_manifest(context.run_dir, context.plan.campaign)
    other = fake_context(FakeNode(), campaign(**change))
    with pytest.raises(ResultsError, match=said) as caught:
        check_manifest(other.run_dir, other.plan.campaign)
    assert "another `run` name" in caught.value.remedy


def test_more_cases_are_the_same_campaign(context: Context) -> None:
    write_manifest(context.run_dir, context.plan.campaign, {})
    cases = [{"id": "c", "isl": 65, "osl": 8, "concurrency": 1}]
    check_manifest(context.run_dir, fake_context(FakeNode(), campaign(cases=cases)).plan.campaign)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"schema": 99}', "schema 99"),
        ('{"identity": {}}', "schema None"),
        ('{"schema": 1, "identity": []}', "does not say whose"),
        ('{"schema": 1, "identity": {}}', "another campaign"),
    ],
)
def test_manifests_that_are_damaged_or_of_another_schema(
    context: Context, text: str, said: str
) -> None:
    (context.run_dir / "run_manifest.json").write_text(text)
    with pytest.raises(ResultsError, match=said):
        check_manifest(context.run_dir, context.plan.campaign)


def test_the_manifest_keeps_when_the_run_was_created(context: Context) -> None:
    path = context.run_dir / "run_manifest.json"
    write_manifest(context.run_dir, context.plan.campaign, {"session": "1"})
    first = json.loads(path.read_text())
    write_manifest(context.run_dir, context.plan.campaign, {"session": "2"})
    second = json.loads(path.read_text())
    assert second["created_ns"] == first["created_ns"]
    assert [item["session"] for item in second["sessions"]] == ["1", "2"]


def test_stop_requests(tmp_path: Path) -> None:
    assert stop_request(tmp_path, "s1") is None
    request_stop(tmp_path, "s1", "abort", "dead")
    found = stop_request(tmp_path, "s1")
    assert found is not None
    assert (found.cause, found.reason) == ("abort", "dead")
    assert stop_request(tmp_path, "s2") is None
    (tmp_path / ".stop.json").write_text("{")
    assert stop_request(tmp_path, "s1") is None


def test_events_are_whole_lines(tmp_path: Path) -> None:
    append_event(tmp_path / "new", "launch", variant="a\nb")
    path = tmp_path / "new" / "events.jsonl"
    path.write_text(path.read_text() + "[1]\n" + '{"cut')
    assert [event["variant"] for event in read_events(tmp_path / "new")] == ["a\nb"]
    write_json_atomic(tmp_path / "x.json", {})
    assert read_events(tmp_path) == []

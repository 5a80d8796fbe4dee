"""Kill, stop and break a campaign, then see what is recorded and what the next run does."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.parts import need
from tests.workflow.harness import Project

SLOW_S = 4.0


def slow(project: Project) -> None:
    """Make every window last some seconds, so that there is time to break it."""
    campaign = project.campaign()
    for case in campaign["cases"]:
        case["min_window_s"] = SLOW_S
        case["repeats"] = 1
    campaign["variants"] = campaign["variants"][:1]
    project.write_campaign(campaign)


def meta(project: Project, variant: str, case: str, repeat: int = 1) -> dict[str, Any]:
    path = project.results / f"cases/{variant}/{case}/r{repeat}/meta.json"
    return dict(json.loads(path.read_text()))


def events(project: Project, name: str) -> list[dict[str, Any]]:
    lines = (project.results / "events.jsonl").read_text().splitlines()
    return [e for e in map(json.loads, lines) if e["event"] == name]


def wait_client(project: Project, case: str, attempt: int = 1) -> dict[str, Any]:
    """Wait until the load client of an attempt runs; return what its opening says."""
    pattern = f"cases/baseline/{case}/r1/attempts/{attempt:03d}/open.json"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        path = project.wait_for(pattern)
        try:
            opening = json.loads(path.read_text())
        except (OSError, ValueError):
            opening = {}
        if "client" in opening:
            time.sleep(0.5)
            return dict(opening)
        time.sleep(0.02)
    raise AssertionError("the client did not start")


@contextmanager
def held(project: Project) -> Iterator[None]:
    """Keep the case that is measured from its end, however long what is tried meanwhile takes."""
    job = json.loads((project.results / ".server.lock").read_text())["pid"]
    os.kill(job, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(job, signal.SIGCONT)


def wait_gone(pids: list[int], timeout: float = 120) -> None:
    deadline = time.monotonic() + timeout
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, f"{pids} still there"
        time.sleep(0.05)


def test_kill_9_in_a_case_then_resume(fresh: Project) -> None:
    """The orphan ends, the server is reused, the running case adopted, finished ones kept."""
    slow(fresh)
    controller = fresh.start()
    fresh.wait_for("cases/baseline/prefill/r1/meta.json")
    wait_client(fresh, "decode")
    controller.kill()
    controller.wait()
    (pid,) = fresh.server_pids()
    run = fresh.snakemake()
    assert run.code == 0, run.text[-3000:]
    assert run.cases == ["baseline/decode/r1"]
    assert len(events(fresh, "launch")) == 1, "the live server was reused"
    assert len(events(fresh, "adopt")) == 1
    record = meta(fresh, "baseline", "decode")
    assert record["status"] == "ok"
    assert record["attempt"] == 1
    assert record["adopted"] is True
    assert fresh.snakemake().nothing
    wait_gone([pid])


def test_kill_9_then_the_watchdog_stops_the_server(fresh: Project) -> None:
    slow(fresh)
    campaign = fresh.campaign()
    campaign["policy"]["lease_ttl_s"] = 5
    fresh.write_campaign(campaign)
    controller = fresh.start()
    wait_client(fresh, "prefill")
    os.killpg(controller.pid, signal.SIGKILL)
    controller.wait()
    wait_gone(fresh.server_pids())
    run = fresh.snakemake()
    assert run.code == 0, run.text[-3000:]
    record = meta(fresh, "baseline", "prefill")
    assert record["status"] == "ok"
    assert record["attempt"] == 1, "the client finished without its controller and was adopted"


def test_kill_9_of_controller_and_client(fresh: Project) -> None:
    """What cannot be finished is closed as evidence and measured again, once."""
    slow(fresh)
    controller = fresh.start()
    opening = wait_client(fresh, "prefill")
    os.killpg(controller.pid, signal.SIGKILL)
    os.kill(opening["client"]["pid"], signal.SIGKILL)
    controller.wait()
    run = fresh.snakemake()
    assert run.code == 0, run.text[-3000:]
    record = meta(fresh, "baseline", "prefill")
    assert (record["status"], record["attempt"]) == ("ok", 2)
    old = fresh.results / "cases/baseline/prefill/r1/attempts/001/meta.json"
    assert json.loads(old.read_text())["status"] == "failed"
    assert fresh.snakemake().nothing


def test_server_killed_in_a_case_then_repaired(fresh: Project) -> None:
    slow(fresh)
    controller = fresh.start()
    wait_client(fresh, "prefill")
    (pid,) = fresh.server_pids()
    os.kill(pid, signal.SIGKILL)
    assert controller.wait(240) == 0, fresh.log()[-3000:]
    record = meta(fresh, "baseline", "prefill")
    assert record["status"] == "failed"
    assert "signal 9 during the case" in record["reasons"][0]
    assert meta(fresh, "baseline", "decode")["status"] == "ok", "the campaign went on"
    gate = fresh.snakemake("gate")
    assert gate.code != 0
    assert "signal 9" in gate.text
    run = fresh.snakemake()
    assert run.cases == ["baseline/prefill/r1"]
    assert meta(fresh, "baseline", "prefill")["status"] == "ok"
    assert fresh.snakemake().nothing
    assert fresh.snakemake("gate").code == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("group", [True, False], ids=["group", "process"])
def test_a_signal_ends_everything_and_uses_up_no_attempt(
    fresh: Project, number: signal.Signals, group: bool
) -> None:
    slow(fresh)
    campaign = fresh.campaign()
    campaign["policy"]["max_attempts"] = 1
    fresh.write_campaign(campaign)
    controller = fresh.start()
    opening = wait_client(fresh, "prefill")
    pids = [*fresh.server_pids(), opening["client"]["pid"]]
    pids += [noted["pid"] for noted in opening["collectors"].values()]
    (os.killpg if group else os.kill)(controller.pid, number)
    controller.wait(240)
    wait_gone(pids)
    assert list((fresh.results / "report").glob("partial.*")), fresh.log()[-2000:]
    run = fresh.snakemake()
    assert run.code == 0, run.text[-3000:]
    assert meta(fresh, "baseline", "prefill")["status"] == "ok"
    assert fresh.snakemake().nothing


def test_a_server_that_dies_at_every_start(fresh: Project) -> None:
    campaign = fresh.campaign()
    campaign["variables"] = [{"id": "bad", "keys": ["args"]}]
    campaign["variants"][1] = {
        "id": "broken", "variable": "bad", "set": {"args.no_such_flag": 1},
    }  # fmt: skip
    fresh.write_campaign(campaign)
    run = fresh.snakemake()
    assert run.code == 0, run.text[-3000:]
    launch = json.loads((fresh.results / "server/broken/launch.json").read_text())
    assert launch["status"] == "failed"
    assert any("no-such-flag" in line for line in launch["log_tail"])
    for case in ("prefill", "decode"):
        record = meta(fresh, "broken", case)
        assert record["status"] == "not_run"
        assert record["cause"] in ("launch", "breaker")
        assert meta(fresh, "baseline", case)["status"] == "ok"
    starts = [e for e in events(fresh, "launch") if e["variant"] == "broken"]
    assert len(starts) <= campaign["policy"].get("max_deaths", 3)
    assert "no-such-flag" in (fresh.results / "report.md").read_text()
    gate = fresh.snakemake("gate")
    assert gate.code != 0
    again = fresh.snakemake()
    assert again.jobs["launch"] == 1, "one more try, as max_attempts says"
    assert fresh.snakemake().nothing, "then it is given up"


def test_a_forced_launch_that_fails_leaves_nothing_stale(done: Project) -> None:
    """The model is gone when the launch is forced: its cases are not run, not still done."""
    (done.folder / ".demo/tiny.gguf").rename(done.folder / ".demo/away.gguf")
    run = done.snakemake("-R", "launch", "--", "phase1", "phase2")
    assert run.code == 0, run.text[-3000:]
    for case in ("prefill", "decode"):
        assert meta(done, "baseline", case)["status"] == "not_run"
    assert json.loads((done.results / "server/baseline/launch.json").read_text())["status"] != "ok"
    assert (done.results / "cases/baseline/prefill/r1/attempts/001/meta.json").exists()


@pytest.mark.parametrize("policy", ["relaunch", "abort"])
def test_health_lost_between_cases(fresh: Project, policy: str) -> None:
    slow(fresh)
    campaign = fresh.campaign()
    campaign["policy"]["on_unhealthy"] = policy
    fresh.write_campaign(campaign)
    controller = fresh.start()
    wait_client(fresh, "prefill")
    # The server dies after its case is done and before the next one begins: Snakemake, which would
    # begin it, is stopped while that happens.
    controller.send_signal(signal.SIGSTOP)
    fresh.wait_for("cases/baseline/prefill/r1/meta.json")
    servers = fresh.server_pids()
    for pid in servers:
        os.kill(pid, signal.SIGKILL)
    wait_gone(servers)
    controller.send_signal(signal.SIGCONT)
    assert controller.wait(240) == 0, fresh.log()[-3000:]
    record = meta(fresh, "baseline", "decode")
    if policy == "relaunch":
        assert record["status"] == "ok"
        assert len(events(fresh, "launch")) == 2
    else:
        assert (record["status"], record["cause"]) == ("not_run", "abort")
        assert "lost its health" in record["reasons"][0]
        assert fresh.snakemake().cases == ["baseline/decode/r1"]


def test_two_controllers(fresh: Project) -> None:
    slow(fresh)
    controller = fresh.start()
    wait_client(fresh, "prefill")
    with held(fresh):
        second = fresh.snakemake()
    assert second.code != 0
    assert "is already driven by" in second.text
    assert "remedy:" in second.text
    assert "Traceback" not in second.text
    assert controller.wait(240) == 0, fresh.log()[-3000:]
    assert meta(fresh, "baseline", "prefill")["attempt"] == 1


def test_two_runs_on_one_node(fresh: Project, tmp_path: Path) -> None:
    """The node's lease refuses another run, of whichever checkout."""
    slow(fresh)
    other = Project.create(tmp_path / "other", fresh.port)
    other.state = fresh.state
    controller = fresh.start()
    wait_client(fresh, "prefill")
    with held(fresh):
        second = other.snakemake()
    assert second.code != 0
    assert "node local is driven by" in second.text
    assert controller.wait(240) == 0


@pytest.mark.parametrize(
    "call",
    [
        ["-n"],
        ["--lint"],
        ["--dag"],
        ["--summary"],
        ["--list-target-rules"],
        ["--report", "out.html"],
    ],
    ids=lambda call: call[0],
)
def test_planning_beside_a_running_campaign(running: tuple[Project, Any], call: list[str]) -> None:
    project, controller = running
    before = (project.results / ".session.json").read_bytes()
    pids = project.server_pids()
    run = project.snakemake(*call)
    # Snakemake makes no report of results that are not there yet; it must not disturb either.
    assert run.code == 0 or call[0] == "--report", run.text[-2000:]
    assert "is already driven by" not in run.text
    assert (project.results / ".session.json").read_bytes() == before
    assert project.server_pids() == pids
    assert controller.poll() is None, "the campaign must still run for this to prove anything"


def test_port_taken_by_another_program(fresh: Project) -> None:
    with socket.socket() as handle:
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        handle.bind(("127.0.0.1", fresh.port))
        handle.listen()
        run = fresh.snakemake("--", "phase1")
    assert run.code == 0, run.text[-3000:]
    launch = json.loads((fresh.results / "server/baseline/launch.json").read_text())
    assert launch["status"] == "failed"
    assert f"pid {os.getpid()}" in launch["reasons"][0]
    assert meta(fresh, "baseline", "prefill")["status"] == "not_run"


@pytest.mark.parametrize("how", ["missing", "truncated"])
def test_model_file_missing_or_truncated(fresh: Project, how: str) -> None:
    model = fresh.folder / ".demo/tiny.gguf"
    if how == "missing":
        model.unlink()
    else:
        model.write_bytes(model.read_bytes()[:100_000])
    run = fresh.snakemake()
    assert run.code == 0, run.text[-3000:]
    launch = json.loads((fresh.results / "server/baseline/launch.json").read_text())
    assert launch["status"] == "failed"
    assert launch["log_tail"], "the engine's last lines are kept"
    last = launch["log_tail"][-1].strip()
    assert last[:40] in (fresh.results / "report.md").read_text()


def test_results_of_another_campaign(done: Project) -> None:
    campaign = done.campaign()
    campaign["model"]["name"] = "another"
    done.write_campaign(campaign)
    run = done.snakemake()
    assert run.code != 0
    assert "holds another campaign" in run.text
    assert "another `run` name" in run.text
    assert "Traceback" not in run.text
    dry = done.snakemake("-n")
    assert dry.code != 0
    assert "holds another campaign" in dry.text, "a dry run does not list what cannot be run"


def test_results_of_another_schema(done: Project) -> None:
    path = done.results / "run_manifest.json"
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 99'))
    campaign = done.campaign()
    campaign["cases"][0]["isl"] = "9K"
    done.write_campaign(campaign)
    run = done.snakemake()
    assert run.code != 0
    assert "schema 99" in run.text


def test_stop_after_case(fresh: Project) -> None:
    slow(fresh)
    controller = fresh.start()
    wait_client(fresh, "prefill")
    with held(fresh):
        status = fresh.servemap("status", "small")
        done = fresh.servemap("stop", "small", "--after-case", "--reason", "lunch")
    assert "baseline/prefill r1" in status.stdout, status.stderr
    assert done.returncode == 0, done.stderr
    assert controller.wait(240) == 0, fresh.log()[-2000:]
    assert meta(fresh, "baseline", "prefill")["status"] == "ok"
    record = meta(fresh, "baseline", "decode")
    assert (record["status"], record["cause"]) == ("not_run", "stop")
    assert "lunch" in record["reasons"][0]
    assert (fresh.results / "report.md").exists(), "it ended in good order"
    assert not list((fresh.results / "report").glob("partial.*"))
    run = fresh.snakemake()
    assert run.cases == ["baseline/decode/r1"]
    assert meta(fresh, "baseline", "decode")["status"] == "ok"


@pytest.fixture
def small_disk(fresh: Project) -> Iterator[Path]:
    """A file system of 1 MiB where the attempts of one case are written."""
    need("mount")
    folder = fresh.results / "cases/baseline/decode/r1/attempts"
    folder.mkdir(parents=True)
    argv = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    subprocess.run(argv, check=True)
    yield folder
    # The server's log and the collectors lie elsewhere: nothing keeps the mount busy.
    subprocess.run(["umount", str(folder)], check=True)


def test_disk_full_while_raw_files_are_written(fresh: Project, small_disk: Path) -> None:
    """The attempt fails and says so, nothing earlier is lost, with room it is measured again."""
    assert fresh.snakemake("--", "phase1").code == 0
    kept = meta(fresh, "baseline", "prefill")
    campaign = fresh.campaign()
    campaign["cases"][1] |= {"num_prompts": 2000, "repeats": 1}
    fresh.write_campaign(campaign)
    run = fresh.snakemake("--", "phase2")
    assert "Traceback" not in run.text
    assert "No space left on device" in run.text or "no room" in run.text
    assert meta(fresh, "baseline", "prefill") == kept
    assert meta(fresh, "few-slots", "decode")["status"] == "ok", "the campaign went on"
    path = fresh.results / "cases/baseline/decode/r1/meta.json"
    if path.exists():
        assert json.loads(path.read_text())["status"] == "failed"
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    again = fresh.snakemake("--", "phase2")
    assert again.code == 0, again.text[-3000:]
    assert meta(fresh, "baseline", "decode")["status"] == "ok"


def test_an_orphan_that_hangs_is_fenced(fresh: Project) -> None:
    """A job that its dead controller left stopped (SIGSTOP) cannot end itself: it is killed."""
    slow(fresh)
    controller = fresh.start()
    wait_client(fresh, "prefill")
    job = json.loads((fresh.results / ".server.lock").read_text())["pid"]
    os.kill(job, signal.SIGSTOP)
    controller.kill()
    controller.wait()
    run = fresh.snakemake()
    assert run.code == 0, run.text[-3000:]
    assert [e["pid"] for e in events(fresh, "fence")] == [job]
    assert not Path(f"/proc/{job}").exists()
    assert meta(fresh, "baseline", "prefill")["adopted"] is True


def test_a_quiet_campaign_says_its_baselines_and_keeps_a_log(fresh: Project) -> None:
    run = fresh.snakemake("phase0", "--quiet", "all")
    assert run.code == 0, run.text
    assert "baseline loopback: ok, 1 pair of nodes" in run.text
    events = [line.split()[1] for line in (fresh.results / "run.log").read_text().splitlines()]
    assert (events[0], events[-1]) == ("session_begin", "session_end")


def test_a_disturbed_repeat_is_measured_once_more_and_stays_with_its_reason(
    fresh: Project,
) -> None:
    """No client is on time to the microsecond, so this limit calls each try disturbed."""
    campaign = fresh.campaign()
    campaign["variants"] = campaign["variants"][:1]
    campaign["limits"] |= {"client_lag_ms": 0, "client_lag_share": 0}
    campaign["policy"]["max_attempts"] = 9
    fresh.write_campaign(campaign)
    repeat = fresh.results / "cases/baseline/prefill/r1"
    for attempt in (1, 2):
        run = fresh.snakemake("--", "phase1")
        assert run.code == 0, run.text[-3000:]
        assert run.cases == ["baseline/prefill/r1"]
        record = meta(fresh, "baseline", "prefill")
        assert (record["status"], record["cause"]) == ("failed", "disturbed")
        assert record["attempt"] == attempt
        assert "the load client was saturated: client_lag_ms: " in record["reasons"][0]
    campaign["limits"] |= {"client_lag_ms": 60_000}
    fresh.write_campaign(campaign)
    run = fresh.snakemake("--", "phase1")
    assert (run.jobs["case"], run.jobs["derive"]) == (0, 1), "once more, not nine times"
    metrics = json.loads((repeat / "metrics.json").read_text())
    assert metrics["verdict"] == "invalid", "a raised limit does not heal a failed attempt"
    assert metrics["reasons"][0].startswith("attempt: failed, limit ok (the load client was")
    assert metrics["segments"][0]["metrics"]["ok"] == 4, "its figures are evidence"

"""What loads of a dead controller left on a node: old figures, a client that nobody knows of."""

import json
import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from servemap.model.attempts import intact, read_json, read_records
from tests.lab.lab import BENCH, Lab
from tests.lab.project import LabProject
from tests.lab.short import await_it, await_load, left, raw_on, short_campaign, target, words

pytestmark = pytest.mark.timeout(1200)
PYTHON = "/opt/slow/python"
SLOW, STARTED = "/tmp/slow", "/tmp/started"
# An interpreter that takes its time to tell what it started, once, as a node under load may.
SLOW_PYTHON = f"""#!/bin/sh
real={sys.prefix}/bin/python
if [ "$2" = spawn ] && [ -e {SLOW} ]; then
  request=$(cat)
  case "$request" in *'"bench"'*)
    rm -f {SLOW}
    answer=$(printf %s "$request" | "$real" "$@")
    : > {STARTED}
    sleep 10
    printf '%s\\n' "$answer"
    exit 0;;
  esac
  printf %s "$request" | exec "$real" "$@"
fi
exec "$real" "$@"
"""


def test_old_figures_are_not_taken_for_new_ones(lab: Lab, tmp_path: Path) -> None:
    """kill -9 in a case, its client finishes, the results are removed; then the same command."""
    project = LabProject.on(lab, tmp_path / "project")
    project.write_campaign(short_campaign(lab, "one", lease_ttl_s=5))
    try:
        project.start(target("one"))
        await_load(project, "one")
        project.kill_controller()
        raw = raw_on(lab, "head", "one")
        old = await_it(lambda: read_json(raw / "client.json"), "the end of the client")
        assert old["status"] == "ok"
        shutil.rmtree(project.results)

        began_ns = time.time_ns()
        again = project.snakemake(target("one"))
        assert again.code == 0, again.text[-3000:]
        meta = project.meta("one")
        assert (meta["status"], meta["attempt"], meta["reasons"]) == ("ok", 1, [])
        assert meta["segments"][0]["start_ns"] > began_ns
        (record,) = read_records(project.case_folder("one") / "attempts")
        assert intact(record)
        new = project.case_folder("one") / "attempts/001/raw"
        assert read_json(new / "client.json") != old
        requests = (new / "requests.jsonl").read_text().splitlines()
        assert all(json.loads(line)["sent_ns"] > began_ns for line in requests)
        assert len(requests) >= meta["counts"]["ok"]
        assert left(lab) == {}
        print(f"overhead_s {meta['overhead']}")
    finally:
        project.clean_up()


def test_a_client_whose_start_was_never_told_does_not_load_the_server_beside_the_next(
    lab: Lab, tmp_path: Path
) -> None:
    """The controller dies after a node started the client and before it said so."""
    slow = lab.path("head", PYTHON)
    slow.parent.mkdir(parents=True)
    slow.write_text(SLOW_PYTHON)
    slow.chmod(0o755)
    held = lab.path("head", SLOW)
    held.touch()
    os.chown(held, BENCH.uid, BENCH.uid)
    project = LabProject.on(lab, tmp_path / "project")
    campaign = short_campaign(lab, "one")
    campaign["nodes"][0]["python"] = PYTHON
    campaign["cases"][0]["min_window_s"] = 60
    project.write_campaign(campaign)
    try:
        project.start(target("one"))
        project.wait_until(lab.path("head", STARTED).exists, 120)
        project.kill_controller()
        (lost,) = lab.processes_with("head", "bench")
        campaign["cases"][0]["min_window_s"] = 4
        project.write_campaign(campaign)

        project.start(target("one"))
        await_it(lambda: any(p != lost for p in lab.processes_with("head", "bench")), "new client")
        assert not lost.is_running(), words(lost)
        assert project.wait() == 0, project.log()[-3000:]
        assert project.meta("one")["status"] == "ok"
        assert [meta["cause"] for meta in project.attempts("one")] == ["interrupted", None]
        assert left(lab) == {}
    finally:
        project.clean_up()

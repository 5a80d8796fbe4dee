"""The doctor on two machines over ssh: ready ones, and such as differ or are off."""

from tests.lab.lab import FILES, NOKEY
from tests.lab.project import LabProject

Lines = dict[tuple[str, str], tuple[str, str]]


def read_table(said: str) -> Lines:
    """Return {(node, check): (state, seen on its first line)} of the doctor's table."""
    rows = said.splitlines()
    rule = next(row for row in rows if row.startswith("----"))
    starts = [
        at for at, sign in enumerate(rule) if sign == "-" and (at == 0 or rule[at - 1] == " ")
    ]
    cells = [
        [row[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
        for row in rows[rows.index(rule) + 1 : rows.index("")]
    ]
    return {(row[0], row[1]): (row[2], row[3]) for row in cells if row[0]}


def test_machines_that_are_ready(project: LabProject) -> None:
    done = project.servemap("doctor", "--configfile", "campaign.yaml")
    lines = read_table(done.stdout)
    assert {key: line for key, line in lines.items() if line[0] not in ("ok", "warn")} == {}
    assert done.returncode == 0
    assert {node for node, _ in lines} == {"head", "worker", "(here)"}
    for node in ("head", "worker"):
        assert lines[node, "ssh"][1].startswith("connected in")
        assert lines[node, "clock"][0] == "ok"
        assert lines[node, "rails and MTU"][1] == "eth0 1500"
        assert lines[node, "model"][1].startswith("1 file")


def test_machines_that_are_not(project: LabProject) -> None:
    lab = project.lab
    lab.exec_in("worker", ["ip", "link", "set", "eth0", "mtu", "1400"], check=True)
    lab.exec_in("worker", ["truncate", "-s", "+1", f"{FILES}/tiny.gguf"], check=True)
    done = project.servemap("doctor", "--configfile", "campaign.yaml")
    lines = read_table(done.stdout)
    assert done.returncode == 1
    failed = {key for key, (state, _) in lines.items() if state == "FAIL"}
    assert failed == {("worker", "rails and MTU"), ("worker", "model")}
    campaign = project.campaign()
    campaign["nodes"][0]["user"] = NOKEY.name
    project.write_campaign(campaign)
    lab.power_off("worker")
    done = project.servemap("doctor", "--configfile", "campaign.yaml")
    lines = read_table(done.stdout)
    assert done.returncode == 1
    for node in ("head", "worker"):
        assert lines[node, "ssh"][0] == "FAIL"
        assert {state for (name, _), (state, _) in lines.items() if name == node} == {"FAIL", "?"}
    assert lines["head", "ssh"] != lines["worker", "ssh"], "each has its own words"

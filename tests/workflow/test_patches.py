"""Patches through the workflow: applied, swapped between variants, taken back with proof."""

import hashlib
import json
from pathlib import Path

import pytest

from tests.workflow.harness import Project

TARGET = ".demo/engine/llamaserve/settings.py"


def patched(project: Project) -> str:
    """Let the second variant patch the engine's settings; return the original's sha256."""
    campaign = project.campaign()
    campaign["variables"] = [{"id": "batch", "keys": ["patches"]}]
    campaign["variants"][1] = {
        "id": "ubatch",
        "variable": "batch",
        "set": {
            "patches": [
                {
                    "id": "ubatch-64",
                    "kind": "diff",
                    "source": "config/patches/ubatch-64.diff",
                    "target": TARGET,
                    "root": ".demo/engine",
                    "verify": [{"marker": "N_UBATCH = 64"}],
                }
            ]
        },
    }
    campaign["cases"] = campaign["cases"][:1]
    campaign["phases"] = [{"id": "phase1", "cases": ["prefill"]}]
    project.write_campaign(campaign)
    return digest(project)


def digest(project: Project) -> str:
    return hashlib.sha256((project.folder / TARGET).read_bytes()).hexdigest()


def batch_sizes(project: Project) -> list[int]:
    """What each start of the server said its physical batch was, in order of the starts."""
    sizes = []
    for boot in project.results.glob("server/*/boots/*"):
        started = json.loads((boot / "boot.json").read_text())["started_ns"]
        gate = json.loads((boot / "gate.json").read_text())
        sizes.append((started, gate["effective"]["settings"]["n_ubatch"]))
    return [size for _, size in sorted(sizes)]


def test_patches_are_swapped_and_unpatch_proves_the_original(fresh: Project) -> None:
    original = patched(fresh)
    run = fresh.snakemake()
    assert run.code == 0, run.text[-3000:]
    assert batch_sizes(fresh) == [512, 64]
    record = json.loads((fresh.results / "server/ubatch/patches/local.json").read_text())
    (changed,) = record["patches"]["ubatch-64"]["files"]
    assert changed["sha256_before"] == original
    assert changed["sha256_after"] == digest(fresh) != original

    run = fresh.snakemake("-f", "results/small/cases/baseline/prefill/r1/meta.json")
    assert run.code == 0, run.text[-3000:]
    assert batch_sizes(fresh) == [512, 64, 512], "the patch was taken back for the baseline"
    assert digest(fresh) == original
    run = fresh.snakemake("-f", "results/small/cases/ubatch/prefill/r1/meta.json")
    assert batch_sizes(fresh) == [512, 64, 512, 64]

    run = fresh.snakemake("unpatch")
    assert run.code == 0, run.text[-3000:]
    assert f"restored, sha256 {original}" in run.text
    assert digest(fresh) == original
    run = fresh.snakemake("-f", "results/small/cases/ubatch/prefill/r1/meta.json")
    assert batch_sizes(fresh)[-1] == 64, "the next case puts it in place again"


def test_after_unpatch_the_next_case_may_refuse(fresh: Project) -> None:
    patched(fresh)
    campaign = fresh.campaign()
    campaign["policy"]["on_unpatched"] = "refuse"
    fresh.write_campaign(campaign)
    assert fresh.snakemake().code == 0
    assert fresh.snakemake("unpatch").code == 0
    run = fresh.snakemake("-f", "results/small/cases/ubatch/prefill/r1/meta.json")
    meta = json.loads((fresh.results / "cases/ubatch/prefill/r1/meta.json").read_text())
    assert (meta["status"], meta["cause"]) == ("not_run", "patch")
    assert "unpatch" in meta["reasons"][0]
    run = fresh.snakemake("-f", "results/small/server/ubatch/patches/local.json")
    assert run.code == 0
    run = fresh.snakemake()
    assert run.code == 0, run.text[-3000:]
    meta = json.loads((fresh.results / "cases/ubatch/prefill/r1/meta.json").read_text())
    assert meta["status"] == "ok"


@pytest.mark.parametrize("fault", ["the target is missing", "CRLF"])
def test_a_patch_that_does_not_lint(fresh: Project, fault: str) -> None:
    """The variant is not launched, the other one is measured, the report names the reason."""
    original = patched(fresh)
    if fault == "CRLF":
        source = fresh.folder / "config/patches/ubatch-64.diff"
        source.write_bytes(source.read_bytes().replace(b"\n", b"\r\n"))
    else:
        campaign = fresh.campaign()
        patch = campaign["variants"][1]["set"]["patches"][0]
        patch["target"] = ".demo/engine/llamaserve/no/settings.py"
        fresh.write_campaign(campaign)
    run = fresh.snakemake()
    assert run.code == 0, run.text[-3000:]
    launch = json.loads((fresh.results / "server/ubatch/launch.json").read_text())
    assert launch["status"] == "failed"
    assert fault in launch["reasons"][0]
    assert fault in (fresh.results / "report.md").read_text()
    assert digest(fresh) == original
    baseline = json.loads((fresh.results / "cases/baseline/prefill/r1/meta.json").read_text())
    assert baseline["status"] == "ok"


def test_the_patched_source_reruns_its_variant_alone(fresh: Project) -> None:
    patched(fresh)
    assert fresh.snakemake().code == 0
    source = fresh.folder / "config/patches/ubatch-64.diff"
    source.write_text(source.read_text().replace("N_UBATCH = 64", "N_UBATCH = 32"))
    campaign = fresh.campaign()
    run = fresh.snakemake()
    assert run.jobs["launch"] == 1
    assert run.cases == ["ubatch/prefill/r1"]
    launch = json.loads((fresh.results / "server/ubatch/launch.json").read_text())
    assert launch["status"] == "failed", "the marker no longer holds"
    campaign["variants"][1]["set"]["patches"][0]["verify"] = [{"marker": "N_UBATCH = 32"}]
    fresh.write_campaign(campaign)
    run = fresh.snakemake()
    assert run.cases == ["ubatch/prefill/r1"]
    assert batch_sizes(fresh)[-1] == 32


def test_a_shadowing_package_fails_the_gate(fresh: Project) -> None:
    """A start from a folder that holds another copy of the package imports that one."""
    shadow = fresh.folder / "elsewhere"
    (shadow / "llamaserve").mkdir(parents=True)
    for path in (fresh.folder / ".demo/engine/llamaserve").glob("*.py"):
        (shadow / "llamaserve" / path.name).write_bytes(path.read_bytes())
    campaign = fresh.campaign()
    campaign["server"]["cwd"] = "elsewhere"
    campaign["variants"] = campaign["variants"][:1]
    fresh.write_campaign(campaign)
    run = fresh.snakemake("--", "phase1")
    assert run.code == 0, run.text[-3000:]
    launch = json.loads((fresh.results / "server/baseline/launch.json").read_text())
    assert launch["status"] == "failed"
    (check,) = [c for c in launch["gate"]["checks"] if c["name"] == "module"]
    assert check["ok"] is False
    assert str(Path("elsewhere/llamaserve")) in check["evidence"]

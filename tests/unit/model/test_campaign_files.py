"""Every campaign file of the repository loads, passes the checks and expands into a plan."""

from pathlib import Path

import pytest

from servemap.model.checks import check
from servemap.model.load import load_campaign
from servemap.model.plan import Plan

ROOT = Path(__file__).parents[3]
FILES = sorted(
    str(path.relative_to(ROOT))
    for path in [*ROOT.glob("config/*.yaml"), *ROOT.glob("config/campaigns/*.yaml")]
)


@pytest.fixture(autouse=True)
def _in_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def plan(file: str) -> Plan:
    campaign = load_campaign(Path(file))
    check(campaign)
    return Plan(campaign)


@pytest.mark.parametrize("file", FILES)
def test_it_can_be_planned(file: str) -> None:
    made = plan(file)
    items = made.items()
    assert items.repeats
    for variant, case, _ in items.repeats:
        assert made.spec("case", variant, case)
    for variant in items.variants:
        assert made.spec("launch", variant)
    for name in items.baselines:
        assert made.spec("baseline", name)
    for variant, case in items.captures:
        assert made.spec("capture", variant, case)
    assert len(set(made.sequence.values())) == len(made.sequence)


def test_runs_have_names_of_their_own() -> None:
    runs = [load_campaign(Path(file)).run for file in FILES]
    assert len(set(runs)) == len(runs)


def test_the_deepseek_quick_map_is_the_studys() -> None:
    made = plan("config/campaigns/dsv4pro-6000d.yaml")
    campaign = made.campaign
    assert sum(node.accelerators for node in campaign.nodes) == 16
    assert campaign.server.topology.tp == 16
    assert [rail.hca for rail in campaign.nodes[0].rails] == ["mlx5_0", "mlx5_3"]
    shapes = {
        case: made.spec_data("case", "baseline", case)["case"]
        for _, case, _ in made.items("phase1").repeats
    }
    fixed = {
        (shape["isl"], shape["osl"], shape["concurrency"])
        for shape in shapes.values()
        if shape["kind"] == "fixed"
    }
    k = 1024
    assert fixed == {
        (k, 1, 1),
        (32 * k, 1, 1),
        (128 * k, 1, 1),
        (32 * k, 1, 16),
        (k, k, 1),
        (k, k, 16),
        (k, k, 32),
        (k, k, 64),
        (32 * k, k, 8),
    }
    (mixed,) = [shape for shape in shapes.values() if shape["kind"] == "mixed"]
    assert (mixed["background"]["concurrency"], mixed["background"]["isl"]) == (32, k)
    assert (mixed["inject"]["isl"], mixed["inject"]["after_s"]) == (128 * k, 10)
    assert made.items("phase1").variants == ["baseline"]
    assert made.items("phase4").variants == ["baseline", "tp8-pp2", "dp2-ep16"]
    assert len(made.items("phase3").captures) == 3


def test_the_milestone_overlays_the_quick_map() -> None:
    quick = plan("config/campaigns/dsv4pro-6000d.yaml")
    milestone = plan("config/campaigns/dsv4pro-6000d-milestone.yaml")
    assert set(milestone.items().repeats) == {
        (variant, case, repeat)
        for variant, case, _ in quick.items("phase1").repeats
        for repeat in (1, 2, 3)
    }
    (asked,) = milestone.milestones()
    assert (asked["phase"], asked["cv"], len(asked["rows"])) == ("phase1", 0.03, 30)
    for _, case, _ in quick.items("phase1").repeats:
        assert milestone.spec("case", "baseline", case) == quick.spec("case", "baseline", case)
    assert milestone.campaign.policy.lease_ttl_s == quick.campaign.policy.lease_ttl_s


def test_the_decode_study_changes_one_variable_at_a_time() -> None:
    made = plan("config/campaigns/bi100-qwen.yaml")
    patched = made.server_spec("moe-tokenwise")["server"]
    assert patched["env"]["ENGINEX_MOE_TINY_IMPL"] == "tokenwise"
    assert [patch["kind"] for patch in patched["patches"]] == [
        "file", "file", "folder", "diff", "diff", "symlink"
    ]  # fmt: skip
    assert sum("/lib64/python3/" in patch["root"] for patch in patched["patches"]) == 2
    # the sources lie elsewhere: planning does not need them
    assert {patch["content_sha256"] for patch in patched["patches"]} == {None}
    assert made.server_spec("baseline")["server"]["patches"] == []
    assert made.items("phase1").variants == ["baseline", "parsers-off"]

"""From the campaign as written to what is measured, in which order, and what identifies it."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.model import resolve
from servemap.model.base import tokens
from servemap.model.campaign import Campaign, Variant
from servemap.model.canon import canonical_json, digest
from servemap.model.errors import ConfigError
from servemap.model.load import parse_campaign
from servemap.model.name_pattern import any_of
from servemap.model.plan import Plan
from servemap.model.resolve import changed_keys, resolved_case, variant_server


def campaign(**keys: Any) -> Campaign:
    base: dict[str, Any] = {
        "run": "r",
        "nodes": [{"id": "n1"}, {"id": "n2", "role": "worker", "env": {"A": "1"}}],
        "model": {"name": "m", "path": "/m", "context": 100_000},
        "scale": {"tokens_per_k": 48},
        "server": {"engine": "vllm", "args": {"a": 1}},
        "variables": [{"id": "x", "keys": ["args", "patches", "nodes"]}],
        "variants": [{"id": "baseline"}, {"id": "v2", "variable": "x", "set": {"args.b": 2}}],
        "cases": [
            {"id": "one", "isl": "1K", "osl": 7, "concurrency": 3, "repeats": 2},
            {"id": "two", "isl": 9, "osl": "0.5K", "concurrency": 1, "fallback": {"isl": "2K"}},
            {
                "id": "mix",
                "kind": "mixed",
                "background": {"isl": "1K", "osl": "1K", "concurrency": 4},
                "inject": {"isl": "128K", "osl": 1, "after_s": 2},
            },
        ],
        "baselines": [{"id": "net", "kind": "tcp"}],
        "phases": [
            {"id": "phase0", "baselines": ["net"]},
            {"id": "phase1", "requires": ["phase0"], "variants": ["baseline"], "cases": ["one"]},
            {
                "id": "phase2",
                "requires": ["phase1"],
                "cases": ["two", "mix"],
                "captures": [{"case": "one"}],
            },
        ],
    }
    return parse_campaign({**base, **keys})


@given(st.integers(0, 10**6), st.integers(1, 4096))
def test_plain_lengths_are_tokens_and_k_is_scaled(number: int, per_k: int) -> None:
    assert tokens(str(number), per_k) == max(1, number)
    assert tokens(f"{number}K", per_k) == max(1, number * per_k)
    assert tokens(f"{number}k", per_k) == tokens(f"{number}K", per_k)


@pytest.mark.parametrize("text", ["", "K", "1M", "-1", "1.5.2", "1 K"])
def test_other_texts_are_no_lengths(text: str) -> None:
    with pytest.raises(ValueError, match="not a length"):
        tokens(text, 1024)
    with pytest.raises(ConfigError, match="not a length"):
        campaign(cases=[{"id": "c", "isl": text, "osl": 1, "concurrency": 1}])


def test_lengths_are_resolved_everywhere() -> None:
    made = campaign()
    one, two, mix = (resolved_case(made, case) for case in made.cases)
    assert (one["isl"], one["osl"], one["num_prompts"]) == (48, 7, 3)
    assert (two["osl"], two["fallback"]["isl"], two["fallback"]["osl"]) == (24, 96, None)
    assert (mix["background"]["isl"], mix["background"]["num_prompts"]) == (48, 4)
    assert mix["inject"]["isl"] == 128 * 48


@pytest.mark.parametrize("change", [{"repeats": 9}, {"expected_s": 3}, {"expect": "failure"}])
def test_planning_keys_do_not_change_what_is_measured(change: dict[str, Any]) -> None:
    cases = [{"id": "one", "isl": "1K", "osl": 7, "concurrency": 3, **change}]
    phases = [{"id": "phase1", "cases": ["one"]}]
    plain = [{**cases[0]}]
    for key in change:
        plain[0].pop(key)
    assert Plan(campaign(cases=cases, phases=phases)).spec("case", "v2", "one") == Plan(
        campaign(cases=plain, phases=phases)
    ).spec("case", "v2", "one")


@pytest.mark.parametrize(
    "change",
    [
        {"isl": "2K"},
        {"concurrency": 4},
        {"warmup": "none"},
        {"min_window_s": 1},
        {"request_timeout_s": 1},
        {"num_prompts": 4},
    ],
)
def test_what_is_measured_is_in_the_spec(change: dict[str, Any]) -> None:
    case = {"id": "one", "isl": "1K", "osl": 7, "concurrency": 3}
    phases = [{"id": "phase1", "cases": ["one"]}]
    before, after = (
        Plan(campaign(cases=[item], phases=phases)).spec_sha256("case", "v2", "one")
        for item in (case, {**case, **change})
    )
    assert before != after


def test_one_prompt_wave_is_what_no_number_means() -> None:
    case = {"id": "one", "isl": "1K", "osl": 7, "concurrency": 3}
    phases = [{"id": "phase1", "cases": ["one"]}]
    specs = {
        Plan(campaign(cases=[item], phases=phases)).spec("case", "v2", "one")
        for item in (case, {**case, "num_prompts": 3}, {**case, "kind": "fixed"})
    }
    assert len(specs) == 1


def test_a_variant_changes_its_own_spec_and_no_other() -> None:
    before = Plan(campaign())
    after = Plan(
        campaign(variants=[{"id": "baseline"}, {"id": "v2", "variable": "x", "set": {"args.b": 3}}])
    )
    for kind, key in (("launch", ()), ("case", ("one",))):
        assert before.spec(kind, "baseline", *key) == after.spec(kind, "baseline", *key)
        assert before.spec(kind, "v2", *key) != after.spec(kind, "v2", *key)


def test_required_paths_are_in_the_spec_only_where_some_are() -> None:
    """Specs from before the key was there stay what they are, so nothing measured runs again."""
    plain = Plan(campaign())
    assert "transport" not in plain.server_spec("baseline")["server"]
    server = {**plain.campaign.server.model_dump(mode="json"), "transport": {"intra": "P2P"}}
    required = Plan(campaign(server=server))
    assert required.server_spec("baseline")["server"]["transport"]["intra"] == "P2P"
    assert plain.spec("launch", "baseline") != required.spec("launch", "baseline")


def test_a_flags_place_in_the_file_does_not_matter() -> None:
    one = Plan(campaign(server={"engine": "vllm", "args": {"a": 1, "z": 2}}))
    two = Plan(campaign(server={"args": {"z": 2, "a": 1}, "engine": "vllm"}))
    assert one.spec("launch", "baseline") == two.spec("launch", "baseline")


def test_swapped_values_are_told_apart() -> None:
    one = Plan(campaign(server={"engine": "vllm", "topology": {"tp": 8, "dp": 1}}))
    two = Plan(campaign(server={"engine": "vllm", "topology": {"tp": 1, "dp": 8}}))
    assert one.spec("launch", "baseline") != two.spec("launch", "baseline")


def test_a_variant_adds_to_free_form_keys_only() -> None:
    made = campaign()
    server = variant_server(made, Variant(id="v", variable="x", set={"args.new": ["a", "b"]}))
    assert server.args == {"a": 1, "new": ["a", "b"]}
    assert made.server.args == {"a": 1}
    assert changed_keys(made.server, server) == {"args.new"}


def test_a_patchs_content_is_part_of_the_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").mkdir()
    patch = {"id": "p", "kind": "folder", "source": "src", "target": "/t", "root": "/t"}
    specs = []
    for text in ("1\n", "2\n", "1\n"):
        (tmp_path / "src/f.py").write_text(text)
        resolve._source_digest.cache_clear()
        made = Plan(campaign(server={"engine": "vllm", "patches": [patch]}))
        specs.append((made.spec("patch", "baseline"), made.spec("launch", "baseline")))
    assert specs[0] == specs[2]
    assert specs[0][0] != specs[1][0]
    assert specs[0][1] != specs[1][1]


def test_only_the_servers_nodes_identify_it() -> None:
    made = campaign()
    one_node = Plan(made)
    assert one_node.nodes_of("baseline") == ["n1"]
    nodes = [{"id": "n1"}, {"id": "n2", "role": "worker", "env": {"A": "2"}}]
    assert Plan(campaign(nodes=nodes)).spec("launch", "baseline") == one_node.spec(
        "launch", "baseline"
    )
    both = {"engine": "vllm", "nodes": ["n1", "n2"]}
    assert Plan(campaign(server=both)).spec("launch", "baseline") != Plan(
        campaign(server=both, nodes=nodes)
    ).spec("launch", "baseline")


def test_a_phase_brings_what_it_requires() -> None:
    made = Plan(campaign())
    assert made.items("phase0").repeats == []
    phase1 = made.items("phase1")
    assert phase1.baselines == ["net"]
    assert phase1.repeats == [("baseline", "one", 1), ("baseline", "one", 2)]
    assert phase1.variants == ["baseline"]
    phase2 = made.items("phase2")
    assert set(phase2.repeats) == {
        *phase1.repeats,
        ("baseline", "two", 1),
        ("baseline", "mix", 1),
        ("v2", "two", 1),
        ("v2", "mix", 1),
    }
    assert phase2.captures == [("baseline", "one"), ("v2", "one")]
    assert made.items() == phase2


def test_the_order_starts_each_server_once() -> None:
    made = Plan(campaign())
    order = sorted(made.sequence, key=lambda key: -made.priority(*key))
    assert order[:2] == [("baseline", "net"), ("calibrate",)]
    variants = [key[1] for key in order[2:]]
    assert variants == sorted(variants, key=list(made.variants).index)
    for variant in made.variants:
        own = [key[0] for key in order[2:] if key[1] == variant]
        assert own[:2] == ["patch", "launch"]
        assert "patch" not in own[2:]
    assert made.derive_priority > made.priority(*order[0])


def test_priorities_are_distinct_and_positive() -> None:
    made = Plan(campaign())
    priorities = [made.priority(*key) for key in made.sequence]
    assert len(set(priorities)) == len(priorities)
    assert min(priorities) >= 1


def test_the_controller_is_measured_where_a_node_is_local() -> None:
    assert Plan(campaign()).controller_is_measured
    remote = [{"id": "n1", "transport": "ssh", "address": "192.0.2.1"}]
    assert not Plan(campaign(nodes=remote)).controller_is_measured


NAMES = st.text("abc01_-", min_size=1, max_size=6)


@given(st.sets(NAMES, min_size=1, max_size=30), NAMES)
def test_any_of_matches_the_names_and_no_other(names: set[str], other: str) -> None:
    pattern = re.compile(any_of(names))
    assert all(pattern.fullmatch(name) for name in names)
    assert (pattern.fullmatch(other) is not None) == (other in names)


@given(st.sets(NAMES, min_size=1, max_size=10), NAMES)
def test_any_of_stands_inside_a_longer_pattern(names: set[str], name: str) -> None:
    found = re.fullmatch(f"cases/(?P<case>{any_of({*names, name})})/r1", f"cases/{name}/r1")
    assert found is not None and found["case"] == name


def test_a_record_carries_the_digest_of_the_spec_that_the_job_carries() -> None:
    plan = Plan(campaign())
    key = ("case", "v2", "one")
    assert plan.spec_sha256(*key) == digest(plan.spec_data(*key))
    assert plan.spec(*key) == canonical_json(plan.spec_data(*key))

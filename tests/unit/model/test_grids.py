"""Grids: which variants they make, how those are named, and what may be compared with what."""

import re
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from servemap.model.campaign import Campaign
from servemap.model.checks import check
from servemap.model.errors import ConfigError
from servemap.model.grids import cell_name, cells_of, value_name, variants_of
from servemap.model.load import load_campaign, parse_campaign
from servemap.model.plan import Plan
from servemap.model.resolve import variant_server
from servemap.model.steps import compared_with

STUDY = [
    {"variable": "impl", "values": ["tokenwise", "bmm"]},
    {"variable": "max", "values": ["4", "8", "16"]},
]
NAMES = [f"impl-{impl}_max-{most}" for impl in ("tokenwise", "bmm") for most in (4, 8, 16)]


def campaign(axes: list[dict[str, Any]] | None = None, **keys: Any) -> Campaign:
    """Two variables, two bundles, a grid of them."""
    base: dict[str, Any] = {
        "run": "r",
        "nodes": [{"id": "n1"}],
        "model": {"name": "m", "path": "/m", "context": 4096},
        "server": {"engine": "vllm", "env": {"KEPT": "1"}, "args": {"gone": 1}},
        "variables": [
            {"id": "impl", "keys": ["env.X_IMPL"]},
            {"id": "max", "keys": ["env.X_MAX"]},
            {"id": "old", "keys": ["args.gone"]},
            {"id": "split", "keys": ["topology", "settings.max_active"]},
            {"id": "env", "keys": ["env"]},
        ],
        "grids": [{"id": "study", "axes": STUDY if axes is None else axes}],
        "cases": [{"id": "c", "isl": 8, "osl": 8, "concurrency": 1}],
        "phases": [{"id": "phase1", "cases": ["c"]}],
    }
    return parse_campaign({**base, **keys})


def ids(made: Campaign) -> list[str]:
    return [variant.id for variant in variants_of(made)]


def env_of(made: Campaign, name: str) -> dict[str, Any]:
    variant = next(one for one in variants_of(made) if one.id == name)
    return dict(variant_server(made, variant).env)


def test_the_study_is_six_servers_named_by_their_values() -> None:
    made = campaign()
    check(made)
    assert ids(made) == ["baseline", *NAMES]
    assert env_of(made, "impl-bmm_max-16") == {"KEPT": "1", "X_IMPL": "bmm", "X_MAX": "16"}
    (cells,) = cells_of(made).values()
    assert cells[5].levels == {"impl": "bmm", "max": "16"}


def test_the_combination_that_the_server_is_is_measured_once() -> None:
    server = {"engine": "vllm", "env": {"X_IMPL": "bmm", "X_MAX": "4"}}
    made = campaign(server=server)
    check(made)
    assert ids(made) == ["baseline", *(name for name in NAMES if name != "impl-bmm_max-4")]
    plan = Plan(
        campaign(server=server, phases=[{"id": "p", "variants": ["study"], "cases": ["c"]}])
    )
    assert plan.items("p").variants[0] == "baseline"
    assert len(plan.items("p").variants) == 6
    alone = campaign(
        server=server, variants=[{"id": "v", "variable": "split", "set": {"topology.tp": 2}}]
    )
    check(alone)
    assert "impl-bmm_max-4" in ids(alone), "where no variant is the server spec itself"


def test_a_phase_names_a_grid_or_single_cells() -> None:
    phases = [
        {"id": "whole", "variants": ["study"], "cases": ["c"]},
        {"id": "part", "variants": ["baseline", "impl-bmm_max-8"], "cases": ["c"]},
        {"id": "rest", "cases": ["c"]},
    ]
    made = campaign(phases=phases)
    check(made)
    plan = Plan(made)
    assert plan.items("whole").variants == NAMES
    assert plan.items("part").variants == ["baseline", "impl-bmm_max-8"]
    assert plan.items("rest").variants == ["baseline", *NAMES]
    assert plan.server_spec("impl-bmm_max-8")["server"]["env"]["X_MAX"] == "8"


def test_a_cell_is_what_a_variant_with_the_same_keys_would_be() -> None:
    """So putting a study into a grid, or one more value into it, changes no other server."""
    made = Plan(campaign())
    both = {"id": "both", "keys": ["env"]}
    plain = campaign(
        grids=[],
        variables=[both],
        variants=[{"id": "v", "variable": "both", "set": {"env.X_IMPL": "bmm", "env.X_MAX": "8"}}],
    )
    assert made.spec("launch", "impl-bmm_max-8") == Plan(plain).spec("launch", "v")
    more = Plan(campaign([*STUDY[:1], {"variable": "max", "values": ["2", "8"]}]))
    assert made.spec("case", "impl-bmm_max-8", "c") == more.spec("case", "impl-bmm_max-8", "c")


def test_levels_set_bundles_and_null_takes_away() -> None:
    made = campaign(
        [
            {"variable": "old", "values": [1, None, 2]},
            {
                "variable": "split",
                "levels": [
                    {"id": "as_is"},
                    {"id": "tp2", "set": {"topology.tp": 2, "settings.max_active": 8}},
                ],
            },
            {"variable": "impl", "values": [None, "bmm"]},
        ]
    )
    check(made)
    assert ids(made)[:3] == [
        "baseline",
        "old-1_split-as-is_impl-bmm",
        "old-1_split-tp2_impl-unset",
    ]
    servers = {v.id: variant_server(made, v) for v in variants_of(made)}
    assert len(servers) == 12
    taken = servers["old-unset_split-tp2_impl-unset"]
    assert (taken.args, taken.topology.tp, taken.settings.max_active) == ({}, 2, 8)
    assert "X_IMPL" not in taken.env


def test_cells_are_compared_with_their_one_step_neighbours_alone() -> None:
    made = campaign()
    found = compared_with(made)
    assert found["baseline"] == []
    assert found["impl-tokenwise_max-4"] == [], "it differs from the baseline in two variables"
    assert found["impl-bmm_max-16"] == [
        "impl-tokenwise_max-16", "impl-bmm_max-4", "impl-bmm_max-8"
    ]  # fmt: skip
    assert sum(map(len, found.values())) == 9, "three along impl, six along max"


def test_with_the_servers_own_combination_in_the_grid_its_neighbours_are_told_against_it() -> None:
    found = compared_with(
        campaign(server={"engine": "vllm", "env": {"X_IMPL": "bmm", "X_MAX": "4"}})
    )
    assert found["impl-bmm_max-8"] == ["baseline", "impl-tokenwise_max-8"]
    assert found["impl-tokenwise_max-4"] == ["baseline"]
    assert found["impl-tokenwise_max-8"] == ["impl-tokenwise_max-4"]
    assert found["impl-tokenwise_max-16"] == ["impl-tokenwise_max-4", "impl-tokenwise_max-8"]


def test_variants_of_different_variables_are_not_compared() -> None:
    variants = [
        {"id": "a", "variable": "impl", "set": {"env.X_IMPL": "1"}},
        {"id": "b", "variable": "max", "set": {"env.X_MAX": "1"}},
        {"id": "c", "variable": "max", "set": {"env.X_MAX": "2"}},
        {"id": "plain"},
    ]
    found = compared_with(campaign(grids=[], variants=variants))
    assert found == {"plain": [], "a": ["plain"], "b": ["plain"], "c": ["plain", "b"]}


LONG = "x" * 60


@pytest.mark.parametrize(
    ("change", "says", "where"),
    [
        ({"axes": [{"variable": "no", "values": [1]}]}, "there is no variable 'no'", "study.axes"),
        (
            {"axes": [STUDY[0], {"variable": "impl", "values": ["x"]}]},
            "the axes 'impl' and 'impl' both change env.X_IMPL",
            "study.axes",
        ),
        (
            {"axes": [{"variable": "env", "levels": [{"id": "a"}]}, STUDY[1]]},
            "the axes 'env' and 'max' both change env.X_MAX",
            "study.axes",
        ),
        (
            {"axes": [{"variable": "split", "values": [1]}]},
            "variable 'split' has 2 keys",
            "study.split.values",
        ),
        (
            {"axes": [{"variable": "split", "levels": [{"id": "a", "set": {"port": 9}}]}]},
            "sets port, which is not of its variable 'split'",
            "study.split.levels.a",
        ),
        (
            {"axes": [{"variable": "impl", "values": ["FP8", "fp8"]}]},
            "2 values of 'impl' have the same name 'fp8'",
            "study.impl",
        ),
        (
            {"axes": [{"variable": "impl", "values": ["0.5", "0-5"]}]},
            "have the same name '0-5'",
            "study.impl",
        ),
        (
            {"axes": [{"variable": "impl", "values": ["*", "+"]}]},
            "has no letter or digit to name it by",
            "study.impl",
        ),
        ({"axes": [{"variable": "impl", "values": [LONG]}]}, "65 characters, 64 are", "study"),
        ({"axes": [{"variable": "max", "values": [4]}]}, "server.env.X_MAX: must be text", "max-4"),
        (
            {"axes": [{"variable": "impl", "values": [f"v{n}" for n in range(257)]}]},
            "grid 'study' has 257 cells",
            "study",
        ),
        (
            {"variants": [{"id": "a", "variable": "env",
                           "set": {"env.X_IMPL": "bmm", "env.X_MAX": "8"}}]},
            "the cell 'impl-bmm_max-8' is measured already, as 'a'",
            "study",
        ),
        (
            {"grids": [{"id": "study", "axes": STUDY}, {"id": "again", "axes": STUDY[::-1]}]},
            "the cell 'max-4_impl-tokenwise' is measured already, as 'impl-tokenwise_max-4'",
            "again",
        ),
        (
            {"variants": [{"id": "study"}]},
            "id 'study' is used 2 times",
            "grids.study",
        ),
        (
            {"server": {"engine": "vllm", "attach": "http://h:1"}},
            "changes a server that is only attached to",
            "study",
        ),
        (
            {"axes": [{"variable": "env", "levels": [{"id": "a", "set": {"env.HF_TOKEN": "x"}}]}]},
            "HF_TOKEN looks like a secret",
            "study",
        ),
    ],
)  # fmt: skip
def test_what_could_not_be_named_or_compared_is_refused(
    change: dict[str, Any], says: str, where: str
) -> None:
    change = dict(change)
    with pytest.raises(ConfigError) as error:
        check(campaign(change.pop("axes", None), **change))
    assert says in error.value.what
    assert where in error.value.where
    assert error.value.remedy


@pytest.mark.parametrize(
    ("axis", "says"),
    [
        ({"variable": "impl"}, "give either values or levels"),
        ({"variable": "impl", "values": ["a"], "levels": [{"id": "b"}]}, "give either values or"),
        (
            {"variable": "impl", "values": [{"a": 1}]},
            "grids.study.axes.0.values.0: must be true, false",
        ),
    ],
)
def test_an_axis_with_the_wrong_form_is_refused_in_one_line(
    axis: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError) as error:
        campaign([axis])
    assert says in error.value.what
    assert ";" not in error.value.what


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-99, 10**6),
    st.floats(-9, 9),
    st.text(max_size=8),
    st.sampled_from(["max-8", "8_max-4", "bmm_max", "a_max-b", "unset", "_", "-"]),
)


@given(values)
def test_a_value_is_named_with_what_a_name_may_hold(value: Any) -> None:
    assert re.fullmatch(r"[a-z0-9-]*", value_name(value))


@given(st.lists(values, min_size=1, max_size=4), st.lists(values, min_size=1, max_size=4))
def test_no_two_cells_have_one_name(first: list[Any], second: list[Any]) -> None:
    """Where the values of each axis have names of their own, so have all their combinations."""
    one, two = [[value_name(v) for v in axis] for axis in (first, second)]
    assume(all(one) and all(two) and len(set(one)) == len(one) and len(set(two)) == len(two))
    for variables in (("impl", "max"), ("a", "a_a"), ("x-y", "x")):
        names = [cell_name(dict(zip(variables, pair, strict=True))) for pair in product(one, two)]
        assert len(set(names)) == len(one) * len(two)
        assert all(re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name) for name in names)


words = st.text(alphabet="abXY.09", min_size=1, max_size=4)


@settings(deadline=None)
@given(st.lists(words, min_size=1, max_size=4), st.lists(words, min_size=1, max_size=4))
def test_a_grid_that_passes_has_distinct_servers_in_a_stable_order(
    first: list[str], second: list[str]
) -> None:
    made = campaign([{"variable": "impl", "values": first}, {"variable": "max", "values": second}])
    try:
        check(made)
    except ConfigError:
        assert any(
            value_name(a) == value_name(b) or not value_name(a).strip("-")
            for axis in (first, second)
            for a, b in combinations([*axis, axis[0]], 2)
        )
        return
    found = ids(made)
    wanted = [(a, b) for a in first for b in second]
    assert [(env_of(made, n)["X_IMPL"], env_of(made, n)["X_MAX"]) for n in found[1:]] == wanted
    assert len(set(found)) == len(wanted) + 1
    again = parse_campaign(made.model_dump(mode="json"))
    assert ids(again) == found
    for name, others in compared_with(made).items():
        for other in others:
            mine, its = env_of(made, name), env_of(made, other)
            assert sum(mine.get(k) != its.get(k) for k in ("X_IMPL", "X_MAX")) == 1


def test_the_users_study_is_ten_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path(__file__).parents[3]
    monkeypatch.chdir(root)
    text = (root / "config/campaigns/bi100-moe-tiny.yaml").read_text(encoding="utf-8")
    study = text[text.index("variables:") : text.index("\nvariants:")].strip().splitlines()
    assert len(study) == 10
    made = load_campaign(Path("config/campaigns/bi100-moe-tiny.yaml"))
    check(made)
    assert Plan(made).items().variants == [
        "baseline", *(name for name in NAMES if name != "impl-tokenwise_max-4")
    ]  # fmt: skip

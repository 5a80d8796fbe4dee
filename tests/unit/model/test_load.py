"""Reading a campaign: every refusal names the key, the value and the remedy."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from servemap.model.campaign import Limits, Slo
from servemap.model.errors import ConfigError
from servemap.model.load import assemble, load_campaign, parse_campaign, read_yaml
from servemap.model.plan import Plan
from servemap.model.policy import Policy

MINIMAL: dict[str, Any] = {
    "run": "r",
    "nodes": [{"id": "n"}],
    "model": {"name": "m", "path": "/m", "context": 100},
    "server": {"engine": "llamacpp"},
    "cases": [{"id": "c", "isl": 10, "osl": 1, "concurrency": 1}],
    "phases": [{"id": "phase1", "cases": ["c"]}],
}


CURVE = {"id": "k", "kind": "curve", "isl": 64, "osl": 8, "concurrencies": [1, 4]}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The minimal campaign with one dotted key set, or removed where the value is None."""
    config = copy.deepcopy(MINIMAL)
    *parents, last = path.split(".")
    node: Any = config
    for parent in parents:
        node = node[int(parent)] if parent.isdigit() else node[parent]
    if value is None:
        del node[last]
    else:
        node[int(last) if isinstance(node, list) else last] = value
    return config


def declared(heading: str) -> dict[str, Any]:
    column = {"column": heading, "metric": "m", "unit": "u"}
    return {"x": {"argv": ["x"], "table": {"entity": "gpu{GPU}", "columns": [column]}}}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("nodes.0.accelerators", True, "must be a valid integer"),
        ("nodes.0.accelerators", "8", "must be a valid integer"),
        ("nodes.0.accelerators", 8.0, "must be a valid integer"),
        ("nodes.0.memory_bandwidth_gb_s", True, "must be a valid number"),
        ("nodes.0.become", "no", "must be a valid boolean"),
        ("nodes.0.become", 1, "must be a valid boolean"),
        ("cases.0.concurrency", True, "must be a valid integer"),
    ],
)
def test_no_value_stands_for_one_of_another_type(key: str, value: Any, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_campaign(changed(key, value))
    assert said in error.value.what and repr(value) in error.value.what


def test_a_whole_number_is_a_number() -> None:
    node = parse_campaign(changed("nodes.0.memory_bandwidth_gb_s", 3350)).nodes[0]
    assert node.memory_bandwidth_gb_s == 3350


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"repeats": 1}, "milestone.repeats: must be greater than or equal to 2 (value: 1)"),
        ({"cvv": 1}, "milestone.cvv: unknown key (value: 1)"),
        ({"metric": "goodput_rps"}, "milestone.metric: must be 'agg_output_tps', 'input_tok_s', "),
        (
            "soon",
            "milestone: must be a valid boolean or a mapping of keys to values (value: 'soon')",
        ),
        ([1], "milestone: must be a valid boolean or a mapping of keys to values (value: [1])"),
    ],
)
def test_a_value_of_several_types_is_named_without_their_names(value: Any, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_campaign(changed("phases.0.milestone", value))
    assert error.value.what.startswith(f"phases.phase1.{said}")
    assert ";" not in error.value.what, "one line for one mistake"


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("replay", {"isl_cap": []}),
        ("rate", {"rate_rps": "x"}),
        ("curve", {"concurrencies": 3}),
        ("search", {"most": -1}),
        ("prefix", {"share": "x"}),
        ("mixed", {"background": 3}),
    ],
)
def test_a_case_of_any_kind_is_named_without_it(kind: str, key: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as error:
        parse_campaign(changed("cases.0", {"id": "c", "kind": kind, **key}))
    assert f"cases.c.{next(iter(key))}: " in str(error.value)
    assert f".{kind}." not in str(error.value)


def test_the_minimal_campaign_is_one() -> None:
    campaign = parse_campaign(MINIMAL)
    assert campaign.policy.max_attempts == 2
    assert [variant.id for variant in campaign.variants] == ["baseline"]


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("rnu", 1, "rnu: unknown key (value: 1)"),
        ("server.enigne", "x", "server.enigne: unknown key (value: 'x')"),
        ("cases.0.concurency", 2, "concurency: unknown key (value: 2)"),
        ("run", "Not A Slug", "(value: 'Not A Slug')"),
        ("run", "a/../b", "(value: 'a/../b')"),
        ("server.engine", "tgi", "(value: 'tgi')"),
        ("cases.0.isl", "4KB", "'4KB' is not a length: write 4096, '4096' or '32K'"),
        ("cases.0.isl", -4, "'-4' is not a length"),
        ("cases.0.isl", True, "a length is a number of tokens"),
        ("cases.0.concurrency", 0, "greater than or equal to 1 (value: 0)"),
        ("cases", [], "at least 1 item"),
        ("phases", [], "at least 1 item"),
        ("model.vocab", [30, 30], "the low id must be below the high id"),
        ("phases.0.id", "phase-1", "(value: 'phase-1')"),
        ("server.env", {"A-B": "1"}, "env.A-B"),
        ("scale", {"tokens_per_k": 0}, "(value: 0)"),
        (
            "cases.0.kind",
            "mixd",
            "cases.c.kind: must be one of 'fixed', 'rate', 'chat', 'tools', 'prefix', 'replay', "
            "'mixed', 'curve', 'search' (value: 'mixd')",
        ),
        (
            "cases",
            [{"id": "k", "kind": "curve", "isl": 1, "osl": 1, "concurrencies": [0]}],
            "cases.k.concurrencies.0: must be greater than or equal to 1 (value: 0)",
        ),
        ("cases", [3], "cases.0: must be a mapping with the keys of a case (value: 3)"),
        ("cases.0.warmup", "x", "cases.c.warmup: must be 'same', 'short' or 'none' (value: 'x')"),
        ("server.env", {"A": 1}, "server.env.A: must be text or {secret: NAME}"),
        ("server.args", {"a": {"b": 1}}, "server.args.a: must be true, false, a number, text"),
        ("server.topology", 3, "server.topology: must be a mapping of keys to values (value: 3)"),
        ("collectors", {"P X": {}}, "collectors.P X: must match pattern"),
        ("slo", {"ttft": 1}, "slo.ttft: unknown key (value: 1)"),
        ("slo", {"ttft_s": -1}, "slo.ttft_s: must be greater than or equal to 0 (value: -1)"),
        ("limits", {"eror_share": 1}, "limits.eror_share: unknown key"),
        ("cases.0.isl", "9" * 400, "is not a length"),
        ("cases.0.repeats", 1001, "cases.c.repeats: must be less than or equal to 1000"),
        ("cases.0.num_prompts", 10_000_001, "less than or equal to 10000000"),
        ("cases.0.concurrency", 65_536, "less than or equal to 65535"),
        ("cases.0.min_window_s", 604_801, "less than or equal to 604800"),
        ("cases.0.request_timeout_s", 604_801, "less than or equal to 604800"),
        ("cases.0.case_timeout_s", 604_801, "less than or equal to 604800"),
        ("cases.0.expected_s", 604_801, "less than or equal to 604800"),
        ("collectors", {"proc": {"interval_s": 0.009}}, "greater than or equal to 0.01"),
        ("collectors", declared("  "), "must match pattern"),
        ("collectors", declared("GPU\n"), "must match pattern"),
        ("collectors", {"proc": {"interval_s": True}}, "valid number"),
        ("collectors", {"proc": {"required": "no"}}, "valid boolean"),
        ("collectors", {"proc": {"enabled": 0}}, "valid boolean"),
        ("limits", {"collector_coverage": 2}, "less than or equal to 1"),
        ("policy", {"max_attempts": 101}, "less than or equal to 100"),
        ("model.context", 10_000_001, "less than or equal to 10000000"),
        ("model.vocab", [0, 10_000_001], "the high one at most 10000000"),
        ("model.vocab", [5, 6], "at least two ids"),
    ],
)
def test_a_wrong_value_is_named(key: str, value: Any, says: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_campaign(changed(key, value), "file.yaml")
    assert says in error.value.what
    assert error.value.where.startswith("file.yaml, key ")
    assert "config/README.md" in error.value.remedy


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")], ids=str)
@pytest.mark.parametrize(
    ("path", "key"),
    [
        *(("limits", name) for name in Limits.model_fields),
        *(("slo", name) for name in Slo.model_fields),
        *(("policy", name) for name in Policy.model_fields if name.endswith("_s")),
        ("policy", "repeats"),
        ("collectors", "proc.interval_s"),
        ("cases.0", "min_window_s"),
        ("cases.0", "request_timeout_s"),
        ("cases.0", "case_timeout_s"),
        ("cases.0", "expected_s"),
        ("server.settings", "memory_fraction"),
        ("server.args", "temperature"),
        ("server.request", "temperature"),
        ("weights", "output"),
    ],
)
def test_a_number_is_finite(path: str, key: str, number: float) -> None:
    *parents, last = key.split(".")
    value: dict[str, Any] = {last: number}
    for parent in parents:
        value = {parent: value}
    if path == "cases.0":
        value = {**MINIMAL["cases"][0], **value}
    if path == "weights":
        value = {"uncached_input": 1, "cached_input": 1, **value}
    with pytest.raises(ConfigError) as error:
        parse_campaign(changed(path, value))
    said = "cases.c" if path == "cases.0" else path
    assert error.value.where == f"configuration, key {said}.{key}"
    assert f"{said}.{key}: must be " in error.value.what
    assert error.value.remedy


def test_limits_and_slo_are_spelled_without_what_is_not_given() -> None:
    config = {**MINIMAL, "limits": {"error_share": 0}, "slo": {"e2e_s": 2}}
    spec = Plan(parse_campaign(config)).spec_data("derive")
    assert spec == {"limits": {"error_share": 0.0}, "slo": {"e2e_s": 2.0}, "weights": None}
    dumped = parse_campaign(config).model_dump(mode="json")
    assert (dumped["limits"], dumped["slo"]) == ({"error_share": 0.0}, {"e2e_s": 2.0})


def test_the_limits_are_those_of_the_verdict() -> None:
    file = Path(__file__).parents[3] / "src/servemap/analysis/limits.yaml"
    assert Limits.model_fields.keys() == yaml.safe_load(file.read_text())["limits"].keys()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("server.api_key", "s3cr3t"),
        ("server.envs", {"HF_TOKEN": "s3cr3t"}),
        ("server.env", {"HF_TOKEN": ["s3cr3t"]}),
        ("cases", [{"auth": ["s3cr3t"]}]),
    ],
)
def test_a_refusal_does_not_tell_a_secret(key: str, value: Any) -> None:
    with pytest.raises(ConfigError) as error:
        parse_campaign(changed(key, value))
    assert "s3cr3t" not in str(error.value)


@pytest.mark.parametrize("key", MINIMAL)
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_campaign(changed(key, None))
    assert error.value.what.startswith(f"{key}: is missing")
    assert error.value.remedy.startswith("add the key")


def test_many_mistakes_are_counted() -> None:
    with pytest.raises(ConfigError, match="and 2 more"):
        parse_campaign({**MINIMAL, **{f"k{n}": n for n in range(7)}})


@pytest.mark.parametrize(
    "verify", [{}, {"marker": "a", "python": "True"}, {"file": "x"}], ids=["none", "two", "file"]
)
def test_a_proof_is_exactly_one(verify: dict[str, str]) -> None:
    patch = {"id": "p", "source": "s", "target": "t", "root": "r", "verify": [verify]}
    with pytest.raises(ConfigError, match="exactly one of marker, sha256, python"):
        parse_campaign(changed("server.patches", [patch]))


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("run: a\nrun: b\n", "key 'run' is given twice"),
        ("server:\n  env: {A: '1', A: '2'}\n", "key 'A' is given twice"),
        ("run: [\n", "not valid YAML"),
        ("- a\n", "holds no mapping"),
        ("", "holds no mapping"),
        ("? [1, 2]\n: 3\n", "a key is a list or a mapping"),
        ("server: {? {a: 1} : 3}\n", "a key is a list or a mapping"),
        ("run: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("run: " + "9" * 5000, "not valid YAML"),
        ("policy: &p {repeats: *p}\n", "an anchor holds itself"),
        ("cases: &c [1, {a: *c}]\n", "an anchor holds itself"),
        ("run: 2024-99-99\n", "not valid YAML"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, says: str) -> None:
    path = write(tmp_path, "c.yaml", text)
    with pytest.raises(ConfigError) as error:
        read_yaml(path)
    assert says in error.value.what
    assert str(path) in error.value.where
    assert error.value.remedy


def test_an_alias_that_is_used_twice_is_no_circle(tmp_path: Path) -> None:
    path = write(tmp_path, "c.yaml", "a: &a {x: [1]}\nb: *a\nc: [*a, *a]\n")
    assert read_yaml(path)["c"] == [{"x": [1]}, {"x": [1]}]


def test_a_repeated_key_is_found_by_its_line(tmp_path: Path) -> None:
    path = write(tmp_path, "c.yaml", "run: a\ntitle: t\nrun: b\n")
    with pytest.raises(ConfigError) as error:
        read_yaml(path)
    assert error.value.where.endswith("c.yaml, line 3")


@pytest.mark.parametrize("content", [None, b"run: \xff\n"], ids=["missing", "not UTF-8"])
def test_an_unreadable_file_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "c.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="cannot read the file"):
        load_campaign(path)


def test_an_overlay_merges_mappings_and_replaces_lists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "base.yaml", "policy: {repeats: 2, max_deaths: 5}\ncases: [1, 2]\nrun: base\n")
    write(tmp_path, "middle.yaml", "extends: base.yaml\npolicy: {max_deaths: 6}\n")
    merged = assemble({"extends": "middle.yaml", "run": "top", "cases": [3]})
    assert merged == {
        "run": "top",
        "policy": {"repeats": 2, "max_deaths": 6},
        "cases": [3],
    }


def test_assembling_leaves_the_given_configuration_alone() -> None:
    config = changed("title", "t")
    before = copy.deepcopy(config)
    assert assemble(config) == before
    assert config == before


def test_a_circle_of_extends_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "a.yaml", "run: a\nextends: b.yaml\n")
    write(tmp_path, "b.yaml", "extends: a.yaml\n")
    with pytest.raises(ConfigError) as error:
        load_campaign(Path("a.yaml"))
    assert "extends itself" in error.value.what
    assert (error.value.where, error.value.remedy) == ("extends", "break the circle")


def test_an_overlay_without_a_run_of_its_own_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "base.yaml", "run: base\n")
    with pytest.raises(ConfigError) as error:
        assemble({"extends": "base.yaml", "title": "t"})
    assert "'base.yaml' has no name of its own" in error.value.what
    assert error.value.where == "run"
    assert error.value.remedy.startswith("name the run")


def test_nodes_come_from_the_inventory(tmp_path: Path) -> None:
    path = write(tmp_path, "nodes.yaml", "nodes: [{id: from-file}]\n")
    config = {**changed("nodes", None), "inventory": str(path)}
    assert parse_campaign(assemble(config)).nodes[0].id == "from-file"
    own = {**MINIMAL, "inventory": str(path)}
    assert parse_campaign(assemble(own)).nodes[0].id == "n"


def test_an_inventory_holds_nothing_else(tmp_path: Path) -> None:
    path = write(tmp_path, "nodes.yaml", "nodes: [{id: a}]\nmodel: {}\n")
    with pytest.raises(ConfigError) as error:
        assemble({"inventory": str(path)})
    assert "'model'" in error.value.what
    assert error.value.where == str(path)


@pytest.mark.parametrize(
    ("key", "value", "where", "remedy"),
    [
        ("nodes.0", {"id": "w1", "adress": "10.0.0.1"}, "nodes.w1.adress", "did you mean address?"),
        ("nodes.0", {"id": "w1", "quite_other": 1}, "nodes.w1.quite_other", "remove the key"),
        ("nodes.0", {"id": 7, "adress": "10.0.0.1"}, "nodes.0.id", "give a value"),
        ("nodes.0", {"id": "a\nb", "adress": "x"}, "nodes.0.", ""),
        ("server.enigne", "x", "server.enigne", "did you mean engine?"),
        ("server.settings", {"max_activ": 2}, "server.settings.max_activ", "mean max_active?"),
        ("cases.0.concurency", 2, "cases.c.concurency", "did you mean concurrency?"),
        ("cases.0.concurrencies", [2], "cases.c.concurrencies", "did you mean concurrency?"),
        ("cases.0", {**CURVE, "concurrency": 2}, "cases.k.concurrency", "mean concurrencies?"),
        (
            "cases.0",
            {**CURVE, "kind": "search", "most": 8},
            "cases.k.concurrencies",
            "remove the key",
        ),
        ("rnu", 1, "rnu", "did you mean run?"),
    ],
)
def test_a_key_is_named_by_its_entry_and_the_one_that_was_meant_is_offered(
    key: str, value: Any, where: str, remedy: str
) -> None:
    with pytest.raises(ConfigError) as error:
        parse_campaign(changed(key, value))
    assert error.value.where.startswith(f"configuration, key {where}")
    assert remedy in error.value.remedy

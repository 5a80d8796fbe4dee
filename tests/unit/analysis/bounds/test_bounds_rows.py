"""Decode cases of a run beside their bounds: the table and the report's section."""

import csv
import json

import pytest
from modelconfigs import TINY
from runbuilder import build_repeat, request, write_json

from servemap.analysis.bounds.known import NotKnownError
from servemap.analysis.bounds.served import model_shape, server_options, split_of
from servemap.analysis.bounds.step import Split
from servemap.analysis.derive import derive_attempt
from servemap.analysis.summary import summarize
from servemap.report.render import render

SERVER = {
    "engine": "vllm",
    "attach": None,
    "args": {},
    "settings": {"max_active": None, "kv_dtype": None},
    "topology": {"tp": 1, "dp": 1, "pp": 1, "ep": 1},
}


def model_facts(config: dict | None = TINY, **sizes: int) -> dict:
    files = [{"name": "config.json", "size": 1, "config": config} if config else {"name": "a"}]
    files += [{"name": f"{name}.safetensors", "size": size} for name, size in sizes.items()]
    return {"models": {"models": [{"path": "/m", "files": files}]}}


def build(run, *, server=SERVER, config=TINY, case=None, osl=5):
    """Two requests at a time, four in all, 5 tokens each."""
    folder = build_repeat(
        run,
        requests=[request(k, sent_ms=500.0 * (k // 2), isl=10, osl=osl) for k in range(4)],
        case_spec={"kind": "fixed", "isl": 10, "osl": osl, "concurrency": 2, **(case or {})},
    )
    path = folder / "meta.json"
    meta = json.loads(path.read_text())
    meta["spec"]["server"] = {
        "server": server,
        "model": {"name": "m", "path": "/m"},
        "nodes": [{"id": "head", "role": "head"}],
    }
    write_json(path, meta)
    write_json(run / "freeze" / "head.json", {"schema": 1, "facts": model_facts(config)})
    derive_attempt(folder, {})
    return [
        {
            "variant": "baseline",
            "case": "decode_c2",
            "repeat": 1,
            "compared_with": [],
            "memory_bandwidth": {"head": {"gb_s": 1e-6, "accelerators": 0}},
        }
    ]


def row(run, rows) -> dict[str, str]:
    summarize(run, rows)
    (found,) = csv.DictReader((run / "tables" / "limits.csv").open())
    return found


def test_a_case_has_its_bound(tmp_path):
    run = tmp_path / "run"
    found = row(run, build(run))
    assert found["not_known"] == ""
    # 2464 bytes of weights and 2 x 12.5 x 32 of KV give two tokens; the node reads 1000 bytes/s.
    assert float(found["bound_tok_s"]) == pytest.approx(2 * 1000 / (2464 + 800))
    # 20 tokens in a window of 2 s, of which the first of each answer is the prefill's.
    assert float(found["decode_tok_s"]) == pytest.approx(10 * 4 / 5)
    assert float(found["share_of_bound"]) == pytest.approx(8 / (2000 / 3264))
    assert found["bandwidth_source"] == "nodes.memory_bandwidth_gb_s of the campaign"


def test_the_report_shows_it(tmp_path):
    run = tmp_path / "run"
    rows = build(run)
    render(run, rows)
    said = (run / "report.md").read_text()
    assert "## Distance to the limit" in said
    section = said.split("## Distance to the limit")[1].split("\n## ")[0]
    line = section.strip().splitlines()[-1]
    assert "0.613" in line
    assert "above the bound" in line


def test_without_bandwidth_the_bytes_are_there_and_the_bound_is_not(tmp_path):
    run = tmp_path / "run"
    rows = [{**one, "memory_bandwidth": None} for one in build(run)]
    found = row(run, rows)
    assert (found["weight_bytes_per_step"], found["kv_bytes_per_step"]) == ("2464.0", "800.0")
    assert found["bound_tok_s"] == found["share_of_bound"] == ""
    assert "no card" in found["not_known"]
    render(run, rows)
    assert "not known" in (run / "report.md").read_text()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"config": None}, "no config.json"),
        ({"config": {**TINY, "model_type": "mamba"}}, "mamba"),
        ({"case": {"kind": "prefix"}}, "kind prefix"),
        ({"case": {"kind": "rate", "concurrency": None}}, "kind rate"),
        ({"server": {**SERVER, "engine": "llamacpp"}}, "llamacpp"),
        ({"server": {**SERVER, "attach": "http://127.0.0.1:1"}}, "attached"),
        ({"server": {**SERVER, "settings": {"speculative_method": "eagle"}}}, "speculative"),
        ({"server": {**SERVER, "args": {"--hf_overrides": "{}"}}}, "overridden"),
    ],
)
def test_what_is_not_known_is_named(tmp_path, changes, reason):
    run = tmp_path / "run"
    found = row(run, build(run, **changes))
    assert reason in found["not_known"]
    assert found["bound_tok_s"] == found["share_of_bound"] == ""


def test_a_case_of_one_token_does_not_decode(tmp_path):
    run = tmp_path / "run"
    rows = build(run, osl=1)
    summarize(run, rows)
    assert len((run / "tables" / "limits.csv").read_text().splitlines()) == 1
    render(run, rows)
    assert "Distance to the limit" not in (run / "report.md").read_text()


def test_no_more_are_decoded_than_the_server_admits(tmp_path):
    run = tmp_path / "run"
    found = row(run, build(run, server={**SERVER, "settings": {"max_active": 1}}))
    assert float(found["kv_bytes_per_step"]) == 400


def test_files_that_hold_less_than_the_count_refute_it():
    counted = 2 * (2 * (128 + 64 + 384) + 160)
    assert model_shape(SERVER, model_facts(a=counted // 2, b=counted // 2), "/m")
    with pytest.raises(NotKnownError, match="files hold"):
        model_shape(SERVER, model_facts(a=counted // 2), "/m")
    other = {**SERVER, "args": {"dtype": "float32"}}
    assert model_shape(other, model_facts(a=counted // 2), "/m").weights.total == 2 * counted


@pytest.mark.parametrize(
    ("engine", "sizes", "args", "expected"),
    [
        ("vllm", {"tp": 4, "dp": 2, "pp": 2}, {}, Split(4, 2, 2, True, False)),
        ("sglang", {"tp": 4, "dp": 2}, {}, Split(4, 2, 1, False, False)),
        ("sglang", {"tp": 4}, {"--attn-dp-size": 4}, Split(1, 4, 1, True, True)),
        ("sglang", {"tp": 4, "dp": 2}, {"enable_dp_attention": True}, Split(2, 2, 1, True, True)),
    ],
)
def test_how_engines_split(engine, sizes, args, expected):
    server = {"engine": engine, "topology": sizes, "args": args}
    assert split_of(server, server_options(server)) == expected


def test_a_config_that_was_not_read_says_why():
    facts = model_facts()
    facts["models"]["models"][0]["files"][0] = {"name": "config.json", "config_error": "larger"}
    with pytest.raises(NotKnownError, match=r"cannot be read: larger"):
        model_shape(SERVER, facts, "/m")


def test_sizes_that_do_not_fit():
    server = {"engine": "sglang", "topology": {"tp": 3, "dp": 2}}
    with pytest.raises(NotKnownError, match="multiple"):
        split_of(server, {"enable-dp-attention": True})

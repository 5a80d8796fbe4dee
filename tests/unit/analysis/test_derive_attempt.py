import json

import pyarrow as pa
import pytest
from runbuilder import build_repeat, proc_line, request, scrape_line, write_json

from servemap.analysis.columns import column
from servemap.analysis.derive import derive_attempt
from servemap.analysis.store import REQUESTS, read_table
from servemap.analysis.telemetry_store import TELEMETRY


def derive(folder, **options):
    derive_attempt(folder, options)
    return json.loads((folder / "metrics.json").read_text())


def tables(folder, attempt=1):
    return (
        read_table(folder / "requests.parquet", attempt),
        read_table(folder / "telemetry.parquet", attempt),
    )


def test_a_whole_attempt(tmp_path):
    folder = build_repeat(tmp_path / "run")
    metrics = derive(folder)
    assert (metrics["verdict"], metrics["attempt"], metrics["reasons"]) == ("valid", 1, [])
    assert metrics["derive"] == {"status": "ok", "error": None, "skipped": {}}
    block = metrics["segments"][0]["metrics"]
    assert block["agg_output_tps"] == 16 / 2.0
    assert block["ttft_s"]["p95"] == pytest.approx(0.05)
    requests, telemetry = tables(folder)
    assert requests.num_rows == 4
    assert requests["itl_s"][0].as_py() == pytest.approx([0.01] * 3)
    rows = [r for r in telemetry.to_pylist() if r["inside"]]
    cpu = [r["value"] for r in rows if (r["entity"], r["metric"]) == ("cpu0", "cpu_util")]
    assert cpu == pytest.approx([80.0] * 4)
    running = [r["value"] for r in rows if r["metric"] == "llamacpp:requests_processing"]
    assert running == [2.0] * 5
    assert {c["samples"] for c in metrics["coverage"]} == {5}
    assert metrics["processes"] == {"head": {"pid:42": "llama"}}


def test_deriving_twice_gives_the_same_bytes(tmp_path):
    folder = build_repeat(tmp_path / "run")
    names = ("metrics.json", "requests.parquet", "telemetry.parquet")
    derive(folder)
    first = [(folder / name).read_bytes() for name in names]
    derive(folder)
    assert [(folder / name).read_bytes() for name in names] == first
    assert not list(folder.glob(".*.tmp"))


def test_readers_ignore_derived_files_of_another_attempt(tmp_path):
    folder = build_repeat(tmp_path / "run")
    derive(folder)
    assert tables(folder, attempt=2) == (None, None)


@pytest.mark.parametrize("name", ["requests.jsonl", "client.json", "telemetry/head/proc.jsonl"])
@pytest.mark.parametrize("damage", ["flipped", "truncated", "gone"])
def test_a_raw_file_that_is_not_what_was_recorded(tmp_path, name, damage):
    folder = build_repeat(tmp_path / "run")
    path = folder / "attempts/001/raw" / name
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data[: len(data) // 2] if damage == "truncated" else data[:-2] + b" \n")
    metrics = derive(folder)
    assert metrics["verdict"] == "invalid"
    assert metrics["derive"]["status"] == "failed"
    assert name in metrics["derive"]["error"]
    assert metrics["segments"] is None
    requests, telemetry = tables(folder)
    assert (requests.num_rows, telemetry.num_rows) == (0, 0)
    assert requests.schema.equals(REQUESTS)
    assert telemetry.schema.equals(TELEMETRY)


@pytest.mark.parametrize("name", ["../../../../outside", "/etc/hostname"])
def test_a_recorded_path_never_leaves_the_attempt(tmp_path, name):
    folder = build_repeat(tmp_path / "run")
    meta = json.loads((folder / "meta.json").read_text())
    meta["files"] = {name: {"size": 1}}
    write_json(folder / "meta.json", meta)
    assert "points out of the attempt" in derive(folder)["derive"]["error"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"attempt":"x"}', b"\xff"])
def test_a_broken_meta_is_a_reason(tmp_path, content):
    folder = build_repeat(tmp_path / "run")
    (folder / "meta.json").write_bytes(content)
    metrics = derive(folder)
    assert (metrics["verdict"], metrics["derive"]["status"]) == ("invalid", "failed")
    assert tables(folder, None)[0].num_rows == 0


def test_a_missing_meta_is_a_reason(tmp_path):
    folder = build_repeat(tmp_path / "run")
    (folder / "meta.json").unlink()
    assert "meta.json is missing" in derive(folder)["derive"]["error"]


def test_not_run(tmp_path):
    folder = build_repeat(tmp_path / "run", status="not_run", reasons=["launch failed: port taken"])
    metrics = derive(folder)
    assert metrics["verdict"] == "invalid"
    assert metrics["derive"]["status"] == "ok"
    assert metrics["reasons"] == ["launch failed: port taken"]
    assert metrics["segments"] is None
    assert [t.num_rows for t in tables(folder)] == [0, 0]


def test_a_failed_attempt_keeps_its_requests_and_has_no_metrics(tmp_path):
    records = [request(1), request(2, status="failed"), request(3, status="failed")]
    folder = build_repeat(tmp_path / "run", status="failed", reasons=["oom"], requests=records)
    metrics = derive(folder)
    assert metrics["reasons"] == ["oom"]
    assert metrics["segments"] is None
    assert metrics["errors"] == {"http: 503 overloaded": 2}
    assert tables(folder)[0].num_rows == 3


def test_a_failed_attempt_without_raw_files(tmp_path):
    folder = build_repeat(tmp_path / "run", status="not_run")
    meta = json.loads((folder / "meta.json").read_text())
    write_json(folder / "meta.json", {**meta, "status": "failed", "reasons": ["client: no space"]})
    metrics = derive(folder)
    assert metrics["reasons"] == ["client: no space"]


def test_half_a_line_is_skipped_named_and_makes_the_count_wrong(tmp_path):
    folder = build_repeat(tmp_path / "run")
    path = folder / "attempts/001/raw/requests.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    meta = json.loads((folder / "meta.json").read_text())
    del meta["files"]["raw/requests.jsonl"]
    write_json(folder / "meta.json", meta)
    metrics = derive(folder)
    assert metrics["derive"]["skipped"] == {"requests.jsonl": ["truncated last line (line 4)"]}
    assert metrics["verdict"] == "invalid"
    assert metrics["reasons"] == ["requests_recorded: 3, limit 4"]


def test_a_bad_segment_is_a_reason(tmp_path):
    folder = build_repeat(tmp_path / "run", segments=[("main", 2000.0, 1000.0)])
    assert "segment" in derive(folder)["derive"]["error"]


def test_an_unknown_limit_is_a_reason_not_a_crash(tmp_path):
    folder = build_repeat(tmp_path / "run")
    assert "nonsense" in derive(folder, limits={"nonsense": 1})["derive"]["error"]


def test_a_required_collector_that_stopped_early_is_invalid(tmp_path):
    telemetry = {
        "proc": [proc_line(k) for k in range(3)],
        "engine_metrics": [scrape_line(k) for k in range(7)],
    }
    metrics = derive(build_repeat(tmp_path / "run", telemetry=telemetry))
    assert metrics["verdict"] == "invalid"
    assert metrics["reasons"] == ["coverage head/proc main: 0.4375, limit 0.95"]


def test_a_collector_without_a_parser_still_has_coverage(tmp_path):
    lines = [{"t_ns": proc_line(k)["t_ns"], "line": "0, 97 %"} for k in range(7)]
    metrics = derive(build_repeat(tmp_path / "run", telemetry={"nvidia-smi": lines}))
    assert [(c["collector"], c["samples"]) for c in metrics["coverage"]] == [("nvidia-smi", 5)]


def test_the_cases_own_objective_and_weights(tmp_path):
    spec = {"slo": {"ttft_s": 0.01}}
    folder = build_repeat(tmp_path / "run", case_spec=spec)
    weights = {"uncached_input": 1.0, "cached_input": 1.0, "output": 0.0}
    block = derive(folder, weights=weights, slo={"ttft_s": 9.0})["segments"][0]["metrics"]
    assert block["goodput_req_s"] == 0.0
    assert block["weighted_tok_s"] == block["input_tok_s"]


def test_a_mixed_case(tmp_path):
    records = [
        *(request(k, stream="main", segment="control", gap_ms=10, osl=10) for k in range(2)),
        *(
            request(k, stream="main", segment="injected", sent_ms=1000, gap_ms=20, osl=10)
            for k in range(2)
        ),
        request(1, stream="injected", segment="injected", sent_ms=1100, ttft_ms=80, isl=512, osl=1),
    ]
    folder = build_repeat(
        tmp_path / "run",
        requests=records,
        segments=[("control", 0, 900), ("injected", 1000, 1900)],
        overlaps={"injected": [(1100, 1180)]},
        telemetry={},
    )
    metrics = derive(folder)
    assert metrics["verdict"] == "valid", metrics["reasons"]
    main = metrics["interference"]["main"]
    assert main["change"]["tpot_p95_s"]["change_pct"] == pytest.approx(100.0)
    assert main["itl_s"]["overlaps_injection"]["n"] > 0
    assert main["itl_s"]["steady"]["n"] > 0


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.int64(), [1, None, -(2**62)]),
        (pa.float64(), [1.5, None, 0.0]),
        (pa.bool_(), [True, None, False] * 5),
        (pa.string(), ["a", None, "", "漢字 \n"]),
        (pa.list_(pa.float64()), [[1.0, 2.0], [], [3.0]]),
        (pa.list_(pa.bool_()), [[True, False] * 5, [], [True]]),
        (pa.list_(pa.string()), [["a"], [], ["b", "c"]]),
        (pa.int64(), []),
        (pa.string(), []),
        (pa.list_(pa.int64()), []),
    ],
)
def test_columns_hold_what_was_put_in(kind, values):
    array = column(values, kind)
    array.validate(full=True)
    assert array.to_pylist() == values
    assert array.type == kind


def counters(hits, queries):
    lines = []
    for k in range(7):
        line = scrape_line(k)
        line["text"] += f"vllm:prefix_cache_hits_total {hits * k}\n"
        line["text"] += f"vllm:prefix_cache_queries_total {queries * k}\n"
        lines.append(line)
    return lines


@pytest.mark.parametrize(("hits", "verdict"), [(0, "valid"), (900, "invalid")])
def test_cache_hits_that_only_the_engine_counted(tmp_path, hits, verdict):
    records = [request(k, sent_ms=500.0 * k) for k in range(4)]
    for record in records:
        record["usage"]["cached_tokens"] = None
    telemetry = {"engine_metrics": counters(hits, 1000)}
    metrics = derive(build_repeat(tmp_path / "run", requests=records, telemetry=telemetry))
    assert metrics["verdict"] == verdict
    check = next(c for c in metrics["checks"] if c["name"] == "unplanned_cache_hits")
    assert check["value"] == pytest.approx(hits / 1000)


def test_definitions_stand_beside_the_numbers(tmp_path):
    metrics = derive(build_repeat(tmp_path / "run"))
    assert metrics["definitions"]["version"] == 1
    assert "output tokens - 1" in metrics["definitions"]["figures"]["TPOT"]


def test_open_loop_latency_counts_from_when_a_request_was_due(tmp_path):
    records = [request(k, sent_ms=500.0 * k, ttft_ms=50) for k in range(4)]
    for record in records:
        record["scheduled_ns"] -= 200_000_000
    block = derive(build_repeat(tmp_path / "run", requests=records))["segments"][0]["metrics"]
    assert block["ttft_s"]["p50"] == pytest.approx(0.05)
    assert block["ttft_from_schedule_s"]["p50"] == pytest.approx(0.25)
    assert block["e2e_from_schedule_s"]["p50"] == pytest.approx(0.28)


GARBAGE = [
    b"",
    b"\n\n",
    b"{",
    b"[]\n",
    b"null\n",
    b"\xff\xfe\x00" * 50,
    b'{"t_ns": "x"}\n' * 3,
    b'{"t_ns": 1e999, "mono_ns": [], "id": 1, "status": "ok", "segments": 5}\n',
    b'{"segments": [[1], {"overlaps": [[1], "ab", [null, 2]]}], "counts": []}\n',
]


@pytest.mark.parametrize("content", GARBAGE)
@pytest.mark.parametrize(
    "name",
    ["requests.jsonl", "client.json", "load.json", "telemetry/head/proc.jsonl",
     "telemetry/head/engine_metrics.jsonl"],
)  # fmt: skip
def test_garbage_never_raises_and_is_never_valid_by_accident(tmp_path, name, content):
    folder = build_repeat(tmp_path / "run")
    meta = json.loads((folder / "meta.json").read_text())
    write_json(folder / "meta.json", {**meta, "files": {}})
    (folder / "attempts/001/raw" / name).write_bytes(content)
    metrics = derive(folder)
    assert [t is not None for t in tables(folder)] == [True, True]
    if name != "load.json":
        assert metrics["verdict"] == "invalid"
        assert metrics["reasons"]

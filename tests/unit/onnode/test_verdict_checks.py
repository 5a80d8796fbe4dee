"""Every check of a verdict on raw files of the reference server: where it holds, where it fails.

The load is measured once; its records, and made-up telemetry around its window, are then changed in
one place each, as the fault would have left them.
"""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ref_process import load, reference_server

from servemap.analysis.check_table import check_texts
from servemap.analysis.communication.spread import LIMIT
from servemap.analysis.derive import derive_attempt
from servemap.analysis.verdict import default_limits
from servemap.analysis.verdicts_page import PAGE, page_text

Raw = dict[str, Any]
MS = 1_000_000
INTERVAL_MS = 20
WAVE_MS = 91
ELSEWHERE = {
    "client_summary": "test_client_summary.py",
    "client_clock_set_ms": "test_client_summary.py",
    "cached_share_vs_trace": "test_replay_checks.py",
    "figures": "test_derive_verdict.py",
    "valid_probes": "test_search_answers.py",
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Raw:
    """Return a closed loop of four waves, as it was recorded."""
    folder = tmp_path_factory.mktemp("measured")
    stream = {"name": "main", "kind": "closed", "isl": 8, "osl": 4}
    segments = [{"name": "main", "streams": [{**stream, "concurrency": 4, "num_prompts": 16}]}]
    script = {"answer": {"ttft_ms": 60, "gap_ms": 10, "cached_tokens": 0}}
    with reference_server(folder, script) as (url, log):
        code, out = load(folder, url, log, segments=segments, request={"ignore_eos": True})
    assert code == 0
    client = json.loads((out / "client.json").read_text())
    records = [json.loads(line) for line in (out / "requests.jsonl").read_text().splitlines()]
    # What a loaded machine did to this load is not what is looked at.
    client.update(max_lag_ms=1.0, cpu_s=0.01)
    client["late_ms"] = {"p50": 0.1, "p99": 0.5, "p995": 0.5, "max": 0.5}
    begin = client["segments"][0]["start_ns"]
    for place, record in enumerate(records):
        as_scripted(record, begin + place // 4 * WAVE_MS * MS)
    end = begin + 4 * WAVE_MS * MS
    client["segments"][0]["end_ns"] = end
    times = range(begin - 60 * MS, end + 60 * MS, INTERVAL_MS * MS)
    collector = {"status": "ok", "samples": 9, "interval_s": INTERVAL_MS / 1e3, "required": True}
    return {
        "client": client,
        "load": json.loads((folder / "load.json").read_text()),
        "requests": records,
        "proc": [_proc(k, t, begin) for k, t in enumerate(times)],
        "engine": [_scrape(k, t) for k, t in enumerate(times)],
        "limits": {},
        "meta": {
            "schema": 1,
            "attempt": 1,
            "status": "ok",
            "reasons": [],
            "spec": {"case": {"kind": "fixed"}},
            "server": {"boot_id": "b", "drift": []},
            "cards": {"before": {"head": {"ok": True}}, "after": {"head": {"ok": True}}},
            "segments": client["segments"],
            "clock": {
                "head": {"reference": "head", "offset_ns": 0, "error_ns": 0},
                "worker": {
                    "reference": "head", "offset_ns": 0, "error_ns": MS,
                    "drift_ns": MS, "drift_error_ns": 0,
                },
            },
            "collectors": {
                "head/proc": collector,
                "head/engine_metrics": collector,
                "worker/proc": {**collector, "required": False},
            },
        },
    }  # fmt: skip


def as_scripted(record: Raw, sent_ns: int) -> None:
    """Give a record the times that the script has: no waiting, no standstill."""
    record.update(scheduled_ns=sent_ns, sent_ns=sent_ns, last_ns=sent_ns + (WAVE_MS - 1) * MS)
    times = [sent_ns + (60 + 10 * k) * MS for k in range(4)]
    record["t_ns"] = times + times[-1:] * (len(record["t_ns"]) - 4)


def _proc(k: int, t_ns: int, begin_ns: int) -> Raw:
    """Two cores at half, one process of the server that takes one of them."""
    ticks = 2 * k
    return {
        "t_ns": t_ns,
        "mono_ns": t_ns - begin_ns + 10**9,
        "hz": 100,
        "cpu": {f"cpu{core}": [ticks / 2, 0, 0, ticks / 2, 0, 0, 0, 0] for core in (0, 1)},
        "procs": [
            {
                "pid": 42,
                "start": 7,
                "utime": ticks,
                "stime": 0,
                "threads": 1,
                "rss_pages": 1,
            }
        ],
    }


def _scrape(k: int, t_ns: int, preempted: int = 0, tokens: int | None = None) -> Raw:
    body = (
        "# TYPE process_start_time_seconds gauge\n"
        "process_start_time_seconds 1.7e+09\n"
        'vllm:num_requests_running{engine="0"} 4\n'
        'vllm:num_requests_waiting{engine="0"} 1\n'
        f'vllm:prefix_cache_queries_total{{engine="0",model_name="a}}b"}} {tokens or 8 * k}\n'
        f'vllm:num_preemptions_total{{engine="0"}} {preempted}\n'
    )
    return {"t_ns": t_ns, "mono_ns": t_ns, "text": body}


def derive(folder: Path, raw: Raw) -> dict[str, Any]:
    where = folder / "attempts/001/raw"
    node = where / "telemetry/head"
    node.mkdir(parents=True)
    for name in ("client", "load"):
        (where / f"{name}.json").write_text(json.dumps(raw[name]))
    for path, rows in (
        (where / "requests.jsonl", raw["requests"]),
        (node / "proc.jsonl", raw["proc"]),
        (node / "engine_metrics.jsonl", raw["engine"]),
    ):
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (node / "collect.spec.json").write_text(json.dumps({"server": {"pids": [42]}}))
    (folder / "meta.json").write_text(json.dumps(raw["meta"]))
    derive_attempt(folder, {"limits": raw["limits"]})
    metrics: dict[str, Any] = json.loads((folder / "metrics.json").read_text())
    assert metrics["derive"]["status"] == "ok", metrics["derive"]
    return metrics


def outcomes(metrics: dict[str, Any], name: str) -> list[bool | None]:
    return [c["ok"] for c in metrics["checks"] if c["name"].split()[0] == name]


def disturbed(raw: Raw) -> None:
    raw["meta"].update(status="failed", cause="disturbed", reasons=["the load client was late"])


def failing(count: int) -> Callable[[Raw], None]:
    def change(raw: Raw) -> None:
        for record in raw["requests"][:count]:
            record.update(status="failed", error={"class": "http", "message": "503"})

    return change


def usage(**counts: int) -> Callable[[Raw], None]:
    def change(raw: Raw) -> None:
        for record in raw["requests"]:
            record["usage"].update(counts)

    return change


def stream(**keys: Any) -> Callable[[Raw], None]:
    def change(raw: Raw) -> None:
        raw["load"]["segments"][0]["streams"][0].update(keys)

    return change


def open_loop(late_ms: int) -> Callable[[Raw], None]:
    def change(raw: Raw) -> None:
        stream(kind="rate")(raw)
        for record in raw["requests"]:
            record["scheduled_ns"] = record["sent_ns"] - late_ms * MS

    return change


def all_at_once(raw: Raw) -> None:
    """Sixteen requests in one wave, where four at a time were asked for."""
    begin = raw["client"]["segments"][0]["start_ns"]
    for record in raw["requests"]:
        shift = begin - record["sent_ns"]
        for key in ("sent_ns", "last_ns"):
            record[key] += shift
        record["t_ns"] = [t_ns + shift for t_ns in record["t_ns"]]


def prefix(cached: int) -> Callable[[Raw], None]:
    def change(raw: Raw) -> None:
        raw["meta"]["spec"]["case"]["kind"] = "prefix"
        stream(prefix_tokens=4)(raw)
        usage(cached_tokens=cached)(raw)

    return change


def engine_hits(share: float) -> Callable[[Raw], None]:
    """The engine's own counters tell of this share of hits, beside what usage says."""

    def change(raw: Raw) -> None:
        for k, line in enumerate(raw["engine"]):
            line["text"] += f'vllm:prefix_cache_hits_total{{engine="0"}} {8 * k * share}\n'

    return change


def both(*changes: Callable[[Raw], None]) -> Callable[[Raw], None]:
    def change(raw: Raw) -> None:
        for one in changes:
            one(raw)

    return change


def counts_on_events(*counts: int) -> Callable[[Raw], None]:
    """Each of four tokens came with a count; usage at the end says 4."""

    def change(raw: Raw) -> None:
        for record in raw["requests"]:
            told = iter(counts)
            record["tokens"] = [next(told) if k == "t" else None for k in record["kinds"]]

    return change


def backwards(raw: Raw) -> None:
    for record in raw["requests"][4:]:
        record["t_ns"].reverse()


def elsewhere(raw: Raw) -> None:
    for record in raw["requests"][:2]:
        record["segment"] = "control"


def another_process(raw: Raw) -> None:
    for line in raw["proc"][len(raw["proc"]) // 2 :]:
        line["procs"][0]["start"] = 8


def gone(raw: Raw) -> None:
    raw["proc"][len(raw["proc"]) // 2]["procs"] = []


def another_start(raw: Raw) -> None:
    line = raw["engine"][len(raw["engine"]) // 2]
    line["text"] = line["text"].replace("1.7e+09", "1.8e+09")


def set_back(raw: Raw) -> None:
    at = len(raw["engine"]) // 2
    raw["engine"][at] = _scrape(at, raw["engine"][at]["t_ns"], tokens=1)


def preempting(raw: Raw) -> None:
    raw["engine"] = [_scrape(k, row["t_ns"], k // 10) for k, row in enumerate(raw["engine"])]


def stalled(raw: Raw) -> None:
    raw["limits"]["stalled_s"] = 0.1
    for line in raw["engine"]:
        line["text"] = line["text"].replace('running{engine="0"} 4', 'running{engine="0"} 0')


def without_samples(raw: Raw) -> None:
    begin = raw["client"]["segments"][0]["start_ns"]
    raw["proc"] = [line for line in raw["proc"] if line["t_ns"] < begin + 100 * MS]


def busy_cores(raw: Raw) -> None:
    for k, line in enumerate(raw["proc"]):
        line["cpu"] = {f"cpu{core}": [2 * k, 0, 0, 0, 0, 0, 0, 0] for core in (0, 1)}


def saturated(raw: Raw) -> None:
    edges = raw["client"]["segments"][0]
    raw["client"]["cpu_s"] = 0.95 * (edges["end_ns"] - edges["start_ns"]) / 1e9


def limit(**limits: float) -> Callable[[Raw], None]:
    return lambda raw: raw["limits"].update(limits)


def client(**keys: Any) -> Callable[[Raw], None]:
    return lambda raw: raw["client"].update(keys)


def meta(*path: str, **keys: Any) -> Callable[[Raw], None]:
    def change(raw: Raw) -> None:
        place = raw["meta"]
        for key in path:
            place = place[key]
        place.update(keys)

    return change


FOREIGN = {"head": {"ok": False, "evidence": "pid 99, python: 4.2 GB on card 0"}}
FAILS: list[tuple[str, Callable[[Raw], None]]] = [
    ("attempt", disturbed),
    ("segments", meta(segments=[])),
    ("requests_recorded", lambda raw: raw["requests"].pop()),
    ("requests_recorded", elsewhere),
    ("error_share", failing(1)),
    ("latencies_missing", backwards),
    ("token_counts", counts_on_events(10, 20, 30, 40)),
    ("token_counts", counts_on_events(2, 1, 3, 4)),
    ("token_counts", usage(completion_tokens=0)),
    ("token_counts", usage(completion_tokens=3)),
    ("token_counts", usage(cached_tokens=9)),
    ("token_counts", both(meta("spec", "case", kind="chat"), usage(cached_tokens=9))),
    ("token_counts", usage(reasoning_tokens=5)),
    ("output_tokens_vs_plan", usage(completion_tokens=3)),
    ("input_tokens_vs_plan", usage(prompt_tokens=12)),
    ("unplanned_cache_hits", usage(cached_tokens=4)),
    ("unplanned_cache_hits", engine_hits(0.9)),
    ("client_status", client(status="failed")),
    ("client_lag_ms", client(max_lag_ms=5000.0)),
    ("client_late_ms", client(late_ms={"p50": 0.1, "p99": 0.5, "p995": 5000.0, "max": 5000.0})),
    ("client_cpu_share", saturated),
    ("schedule_lag_p99_ms", open_loop(5000)),
    ("littles_law", failing(4)),
    ("littles_law", lambda raw: raw["meta"]["segments"][0].update(
        end_ns=(raw["meta"]["segments"][0]["start_ns"] + raw["meta"]["segments"][0]["end_ns"]) // 2
    )),
    ("ramp_up", limit(ramp_up_share=0.1)),
    ("concurrency", stream(concurrency=400)),
    ("concurrency", all_at_once),
    ("cached_share_vs_prefix", prefix(0)),
    ("cached_share_vs_prefix", both(prefix(4), engine_hits(0.0))),
    ("server_unchanged", another_process),
    ("server_unchanged", gone),
    ("server_unchanged", another_start),
    ("server_unchanged", set_back),
    ("preempted_share", preempting),
    ("server_stalled_s", stalled),
    ("frozen_facts", meta("server", drift=["head: kernel was 6.8, is 6.9"])),
    ("cards_clean", meta("cards", before=FOREIGN)),
    ("cards_clean", meta("cards", after=FOREIGN)),
    ("collector", meta("collectors", "head/proc", status="failed")),
    ("coverage", without_samples),
    ("clock_drift_ms", meta("clock", "worker", drift_ns=400 * MS)),
    ("clock_error_share", meta("clock", "worker", error_ns=15 * MS)),
    ("foreign_cpu", busy_cores),
]  # fmt: skip
HOLDS: dict[str, Callable[[Raw], None]] = {
    "schedule_lag_p99_ms": open_loop(1),
    "cached_share_vs_prefix": both(prefix(4), engine_hits(0.45)),
}
ALSO_HOLD: list[tuple[str, Callable[[Raw], None]]] = [
    ("unplanned_cache_hits", engine_hits(0.015)),
    ("token_counts", counts_on_events(1, 2, 3, 4)),
    ("token_counts", counts_on_events(4, 4, 4, 4)),
]


def test_every_check_is_shown_to_fail() -> None:
    shown = {name for name, _ in FAILS} | set(ELSEWHERE)
    assert [check.name for check in check_texts() if check.name not in shown] == []


def test_the_load_holds_every_check(measured: Raw, tmp_path: Path) -> None:
    metrics = derive(tmp_path, copy.deepcopy(measured))
    assert metrics["verdict"] == "valid", metrics["reasons"]
    names = dict.fromkeys(check["name"].split()[0] for check in metrics["checks"])
    listed = [check.name for check in check_texts()]
    assert [name for name in names if name not in listed] == [], "checks.yaml lacks them"
    for name in listed:
        if name not in ELSEWHERE and name not in HOLDS:
            assert set(outcomes(metrics, name)) == {True}, name
    limits = {name: check["limit"] for check in metrics["checks"] for name in [check["name"]]}
    assert limits["error_share"] == default_limits()["error_share"]


@pytest.mark.parametrize(("name", "change"), [*HOLDS.items(), *ALSO_HOLD])
def test_a_check_of_other_loads_holds(
    name: str, change: Callable[[Raw], None], measured: Raw, tmp_path: Path
) -> None:
    raw = copy.deepcopy(measured)
    change(raw)
    assert outcomes(derive(tmp_path, raw), name) == [True]


@pytest.mark.parametrize(
    ("name", "change"), FAILS, ids=[f"{k}-{name}" for k, (name, _) in enumerate(FAILS)]
)
def test_a_check_fails(
    name: str, change: Callable[[Raw], None], measured: Raw, tmp_path: Path
) -> None:
    raw = copy.deepcopy(measured)
    change(raw)
    metrics = derive(tmp_path, raw)
    assert metrics["verdict"] == "invalid"
    assert False in outcomes(metrics, name), metrics["checks"]
    assert any(reason.split(":")[0].split()[0] == name for reason in metrics["reasons"])
    assert metrics["segments"] is not None, "its figures are evidence"


def test_one_wave_is_labelled_and_nothing_is_left_out(measured: Raw, tmp_path: Path) -> None:
    raw = copy.deepcopy(measured)
    raw["requests"] = raw["requests"][:4]
    raw["client"]["counts"]["sent"] = 4
    last = max(record["last_ns"] for record in raw["requests"])
    raw["meta"]["segments"][0]["end_ns"] = last
    stream(num_prompts=4)(raw)
    metrics = derive(tmp_path, raw)
    assert metrics["verdict"] == "valid", metrics["reasons"]
    assert outcomes(metrics, "ramp_up") == outcomes(metrics, "concurrency") == [None]
    (note,) = [c["note"] for c in metrics["checks"] if c["name"].startswith("ramp_up")]
    assert note.startswith("one wave: ")
    assert metrics["segments"][0]["metrics"]["requests"] == 4
    assert metrics["segments"][0]["metrics"]["ttft_s"]["n"] == 4


def test_a_segment_too_short_for_telemetry_keeps_its_latencies(
    measured: Raw, tmp_path: Path
) -> None:
    raw = copy.deepcopy(measured)
    for record in raw["meta"]["collectors"].values():
        record["interval_s"] = 60.0
    metrics = derive(tmp_path, raw)
    assert metrics["verdict"] == "valid", metrics["reasons"]
    assert set(outcomes(metrics, "coverage")) == {None}
    assert metrics["segments"][0]["metrics"]["ttft_s"]["p50"] is not None


def test_a_few_scrapes_are_not_set_against_usage(measured: Raw, tmp_path: Path) -> None:
    raw = copy.deepcopy(measured)
    engine_hits(0.9)(raw)
    raw["meta"]["collectors"]["head/engine_metrics"]["interval_s"] = 0.1
    raw["engine"] = raw["engine"][::5]
    assert outcomes(derive(tmp_path, raw), "unplanned_cache_hits") == [True]


def test_records_of_older_versions_have_checks_that_do_not_apply(
    measured: Raw, tmp_path: Path
) -> None:
    raw = copy.deepcopy(measured)
    for key in ("cards", "server", "clock"):
        del raw["meta"][key]
    raw["proc"] = [{**line, "procs": []} for line in raw["proc"]]
    raw["engine"] = [{**line, "text": "up 1\n"} for line in raw["engine"]]
    metrics = derive(tmp_path, raw)
    assert outcomes(metrics, "frozen_facts") == [None]
    assert outcomes(metrics, "cards_clean") == []
    assert outcomes(metrics, "clock_error_share") == []


def test_the_page_is_that_of_the_tables() -> None:
    page = Path(__file__).parents[3] / PAGE
    assert page.read_text(encoding="utf-8") == page_text(), (
        "run python -m servemap.analysis.verdicts_page"
    )


def test_every_limit_belongs_to_a_check_or_to_the_comparison_of_baselines() -> None:
    named = {name for check in check_texts() for name in check.limits}
    assert LIMIT not in named
    assert {*named, LIMIT} == set(default_limits())

import json
import re
import shutil
from html.parser import HTMLParser

import plotly.graph_objects as go
import pytest
from runbuilder import write_json

from servemap.report import plots, repeats, results
from servemap.report.html import breakable, script_json
from servemap.report.render import render

ATTACK = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


class Page(HTMLParser):
    """What a browser would see: tags, text outside scripts, and the contents of each script."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.scripts, self.words, self.ids, self.cells = [], [], [], [], []
        self._script = None
        self._after_wbr = False
        self.feed(text)
        self.text = " ".join(self.words)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.append((tag, attributes))
        self.ids += [attributes["id"]] if "id" in attributes else []
        if tag == "td":
            self.cells.append((attributes.get("class", ""), ""))
        if tag == "script":
            self._script = attributes.get("type", "javascript")
        self._after_wbr = tag == "wbr"

    def handle_endtag(self, tag):
        if tag == "script":
            self._script = None

    def handle_data(self, data):
        if self._script:
            self.scripts.append((self._script, data))
        else:
            self.words.append(data)
            if self._after_wbr:
                self.words[-2:] = ["".join(self.words[-2:])]
            if self.cells and (self._after_wbr or not self.cells[-1][1]):
                self.cells[-1] = (self.cells[-1][0], self.cells[-1][1] + data)
            self._after_wbr = False

    @property
    def figures(self):
        return [json.loads(data) for kind, data in self.scripts if kind == "application/json"]


def rendered(run, rows, **options):
    render(run, rows, **options)
    name = "report/partial" if options.get("partial") else "report"
    html = "report/partial.html" if options.get("partial") else "report/index.html"
    return (run / f"{name}.md").read_text(), Page((run / html).read_text())


@pytest.fixture(scope="module")
def page(campaign):
    return rendered(*campaign)


def test_what_was_marked_instead_of_refused_stands_in_the_summary(copy, page):
    run, rows = copy
    assert "Marked, not refused" not in page[0]
    paths = sorted(run.glob("cases/*/*/r*/meta.json"))[:2]
    for path in paths:
        meta = json.loads(path.read_text())
        meta["server"] = {**(meta.get("server") or {}), "drift": ["rails: n2: eth9 is down"]}
        path.write_text(json.dumps(meta))
    markdown, _ = rendered(run, rows)
    summary = markdown.partition("## Summary")[2].partition("\n## ")[0]
    assert "rails: n2: eth9 is down (2 repeats)" in summary


def test_nodes_stand_side_by_side_with_their_clocks(copy):
    run, rows = copy
    manifest = json.loads((run / "run_manifest.json").read_text())
    manifest["campaign"]["nodes"].append(
        {"id": "w1", "role": "worker", "transport": "ssh", "address": "10.0.0.2",
         "rails": [{"netdev": "eth0", "hca": "mlx5_0"}, {"netdev": "eth1", "hca": None}]}
    )  # fmt: skip
    write_json(run / "run_manifest.json", manifest)
    metas = sorted(run.glob("cases/*/*/r*/meta.json"))
    for position, path in enumerate(metas):
        meta = json.loads(path.read_text())
        meta["ended_ns"] = position
        first = position == 0
        meta["clock"]["w1"] = {
            "offset_ns": 5_000_000 if first else -1_250_000, "error_ns": 120_000,
            "drift_ns": 1_007_000_000 if first else 2_000_000,
            "step_ns": 1_000_000_000 if first else 0, "set_ns": 1_000_000_000 if first else 0,
        }  # fmt: skip
        write_json(path, meta)
    markdown, _ = rendered(run, rows)
    (row,) = [r for r in rows_of(markdown, "Environment") if r[0] == "w1" and r[1] == "worker"]
    assert row[1:4] == ["worker", "ssh", "10.0.0.2"]
    assert row[4] == "eth0 (mlx5\\_0), eth1", "its rails"
    assert row[5] == "none", "no facts of it were frozen"
    assert row[6:] == ["-1.25", "0.12", "7.00", "1"]


def test_times_are_shown_in_the_campaigns_zone_and_say_so(copy):
    run, rows = copy
    manifest = json.loads((run / "run_manifest.json").read_text())
    manifest["created_ns"] = 1_700_000_000_000_000_000  # 2023-11-14 22:13:20 UTC
    manifest["campaign"]["time_zone"] = "Asia/Tokyo"
    write_json(run / "run_manifest.json", manifest)
    markdown, _ = rendered(run, rows)
    assert "created 2023-11-15 07:13:20 UTC+09:00" in markdown
    assert "Times are in the zone Asia/Tokyo." in markdown
    for unknown in (None, "Mars/Olympus", "../etc", 7):
        manifest["campaign"]["time_zone"] = unknown
        write_json(run / "run_manifest.json", manifest)
        markdown, _ = rendered(run, rows)
        assert "Times are in this machine's zone, " in markdown


def test_a_pair_of_a_baseline_that_failed_is_named(copy):
    run, rows = copy
    path = next(run.glob("baselines/*.json"))
    record = json.loads(path.read_text())
    good = {**record["results"][0], "status": "ok", "error": None}
    bad = {"from": "a", "to": "b", "status": "failed", "error": "no route to host"}
    write_json(path, {**record, "status": "failed", "results": [good, bad]})
    markdown, _ = rendered(run, rows)
    found = [r for r in rows_of(markdown, "Communication baselines") if len(r) > 5][1:]
    assert [(r[1], r[-1]) for r in found] == [("ok", "-"), ("failed", "no route to host")]
    assert found[1][3] == "a to b"


def test_every_section_is_there_and_linked(page):
    markdown, html = page
    wanted = ["summary", "cases", "targets", "limits", "client-error", "plots", "comparisons",
              "repeats", "interference", "telemetry", "baselines", "captures", "server", "failures",
              "not-measured", "environment", "definitions", "problems"]  # fmt: skip
    assert html.ids == wanted
    links = [a["href"] for tag, a in html.tags if tag == "a"]
    assert links == [f"#{name}" for name in wanted]
    assert markdown.count("\n## ") == len(wanted)


def test_the_page_makes_no_network_request(page):
    _, html = page
    for tag, attributes in html.tags:
        assert tag not in ("link", "iframe", "object", "embed", "img", "base")
        assert "src" not in attributes
        assert not attributes.get("href", "#").startswith(("http", "//"))
    policy = next(a["content"] for t, a in html.tags if "Content-Security-Policy" in a.values())
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy
    assert sum("plotly.js v" in data for _, data in html.scripts) == 1


def test_the_seven_tiles_and_the_top_line(page):
    markdown, html = page
    assert "**21** planned repeats, **18** valid, **1** invalid, **0** failed, **2** not run" in (
        markdown
    )
    assert "llamacpp 2026.10.11549" in html.text
    facts = {r[0]: r[1] for r in rows_of(markdown, "Summary") if len(r) == 2}
    # 9.13 s of first segments; the injected ones add 50 + 63 x 13 ms, and x 13 / 0.9 ms.
    assert facts["Measured windows"] == "10.96 s"
    assert "Quick map of the embedded engine" in html.text


def rows_of(markdown, title):
    section = markdown.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return [
        [cell.strip() for cell in line.strip("|").split(" | ")]
        for line in section.splitlines()
        if line.startswith("|") and not line.startswith("|:")
    ]


def test_variants_stand_side_by_side_with_the_change(page):
    markdown, _ = page
    rows = rows_of(markdown, "Cases")
    found = [r for r in rows if r[3] == "ubatch-64" and r[2] == "32"]
    assert len(found) == 1
    assert "(-10.00 %)" in found[0][5]
    assert "(+11.11 %)" in found[0][7]
    reference = next(r for r in rows if r[3] == "baseline" and r[2] == "32")
    assert "%" not in " ".join(reference)


def test_a_change_across_two_variables_is_not_told(campaign, tmp_path):
    """A cell of a grid is compared with a neighbour that was measured, which is then named."""
    run, rows = campaign
    allowed = {"baseline": [], "ubatch-64": ["other-cell"], "broken": ["baseline"]}
    rows = [row | {"compared_with": allowed[row["variant"]]} for row in rows]
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    markdown, _ = rendered(copy, rows)
    assert "%" not in " ".join(cell for r in rows_of(markdown, "Cases") for cell in r[5:])
    allowed |= {"ubatch-64": ["broken", "baseline"], "baseline": ["broken"]}
    rows = [row | {"compared_with": allowed[row["variant"]]} for row in rows]
    markdown, _ = rendered(copy, rows)
    found = next(r for r in rows_of(markdown, "Cases") if r[3].startswith("ubatch-64"))
    assert "against baseline" in found[3], "the usual one, broken, has no figures there"
    assert "(-10.00 %)" in found[5]


def test_a_change_against_a_single_measurement_has_no_colour(page):
    """The variant was measured once: 10 % less may be noise, and the summary says so."""
    markdown, html = page
    tones = {(text, kind.removeprefix("number ")) for kind, text in html.cells}
    assert ("1,821", "") in tones
    assert ("2,024", "") in tones
    assert "rest on a single measurement" in markdown.split("## Cases")[0]


def measured(mean, cv, n=3):
    return {"tps_mean": mean, "tps_cv": cv, "tps_n": n}


@pytest.mark.parametrize(
    ("value", "cv", "tone"),
    [(90.0, 0.02, "bad"), (110.0, 0.02, "good"), (97.0, 0.02, ""), (90.0, 0.06, "")],
)
def test_a_change_is_coloured_where_the_repeats_resolve_it(value, cv, tone):
    base = measured(100.0, 0.01)
    assert results._figure(measured(value, cv), base, "tps", True).tone == tone
    assert results._figure(measured(value, None, 1), base, "tps", True).tone == ""


def escaped(name):
    return name.replace("_", "\\_")


def test_comparisons_have_interval_floor_and_decision(page):
    """Three repeats 2 % apart on either side resolve 10 %; single ones resolve nothing."""
    markdown, _ = page
    found = {tuple(row[:2]): row for row in rows_of(markdown, "Comparisons")}
    repeated = found[escaped("decode_latency_1k_to_1k_c1"), "ubatch-64 (against baseline)"]
    assert repeated[2] == "3, 3"
    assert re.fullmatch(
        r"-10\.00 % \(worse; -\d+\.\d\d % to -\d\.\d\d %, floor 6\.\d %\)", repeated[3]
    )
    assert repeated[5].startswith("+11.1"), "TPOT"
    single = found[escaped("decode_throughput_1k_to_1k_c32"), "ubatch-64 (against baseline)"]
    assert single[2:4] == ["1, 1", "-10.00 % (no noise floor)"]
    assert "all of one start of the server" in markdown.partition("## Comparisons")[2]


def test_a_run_of_one_variant_has_nothing_to_compare(copy):
    run, rows = copy
    markdown, _ = rendered(run, [row for row in rows if row["variant"] == "baseline"])
    section = markdown.partition("## Comparisons")[2].partition("\n## ")[0]
    assert "No case was measured validly under two variants" in section


def test_each_repeat_has_its_noise_within_the_run_and_drift_is_told(copy):
    run, rows = copy
    path = run / "cases/baseline/decode_latency_1k_to_1k_c1/r1/metrics.json"
    metrics = json.loads(path.read_text())
    ends = {"ttft_s": {"p95": [0.01, None]}, "tpot_s": {"p95": [0.002, 0.003]}, "e2e_s": None}
    metrics["segments"][0]["within_run"] = ends
    path.write_text(json.dumps(metrics))
    markdown, _ = rendered(run, rows)
    each = next(
        row
        for row in rows_of(markdown, "Repeats")
        if row[:3] == [escaped("decode_latency_1k_to_1k_c1"), "baseline", "1"]
    )
    assert each[6].endswith("(from 10, no upper end)")
    assert each[7].endswith("(2 to 3)")
    assert "(" not in each[8]
    assert "Drift: output tok/s of the last repeat against the first" in markdown


def test_repeats_show_their_spread(page):
    markdown, _ = page
    row = rows_of(markdown, "Repeats")[1]
    assert row[1:4] == ["baseline", "3/3", "1"]
    assert row[5] == "2.0 %"


def test_interference(page):
    markdown, _ = page
    rows = rows_of(markdown, "Mixed interference")
    assert "10 → 13 (+30.00 %)" in rows[1]
    assert [r[3] for r in rows if len(r) == 9 and "Succeeded" not in r and r[3] != "1"] == [
        "Gaps that", "overlaps injection", "steady", "overlaps injection", "steady",
    ]  # fmt: skip


def test_the_injected_requests_have_their_own_latency(page):
    """One of 350 ms to its first and only token; the steady stream's figures leave it out."""
    markdown, _ = page
    rows = rows_of(markdown, "Mixed interference")
    head = next(r for r in rows if "Succeeded" in r)
    own = [dict(zip(head, r, strict=True)) for r in rows if len(r) == len(head) and r[3] == "1"]
    assert [r["Variant"] for r in own] == ["baseline r1", "ubatch-64 r1"]
    for row in own:
        assert (row["Requests"], row["Succeeded"], row["ISL mean"]) == ("1", "1", "64")
        figures = ("TTFT P50 ms", "TTFT max ms", "E2E P50 ms", "E2E max ms")
        assert {row[name] for name in figures} == {"350"}


def asked_milestones(rows, cases, cv=0.03):
    rule = {"phase": "m1", "repeats": 3, "cv": cv, "metric": "agg_output_tps"}
    return [{**rule, "rows": [r for r in rows if r["case"] in cases]}]


def test_a_milestone_that_was_missed_is_said_with_by_how_much(copy):
    run, rows = copy
    rows = [row for row in rows if row["variant"] == "baseline"]
    assert "## Milestones" not in rendered(run, rows)[0], "none was asked for"
    names = ("decode_latency_1k_to_1k_c1", "balanced_32k_to_1k_c8")
    asked = asked_milestones(rows, names, cv=0.01)
    markdown, _ = rendered(run, rows, milestones=asked)
    found = {r[1]: r for r in rows_of(markdown, "Milestones")}
    spread = found[escaped(names[0])]
    assert spread[:6] == [
        "m1",
        escaped(names[0]),
        "baseline",
        "3/3",
        "3",
        escaped("agg_output_tps"),
    ]
    assert spread[7:] == [
        "2.00 %", "1 %",
        "missed (CV of agg\\_output\\_tps 2.00 %, limit 1 %: 1.00 points over)",
    ]  # fmt: skip
    assert found[escaped(names[1])][9] == "missed (1 of 3 valid repeats)"
    summary = markdown.partition("## Summary")[2].partition("\n## ")[0]
    assert "Milestones missed: m1 missed in 2 of 2 cases; see the section on them." in summary
    met, _ = rendered(run, rows, milestones=asked_milestones(rows, names[:1]))
    assert rows_of(met, "Milestones")[1][9] == "met"
    assert "Milestones missed" not in met
    assert {r[0]: r[1] for r in rows_of(met, "Summary") if len(r) == 2}["Milestones"] == "m1: met"


def test_slo_and_weights_stand_where_their_figures_do(copy):
    run, rows = copy
    manifest = json.loads((run / "run_manifest.json").read_text())
    assert "Weights of tokens" not in rendered(run, rows)[0]
    manifest["campaign"]["slo"] = {"ttft_s": 2, "itl_p99_s": 0.05}
    manifest["campaign"]["weights"] = {"uncached_input": 2.8, "cached_input": 0.56, "output": 16.8}
    write_json(run / "run_manifest.json", manifest)
    markdown, _ = rendered(run, rows)
    slo, weights = (
        "TTFT &lt;= 2 s, ITL P99 &lt;= 0.05 s",
        "uncached input 2.8, cached input 0.56, output 16.8",
    )
    for title in ("Summary", "Fixed points and targets"):
        section = markdown.partition(f"## {title}")[2].partition("\n## ")[0]
        assert slo in section
        assert weights in section


def test_only_valid_cases_are_plotted(page):
    _, html = page
    captions = re.findall(r"(\S+), (\S+) r(\d) \(shaded", html.text)
    assert len(captions) == 14
    assert "mid_prefill_throughput_32k_c16" not in {case for case, _, _ in captions}
    assert {variant for _, variant, _ in captions} == {"baseline", "ubatch-64"}
    drawn = json.dumps(html.figures[:2])
    assert "mid_prefill_throughput_32k_c16" not in drawn
    assert "decode_throughput_1k_to_1k_c32" in drawn


def test_figures_are_what_plotly_takes(page):
    _, html = page
    assert len(html.figures) == 16
    for figure in html.figures:
        go.Figure(figure)


def test_length_pairs_have_symbols_and_single_points_are_labelled(page):
    _, html = page
    lines = [t for t in html.figures[0]["data"] if t["showlegend"]]
    symbols = {t["name"].partition(", ")[2]: t["marker"]["symbol"] for t in lines}
    assert len(set(symbols.values())) == len(symbols) > 2
    assert all(t["marker"]["symbol"] == symbols[t["name"].partition(", ")[2]] for t in lines)
    labels = [t["text"][0] for t in lines if "text" in t["mode"]]
    assert labels, "there is a length pair of one point"
    assert len(set(labels)) == len(labels), "written at the first variant's point only"
    for trace in lines:
        pair = trace["name"].partition(", ")[2]
        assert trace["text"] == [pair if "text" in trace["mode"] else ""] * len(trace["x"])


def test_names_break_after_underscores_and_slashes_only():
    assert breakable("a_b__c/d<e>") == "a_<wbr>b__<wbr>c/<wbr>d&lt;e&gt;"


def test_latency_points_end_in_the_tables_numbers(page):
    _, html = page
    latency = html.figures[1]
    assert latency["layout"]["xaxis"]["type"] == "log"
    trace = next(t for t in latency["data"] if t["name"] == "baseline")
    assert trace["x"][:4] == [pytest.approx(8.585, abs=0.01)] * 3 + [None]


def test_failures_have_reasons_and_the_servers_last_lines(page):
    markdown, html = page
    assert "error_share: 0.5, limit 0.01" in html.text
    assert "4 x http: 503 overloaded" in html.text
    assert "error: failed to open missing.gguf: No such file" in html.text
    assert "launch failed: the server exited with 1" in markdown
    assert "not measured" in markdown


def test_what_was_not_measured_is_said(page):
    markdown, _ = page
    rows = {r[0]: r[1] for r in rows_of(markdown, "Not measured")}
    assert rows["goodput and the SLO frontier"] == "the campaign declares no SLO"
    assert "one repeat" in rows["run-to-run noise"]
    assert "that servemap knows" in rows["the nodes' accelerators"]
    assert rows["check frozen\\_facts"] == "18 of 18 valid repeats: records of older versions"
    assert "check segments" not in rows
    assert any("profile of" in what for what in rows)


def test_stages_beside_the_cases(page):
    _, html = page
    for words in ("not available with this engine", "llama.cpp has no profiler", "32.80 Gbit/s",
                  "2 of 2", "tokens 1, ms 3.2", "read the log"):  # fmt: skip
        assert words in html.text


def test_environment_and_what_changed(page):
    markdown, html = page
    assert "6.1.0" in html.text
    assert "models: tiny.gguf" in html.text
    assert "10.1 MiB" in html.text
    assert "c" * 64 in html.text
    changed = [r for r in rows_of(markdown, "Environment") if "operstate" in r[1]]
    assert changed == [["head", "network.interfaces.eth0.operstate", "up", "down"]]


def test_what_the_servers_said_of_themselves(copy):
    run, rows = copy
    for variant, context in (("baseline", 8192), ("broken", None)):
        path = run / "server" / variant / "launch.json"
        launch = json.loads(path.read_text())
        launch["gate"] = {
            "checks": [{"name": "settings", "ok": None, "evidence": "not said: moe_backend"}],
            "effective": {"settings": {"cuda_graph": False, "context": context}},
            "memory": {"head": [{"rank": "TP0", "weights_bytes": 2**30, "kv_bytes": None}]},
        }
        write_json(path, launch)
    markdown, html = rendered(run, rows)
    assert re.search(r"\| baseline +\| settings +\| not known +\| not said", markdown)
    assert re.search(r"\| cuda\\_graph +\| False +\| .*False", markdown)
    assert re.search(r"\| context +\| 8192 +\|", markdown)
    assert re.search(r"\| baseline +\| head +\| TP0 +\| +1[.0]* GiB +\| +- \|", markdown)
    assert "Settings in force" in html.text


def test_hostile_text_stays_text(copy):
    run, rows = copy
    case = run / "cases/baseline/mid_prefill_throughput_32k_c16/r1"
    metrics = json.loads((case / "metrics.json").read_text())
    metrics["reasons"] = [ATTACK]
    metrics["errors"] = {ATTACK: 3}
    write_json(case / "metrics.json", metrics)
    launch = json.loads((run / "server/broken/launch.json").read_text())
    launch["log_tail"] = [ATTACK, "```", "# heading", "\x1b[31mred\x00"]
    write_json(run / "server/broken/launch.json", launch)
    manifest = json.loads((run / "run_manifest.json").read_text())
    manifest["campaign"]["title"] = ATTACK
    write_json(run / "run_manifest.json", manifest)
    hostile = "x" + ATTACK.replace("/", "\u2215")
    target = run / "cases" / hostile / "decode_latency_1k_to_1k_c1" / "r1"
    shutil.copytree(run / "cases/baseline/decode_latency_1k_to_1k_c1/r1", target)
    markdown, html = rendered(
        run, [*rows, {"variant": hostile, "case": "decode_latency_1k_to_1k_c1", "repeat": 1}]
    )
    assert not [a for _, a in html.tags if "onerror" in a]
    assert sum(tag == "script" for tag, _ in html.tags) == len(html.figures) + 2
    assert ATTACK in html.text
    prose = [line for line in markdown.splitlines() if not line.startswith("    ")]
    assert "<script" not in "\n".join(prose)
    assert "<img" not in "\n".join(prose)
    assert f"    {ATTACK}" in markdown
    assert len(html.figures) == 17
    names = [t.get("name", "") for figure in html.figures for t in figure["data"]]
    assert any("&lt;script&gt;" in name for name in names)
    assert not any("<script" in name for name in names)


def test_no_text_ends_a_script_element():
    value = {"a": [ATTACK, "<!--", "\u2028&"]}
    text = str(script_json(value))
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == value


@pytest.mark.parametrize(
    "name",
    [
        "run_manifest.json",
        "freeze/head.json",
        "snapshots/head-after.json",
        "baselines/loopback.json",
        "captures/baseline/decode_throughput_1k_to_1k_c16/capture.json",
        "server/baseline/launch.json",
        "server/ubatch-64/patches/head.json",
        "cases/baseline/decode_latency_1k_to_1k_c1/r1/meta.json",
        "cases/baseline/decode_latency_1k_to_1k_c1/r1/metrics.json",
        "cases/baseline/decode_latency_1k_to_1k_c1/r1/telemetry.parquet",
        "cases/baseline/decode_with_long_prefill/r1/requests.parquet",
    ],
)
@pytest.mark.parametrize("damage", ["gone", "cut", "other"])
def test_a_missing_or_damaged_file_is_a_line_not_a_crash(copy, name, damage):
    run, rows = copy
    path = run / name
    if damage == "gone":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.write_text('{"schema": 99, "results": 3}' if path.suffix == ".json" else "PAR1")
    _, html = rendered(run, rows)
    if path.suffix == ".json" and damage != "gone":
        assert name in html.text
        assert ("damaged" if damage == "cut" else "schema 99") in html.text
    if path.suffix == ".parquet":
        assert f"{name} is {'missing' if damage == 'gone' else 'damaged'}" in html.text
    if name.startswith(("run_manifest", "server/baseline")):
        assert f"{name}: {path.name}" in html.text


@pytest.mark.parametrize("content", ["[]", "null", '{"schema": 1}', '{"schema": 1, "results": 7,'
                         ' "patches": [1], "gate": [], "state": 3, "facts": "x", "campaign": [],'
                         ' "segments": {"a": 1}, "reasons": "text", "interference": [],'
                         ' "attempt": 1, "status": 5, "spec": [], "coverage": 3, "errors": [1]}'],
)  # fmt: skip
def test_records_of_another_shape(copy, content):
    run, rows = copy
    for path in run.rglob("*.json"):
        path.write_text(content)
    _, html = rendered(run, rows)
    assert "Summary" in html.text


def test_an_empty_folder_still_gives_a_report(tmp_path):
    run = tmp_path / "nothing"
    rows = [{"variant": "baseline", "case": "a", "repeat": 1}]
    markdown, html = rendered(run, rows)
    assert "run\\_manifest.json is missing" in markdown
    assert "No valid repeat: nothing is plotted." in html.text
    assert not html.figures
    assert not any("plotly.js v" in data for _, data in html.scripts)
    assert rendered(tmp_path / "none", [])


def test_a_partial_report_writes_no_declared_output(copy):
    run, rows = copy
    markdown, html = rendered(run, rows, partial=True)
    assert (run / "report/partial.md").exists()
    assert not (run / "report.md").exists()
    assert not (run / "report/index.html").exists()
    assert "Partial report" in html.text
    assert (
        "Partial report: of 21 planned repeats 19 measured, 1 tried but not run, "
        "1 not tried or interrupted." in markdown
    )


def test_simulated_results_are_labelled(copy):
    run, rows = copy
    path = run / "baselines/loopback.json"
    write_json(path, {**json.loads(path.read_text()), "simulated": True})
    markdown, html = rendered(run, rows)
    assert "Simulated, not measured: baseline loopback." in html.text
    assert "loopback (simulated)" in markdown


def change_json(path, **facts):
    write_json(path, {**json.loads(path.read_text()), **facts})


def two_nodes(run):
    """A second node with its own kernel, an ssh transport, and the same otherwise."""
    facts = json.loads((run / "freeze/head.json").read_text())
    facts["facts"].setdefault("python", {})["packages"] = {"torch": "2.4", "numpy": "1.26"}
    write_json(run / "freeze/head.json", facts)
    facts["facts"]["kernel"] = {"release": "6.9.9"}
    facts["facts"]["python"] = {**facts["facts"]["python"], "packages": {"torch": "2.5", "numpy": "1.26"}}  # fmt: skip  # noqa: E501
    write_json(run / "freeze/w1.json", {**facts, "node": "w1"})
    manifest = json.loads((run / "run_manifest.json").read_text())
    manifest["campaign"]["nodes"].append({"id": "w1", "role": "worker", "transport": "ssh"})
    write_json(run / "run_manifest.json", manifest)


def test_nodes_are_compared_by_what_differs_and_equal_facts_are_folded(copy):
    run, rows = copy
    two_nodes(run)
    markdown, html = rendered(run, rows)
    section = markdown.split("\n## Environment\n")[1]
    differs, same = section.split("the same on head, w1")[:2]
    assert "6.9.9" in differs
    assert "| python: torch" in section
    assert "| python: numpy" not in differs
    found = {r[0]: r[1:] for r in rows_of(markdown, "Environment")}
    assert found["python: torch"] == ["2.4", "2.5"]
    assert found["python: numpy"] == ["1.26"]
    assert "kernel.release" not in same
    assert sum(tag == "details" and "open" not in a for tag, a in html.tags) >= 2
    assert "On w1 it includes servemap's own ssh traffic" in markdown


def test_every_ranks_command_topology_and_url(copy):
    run, rows = copy
    ranks = [{"node": node, "rank": k, "argv": ["serve", "--rank", str(k)]}
             for k, node in enumerate(("head", "w1"))]  # fmt: skip
    spec = {"server": {"bind": "::1", "port": 18080, "master_port": 29500,
                       "topology": {"tp": 2, "dp": 1, "pp": 4, "ep": 1}}}  # fmt: skip
    change_json(run / "server/baseline/launch.json", ranks=ranks, spec=spec)
    attached = {"server": {"attach": "http://10.0.0.7:8000", "topology": {"tp": 1}}}
    change_json(run / "server/ubatch-64/launch.json", spec=attached)
    markdown, _ = rendered(run, rows)
    found = rows_of(markdown, "Server, gates and patches")
    assert ["baseline", "head", "0", "serve --rank 0"] in found
    assert ["baseline", "w1", "1", "serve --rank 1"] in found
    assert ["ubatch-64", "-", "-", "python -m llamaserve --model models/tiny.gguf"] in found
    launch = {r[0]: r[4:6] for r in found if len(r) == 7}
    assert launch["baseline"] == [
        "TP 2, PP 4, DP 1, EP 1", "http://\\[::1\\]:18080 (ranks meet at port 29500 of the head)",
    ]  # fmt: skip
    assert launch["ubatch-64"] == ["TP 1", "http://10.0.0.7:8000 (attached)"]
    assert launch["broken"] == ["-", "-"]


def test_what_the_processes_imported_of_patched_files_is_shown(copy):
    run, rows = copy
    item = {"pid": 7, "process": "worker", "module": "pack.mod", "file": "/x/pack/mod.py"}
    imports = {"head": [{**item, "sha256": "ab" * 32, "inherited": True}, "garbage"]}
    change_json(run / "server/baseline/launch.json", gate={"checks": [], "imports": imports})
    markdown, _ = rendered(run, rows)
    found = [r for r in rows_of(markdown, "Server, gates and patches") if r[-1].startswith("inher")]
    assert found == [
        ["baseline", "head", "worker (pid 7)", "pack.mod", "/x/pack/mod.py", "ab" * 6,
         "inherited by a fork"],
    ]  # fmt: skip


def test_the_paths_that_nccl_connected(copy):
    run, rows = copy
    seen = {
        "paths": [
            {"node": "head", "scope": "inter_node", "path": "NET/IB", "links": 4, "channels": 2,
             "devices": ["mlx5_0"], "unnamed": [3], "sends": 2, "gdr_send": 0, "receives": 2,
             "gdr_receive": 2},
            {"node": "head", "scope": "intra_node", "path": "P2P/CUMEM", "links": 6,
             "channels": 3, "devices": [], "unnamed": [], "sends": 6, "gdr_send": 0,
             "receives": 0, "gdr_receive": 0},
        ],
        "ranks": [{"node": "head", "rank": 0, "host": "gpu-a", "pid": 7, "gpu": 1,
                   "bus_id": "17000", "nics": ["mlx5_0", "mlx5_3"]}, "damaged"],
    }  # fmt: skip
    checks = [{"name": "transport", "ok": None, "evidence": "n/a: nothing is required"}]
    change_json(run / "server/baseline/launch.json", gate={"checks": checks, "transport": seen})
    change_json(run / "server/broken/launch.json", gate={"transport": {"paths": "damaged"}})
    markdown, _ = rendered(run, rows)
    found = rows_of(markdown, "Server, gates and patches")
    assert [r for r in found if r[0] == "baseline" and len(r) == 8][:2] == [
        ["baseline", "head", "between nodes", "NET/IB", "mlx5\\_0, device 3, not named", "4", "2",
         "0 of 2 sends, 2 of 2 receives"],
        ["baseline", "head", "within the node", "P2P/CUMEM", "-", "6", "3", "-"],
    ]  # fmt: skip
    assert ["baseline", "head", "0", "1", "17000", "mlx5\\_0, mlx5\\_3", "7"] in found
    assert ["baseline", "transport", "n/a", "n/a: nothing is required", "-"] in found
    facts = {r[0]: r[1] for r in rows_of(markdown, "Summary") if len(r) == 2}
    assert "not known" not in facts.get("Gates of the first starts", "")


def test_a_gate_that_is_not_known_is_no_failure_and_failures_are_counted(copy):
    run, rows = copy
    checks = [{"name": "clean_node", "ok": None, "evidence": "docker failed", "remedy": "ask it"},
              {"name": "ready", "ok": True, "evidence": "", "remedy": ""}]  # fmt: skip
    change_json(run / "server/baseline/launch.json", gate={"checks": checks})
    markdown, _ = rendered(run, rows)
    found = [r for r in rows_of(markdown, "Server, gates and patches") if len(r) == 5]
    assert found[1:3] == [
        ["baseline", "clean\\_node", "not known", "docker failed", "ask it"],
        ["baseline", "ready", "pass", "-", "-"],
    ]
    facts = {r[0]: r[1] for r in rows_of(markdown, "Summary") if len(r) == 2}
    assert facts["Gates of the first starts"] == (
        "3 passed, 1 failed (process alive of broken), 1 not known (clean\\_node of baseline)"
    )
    assert "Failed gates: 1; see the section on the server." in markdown.split("## Cases")[0]
    assert facts["Load client runs on"] == "head"


def test_the_load_node_and_adopted_cases_are_named(copy):
    run, rows = copy
    manifest = json.loads((run / "run_manifest.json").read_text())
    manifest["campaign"]["load_node"] = "loader"
    write_json(run / "run_manifest.json", manifest)
    change_json(run / "cases/baseline/decode_latency_1k_to_1k_c1/r1/meta.json", adopted=True)
    markdown, _ = rendered(run, rows)
    top = markdown.split("## Cases")[0]
    assert re.search(r"Load client runs on +\| loader", top)
    assert "Adopted: baseline/decode\\_latency\\_1k\\_to\\_1k\\_c1 r1." in top


def test_what_is_planned_and_not_there_yet_is_not_called_unplanned(copy):
    run, rows = copy
    shutil.rmtree(run / "captures")
    shutil.rmtree(run / "baselines")
    said = rendered(run, rows)[0]
    assert "No capture was planned or taken." in said
    assert "No baseline was planned or measured." in said
    manifest = json.loads((run / "run_manifest.json").read_text())
    manifest["campaign"]["phases"] = [
        {"id": "phase0", "baselines": ["net"]}, {"id": "phase4", "captures": [{"case": "a"}]},
    ]  # fmt: skip
    write_json(run / "run_manifest.json", manifest)
    said = rendered(run, rows)[0]
    assert "Planned, not taken so far: a." in said
    assert "Planned, not measured so far: net." in said


def test_the_load_before_a_baseline(copy):
    run, rows = copy
    change_json(run / "baselines/loopback.json", load_before={"head": "1.50 0.2 0.1", "w1": None})
    (row,) = [r for r in rows_of(rendered(run, rows)[0], "Communication baselines") if r[0] != "Baseline"]  # fmt: skip  # noqa: E501
    assert row[-2] == "head 1.50"


def test_an_error_in_a_cell_has_its_place_and_remedy_once_in_the_second_line(copy):
    run, rows = copy
    inner = "cannot change files\n  where: w1:/srv\n  remedy: let the user write"
    reason = f"launch failed: {inner}\n  where: w1:/srv\n  remedy: let the user write"
    change_json(run / "server/broken/launch.json", reasons=[reason])
    markdown, _ = rendered(run, rows)
    found = [r[-1] for r in rows_of(markdown, "Server, gates and patches") if r[0] == "broken"]
    assert found[0] == (
        "launch failed: cannot change files (at w1:/srv; to do: let the user write)"
    )


def test_two_repeats_have_no_interval():
    row = {"a_mean": 10.0, "a_n": 2, "a_ci95_low": -117.0, "a_ci95_high": 137.0}
    assert repeats._mean_and_interval(row, "a") == ("10", "", "")
    three = {**row, "a_n": 3}
    assert repeats._mean_and_interval(three, "a").note == "too few repeats for this spread"
    assert repeats._mean_and_interval({**three, "a_ci95_low": 7.0}, "a").note == "7 to 137"


def test_an_interval_that_reaches_below_0_is_no_bar():
    row = {"a_mean": 10.0, "a_n": 3, "a_ci95_low": 4.0, "a_ci95_high": 16.0}
    wide = {**row, "a_ci95_low": -5.0, "a_ci95_high": 25.0}
    assert plots._half_widths([row, wide], "a")["array"] == [6.0, None]
    assert plots._half_widths([wide], "a")["visible"] is False


def test_no_difference_says_when_before_and_when_after(copy):
    run, rows = copy
    before = json.loads((run / "snapshots/head-before.json").read_text())
    write_json(run / "snapshots/head-after.json", {**before, "taken_ns": 1_700_000_000_000_000_000})
    write_json(run / "snapshots/head-before.json", {**before, "taken_ns": 1_600_000_000_000_000_000})  # fmt: skip  # noqa: E501
    (row,) = [r for r in rows_of(rendered(run, rows)[0], "Environment") if "no difference" in r]
    assert row[2].startswith("2020-09-13")
    assert row[3].startswith("2023-11-14")


def test_names_of_many_lines_are_broken_into_rows_above_their_panel():
    names = [f"{node} eth0 {way}" for node in ("head", "worker") for way in ("in", "out")]
    lines = [plots.Series(name, [0.0], [1.0]) for name in names]
    title, *rows = plots._title("Network", lines).split("<br>")
    assert title == "Network"
    shown = [re.sub("<[^>]+>", "", row) for row in rows]
    assert " ".join(shown).split(" ") == " ".join(names).split(" ")
    assert len(shown) > 1
    assert max(map(len, shown)) <= plots._PANEL_CHARS
    assert plots._title("Network", lines[:1]) == "Network"

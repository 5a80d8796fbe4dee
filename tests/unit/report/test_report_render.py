import json
import re
import shutil
from html.parser import HTMLParser

import plotly.graph_objects as go
import pytest
from runbuilder import write_json

from servemap.report import results
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


def test_nodes_stand_side_by_side_with_their_clocks(copy):
    run, rows = copy
    manifest = json.loads((run / "run_manifest.json").read_text())
    manifest["campaign"]["nodes"].append(
        {"id": "w1", "role": "worker", "transport": "ssh", "address": "10.0.0.2"}
    )
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
    assert row[4] == "none", "no facts of it were frozen"
    assert row[5:] == ["-1.25", "0.12", "7.00", "1"]


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
    wanted = ["summary", "cases", "plots", "repeats", "interference", "telemetry", "baselines",
              "captures", "server", "failures", "not-measured", "environment", "definitions",
              "problems"]  # fmt: skip
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


def test_a_change_against_a_single_measurement_has_no_colour(page):
    """The variant was measured once: 10 % less may be noise, and the summary says so."""
    markdown, html = page
    tones = {(text, kind.removeprefix("number ")) for kind, text in html.cells}
    assert ("1,821", "") in tones
    assert ("2,024", "") in tones
    assert "rest on a single measurement" in markdown.split("## Cases")[0]


@pytest.mark.parametrize(
    ("value", "cv", "tone"),
    [(90.0, 0.02, "bad"), (110.0, 0.02, "good"), (97.0, 0.02, ""), (90.0, 0.06, "")],
)
def test_a_change_is_coloured_beyond_twice_the_spread_of_the_repeats(value, cv, tone):
    base = {"tps_mean": 100.0, "tps_cv": 0.01}
    assert results._figure({"tps_mean": value, "tps_cv": cv}, base, "tps", True).tone == tone
    assert results._figure({"tps_mean": value, "tps_cv": None}, base, "tps", True).tone == ""


def test_repeats_show_their_spread(page):
    markdown, _ = page
    row = rows_of(markdown, "Repeats")[1]
    assert row[1:3] == ["baseline", "3/3"]
    assert row[4] == "2.0 %"


def test_interference(page):
    markdown, _ = page
    rows = rows_of(markdown, "Mixed interference")
    assert "10 → 13 (+30.00 %)" in rows[1]
    assert [r[3] for r in rows if len(r) == 9] == [
        "Gaps that", "overlaps injection", "steady", "overlaps injection", "steady",
    ]  # fmt: skip


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
    assert rows["accelerator telemetry"] == "no accelerator was found on the nodes"
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
    assert re.search(r"\| baseline +\| settings +\| no answer +\| not said", markdown)
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
    assert "19 of 21 planned repeats were tried" in markdown


def test_simulated_results_are_labelled(copy):
    run, rows = copy
    path = run / "baselines/loopback.json"
    write_json(path, {**json.loads(path.read_text()), "simulated": True})
    markdown, html = rendered(run, rows)
    assert "Simulated, not measured: baseline loopback." in html.text
    assert "loopback (simulated)" in markdown

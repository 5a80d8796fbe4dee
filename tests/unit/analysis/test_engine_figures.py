"""What an engine tells of a segment by its own counters and histograms."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runbuilder import MS, T0, S, build_repeat, scrape_line

from servemap.analysis.derive import derive_attempt
from servemap.analysis.engine_figures import engine_figures, quantile
from servemap.model.canon import write_json_atomic
from servemap.telemetry.align import Segment
from tests.plain_align import AlignedRow, as_series

MAIN = Segment("main", T0, T0 + 2 * S)
INF = float("inf")
RECORDED = Path(__file__).parent / "recorded"


def vllm(k, engines=1, speculative=True):
    """Exposition of scrape k: each engine took k requests, of 0.1 s in the queue each."""
    lines = []
    for engine in range(engines):
        label = f'engine="{engine}",model_name="m"'
        for name, each in (("queue", 0.1), ("prefill", 0.2), ("decode", 0.4)):
            metric = f"vllm:request_{name}_time_seconds"
            for bound in ("0.3", "0.5", "+Inf"):
                inside = bound == "+Inf" or each <= float(bound)
                lines.append(f'{metric}_bucket{{{label},le="{bound}"}} {k if inside else 0}')
            lines += [f"{metric}_sum{{{label}}} {each * k}", f"{metric}_count{{{label}}} {k}"]
        lines.append(f"vllm:iteration_tokens_total_count{{{label}}} {10 * k}")
        if speculative:
            lines += [
                f"vllm:spec_decode_num_drafts_total{{{label}}} {8 * k}",
                f"vllm:spec_decode_num_draft_tokens_total{{{label}}} {24 * k}",
                f"vllm:spec_decode_num_accepted_tokens_total{{{label}}} {12 * k}",
            ]
    return "\n".join(lines) + "\n"


def write(folder, bodies, start_ms=-500):
    path = folder / "telemetry/head/engine_metrics.jsonl"
    path.parent.mkdir(parents=True)
    lines = [{**scrape_line(k, start_ms=start_ms), "text": body} for k, body in enumerate(bodies)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder / "telemetry"


def test_differences_between_the_scrapes_inside_the_segment(tmp_path):
    """Scrapes 1 to 5 lie inside, 2 s apart; what 0 and 6 add is not the segment's."""
    folder = write(tmp_path, [vllm(k) for k in range(7)])
    found = engine_figures(folder, "vllm", [MAIN], {}, [])["main"]
    assert (found["source"], found["span_s"]) == ("engine", 2.0)
    assert found["queue_time_s"]["n"] == 4
    assert found["queue_time_s"]["mean"] == pytest.approx(0.1)
    assert found["prefill_time_s"]["mean"] == pytest.approx(0.2)
    assert found["decode_time_s"]["mean"] == pytest.approx(0.4)
    assert found["queue_time_s"]["at_most"]["p50"] == pytest.approx(0.2)
    assert found["queue_time_s"]["estimated"]["p50"] == pytest.approx(0.1)
    assert found["decode_time_s"]["at_least"]["p50"] == pytest.approx(0.3)
    assert found["decode_time_s"]["estimated"]["p50"] == pytest.approx(0.4)
    assert found["speculative"] == {
        "drafts": 32,
        "draft_tokens": 96,
        "draft_tokens_per_s": 48.0,
        "accepted_tokens": 48,
        "accept_rate": 0.5,
        "mean_accept_length": 2.5,
        "from_gauges": False,
        "target_forward_rate": 20.0,
    }


def test_engines_of_one_server_are_added_up(tmp_path):
    folder = write(tmp_path, [vllm(k, engines=3) for k in range(7)])
    found = engine_figures(folder, "vllm", [MAIN], {}, [])["main"]
    assert found["queue_time_s"]["n"] == 12
    assert found["speculative"]["accept_rate"] == 0.5
    assert found["steps_per_s"] == 60.0


def test_without_speculation_there_is_none_of_its_figures(tmp_path):
    folder = write(tmp_path, [vllm(k, speculative=False) for k in range(7)])
    found = engine_figures(folder, "vllm", [MAIN], {}, [])["main"]
    assert "speculative" not in found


def test_a_segment_with_less_than_two_scrapes_has_no_figures(tmp_path):
    folder = write(tmp_path, [vllm(k) for k in range(7)])
    short = Segment("main", T0 + 10 * MS, T0 + 510 * MS)
    assert engine_figures(folder, "vllm", [short], {}, []) == {}


def test_counters_that_ran_backwards_are_missing(tmp_path):
    folder = write(tmp_path, [vllm(k) for k in (5, 5, 4, 3, 2, 1, 0)])
    assert engine_figures(folder, "vllm", [MAIN], {}, []) == {}


@pytest.mark.parametrize("bodies", [["# nothing\n"] * 7, ["garbage {{{ 1\n"] * 7, [None] * 7])
def test_what_says_nothing_gives_nothing(tmp_path, bodies):
    folder = write(tmp_path, bodies)
    assert engine_figures(folder, "vllm", [MAIN], {}, []) == {}
    assert engine_figures(folder, "llamacpp", [MAIN], {}, []) == {}
    assert engine_figures(tmp_path / "nowhere", "vllm", [MAIN], {}, []) == {}


def test_sglang_tells_its_acceptance_by_gauges_only(tmp_path):
    body = 'sglang:queue_time_seconds_sum{{tp_rank="0"}} {k}\nsglang:queue_time_seconds_count {k}\n'
    folder = write(tmp_path, [body.format(k=k) for k in range(7)])

    def row(metric, value, inside=True):
        return AlignedRow(
            "head", "engine_metrics", "server", metric, "count", T0, value, "main", inside
        )

    rows = [
        row("sglang:spec_accept_length", 2.0),
        row("sglang:spec_accept_length", 3.0),
        row("sglang:spec_accept_length", 9.0, inside=False),
        row("sglang:spec_accept_rate", 0.4),
    ]
    found = engine_figures(folder, "sglang", [MAIN], {}, as_series(rows))["main"]
    assert found["queue_time_s"]["mean"] == 1.0
    assert found["speculative"]["mean_accept_length"] == 2.5
    assert found["speculative"]["accept_rate"] == 0.4
    assert found["speculative"]["from_gauges"] is True
    idle = [row("sglang:spec_accept_length", 0.0), row("sglang:spec_accept_rate", 0.0)]
    assert (
        "speculative" not in engine_figures(folder, "sglang", [MAIN], {}, as_series(idle))["main"]
    )


def recorded(tmp_path, name, start_ns, end_ns):
    """What vLLM 0.32.0 (CPU) exposed around a case with n-gram drafts of three tokens.

    Cut to some metrics and to the scrapes next to the edges of the segment.
    """
    path = tmp_path / "telemetry/local/engine_metrics.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text((RECORDED / f"vllm_0.32.0_{name}.jsonl").read_text())
    segment = Segment("main", start_ns, end_ns)
    return engine_figures(tmp_path / "telemetry", "vllm", [segment], {}, [])["main"]


def test_drafts_of_a_real_engine(tmp_path):
    """Answers that repeat, four at once; the differences were taken by hand from the recording."""
    found = recorded(tmp_path, "ngram_decode", 1796003747999133201, 1796003753173159095)
    assert found["span_s"] == pytest.approx(5.000442, abs=1e-6)
    assert found["steps_per_s"] == pytest.approx(524 / 5.000442)
    assert found["speculative"] == {
        "drafts": 1993,
        "draft_tokens": 5954,
        "draft_tokens_per_s": pytest.approx(5954 / 5.000442),
        "accepted_tokens": 5952,
        "accept_rate": pytest.approx(5952 / 5954),
        "mean_accept_length": pytest.approx(1 + 5952 / 1993),
        "from_gauges": False,
        "target_forward_rate": found["steps_per_s"],
    }
    # What the server's log said of five seconds that begin within a second of these: "Mean
    # acceptance length: 3.98, ... Drafted throughput: 1180.84 tokens/s, Accepted: 5902 tokens,
    # Drafted: 5904 tokens, ... Avg Draft acceptance rate: 100.0%".
    assert found["speculative"]["mean_accept_length"] == pytest.approx(3.98, abs=0.01)
    assert found["speculative"]["draft_tokens_per_s"] == pytest.approx(1180.84, rel=0.02)
    assert found["speculative"]["accept_rate"] == pytest.approx(5902 / 5904, abs=0.001)


def test_queue_time_of_a_real_engine_is_what_clients_wait_for(tmp_path):
    """Sixteen at once on a server that takes four, against four at once on the same."""
    found = recorded(tmp_path, "ngram_queue", 1796003768078009783, 1796003774163778147)
    assert found["queue_time_s"]["n"] == 112
    assert found["queue_time_s"]["mean"] == pytest.approx(0.540125, abs=1e-6)
    assert found["queue_time_s"]["at_least"]["p90"] == 0.5
    assert found["queue_time_s"]["at_most"]["p90"] == 0.8
    client_ttft_s = {4: 0.045489, 16: 0.575498}
    waited_s = client_ttft_s[16] - client_ttft_s[4]
    assert found["queue_time_s"]["mean"] == pytest.approx(waited_s, rel=0.03)


def test_an_engine_that_drafted_nothing_says_so(tmp_path):
    """Answers at random: no five tokens came twice, so there was nothing to draft from."""
    found = recorded(tmp_path, "ngram_no_drafts", 1796003325945890362, 1796003340801613416)
    speculative = found["speculative"]
    assert (speculative["drafts"], speculative["draft_tokens"]) == (0, 0)
    assert (speculative["accept_rate"], speculative["mean_accept_length"]) == (None, None)
    assert speculative["from_gauges"] is False
    assert speculative["target_forward_rate"] == pytest.approx(135.266, abs=1e-3)


@pytest.mark.parametrize(
    ("share", "least", "most", "estimate"),
    [
        (0.25, 0.0, 1.0, 0.5),
        (0.5, 0.0, 1.0, 1.0),
        (0.625, 1.0, 3.0, 2.0),
        (0.9, 3.0, 15.0, 3.0 + 12 * 0.6),
    ],
)
def test_a_quantile_lies_within_its_bucket(share, least, most, estimate):
    """Four values up to 1, two up to 3, two above, where only their mean is a bound."""
    found = quantile([(1.0, 4.0), (3.0, 6.0), (INF, 8.0)], share, 1.5)
    assert found == (pytest.approx(least), pytest.approx(most), pytest.approx(estimate))


def test_a_bucket_far_above_all_values_tells_nothing_that_the_mean_knows_better():
    """As vLLM's first bucket, 0.3 s, around a queue time of 0.02 ms."""
    found = quantile([(0.3, 8.0), (INF, 8.0)], 0.9, 0.02e-3)
    assert found.at_most == pytest.approx(0.2e-3)
    assert found.estimate <= found.at_most


@pytest.mark.parametrize("buckets", [[], [(1.0, 3.0)], [(1.0, 3.0), (INF, 2.0)], [(INF, 0.0)]])
def test_what_is_no_histogram_has_no_quantile(buckets):
    assert quantile(buckets, 0.5, 1.0) is None


@given(
    st.lists(st.floats(0.001, 30), min_size=1, max_size=40), st.sampled_from([1, 10, 50, 90, 99])
)
def test_the_bounds_hold_the_true_quantile(values, point):
    bounds = np.arange(1, 11).astype(float)
    counts = [float(sum(v <= bound for v in values)) for bound in bounds]
    buckets = [*zip(bounds, counts, strict=True), (INF, float(len(values)))]
    found = quantile(buckets, point / 100, float(np.mean(values)))
    exact = np.percentile(values, point, method="inverted_cdf")
    assert found is not None
    assert found.at_least - 1e-9 <= exact <= found.at_most + 1e-9
    assert found.at_least <= found.estimate <= found.at_most


def test_derived_figures_hold_those_of_the_engine(tmp_path):
    lines = [{**scrape_line(k), "text": vllm(k)} for k in range(7)]
    telemetry = {"engine_metrics": lines}
    folder = build_repeat(tmp_path / "run", telemetry=telemetry)
    meta = json.loads((folder / "meta.json").read_text())
    write_json_atomic(folder / "meta.json", {**meta, "server": {"engine": "vllm"}})
    derive_attempt(folder, {})
    (segment,) = json.loads((folder / "metrics.json").read_text())["segments"]
    assert segment["engine"]["queue_time_s"]["n"] == 4

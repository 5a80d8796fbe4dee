import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.parsers.jsonl import JsonLine
from servemap.parsers.prometheus import parse_exposition, parse_scrapes
from tests.samples import samples

S = 1_000_000_000

TEXT = """\
# HELP vllm:num_requests_running Running.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 2.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} NaN
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="tiny"} 100.0
vllm:generation_tokens_created{engine="0",model_name="tiny"} 1.7e+09
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_sum{engine="0",model_name="tiny"} 3.5
vllm:time_to_first_token_seconds_bucket{engine="0",le="0.1",model_name="tiny"} 4.0
vllm:time_to_first_token_seconds_bucket{engine="0",le="+Inf",model_name="tiny"} 5.0
vllm:time_to_first_token_seconds_count{engine="0",model_name="tiny"} 5.0
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16"} 1.0
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 8.0
"""
ENGINE = 'server{engine="0"}'


def scrape(second, body, **changes):
    return {"t_ns": (1000 + second) * S, "mono_ns": second * S, "ms": 1, "text": body, **changes}


def parse(*records, interval=1.0):
    return parse_scrapes([JsonLine(n, r) for n, r in enumerate(records, 1)], interval)


def test_gauges_counters_and_histogram_totals():
    gauges, counters = parse_exposition(TEXT)
    assert gauges == {(ENGINE, "vllm:num_requests_running"): 2.0}
    assert counters == {
        (ENGINE, "vllm:generation_tokens_total"): 100.0,
        (ENGINE, "vllm:time_to_first_token_seconds_sum"): 3.5,
        (ENGINE, "vllm:time_to_first_token_seconds_count"): 5.0,
    }


def test_quantiles_of_a_summary_are_no_counters():
    text = '# TYPE s summary\ns{quantile="0.99"} 7\ns_sum 30\ns_count 10\n'
    gauges, counters = parse_exposition(text)
    assert gauges == {}
    assert counters == {("server", "s_sum"): 30.0, ("server", "s_count"): 10.0}


def test_two_served_models_stay_apart():
    text = '# TYPE g gauge\ng{model_name="a"} 1\ng{model_name="b"} 2\n'
    gauges, _ = parse_exposition(text)
    assert gauges == {
        ('server{model_name="a"}', "g"): 1.0,
        ('server{model_name="b"}', "g"): 2.0,
    }


def of_models(**values):
    lines = [f'c_total{{model_name="{name}"}} {value}\n' for name, value in values.items()]
    return "# TYPE c counter\n" + "".join(lines)


def rates(*pages):
    parsed = parse(*(scrape(k, page) for k, page in enumerate(pages)))
    return [(s.t_ns // S - 1000, s.entity, s.value) for s in samples(parsed)]


def test_models_whose_order_flips_are_not_mixed():
    a, b = 'server{model_name="a"}', 'server{model_name="b"}'
    found = rates(of_models(a=10**6, b=0), of_models(b=10, a=10**6 + 20))
    assert sorted(found) == [(1, a, 20.0), (1, b, 10.0)]


def test_a_model_that_comes_late_has_no_rate_with_another():
    a, b = 'server{model_name="a"}', 'server{model_name="b"}'
    found = rates(of_models(b=5), of_models(a=1000, b=10), of_models(a=1001))
    assert sorted(found) == [(1, b, 5.0), (2, a, 1.0)]
    assert rates(of_models(a=5), of_models(b=1000)) == []


def test_labels_of_one_model_are_left_out():
    assert rates(of_models(a=5), of_models(a=8)) == [(1, "server", 3.0)]


def test_tokens_per_second_are_no_seconds():
    page = "".join(
        f"# HELP llamacpp:{name} Average throughput in tokens/s\n# TYPE llamacpp:{name} gauge\n"
        f"llamacpp:{name} 2548\n"
        for name in ("prompt_tokens_seconds", "predicted_tokens_seconds")
    )
    assert {s.unit for s in samples(parse(scrape(0, page)))} == {"tokens_per_s"}


def test_a_largest_value_is_no_count_and_a_share_of_the_whole_is_a_ratio():
    page = (
        "# TYPE llamacpp:n_tokens_max counter\nllamacpp:n_tokens_max {}\n"
        "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc 0.25\n"
    )
    found = samples(parse(scrape(0, page.format(40)), scrape(1, page.format(90))))
    told = {(s.metric.removesuffix("_total"), s.unit, s.value) for s in found}
    assert told == {
        ("llamacpp:n_tokens_max", "count", 40), ("llamacpp:n_tokens_max", "count", 90),
        ("vllm:kv_cache_usage_perc", "ratio", 0.25),
    }  # fmt: skip


@pytest.mark.parametrize("page", ["", "# TYPE c counter\n", "python_x 1\n", "c_total NaN\n"])
def test_a_page_without_values_is_no_delivery(page):
    parsed = parse(scrape(0, page))
    assert parsed.times_ns == []
    assert [one.reason for one in parsed.skipped] == ["not an exposition: no series with a value"]


def test_counters_become_rates_that_end_with_their_interval():
    later = TEXT.replace(
        '_total{engine="0",model_name="tiny"} 100.0', '_total{engine="0",model_name="tiny"} 150.0'
    )
    parsed = parse(scrape(0, TEXT), scrape(2, later))
    rates = {s.metric: s for s in samples(parsed) if s.unit == "per_s"}
    tokens = rates["vllm:generation_tokens_total"]
    assert (tokens.value, tokens.from_ns, tokens.t_ns) == (25.0, 1000 * S, 1002 * S)
    running = [s.value for s in samples(parsed) if s.metric == "vllm:num_requests_running"]
    assert running == [2.0, 2.0]


def test_a_broken_scrape_is_skipped_and_the_rate_spans_it():
    body = "# TYPE c counter\nc_total {}\n"
    parsed = parse(
        scrape(0, body.format(0)),
        scrape(1, "c_total{oops 1\n"),
        {"t_ns": 1002 * S, "mono_ns": 2 * S, "error": "Connection refused"},
        scrape(3, "<html>502</html>"),
        scrape(4, body.format(40)),
    )
    assert [s.line for s in parsed.skipped] == [2, 3, 4]
    assert "Connection refused" in parsed.skipped[1].reason
    assert [s.value for s in samples(parsed) if s.unit == "per_s"] == [10.0]
    assert parsed.times_ns == [1000 * S, 1004 * S]


def test_a_restarted_server_gives_no_negative_rate():
    body = "# TYPE c counter\nc_total {}\n"
    parsed = parse(*(scrape(k, body.format(v)) for k, v in enumerate((100, 5, 25))))
    assert [s.value for s in samples(parsed)] == [20.0]


@pytest.mark.parametrize("record", [{}, {"t_ns": 1, "mono_ns": "x", "text": ""}])
def test_a_scrape_without_times_is_skipped(record):
    assert len(parse(record).skipped) == 1


@given(st.text(max_size=200))
def test_no_text_breaks_the_parser(body):
    parsed = parse(scrape(0, body))
    assert len(parsed.times_ns) + len(parsed.skipped) == 1


@given(st.floats(allow_nan=True, allow_infinity=True))
def test_a_gauge_is_its_value_or_missing(value):
    gauges, _ = parse_exposition(f"# TYPE g gauge\ng {value!r}\n")
    expected = {("server", "g"): value} if abs(value) < float("inf") else {}
    assert gauges == expected


def test_a_value_beyond_any_float_is_missing_and_the_page_is_not():
    page = f"# TYPE g gauge\ng {10**400}\nh 2\n"
    for parsed in (parse(scrape(0, page)), parse(scrape(0, page.replace(str(10**400), "1")),
                                                 scrape(1, page))):  # fmt: skip
        assert [s.value for s in samples(parsed)][-1] == 2
        assert parsed.skipped == []

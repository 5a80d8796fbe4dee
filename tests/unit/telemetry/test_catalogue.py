import pytest

from servemap.model.errors import ConfigError
from servemap.parsers.proc import NET_FIELDS
from servemap.telemetry.catalogue import (
    catalogue,
    engine_metrics,
    families,
    family_of,
    parse_catalogue,
)

ENTRY = """
schema: 1
collectors:
  x: {kind: proc, interval_s: 1, parser: proc, required: false, families: {}}
"""


def test_the_shipped_table():
    assert {"proc", "engine_metrics"} <= set(catalogue())
    assert families() == (
        *("cpu", "memory", "network", "server_processes"),
        *("engine_queue", "engine_cache", "engine"),
        *("gpu", "gpu_memory", "power", "clocks", "gpu_processes", "dcgm"),
        *("pressure", "rails", "hca_errors"),
    )


@pytest.mark.parametrize(
    ("collector", "metric", "family"),
    [
        ("proc", "cpu_util", "cpu"),
        ("proc", "proc_rss", "server_processes"),
        ("engine_metrics", "llamacpp:requests_processing", "engine_queue"),
        ("engine_metrics", "vllm:request_queue_time_seconds_sum", "engine_queue"),
        ("engine_metrics", "vllm:generation_tokens_total", "engine"),
        ("nvidia_smi", "gpu_slowed", "clocks"),
        ("hca", "hca_tx", "rails"),
        ("proc", "unheard_of", None),
        ("unheard_of", "cpu_util", None),
    ],
)
def test_family_of(collector, metric, family):
    assert family_of(collector, metric) == family


def test_every_network_rate_has_a_table_and_the_unit_it_says():
    units = {m.metric: m.unit for m in catalogue()["proc"].families["network"]}
    assert units == dict(NET_FIELDS)


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        ("kind: proc", "kind: magic", "magic"),
        ("interval_s: 1", "interval_s: 0", "interval_s"),
        ("interval_s: 1", "interval_s: fast", "fast"),
        ("required: false", "required: false, colour: red", "colour"),
        ("schema: 1", "schema: 2", "schema 1"),
    ],
)
def test_a_wrong_entry_is_named(before, after, word):
    with pytest.raises(ConfigError, match=word):
        parse_catalogue(ENTRY.replace(before, after))


COMMAND = """
schema: 1
words: {on: {yes_: 1}}
collectors:
  x: {kind: command, interval_s: 1, least_interval_s: 1, argv: [t, "{interval_ms}"],
      otherwise: [[t, -d, "{interval_s}"]], probe: [t], remedy: buy one, parser: dcgmi-dmon,
      entity: "{entity}{id}", required: false,
      families: {f: [{metric: m, unit: u, fields: [a, b], words: on, what: w}]}}
"""


def test_a_tool_is_asked_at_an_interval_that_it_knows() -> None:
    tool = parse_catalogue(COMMAND)["x"].tool
    assert tool is not None
    assert [tool.possible_s(s) for s in (0.2, 1.0, 1.2)] == [1.0, 1.0, 2.0]
    assert tool.commands(2.0) == [["t", "2000"], ["t", "-d", "2"]]
    milliseconds = catalogue()["nvidia_smi"].tool
    assert milliseconds is not None
    assert [milliseconds.possible_s(s) for s in (0.01, 0.25)] == [0.1, 0.25]


def test_a_parser_must_fit_how_a_collector_runs() -> None:
    for wrong in ("nccl-log", "pressure"):
        with pytest.raises(ConfigError, match=f"{wrong}.*dcgmi-dmon"):
            parse_catalogue(COMMAND.replace("dcgmi-dmon", wrong))
    with pytest.raises(ConfigError, match="argv"):
        parse_catalogue(COMMAND.replace("kind: command", "kind: files"))


def test_what_is_read_has_a_table_and_a_unit() -> None:
    for collector in catalogue().values():
        if collector.reading is None:
            continue
        metrics = [m for family in collector.families.values() for m in family]
        assert [(m.metric, m.unit) for m in metrics] == [
            (f.metric, f.unit) for f in collector.reading.fields
        ]
        assert not collector.required
        for field in collector.reading.fields:
            assert not field.counter or field.unit.endswith(("per_s", "percent"))


def test_engines_name_what_they_have_in_common():
    assert engine_metrics()["vllm"].running == "vllm:num_requests_running"
    for engine in engine_metrics().values():
        assert engine.cache_queries
        for name in (engine.running, engine.waiting):
            assert family_of("engine_metrics", name) == "engine_queue"
        cache = {engine.cache_hits, *engine.cache_queries, engine.preemptions} - {None}
        assert {family_of("engine_metrics", name) for name in cache} == {"engine_cache"}

import re
from pathlib import Path

import pytest

from servemap.measure.collect import watching_case
from servemap.model.cases import FixedCase
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
  x: {kind: proc, interval_s: 1, parser: proc, required: false, missing: never, families: {}}
"""


def test_the_shipped_table():
    assert {"proc", "engine_metrics"} <= set(catalogue())
    assert families() == (
        *("cpu", "hot_cores", "memory", "network", "server_processes"),
        *("engine_queue", "engine_cache", "engine"),
        *("gpu", "gpu_memory", "power", "clocks", "gpu_processes", "dcgm"),
        *("pressure", "rails", "hca_errors", "perf", "numa", "tcp", "ethtool", "declared"),
    )


@pytest.mark.parametrize(
    ("collector", "metric", "entity", "family"),
    [
        ("proc", "cpu_util", "cpu_all", "cpu"),
        ("proc", "cpu_util", "cpu12", "hot_cores"),
        ("mpstat", "cpu_softirq", "cpuall", "cpu"),
        ("mpstat", "cpu_softirq", "cpu3", "hot_cores"),
        ("proc", "proc_rss", "server", "server_processes"),
        ("engine_metrics", "llamacpp:requests_processing", "engine", "engine_queue"),
        ("engine_metrics", "vllm:request_queue_time_seconds_sum", "engine", "engine_queue"),
        ("engine_metrics", "vllm:generation_tokens_total", "engine", "engine"),
        ("nvidia_smi", "gpu_slowed", "gpu0", "clocks"),
        ("hca", "hca_tx", "mlx5_0:1", "rails"),
        ("ethtool", "eth_rx_discards_phy", "eth0", "ethtool"),
        ("rdma_statistic", "rdma_out_of_sequence", "mlx5_0:1", "hca_errors"),
        ("proc", "unheard_of", "x", None),
        ("of_a_campaign", "gpu_power", "card0", "power"),
        ("of_a_campaign", "unheard_of", "card0", "declared"),
    ],
)
def test_family_of(collector, metric, entity, family):
    assert family_of(collector, metric, entity) == family


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
      entity: "{entity}{id}", required: false, missing: never,
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
    with pytest.raises(ConfigError, match=r"nccl-log.*dcgmi-dmon"):
        parse_catalogue(COMMAND.replace("dcgmi-dmon", "nccl-log"))
    polled = COMMAND.replace("kind: command", "kind: poll").replace(
        'otherwise: [[t, -d, "{interval_s}"]], ', ""
    )
    with pytest.raises(ConfigError, match=r"dcgmi-dmon.*pressure"):
        parse_catalogue(polled)
    with pytest.raises(ConfigError, match="argv"):
        parse_catalogue(COMMAND.replace("kind: command", "kind: files"))


def test_what_is_read_has_a_table_and_a_unit() -> None:
    for collector in catalogue().values():
        if collector.reading is None:
            continue
        metrics = [m for family in collector.families.values() for m in family]
        # A table may show of some entities what another one shows of others.
        assert {(m.metric, m.unit) for m in metrics} == {
            (f.metric, f.unit) for f in collector.reading.fields
        }
        assert not collector.required
        assert collector.kind == "log" or collector.probe is not None
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


def test_the_page_of_collectors_has_them_all_as_they_are() -> None:
    page = Path(__file__).parents[3] / "docs/collectors.md"
    rows = re.findall(
        r"^\| `(\w+)` \| .+ \| ([\d.]+) \| ([\d.]+|–) \| (yes|no) \| ([\w` -]+) \| (.+) \|$",
        page.read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert {name for name, *_ in rows} == set(catalogue())
    fast = FixedCase(id="c", isl=8, osl=8, concurrency=1, watching="10hz")
    for name, interval, least, required, by_default, tables in rows:
        known = catalogue()[name]
        (hurried,) = watching_case([known], fast)
        told = known.interval_s if least == "–" else float(least)
        assert told == hurried.interval_s, name
        assert float(interval) == known.interval_s, name
        assert (required == "yes", by_default != "no") == (known.required, known.by_default), name
        if tables != "the same":
            assert set(re.findall(r"`(\w+)`", tables)) == set(known.families), name

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
    assert families() == ("cpu", "memory", "network", "server_processes", "engine")


@pytest.mark.parametrize(
    ("collector", "metric", "family"),
    [
        ("proc", "cpu_util", "cpu"),
        ("proc", "proc_rss", "server_processes"),
        ("engine_metrics", "llamacpp:requests_processing", "engine"),
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


def test_engines_name_what_they_have_in_common():
    assert engine_metrics()["vllm"].running == "vllm:num_requests_running"
    for engine in engine_metrics().values():
        assert engine.cache_queries

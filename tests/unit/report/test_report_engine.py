"""The section on what the engine tells: drafts, and what they changed."""

from pathlib import Path
from types import SimpleNamespace

from servemap.analysis.repeats import Repeat
from servemap.report.engine import engine


def repeat(variant, tps, speculative=None):
    figures = {"steps_per_s": 100.0, "speculative": speculative}
    metrics = {"agg_output_tps": tps, "tpot_s": {"p50": 1 / tps}}
    segment = {"name": "main", "engine": figures, "metrics": metrics}
    derived = {"segments": [segment]}
    return Repeat(variant, "decode", 1, Path(), {}, derived, "ok", "valid", [])


def drafts(*repeats):
    """The texts and notes of the table on drafts by variant; None where there is no such table."""
    names = [one.variant for one in repeats]
    compared = {name: [other for other in names if other != name] for name in names}
    section = engine(SimpleNamespace(valid=list(repeats), compared_with=compared))
    tables = [table for table in section.tables if "Accept rate" in table.columns]
    return {row[1].text: row[2:] for row in tables[0].rows} if tables else None


SOME = {"drafts": 8, "draft_tokens_per_s": 24.0, "accept_rate": 0.5, "mean_accept_length": 2.5}
NONE = {"drafts": 0, "draft_tokens_per_s": 0.0, "accept_rate": None, "mean_accept_length": None}


def test_the_net_effect_is_against_the_variant_without_drafts():
    row = drafts(repeat("baseline", 100.0), repeat("ngram", 150.0, SOME))["ngram"]
    assert [cell.text for cell in row[:3]] == ["50.0 %", "2.50", "24"]
    assert (row[4].text, row[4].note) == ("+50.00 %", "against baseline")
    assert row[5].text == "-33.33 %"


def test_a_server_that_drafted_nothing_has_a_row_and_is_not_the_one_without():
    rows = drafts(repeat("eagle", 150.0, SOME), repeat("ngram", 90.0, NONE))
    assert [cell.text for cell in rows["ngram"][:3]] == ["-", "-", "0"]
    assert {rows[name][4].text for name in rows} == {"-"}


def test_where_nothing_was_drafted_it_stands_beside_the_difference():
    row = drafts(repeat("baseline", 100.0), repeat("ngram", 143.0, NONE))["ngram"]
    assert (row[4].text, row[4].note) == ("+43.00 %", "against baseline, nothing was drafted")


def test_without_drafting_there_is_no_table():
    assert drafts(repeat("baseline", 100.0)) is None

"""Attempts on disk, and the token by which exactly what is not good is done again."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from servemap.model.attempts import Record, intact, read_records, state, token
from servemap.model.canon import file_sha256
from servemap.model.errors import ResultsError

SPEC = "s1"
OTHER = "s2"


def write(folder: Path, number: int, **keys: Any) -> Path:
    """One finished attempt with a raw file; `keys` replace those of its record."""
    attempt = folder / f"{number:03d}"
    attempt.mkdir(parents=True)
    raw = attempt / "raw.jsonl"
    raw.write_text(f"attempt {number}\n")
    stat = raw.stat()
    record = {
        "schema": 1,
        "token": number,
        "status": "ok",
        "spec_sha256": SPEC,
        "files": {
            "raw.jsonl": {
                "size": stat.st_size,
                "mtime_ns": stat.st_mtime_ns,
                "sha256": file_sha256(raw),
            }
        },
        **keys,
    }
    (attempt / "meta.json").write_text(json.dumps(record))
    return attempt


def token_of(folder: Path, max_attempts: int = 2, expect_failure: bool = False) -> int:
    return token(read_records(folder), SPEC, max_attempts, expect_failure)


def state_of(folder: Path, max_attempts: int = 2, expect_failure: bool = False) -> str:
    return state(read_records(folder), SPEC, max_attempts, expect_failure)


def test_nothing_tried_is_token_one(tmp_path: Path) -> None:
    assert (token_of(tmp_path / "no"), state_of(tmp_path / "no")) == (1, "missing")


def test_a_good_attempt_keeps_its_token(tmp_path: Path) -> None:
    write(tmp_path, 1, token=5)
    assert (token_of(tmp_path), state_of(tmp_path)) == (5, "done")


@pytest.mark.parametrize(
    ("keys", "seen"),
    [
        ({"status": "failed"}, "failed"),
        ({"status": "not_run", "cause": "stop"}, "not_run"),
        ({"status": "not_run", "cause": "launch"}, "not_run"),
        ({"spec_sha256": OTHER}, "changed"),
        ({"files": {"gone.jsonl": {"size": 0, "mtime_ns": 0, "sha256": ""}}}, "damaged"),
    ],
)
def test_what_is_not_good_gets_a_higher_token(
    tmp_path: Path, keys: dict[str, Any], seen: str
) -> None:
    write(tmp_path, 1, token=5, **keys)
    assert (token_of(tmp_path), state_of(tmp_path)) == (6, seen)


UNREADABLE = ["", "{", "[]", "{}", '{"schema": 1}', "\x00"]


@pytest.mark.parametrize("content", UNREADABLE)
def test_a_record_that_cannot_be_read_is_damaged(tmp_path: Path, content: str) -> None:
    (write(tmp_path, 1) / "meta.json").write_text(content)
    assert state_of(tmp_path) == "damaged"


@pytest.mark.parametrize("content", UNREADABLE)
def test_a_damaged_newest_record_reruns(tmp_path: Path, content: str) -> None:
    """Snakemake has stored the token that the damaged attempt ran with: 1, then 2."""
    attempt = write(tmp_path, 1)
    (attempt / "meta.json").write_text(content)
    assert token_of(tmp_path) > 1
    attempt = write(tmp_path, 2)
    (attempt / "meta.json").write_text(content)
    assert token_of(tmp_path) > 2


@pytest.mark.parametrize("keys", [{"token": "x"}, {"files": []}, {"files": {"raw.jsonl": {}}}])
def test_a_record_of_another_shape_is_damaged(tmp_path: Path, keys: dict[str, Any]) -> None:
    write(tmp_path, 1, **keys)
    assert state_of(tmp_path) == "damaged"
    assert token_of(tmp_path) > 1


def test_a_truncated_raw_file_is_damage(tmp_path: Path) -> None:
    attempt = write(tmp_path, 1)
    os.truncate(attempt / "raw.jsonl", 3)
    assert (token_of(tmp_path), state_of(tmp_path)) == (2, "damaged")


def test_bytes_changed_in_place_are_damage(tmp_path: Path) -> None:
    raw = write(tmp_path, 1) / "raw.jsonl"
    raw.write_text(raw.read_text().replace("attempt", "ATTEMPT"))
    os.utime(raw, ns=(1, 1))
    assert state_of(tmp_path) == "damaged"


def test_another_time_alone_is_no_damage(tmp_path: Path) -> None:
    raw = write(tmp_path, 1) / "raw.jsonl"
    os.utime(raw, ns=(1, 1))
    assert (token_of(tmp_path), state_of(tmp_path)) == (1, "done")


def test_an_unchanged_time_costs_no_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, 1)
    monkeypatch.setattr("servemap.model.attempts.file_sha256", lambda path: pytest.fail("hashed"))
    assert state_of(tmp_path) == "done"


def test_tries_end(tmp_path: Path) -> None:
    write(tmp_path, 1, status="failed")
    assert token_of(tmp_path) == 2
    write(tmp_path, 2, status="failed")
    assert (token_of(tmp_path), state_of(tmp_path)) == (2, "gave_up")
    assert (token_of(tmp_path, max_attempts=3), state_of(tmp_path, 3)) == (3, "failed")


def test_a_disturbed_repeat_is_measured_once_more_however_many_tries_there_are(
    tmp_path: Path,
) -> None:
    write(tmp_path, 1, status="failed", cause="disturbed", spec_sha256=OTHER)
    write(tmp_path, 2, status="failed", cause="disturbed")
    assert (token_of(tmp_path, 9), state_of(tmp_path, 9)) == (3, "failed")
    write(tmp_path, 3, status="failed")
    write(tmp_path, 4, status="failed", cause="disturbed")
    assert (token_of(tmp_path, 9), state_of(tmp_path, 9)) == (4, "gave_up")
    assert state_of(tmp_path, 1) == "gave_up"


def test_tries_at_another_spec_do_not_count(tmp_path: Path) -> None:
    write(tmp_path, 1, status="failed", spec_sha256=OTHER)
    write(tmp_path, 2, status="failed", spec_sha256=OTHER)
    write(tmp_path, 3, status="failed")
    assert (token_of(tmp_path), state_of(tmp_path)) == (4, "failed")


@pytest.mark.parametrize(
    ("keys", "counts"),
    [
        ({"status": "failed"}, True),
        ({"status": "failed", "cause": "interrupted"}, False),
        ({"status": "not_run", "cause": "launch"}, True),
        ({"status": "not_run", "cause": "breaker"}, True),
        ({"status": "not_run", "cause": "stop"}, False),
        ({"status": "not_run", "cause": "abort"}, False),
    ],
)
def test_only_real_tries_are_counted(tmp_path: Path, keys: dict[str, Any], counts: bool) -> None:
    for number in range(1, 5):
        write(tmp_path, number, **keys)
    assert (state_of(tmp_path) == "gave_up") == counts
    assert token_of(tmp_path) == (4 if counts else 5)


def test_an_expected_failure_is_done(tmp_path: Path) -> None:
    write(tmp_path, 1, status="failed")
    assert (token_of(tmp_path, expect_failure=True), state_of(tmp_path, expect_failure=True)) == (
        1,
        "done",
    )
    write(tmp_path, 2, status="not_run", cause="stop")
    assert state_of(tmp_path, expect_failure=True) == "not_run"


def test_an_attempt_without_a_record_is_not_one(tmp_path: Path) -> None:
    write(tmp_path, 1)
    (tmp_path / "002/raw").mkdir(parents=True)
    (tmp_path / "notes").mkdir()
    assert [record.number for record in read_records(tmp_path)] == [1]
    assert state_of(tmp_path) == "done"


def test_attempts_are_ordered_as_numbers(tmp_path: Path) -> None:
    for number in (1, 2, 10, 1000):
        write(tmp_path, number)
    assert [record.number for record in read_records(tmp_path)] == [1, 2, 10, 1000]


def test_a_newer_schema_is_refused_with_a_way_out(tmp_path: Path) -> None:
    write(tmp_path, 1, schema=2)
    with pytest.raises(ResultsError) as error:
        read_records(tmp_path)
    assert "schema 2" in error.value.what
    assert str(tmp_path / "001/meta.json") == error.value.where
    assert error.value.remedy


def record(number: int, **keys: Any) -> Record:
    values = {
        "folder": Path("none"),
        "number": number,
        "token": number,
        "status": "ok",
        "spec_sha256": SPEC,
        "cause": None,
        "files": {},
    }
    return Record(**{**values, **keys})


def test_a_record_without_files_is_intact() -> None:
    assert intact(record(1))


RECORDS = st.lists(
    st.fixed_dictionaries(
        {
            "token": st.integers(1, 9),
            "status": st.sampled_from(["ok", "failed", "not_run"]),
            "spec_sha256": st.sampled_from([SPEC, OTHER]),
            "cause": st.sampled_from([None, "launch", "stop", "interrupted"]),
        }
    ),
    max_size=6,
).map(lambda rows: [record(number, **row) for number, row in enumerate(rows, 1)])


@given(RECORDS, st.integers(1, 3), st.booleans())
def test_a_token_reruns_exactly_what_is_not_good(
    records: list[Record], max_attempts: int, expect_failure: bool
) -> None:
    made = token(records, SPEC, max_attempts, expect_failure)
    if not records:
        assert made == 1
        return
    stays = state(records, SPEC, max_attempts, expect_failure) in ("done", "gave_up")
    assert stays == (made == records[-1].token)
    if not stays:
        assert made > max(item.token for item in records)


@given(RECORDS, st.integers(1, 3), st.data())
def test_pruning_old_attempts_of_a_done_job_changes_nothing(
    records: list[Record], max_attempts: int, data: st.DataObject
) -> None:
    if not records or state(records, SPEC, max_attempts) != "done":
        return
    kept = data.draw(st.lists(st.sampled_from(records), unique_by=id)) if records else []
    kept = sorted({item.number: item for item in [*kept, records[-1]]}.values(), key=_number)
    assert token(kept, SPEC, max_attempts) == token(records, SPEC, max_attempts)


@given(RECORDS, st.integers(1, 3), st.integers(0, 5))
def test_an_old_attempt_that_can_be_read_again_changes_nothing(
    records: list[Record], max_attempts: int, which: int
) -> None:
    if len(records) < 2 or state(records, SPEC, max_attempts) != "done":
        return
    old = records[which % (len(records) - 1)]
    damaged = [
        record(item.number, token=0, status="damaged", spec_sha256="") if item is old else item
        for item in records
    ]
    assert token(damaged, SPEC, max_attempts) == token(records, SPEC, max_attempts)


def _number(item: Record) -> int:
    return item.number


class Campaign(RuleBasedStateMachine):
    """A job over its life: each run stores the token it was given, as a measure job does."""

    @initialize()
    def start(self) -> None:
        self.records: list[Record] = []
        self.spec = SPEC

    def plan(self) -> int:
        return token(self.records, self.spec, 2)

    @rule(
        status=st.sampled_from(["ok", "failed", "not_run"]),
        cause=st.sampled_from([None, "launch", "stop", "interrupted"]),
    )
    def run(self, status: str, cause: str | None) -> None:
        given = self.plan()
        stored = self.records[-1].token if self.records else None
        if given == stored:
            return  # Snakemake sees the parameter that it stored: nothing to do
        number = len(self.records) + 1
        self.records.append(
            record(number, token=given, status=status, cause=cause, spec_sha256=self.spec)
        )

    @rule(spec=st.sampled_from([SPEC, OTHER]))
    def edit_the_campaign(self, spec: str) -> None:
        self.spec = spec

    @invariant()
    def the_token_never_decreases(self) -> None:
        tokens = [item.token for item in self.records]
        assert tokens == sorted(set(tokens))
        assert self.plan() >= max(tokens, default=1)

    @invariant()
    def a_good_attempt_is_never_run_again(self) -> None:
        if self.records and self.records[-1].status == "ok":
            again = self.records[-1].spec_sha256 != self.spec
            assert (self.plan() > self.records[-1].token) == again


Campaign.TestCase.settings = settings(max_examples=60, stateful_step_count=15)
TestCampaign = Campaign.TestCase

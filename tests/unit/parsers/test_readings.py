"""Printed lines and pages over time to samples: recorded output, resets, damage."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.model.collectors import CollectorTable
from servemap.parsers.jsonl import JsonLine
from servemap.parsers.readings import Readings, parse_pages, parse_printed
from servemap.parsers.records import Sample
from servemap.telemetry.catalogue import catalogue
from servemap.telemetry.declared import declared_collector
from tests.corpus import read_sample
from tests.samples import samples

S = 1_000_000_000
T0 = 1_800_000_000 * S


def reading(name: str) -> Any:
    found = catalogue()[name].reading
    assert found is not None
    return found


def at(second: float, **content: Any) -> dict[str, Any]:
    return {"t_ns": T0 + round(second * S), "mono_ns": round((7 + second) * S), **content}


def numbered(records: list[dict[str, Any]]) -> list[JsonLine]:
    return [JsonLine(number, record) for number, record in enumerate(records, start=1)]


def printed(name: str, rounds: list[list[str]], interval: float = 1.0) -> Readings:
    records = [
        at(second * interval + place / 1000, line=line)
        for second, lines in enumerate(rounds)
        for place, line in enumerate(lines)
    ]
    return parse_printed(numbered(records), interval, reading(name))


def values(found: Readings, entity: str) -> dict[str, float]:
    return {s.metric: s.value for s in samples(found.parsed) if s.entity == entity}


def recorded(file: str) -> list[str]:
    return read_sample(file).decode().splitlines()


def test_an_h200_under_load() -> None:
    heading, row = recorded("nvidia_smi/001_h200_query_all_fields_load.csv")
    found = printed("nvidia_smi", [[heading, row], [row]])
    gpu = values(found, "gpu0")
    assert (gpu["gpu_util"], gpu["gpu_mem_util"], gpu["gpu_power"]) == (100, 7, 627.4)
    assert (gpu["gpu_power_limit"], gpu["gpu_mem_used"]) == (700, 32362 * 2**20)
    assert (gpu["gpu_clock_sm"], gpu["gpu_clock_mem"], gpu["gpu_pstate"]) == (1980, 3201, 0)
    assert (gpu["gpu_temp"], gpu["gpu_mem_temp"], gpu["gpu_capped_power"]) == (52, 40, 0)
    assert gpu["gpu_ecc_corrected"] == 0
    assert found.parsed.times_ns == [T0 + S // 1000, T0 + S]
    assert found.parsed.skipped == []


def test_what_mig_does_not_tell_is_missing_and_not_zero() -> None:
    found = printed("nvidia_smi", [recorded("nvidia_smi/002_h100_mig_query_all_fields_load.csv")])
    gpu = values(found, "gpu0")
    assert gpu["gpu_mem_used"] == 11125 * 2**20
    assert not {"gpu_util", "gpu_mem_util"} & set(gpu)


def test_older_names_of_reasons_are_the_same_metrics() -> None:
    heading, row = recorded("nvidia_smi/001_h200_query_all_fields_load.csv")
    older = heading.replace("clocks_event_reasons", "clocks_throttle_reasons")
    held = row.replace("Not Active", "Active")
    assert values(printed("nvidia_smi", [[older, held]]), "gpu0")["gpu_slowed_thermal"] == 1


def test_who_is_on_the_card() -> None:
    rows = recorded("nvidia_smi/009_h100_mig_pmon_load.txt")
    found = printed("nvidia_pmon", [rows[:5], *([*rows[n : n + 3]] for n in range(5, 17, 3))], 2.0)
    assert found.names == {
        "gpu0/pid:21180": "memhog",
        "gpu0/pid:21181": "memhog",
        "gpu0/pid:21198": "gpu_burn",
    }
    # MIG does not tell the shares of a process, only that it is there.
    assert {(s.metric, s.value) for s in samples(found.parsed)} == {("gpu_proc", 1.0)}
    assert {s.entity for s in samples(found.parsed)} == set(found.names)
    assert len(found.parsed.times_ns) == 5


def test_dcgm_of_eight_cards_has_one_time_a_round() -> None:
    rows = recorded("dcgm/011_dmon_units_row_mixed_NA.txt")
    found = printed("dcgm", [rows, rows])
    assert "gr_active" not in values(found, "gpu7")
    assert values(found, "gpu6") == {"gr_active": 0, "sm_active": 0, "dram_active": 0}
    assert len({s.entity for s in samples(found.parsed)}) == 8
    assert [round((t - T0) / S, 2) for t in found.parsed.times_ns] == [0, 1]


def test_a_message_instead_of_rows_is_no_sample() -> None:
    found = printed("dcgm", [recorded("dcgm/012_discovery_no_hostengine.txt")])
    assert (samples(found.parsed), found.parsed.times_ns) == ([], [])
    assert "no output of dcgmi dmon" in found.parsed.skipped[0].reason
    refused = printed("nvidia_smi", [['Field "x" is not a valid field to query.']])
    assert "the tool said: Field" in refused.parsed.skipped[0].reason
    assert samples(printed("nvidia_smi", []).parsed) == []


def test_a_row_of_another_round_after_one_that_was_cut() -> None:
    heading = "index, power.draw [W]"
    found = printed("nvidia_smi", [[heading, "0, 10.00 W", "1, 11.00 W"], ["1, 12.00 W"],
                                   ["0, 13.00 W", "1, 1"]])  # fmt: skip
    power = [(s.entity, s.value) for s in samples(found.parsed)]
    assert power == [("gpu0", 10), ("gpu1", 11), ("gpu1", 12), ("gpu0", 13), ("gpu1", 1)]
    assert len(found.parsed.times_ns) == 3


def page(received: int, slow: int = 0, **state: str) -> str:
    folder = "/sys/class/infiniband/mlx5_0/ports/1"
    lines = {
        "state": state.get("state", "4: ACTIVE"),
        "rate": "400 Gb/sec (4X NDR)",
        "counters/port_rcv_data": received,
        "hw_counters/out_of_sequence": slow,
    }
    return "".join(f"{folder}/{name}:{value}\n" for name, value in lines.items())


def hca(pages: list[str | None], step_s: float = 1.0) -> Readings:
    records = [
        at(n * step_s, text=one) if one is not None else at(n * step_s, error="none could be read")
        for n, one in enumerate(pages)
    ]
    return parse_pages(numbered(records), 1.0, reading("hca"))


def series(found: Readings, metric: str) -> list[Sample]:
    return [s for s in samples(found.parsed) if s.metric == metric]


def test_a_counter_of_words_is_a_rate_of_bytes() -> None:
    found = hca([page(1000), page(3000, slow=5)])
    (rate,) = series(found, "hca_rx")
    assert rate == Sample(T0 + S, T0, "mlx5_0:1", "hca_rx", "bytes_per_s", 8000.0)
    assert [s.value for s in series(found, "hca_out_of_sequence")] == [5.0]
    assert [s.value for s in series(found, "hca_line_rate")] == [4e11, 4e11]


def test_a_counter_that_was_reset_is_missing_for_that_interval_only() -> None:
    found = hca([page(1000, 7), page(10, 8), page(20, 9)])
    assert [(s.from_ns, s.value) for s in series(found, "hca_rx")] == [(T0 + S, 40.0)]
    assert [s.value for s in series(found, "hca_out_of_sequence")] == [1.0, 1.0]


def test_a_page_that_is_missing_makes_the_interval_longer() -> None:
    found = hca([page(0), None, page(1000, state="1: DOWN"), "foreign\n"])
    (rate,) = series(found, "hca_rx")
    assert (rate.from_ns, rate.t_ns, rate.value) == (T0, T0 + 2 * S, 2000.0)
    assert len(series(found, "hca_line_rate")) == 1, "a port that is down has no rate"
    assert [one.line for one in found.parsed.skipped] == [2, 4]
    assert len(found.parsed.times_ns) == 2


def test_counters_an_instant_apart_say_nothing() -> None:
    assert series(hca([page(0), page(1000)], step_s=0.01), "hca_rx") == []


def test_nine_devices_of_an_h100_node_over_time() -> None:
    text = read_sample("hca/001_sysfs_h100_grep_H.txt").decode()
    later = text.replace("230539874932483", "230539874942483", 1)
    found = hca([text, later])
    rates = {s.entity: s.value for s in series(found, "hca_rx")}
    assert len(rates) == 9
    assert rates["mlx5_0:1"] == 40000
    assert sum(rates.values()) == 40000


PRESSURE = "/proc/pressure/{}:{} avg10=1.00 avg60=0.50 avg300=0.10 total={}\n"


def test_pressure_is_the_share_of_time_in_which_tasks_waited() -> None:
    def pages(cpu: int, memory: int) -> str:
        return PRESSURE.format("cpu", "some", cpu) + PRESSURE.format("memory", "full", memory)

    records = [at(0, text=pages(5, 100)), at(2, text=pages(500_005, 100) + "odd\n")]
    found = parse_pages(numbered(records), 2.0, reading("pressure"))
    shares = {(s.entity, s.metric): s.value for s in samples(found.parsed)}
    assert shares == {
        ("cpu", "pressure_some"): pytest.approx(25.0),
        ("memory", "pressure_full"): 0.0,
    }
    assert [(one.line, one.reason) for one in found.parsed.skipped] == [
        (2, "no line of /proc/pressure")
    ]


@given(st.lists(st.integers(0, 2**53), min_size=2, max_size=20))
def test_rates_bring_back_what_was_counted_between_resets(counts: list[int]) -> None:
    texts = [PRESSURE.format("io", "some", count) for count in counts]
    records = [at(n, text=text) for n, text in enumerate(texts)]
    found = parse_pages(numbered(records), 1.0, reading("pressure")).parsed
    grown = [(b - a) * 1e-4 for a, b in pairwise(counts) if b >= a]
    assert [s.value for s in samples(found)] == pytest.approx(grown)
    assert len(found.times_ns) == len(counts)


@given(st.lists(st.text(max_size=60), max_size=8), st.sampled_from(["nvidia_smi", "dcgm", "hca"]))
def test_whatever_a_tool_says_nothing_is_raised(said: list[str], name: str) -> None:
    heading = {"nvidia_smi": "index, power.draw [W]", "dcgm": "#Entity GRACT"}.get(name, "")
    lines = [heading, *said]
    records = [at(n, line=line, text=line) for n, line in enumerate(lines)]
    read = parse_pages if name == "hca" else parse_printed
    parsed = read(numbered(records), 1.0, reading(name)).parsed
    assert all(1 <= one.line <= len(lines) for one in parsed.skipped)
    assert parsed.times_ns == sorted(parsed.times_ns)


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=6))
def test_no_two_times_give_a_rate_over_a_length_that_does_not_fit(times: list[int]) -> None:
    records = [at(n, text=PRESSURE.format("io", "some", n)) for n in range(len(times))]
    for record, mono_ns in zip(records, times, strict=True):
        record["mono_ns"] = mono_ns
    parsed = parse_pages(numbered(records), 1.0, reading("pressure")).parsed
    lost = [one.line for one in parsed.skipped]
    assert lost == [n for n, mono_ns in enumerate(times, 1) if not -(2**61) < mono_ns < 2**61]
    assert all(0 <= sample.value < 1 for sample in samples(parsed))


@pytest.mark.parametrize(
    "name, most, metric",
    [
        ("port_xmit_data", 2**32 - 1, "hca_tx"),
        ("symbol_error", 65535, "hca_symbol_error"),
        ("link_downed", 255, "hca_link_downed"),
    ],
)
def test_a_counter_that_stopped_at_its_largest_value_has_no_rate(name, most, metric) -> None:
    path = f"/sys/class/infiniband/mlx5_0/ports/1/counters/{name}"
    counts = [most - 3, most - 1, most, most, most]
    records = [at(n, text=f"{path}:{count}\n") for n, count in enumerate(counts)]
    parsed = parse_pages(numbered(records), 1.0, reading("hca")).parsed
    (rate,) = [s.value for s in samples(parsed) if s.metric == metric]
    assert rate == (8 if metric == "hca_tx" else 2)


def test_what_a_tool_said_has_the_line_at_which_it_did() -> None:
    lost = "Unable to determine the device handle for GPU0000:3B:00.0: GPU is lost."
    lines = ["index, utilization.gpu [%]", "0, 5 %", "", lost, "0, 6 %", lost]
    records = [at(n, line=line) for n, line in enumerate(lines)]
    parsed = parse_printed(numbered(records), 1.0, reading("nvidia_smi")).parsed
    assert [tuple(one) for one in parsed.skipped] == [(4, f"the tool said: {lost}")]


def test_pages_of_a_declared_table_whose_cells_move_or_change_their_unit() -> None:
    columns = [
        {"column": "Temp", "metric": "gpu_temp", "unit": "celsius"},
        {"column": "Power", "metric": "gpu_power", "unit": "watts"},
        {"column": "Mem", "metric": "gpu_mem_used", "unit": "bytes", "scale": 2**30},
    ]
    table = CollectorTable.model_validate({"entity": "gpu{GPU}", "columns": columns})
    heading = "GPU  Temp  Power  Mem\n"
    rows = ["0    50 C  300 W  79.5 GiB", "0          300W  900 MiB", "0    51 C  300 W  900 MiB"]
    records = [at(n, text=f"{heading}{row}\n") for n, row in enumerate(rows)]
    own = declared_collector("own-smi", table).reading
    found = parse_pages(numbered(records), 1.0, own).parsed
    values = {one.metric: one.value.tolist() for one in found.series}
    assert values["gpu_temp"] == [50, 51]
    assert values["gpu_power"] == [300, 300]
    assert values["gpu_mem_used"] == [79.5 * 2**30]
    assert [one.reason for one in found.skipped] == [
        "cells that do not stand under their headings",
        "Mem in MiB, in GiB before",
    ]

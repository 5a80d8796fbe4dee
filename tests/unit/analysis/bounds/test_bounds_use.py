"""Telemetry beside its limits: HCAs, power and memory of cards. Simulated: values made up here."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from frozentools import answers, listed, queried
from runbuilder import build_repeat, write_json

from servemap.analysis.bounds.use import slow_links, use_rows
from servemap.analysis.derive import derive_attempt
from servemap.analysis.repeats import read_repeat
from servemap.report.render import render

PLAN = {"variant": "baseline", "case": "decode_c2", "repeat": 1, "compared_with": []}
S = 10**9
RATE = {"state": "4: ACTIVE", "rate": "400 Gb/sec (4X NDR)"}


def facts(**port: str) -> dict:
    return {"head": {"nics": {"rdma": {"mlx5_0": {"ports": {"1": {**RATE, **port}}}}}}}


def _of(value) -> dict:
    """A sample of a gauge, or of a rate by begin, end (ns) and value."""
    begin, end, amount = value if isinstance(value, tuple) else (None, 0, value)
    return {"from_ns": begin, "t_ns": end, "value": amount}


def measured(run, series: dict[tuple[str, str], list[float]], inside: bool = True):
    """One repeat whose telemetry has more series, by entity and metric."""
    folder = build_repeat(run)
    derive_attempt(folder, {})
    path = folder / "telemetry.parquet"
    table = pq.read_table(path)
    template = table.slice(0, 1).to_pylist()[0]
    added = [
        template
        | {"segment": "main", "node": "head", "collector": "c", "entity": entity}
        | {"metric": metric, "unit": "u", "inside": inside, **_of(value)}
        for (entity, metric), values in series.items()
        for value in values
    ]
    pq.write_table(pa.concat_tables([table, pa.Table.from_pylist(added, table.schema)]), path)
    return read_repeat(run, PLAN)


def test_an_hca_against_the_rate_that_it_reported(tmp_path):
    series = {("mlx5_0:1", "hca_tx"): [10e9, 30e9], ("mlx5_0:1", "hca_line_rate"): [400e9, 400e9]}
    (row,) = use_rows([measured(tmp_path / "run", series)], {})
    assert (row["resource"], row["entity"], row["n"]) == ("HCA sent", "mlx5_0:1", 2)
    assert (row["limit"], row["limit_source"]) == (50e9, "hca_line_rate")
    assert (row["mean_share"], row["max_share"]) == (0.4, 0.6)


def test_the_mean_share_of_a_rate_is_over_time(tmp_path):
    rates = {("mlx5_0:1", "hca_tx"): [(0, S, 0.0), (S, 10 * S, 50e9)]}
    (row,) = use_rows([measured(tmp_path / "run", rates)], facts())
    assert (row["n"], row["mean"], row["mean_share"]) == (2, 45e9, 0.9)


def test_an_hca_against_its_frozen_rate(tmp_path):
    repeat = measured(tmp_path / "run", {("mlx5_0:1", "hca_rx"): [25e9]})
    (row,) = use_rows([repeat], facts())
    assert (row["limit"], row["mean_share"]) == (50e9, 0.5)
    assert row["limit_source"] == "frozen rate of the port"


@pytest.mark.parametrize("known", [{}, facts(state="1: DOWN"), facts(rate="?")])
def test_a_limit_that_is_not_known_makes_no_share(tmp_path, known):
    repeat = measured(tmp_path / "run", {("mlx5_0:1", "hca_rx"): [25e9]})
    (row,) = use_rows([repeat], known)
    assert row["mean"] == 25e9
    assert row["limit"] is row["limit_source"] is row["mean_share"] is None


def test_power_against_its_limit_and_dram_as_a_share(tmp_path):
    series = {
        ("gpu0", "gpu_power"): [350.0, 525.0],
        ("gpu0", "gpu_power_limit"): [700.0],
        ("gpu0", "dram_active"): [0.0, 0.5],
        ("gpu1", "gpu_power_limit"): [700.0],
    }
    rows = {row["resource"]: row for row in use_rows([measured(tmp_path / "run", series)], {})}
    assert rows.keys() == {"power", "DRAM active"}
    assert (rows["power"]["mean_share"], rows["power"]["max_share"]) == (0.625, 0.75)
    assert (rows["DRAM active"]["mean_share"], rows["DRAM active"]["limit"]) == (0.25, 1.0)


@pytest.mark.parametrize(("width", "said"), [(16, "16 lanes"), (8, "8 lanes of 16: fewer")])
def test_pcie_against_the_frozen_link_of_its_card(tmp_path, width, said):
    frozen = {"head": answers({"nvidia-smi -q": queried(1, 4, 4) + queried(2, 4, width)})}
    repeat = measured(tmp_path / "run", {("GPU1", "pcie_tx"): [1e9]})
    (row,) = use_rows([repeat], frozen)
    assert row["limit"] == pytest.approx(width * 16e9 / 8 * 128 / 130)
    assert said in row["limit_source"]
    (row,) = use_rows([repeat], {})
    assert row["limit"] is None


def test_nvlink_against_its_active_links_else_the_sheet(tmp_path):
    repeat = measured(tmp_path / "run", {("GPU0", "nvlink_rx"): [90e9]})
    link = listed("NVIDIA H200") + "\t Link 0: 25 GB/s\n\t Link 1: 25 GB/s\n\t Link 2: <inactive>\n"
    both = {"nvidia-smi -L": listed("NVIDIA H200"), "nvidia-smi nvlink -s": link}
    (row,) = use_rows([repeat], {"head": answers(both)})
    assert (row["resource"], row["limit"]) == ("NVLink received", 50e9)
    assert row["limit_source"] == "2 frozen NVLinks"
    (row,) = use_rows([repeat], {"head": answers({"nvidia-smi -L": listed("NVIDIA H200")})})
    assert (row["limit"], row["mean_share"]) == (450e9, 0.2)
    assert row["limit_source"].startswith("NVIDIA H200, https://")
    (row,) = use_rows([repeat], {"head": answers({"nvidia-smi -L": listed("NVIDIA A40")})})
    assert row["limit"] is None


def test_power_without_a_sampled_limit_has_that_of_the_board(tmp_path):
    repeat = measured(tmp_path / "run", {("gpu0", "gpu_power"): [350.0]})
    (row,) = use_rows([repeat], {"head": answers({"nvidia-smi -L": listed("NVIDIA H200")})})
    assert (row["limit"], row["mean_share"]) == (700, 0.5)


def test_interfaces_that_are_rails_or_devices_have_their_line_rate(tmp_path):
    rails = [{"netdev": "rail0", "hca": None}, {"netdev": "ib0", "hca": "mlx5_0"}]
    series = {(name, "net_tx"): [1e9] for name in ("lo", "rail0", "eth0", "veth7", "eth9")}
    repeat = measured(tmp_path / "run", series)
    server = {"nodes": [{"id": "head", "rails": rails}]}
    repeat = repeat._replace(meta={**repeat.meta, "spec": {"server": server}})
    interfaces = {
        "lo": {"speed_mbit": None, "bus_address": None},
        "rail0": {"speed_mbit": 10_000, "bus_address": None},
        "veth7": {"speed_mbit": 10_000, "bus_address": None},
        "eth0": {"speed_mbit": 25_000, "bus_address": "0000:17:00.0"},
        "eth9": {"speed_mbit": None, "bus_address": "0000:18:00.0"},
    }
    rows = use_rows([repeat], {"head": {"nics": {"interfaces": interfaces}}})
    assert {row["entity"]: (row["resource"], row["limit"]) for row in rows} == {
        "rail0": ("interface sent", 1.25e9),
        "eth0": ("interface sent", 3.125e9),
        "eth9": ("interface sent", None),
    }


def test_a_link_that_never_reached_what_the_card_can_do_is_named(tmp_path):
    run = tmp_path / "run"
    series = {
        ("gpu0", "pcie_generation"): [1.0, 5.0, 1.0],
        ("gpu1", "pcie_generation"): [1.0, 3.0, 3.0],
        ("gpu1", "pcie_lanes"): [16.0],
        ("gpu2", "pcie_generation"): [1.0],
    }
    repeat = measured(run, series)
    frozen = {"head": answers({"nvidia-smi -q": queried(1, 5, 16) + queried(2, 5, 16)})}
    assert slow_links(use_rows([repeat], frozen)) == ["head gpu1: PCIe generation 3 of 5"]
    write_json(run / "freeze" / "head.json", {"schema": 1, "facts": frozen["head"]})
    render(run, [PLAN])
    said = (run / "report.md").read_text().split("## Distance to the limit")[1].split("\n## ")[0]
    assert "stayed below what their card can do while cases ran: head gpu1: PCIe" in said
    assert "Most used" not in said, "the state of a link is no use of it"


def test_the_report_puts_cards_beside_their_sheets(tmp_path):
    run = tmp_path / "run"
    measured(run, {("gpu0", "gpu_power"): [350.0]})
    frozen = answers({"nvidia-smi -L": listed(*["NVIDIA H200"] * 8)})
    write_json(run / "freeze" / "head.json", {"schema": 1, "facts": frozen})
    render(run, [PLAN])
    said = (run / "report.md").read_text()
    cells = next(line.split("|") for line in said.splitlines() if "| NVIDIA H200 |" in line)
    figures = [cell.strip() for cell in cells[3:-1]]
    assert figures == ["8", "141", "4,800", "989", "1,979", "450", "700"]
    assert "NVIDIA H200: https://nvdam" in said


def test_what_lies_outside_the_segment_does_not_count(tmp_path):
    repeat = measured(tmp_path / "run", {("gpu0", "gpu_power"): [350.0]}, inside=False)
    assert use_rows([repeat], {}) == []


def test_the_report_names_the_most_used(tmp_path):
    run = tmp_path / "run"
    series = {
        ("mlx5_0:1", "hca_rx"): [5e9],
        ("mlx5_1:1", "hca_rx"): [20e9],
        ("mlx5_0:1", "hca_line_rate"): [400e9],
        ("mlx5_1:1", "hca_line_rate"): [400e9],
    }
    measured(run, series)
    write_json(run / "freeze" / "head.json", {"schema": 1, "facts": {}})
    render(run, [PLAN])
    said = (run / "report.md").read_text()
    line = next(line for line in said.splitlines() if "HCA received" in line)
    assert "mlx5\\_1:1" in line
    assert "40.0 %" in line
    assert "mlx5\\_0:1" not in said.split("## Distance to the limit")[1].split("\n## ")[0]


def test_a_link_that_was_frozen_low_is_named_where_nothing_else_has_a_limit(tmp_path):
    run = tmp_path / "run"
    frozen = answers({"nvidia-smi -q": queried(1, 4, 8, own=5)})
    write_json(run / "freeze" / "head.json", {"schema": 1, "facts": frozen})
    render(run, [PLAN])
    said = (run / "report.md").read_text().split("## Distance to the limit")[1]
    assert (
        "head gpu0 has 8 of 16 PCIe lanes; head gpu0 can run at PCIe generation 4 of its 5" in said
    )

"""Telemetry beside its limits: HCAs, power and memory of cards. Simulated: values made up here."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from runbuilder import build_repeat, write_json

from servemap.analysis.bounds.use import use_rows
from servemap.analysis.derive import derive_attempt
from servemap.analysis.repeats import read_repeat
from servemap.report.render import render

PLAN = {"variant": "baseline", "case": "decode_c2", "repeat": 1, "compared_with": []}
RATE = {"state": "4: ACTIVE", "rate": "400 Gb/sec (4X NDR)"}


def facts(**port: str) -> dict:
    return {"head": {"nics": {"rdma": {"mlx5_0": {"ports": {"1": {**RATE, **port}}}}}}}


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
        | {"metric": metric, "unit": "u", "value": value, "inside": inside}
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
    block = (
        "GPU 00000000:0{}:00.0\n  PCIe Generation\n    Max : 4\n    Current : 1\n"
        "  Link Width\n    Max : 16x\n    Current : {}x\n"
    )
    stdout = block.format(1, 4) + block.format(2, width)
    frozen = {"head": {"accelerators": {"tools": {"nvidia-smi -q": {"stdout": stdout}}}}}
    repeat = measured(tmp_path / "run", {("GPU1", "pcie_tx"): [1e9]})
    (row,) = use_rows([repeat], frozen)
    assert row["limit"] == pytest.approx(width * 16e9 / 8 * 128 / 130)
    assert said in row["limit_source"]
    (row,) = use_rows([repeat], {})
    assert row["limit"] is None


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

"""Forms that tools write in other versions or with other options, made up: their right values."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from servemap.model.errors import ParseError
from servemap.parsers.exposition import read_exposition
from tests.corpus import extract, numbers

MADE = Path(__file__).parent / "made"
MIB, GIB = 1 << 20, 1 << 30

AMD_SMI = """\
+------------------------------------------------------------------------------+
| AMD-SMI 26.1.0+0123abcd      amdgpu version: 6.14.14  ROCm version: 7.0.0    |
| VBIOS version: 00112233                                                      |
| Platform: Linux Guest                                                        |
|-------------------------------------+----------------------------------------|
| BDF                        GPU-Name | Mem-Uti   Temp   UEC       Power-Usage |
| GPU  HIP-ID  OAM-ID  Partition-Mode | GFX-Uti    Fan               Mem-Usage |
|=====================================+========================================|
| 0000:83:00.0 AMD Instinct MI300X VF | 7 %      37 °C   0           135/750 W |
|   0       0       3        SPX/NPS1 | 93 %       N/A         90285/196288 MB |
|-------------------------------------+----------------------------------------|
| 0000:93:00.0    AMD Radeon Graphics | N/A        N/A   0             N/A/0 W |
|   1       1     N/A             N/A | N/A        N/A              161/512 MB |
+-------------------------------------+----------------------------------------+
+------------------------------------------------------------------------------+
| Processes:                                                                   |
|  GPU        PID  Process Name          GTT_MEM  VRAM_MEM  MEM_USAGE     CU % |
|==============================================================================|
|    0     109958  python3.12             4.0 MB   58.0 KB    16.0 GB  N/A     |
|    0     110181  my prog              348.5 MB    2.0 GB     3.0 GB  42.5    |
+------------------------------------------------------------------------------+
"""


def test_amd_smi_without_options_draws_a_table() -> None:
    data, skipped = extract("amd-smi", AMD_SMI.encode())
    assert skipped == [] and data["rocm_version"] == "7.0.0" and data["cpus"] == []
    first, second = data["gpus"]
    assert (first["gpu"], first["bus_id"], first["oam_id"]) == (0, "0000:83:00.0", 3)
    assert (first["power_draw_watts"], first["power_limit_watts"]) == (135, 750)
    assert (first["utilization_percent"], first["memory_utilization_percent"]) == (93, 7)
    assert first["memory_total_bytes"] == 196288 * MIB
    # A limit of 0 W is no limit, and N/A is not 0.
    assert second["power_draw_watts"] is None and second["power_limit_watts"] is None
    assert second["utilization_percent"] is None and second["temperature_celsius"] is None
    assert [one["process_name"] for one in data["processes"]] == ["python3.12", "my prog"]
    assert data["processes"][0]["vram_bytes"] == 58 * 1024
    assert data["processes"][1]["memory_used_bytes"] == 3 * GIB
    assert [one["compute_units_percent"] for one in data["processes"]] == [None, 42.5]


def test_amd_smi_monitor_of_newer_versions() -> None:
    text = """\
TIMESTAMP   GPU  XCP  POWER   GPU_T   GFX_CLK   GFX%   ENC%      VRAM_USAGE
1786000000    0    0  146 W   40 °C   132 MHz   10 %    N/A    0.5/192.0 GB
1786000000    1    0  147 W     N/A       N/A    N/A    N/A    0.5/ 48.0 GB
1786000001    0    0    N/A     N/A       N/A    N/A    N/A             N/A
"""
    data, skipped = extract("amd-smi", text.encode())
    assert skipped == []
    first, second, third = data["gpus"]
    assert (first["vram_used_bytes"], first["vram_total_bytes"]) == (GIB // 2, 192 * GIB)
    assert second["vram_total_bytes"] == 48 * GIB
    assert first.keys() == second.keys() == third.keys()
    assert (first["gfx_percent"], first["gpu_t_celsius"], first["timestamp"]) == (
        10,
        40,
        1786000000,
    )
    assert {third[key] for key in third if key not in ("timestamp", "gpu", "xcp")} == {None}


def test_lists_of_amd_smi_keep_their_values() -> None:
    text = """\
GPU: 0
    USAGE:
        VCN_ACTIVITY: [0 %, 3 %, N/A]
        JPEG_ACTIVITY: [N/A, 5 %,
            N/A, 7 %]
    POWER:
        SOCKET_POWER: 20 W
"""
    data, skipped = extract("amd-smi", text.encode())
    usage = {"vcn_activity_percent": [0, 3, None], "jpeg_activity_percent": [None, 5, None, 7]}
    assert (data["gpus"][0]["usage"], skipped) == (usage, [])
    assert data["gpus"][0]["power"] == {"socket_power_watts": 20}
    cells = [{"value": 0, "unit": "%"}, {"value": 3, "unit": "%"}, "N/A"]
    document = json.dumps([{"gpu": 0, "usage": {"vcn_activity": cells}}])
    usage = extract("amd-smi", document.encode()).data["gpus"][0]["usage"]
    assert usage == {"vcn_activity_percent": [0, 3, None]}


SYSSTAT = "Linux 6.8.0 (node-a) \t03/01/26 \t_x86_64_\t(8 CPU)\n\n"


def test_sysstat_for_people_names_the_units_in_its_cells() -> None:
    text = f"""{SYSSTAT}12:00:01        IFACE   rxpck/s    rxkB/s    txkB/s   %ifutil
12:00:02         eth0      4.00      1.5M    512.0B      1.2%
12:00:03         eth0      4.00      1.50      0.00      1.20
"""
    human, plain = extract("sar", text.encode()).data["tables"][0]["rows"]
    assert (human["rx_bytes_per_s"], human["tx_bytes_per_s"]) == (1.5 * MIB, 512)
    assert human["ifutil_percent"] == plain["ifutil_percent"] == 1.2
    assert plain["rx_bytes_per_s"] == 1536


def test_iostat_for_people_puts_the_device_last() -> None:
    text = f"""{SYSSTAT}avg-cpu:  %user   %nice %system %iowait  %steal   %idle
           0.5%    0.0%    0.3%    0.0%    0.0%   99.2%

      tps    kB_read/s    kB_wrtn/s    kB_read    kB_wrtn Device
     1.28        10.5k         0.0k       1.5G       6.0G nvme0n1

"""
    report, skipped = extract("iostat", text.encode())
    (report,) = report["reports"]
    assert skipped == [] and report["cpu"]["idle_percent"] == 99.2
    disk = report["devices"]["nvme0n1"]
    assert (disk["tps"], disk["read_bytes_per_s"]) == (1.28, 10752)
    assert (disk["read_bytes"], disk["written_bytes"]) == (1.5 * GIB, 6 * GIB)


@pytest.mark.parametrize(
    ("heading", "key", "factor"),
    [
        ("MB_dscd/s", "discarded_bytes_per_s", MIB),
        ("Blk_read/s", "read_bytes_per_s", 512),
        ("Blk_wrtn/s", "written_bytes_per_s", 512),
        ("kB/s", "bytes_per_s", 1024),
        ("MB/s", "bytes_per_s", MIB),
    ],
)
def test_units_of_iostats_other_columns(heading, key, factor) -> None:
    text = f"{SYSSTAT}Device             tps {heading:>10}\nsda               1.00       3.00\n\n"
    (report,) = extract("iostat", text.encode()).data["reports"]
    assert report["devices"]["sda"] == {"tps": 1.0, key: 3 * factor}


def test_perf_derives_nothing_from_what_was_not_counted() -> None:
    csv = "1.001,S0,1,<not counted>,,cycles,0,0.00,0.000,GHz\n"
    line = {"counter-value": "<not counted>", "event": "cycles", "event-runtime": 0,
            "pcnt-running": 0.0, "metric-value": "0.000", "metric-unit": "GHz"}  # fmt: skip
    for text in (csv, json.dumps(line) + "\n"):
        (event,) = extract("perf-stat", text.encode()).data["events"]
        assert event["value"] is None and event["metric"] is None


@pytest.mark.parametrize(
    ("said", "link"), [("yes", True), ("no (No cable)", False), ("Unknown!", None)]
)
def test_ethtool_adds_a_reason_to_a_link_that_is_down(said, link) -> None:
    text = f"Settings for eth0:\n\tSpeed: Unknown!\n\tLink detected: {said}\n"
    assert extract("ethtool", text.encode()).data["interfaces"][0]["link"] is link


def test_the_driver_model_of_windows_is_no_part_of_the_name() -> None:
    text = """\
| NVIDIA-SMI 560.94                 Driver Version: 560.94         CUDA Version: 12.6     |
+-----------------------------------------+------------------------+----------------------+
|   0  NVIDIA GeForce RTX 4090      WDDM  |   00000000:01:00.0  On |                  Off |
|  0%   45C    P8             13W /  450W |     512MiB /  24564MiB |      3%      Default |
+-----------------------------------------+------------------------+----------------------+
"""
    (gpu,) = extract("nvidia-smi-table", text.encode()).data["gpus"]
    assert (gpu["name"], gpu["persistence_mode"]) == ("NVIDIA GeForce RTX 4090", None)


def test_fields_of_dcgm_have_their_unit_once_and_blanks_are_missing() -> None:
    fields = {
        "PROF_PCIE_TX_BYTES": ("pcie_tx_bytes_per_s", "5000", 5000),
        "PROF_NVLINK_RX_BYTES": ("nvlink_rx_bytes_per_s", "7", 7),
        # Used / (total - reserved), from 0 to 1 (dcgm_fields.h).
        "DEV_FB_USED_PERCENT": ("fb_used_percent", "0.25", 25),
        "DEV_GPU_TEMP": ("gpu_temp_celsius", "2147483634", None),
        "DEV_MEMORY_TEMP": ("memory_temp_celsius", "9223372036854775794", None),
        "DEV_GPU_UTIL": ("gpu_util_percent", "2147483631", 2147483631),
    }
    text = "".join(f'DCGM_FI_{name}{{gpu="0"}} {said}\n' for name, (_, said, _) in fields.items())
    (entity,) = extract("dcgm-exporter", text.encode()).data["entities"]
    assert entity["fields"] == {key: value for key, _, value in fields.values()}


def test_mx_smi_without_a_state_keeps_power_and_memory() -> None:
    text = """\
Attached GPUs                                     : 1
| MX-SMI 2.1.12                       Kernel Mode Driver Version: 2.12.13         |
| 0           MetaX C500             | 0000:0e:00.0        | 3%                   |
| 36C         69W / 350W             | 5680/65536 MiB      |                      |
+------------------------------------+---------------------+----------------------+
"""
    data, skipped = extract("mx-smi", text.encode())
    (gpu,) = data["gpus"]
    assert (gpu["power_draw_watts"], gpu["temperature_celsius"]) == (69, 36)
    assert (gpu["memory_used_bytes"], gpu["gpu_state"], skipped) == (5680 * MIB, None, [])


def test_ixsmi_names_its_time() -> None:
    text = """\
Timestamp    Mon May 25 20:50:24 2026
|  IX-ML: 4.0.0       Driver Version: 4.1.0       CUDA Version: N/A           |
| 0    Iluvatar BI-V150S        | 00000000:8A:00.0     | 500MHz    1600MHz    |
| 0%   33C   P0    N/A / N/A    | 114MiB / 32768MiB    | 0%        Default    |
"""
    data, skipped = extract("ixsmi", text.encode())
    assert (data["timestamp"], skipped) == ("Mon May 25 20:50:24 2026", [])


def test_columns_of_rocm_smis_table_are_those_of_its_heading() -> None:
    text = """\
GPU  Temp    AvgPwr   SCLK     MCLK     Fan      Perf    SCLK OD
  0   50.0c   8.0W     852Mhz   500Mhz   12.94%   auto      0%
GPU  Temp (DieEdge)  AvgPwr  SCLK  MCLK   Fan  Perf  PwrCap  VRAM%  GPU%
1    51.0c           4.0W    0Mhz  96Mhz  0%   auto  100.0W   11%   7%
"""
    data, skipped = extract("rocm-smi", text.encode())
    old, new = data["cards"]["card0"], data["cards"]["card1"]
    assert skipped == []
    assert (old["use_percent"], old["power_watts"], old["fields"]["sclk_mhz"]) == (None, 8, 852)
    assert (old["fields"]["mclk_mhz"], old["fields"]["fan_percent"]) == (500, 12.94)
    assert (new["use_percent"], new["fields"]["vram_percent"]) == (7, 11)
    assert new["temperature_edge_celsius"] == 51


LABEL = st.text(st.sampled_from("ab {}=,5\\"), max_size=6)


@given(LABEL, st.sampled_from(["7", "1e3", "NaN", "+Inf", "1_0", "x", "", "5 1700000000000"]))
def test_series_are_those_of_prometheus_own_reader(label: str, value: str) -> None:
    escaped = label.replace("\\", "\\\\")
    row = f'm_total{{a="{escaped}",b="}} 5"}} {value}\n'
    try:
        families = list(text_string_to_metric_families(row))
        (wanted,) = [sample for family in families for sample in family.samples]
    except ValueError:
        assert read_exposition(row).series == []
        return
    (found,) = read_exposition(row).series
    assert (found.metric, found.labels) == (wanted.name, wanted.labels)
    finite = wanted.value == wanted.value and abs(wanted.value) != float("inf")
    assert found.value == (wanted.value if finite else None)


@pytest.mark.parametrize("where", ["behind", "within"])
@pytest.mark.parametrize(
    ("own", "other"),
    [
        ("numastat.txt", "sar.txt"),
        ("numastat.3.txt", "iostat.txt"),
        ("mpstat.txt", "nccl-tests.2.txt"),
        ("pidstat.txt", "nccl-tests.2.txt"),
        ("iostat.txt", "perftest.2.txt"),
        ("iostat.txt", "nvidia-smi-csv.2.txt"),
        ("perf-stat.txt", "dcgm-csv.txt"),
        ("nvidia-smi-dmon.2.txt", "nccl-tests.txt"),
        ("nvidia-smi-dmon.2.txt", "pidstat.2.txt"),
        ("nvidia-smi-csv.txt", "perf-stat.txt"),
        ("nvidia-smi-table.txt", "ixsmi.txt"),
        ("xpu-smi.txt", "nvidia-smi-table.txt"),
        ("ixsmi.txt", "nvidia-smi-table.2.txt"),
        ("amd-smi.4.txt", "hip-bandwidth.txt"),
        ("rdma-statistic.txt", "nccl-log.txt"),
        ("ethtool-statistics.txt", "nccl-log.txt"),
        ("p2p-bandwidth.txt", "nvbandwidth.txt"),
        ("nvbandwidth.txt", "hip-bandwidth.txt"),
        ("ibstat.txt", "nvidia-smi-table.txt"),
    ],
)
def test_lines_of_another_tool_give_no_number(own: str, other: str, where: str) -> None:
    text, foreign = ((MADE / name).read_text() for name in (own, other))
    kind = own.partition(".")[0]
    lines = text.splitlines(keepends=True)
    half = len(lines) if where == "behind" else len(lines) // 2
    mixed = "".join([*lines[:half], foreign, *lines[half:]])
    found = extract(kind, mixed.encode())
    assert numbers(found.data) <= numbers(extract(kind, text.encode()).data)
    assert found.skipped


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        # Headings behind a `#`, as those of pidstat -H.
        ("mpstat", "# gpu    pwr     sm\n# Idx      W      %\n    0    438      -\n"),
        (
            "pidstat",
            "# gpu    pid   type     sm\n# Idx      #    C/G      %\n    0      -      -      -\n",
        ),
        ("nvidia-smi-csv", '{"a": null,\n "b": null,\n "c": []}\n'),
        ("dcgm-exporter", "Linux 6.8.0 (node)\nrx_bytes 12\nsome other line: 3\n"),
    ],
)
def test_a_text_of_another_tool_is_no_empty_table(kind: str, text: str) -> None:
    with pytest.raises(ParseError, match="this is no output of"):
        extract(kind, text.encode())


def test_histograms_that_are_not_whole_have_no_quantiles() -> None:
    rows = ['h_bucket{le="1"} 1', 'h_bucket{le="+Inf"} 4', "h_sum 8", "h_count 4"]

    def read(lines: list[str]) -> dict:
        (found,) = extract("engine-metrics", "".join(f"{x}\n" for x in lines).encode()).data[
            "histograms"
        ]
        return found

    whole = read(rows)
    assert whole["mean"] == 2 and whole["quantiles"]["p50"] == {"above": 1, "at_most": None}
    assert read(rows[:1])["quantiles"] is None and read(rows[:3])["mean"] is None
    assert read([rows[0], 'h_bucket{le="+Inf"} 0', *rows[2:]])["quantiles"] is None
    assert read([*rows[:3], "h_count 100"])["quantiles"] is None
    empty = read(['h_bucket{le="+Inf"} 0', "h_sum 0", "h_count 0"])
    assert empty["mean"] is None and empty["quantiles"] is None
    # Of two scrapes the last one counts.
    later = [row.replace("4", "6").replace("} 1", "} 5") for row in rows]
    assert read(rows + later) == read(later)


def test_sadf_marks_columns_that_come_again() -> None:
    text = """\
# hostname;interval;timestamp;CPU;%user;%idle[...]
node-a;1;2026-03-01 12:00:02 UTC;-1;0.50;99.50
"""
    (table,) = extract("sadf", text.encode()).data["tables"]
    assert (table["name"], table["rows"][0]["idle_percent"]) == ("cpu", 99.5)


def test_figures_of_a_card_of_several_tiles() -> None:
    text = """\
| Device ID                   | 0                                  |
| GPU Utilization (%)         | Tile 0: 10, Tile 1: N/A            |
| GPU Memory Used (MiB)       | Tile 0: 31, Tile 1: 42             |
| Driver Errors               | Tile 0: 0, total: 3                |
| GPU Power (W)               | 245                                |
"""
    (device,) = extract("xpu-smi", text.encode()).data["devices"]
    assert device["gpu_utilization_percent"] == {"tile_0": 10, "tile_1": None}
    assert device["gpu_memory_used_bytes"] == {"tile_0": 31 * MIB, "tile_1": 42 * MIB}
    assert (device["driver_errors"], device["gpu_power_watts"]) == ({"tile_0": 0, "total": 3}, 245)


def test_npu_smi_that_may_not_use_the_device_says_so() -> None:
    said = "dcmi model initialized failed, because the device is used. ret is -8020"
    data, _ = extract("npu-smi", f"{said}\n".encode())
    assert (data["error"], data["npus"]) == (said, None)


def test_blocks_of_npu_smi_have_their_chip_in_front_or_behind() -> None:
    common = extract("npu-smi", (MADE / "npu-smi.2.txt").read_bytes()).data["chips"]
    assert [(one["npu"], one["chip"]) for one in common] == [(4, 0), (4, 1), (4, None)]
    assert common[0]["fields"] == {
        "memory_usage_rate_percent": 6, "hbm_usage_rate_percent": 50,
        "aicore_usage_rate_percent": 93, "aicore_freq_mhz": 1650, "temperature_celsius": 46,
        "npu_real_time_power_watts": 169.5,
    }  # fmt: skip
    assert common[1]["fields"]["hbm_usage_rate_percent"] is None
    assert common[2]["fields"]["chip_name"] == "mcu"
    usages = extract("npu-smi", (MADE / "npu-smi.3.txt").read_bytes()).data["chips"]
    assert [(one["npu"], one["chip"]) for one in usages] == [(4, 0), (4, 1), (5, 0)]
    assert usages[0]["fields"]["hbm_capacity_bytes"] == 64 * GIB
    assert usages[0]["fields"]["ddr_hugepages_total_page"] == 0
    names = [[one["process_name"] for one in chip["processes"] or []] for chip in usages]
    assert names == [[], ["made up server", "python3"], []]
    assert usages[0]["processes"] is None and usages[2]["processes"] == []
    assert usages[1]["processes"][0]["memory_used_bytes"] == 30 * GIB


def test_blocks_of_npu_smi_without_blank_lines_begin_where_a_chip_does() -> None:
    lines = (MADE / "npu-smi.2.txt").read_text().splitlines(keepends=True)[:-4]
    text = "".join(line for line in lines if line.strip())
    chips = extract("npu-smi", text.encode()).data["chips"]
    assert [(one["chip"], one["fields"]["temperature_celsius"]) for one in chips] == [
        (0, 46),
        (1, 44),
    ]

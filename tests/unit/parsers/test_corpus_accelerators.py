"""The right values of recorded outputs of DCGM and other vendors' tools, worked out by hand."""

from tests.corpus import sample

MIB = 2**20


@sample("dcgm/001_exporter_readme_sentinel.prom", "dcgm-exporter")
def test_the_code_for_a_missing_value(data, skipped):
    (entity,) = data["entities"]
    assert entity["fields"] == {
        "sm_clock_mhz": 139,
        "mem_clock_mhz": 405,
        "memory_temp_celsius": None,
    }
    assert entity["gpu"] == 0 and entity["uuid"] == "GPU-3f6a3f3f-bf06-a41b-f097-2db916945115"
    assert [piece.line for piece in skipped] == [7]


@sample("dcgm/002_exporter_readme_pod_labels.prom", "dcgm-exporter")
def test_empty_labels_name_nobody(data, skipped):
    (entity,) = data["entities"]
    assert (entity["pod"], entity["namespace"], entity["container"]) == (None, None, None)
    assert entity["fields"]["sm_clock_mhz"] == 139
    assert entity["fields"]["memory_temp_celsius"] is None


@sample("dcgm/004_netdata_metrics_non_dcgm.prom", "dcgm-exporter")
def test_a_scrape_without_dcgm(data, skipped):
    assert data == {"entities": None, "contradictions": []} and skipped == []


@sample("dcgm/006_fmperf_power_csv_unixts.csv", "dcgm-csv")
def test_power_over_time(data, skipped):
    first, second = data["rows"]
    seconds = (second["t_ns"] - first["t_ns"]) / 1e9
    mean = (first["power_usage_watts"] + second["power_usage_watts"]) / 2
    assert seconds == 30 and round(mean, 3) == 100.912 and round(mean * seconds, 1) == 3027.4
    assert first["t_ns"] == 1701412591 * 10**9 and skipped == []


@sample("dcgm/007_fmperf_util_csv.csv", "dcgm-csv")
def test_use_over_time(data, skipped):
    first, second = data["rows"]
    assert second["t_ns"] - first["t_ns"] == 30 * 10**9
    assert [row["gpu_util_percent"] for row in data["rows"]] == [0, 43] and skipped == []


@sample("dcgm/009_dmon_gpu7_first_order.txt", "dcgmi-dmon")
def test_dmon_in_any_order(data, skipped):
    assert [row["id"] for row in data["rows"]] == [7, 6, 0]
    assert {row["tick"] for row in data["rows"]} == {0}
    for name in ("gract", "smact", "tenso", "drama"):
        assert {row[f"{name}_ratio"] for row in data["rows"]} == {0}
    assert skipped == []


@sample("dcgm/011_dmon_units_row_mixed_NA.txt", "dcgmi-dmon")
def test_dmon_with_missing_values_of_one_gpu(data, skipped):
    rows = data["rows"]
    assert [row["id"] for row in rows] == [7, 6, 5, 4, 3, 2, 1, 0]
    assert [row["gract_ratio"] for row in rows] == [None, 0, 0, 0, 0, 0, 0, 0]
    assert [row["tmptr_celsius"] for row in rows] == [26, 26, 25, 26, 27, 27, 27, 28]
    assert skipped == []


@sample("dcgm/012_discovery_no_hostengine.txt", "dcgmi-discovery")
def test_no_host_engine(data, skipped):
    assert data["status"] == "hostengine-unreachable" and data["gpus"] is None
    assert "unable to establish a connection" in data["message"] and data["found"] == {}


@sample("telemetry_prom/001_nvgpuexp_h100mig_load.prom", "prometheus")
def test_an_exporter_that_leaves_out_what_is_missing(data, skipped):
    values = {series["metric"]: series["value"] for series in data["series"]}
    assert not any("utilization_gpu" in name for name in values)
    assert values["nvidia_smi_clocks_current_sm_clock_hz"] == 1980000000
    assert data["types"]["nvidia_smi_accounting_mode"] == "gauge"
    assert skipped == []


@sample("telemetry_prom/002_nvgpuexp_h200_load.prom", "prometheus")
def test_an_exporter_with_ratios(data, skipped):
    values = {series["metric"]: series["value"] for series in data["series"]}
    assert values["nvidia_smi_utilization_gpu_ratio"] == 1
    assert skipped == []


@sample("vendor_smi/001_rocm_smi_vega_10_XT.json", "rocm-smi")
def test_vega_10(data, skipped):
    card = data["cards"]["card0"]
    assert card["use_percent"] == 0 and card["power_watts"] == 15
    assert (card["memory_total_bytes"], card["memory_used_bytes"]) == (17163091968, 17776640)
    assert card["fields"]["sclk_clock_speed_mhz"] == 1269
    assert card["fields"]["sclk_clock_level"] == 3
    assert data["system"] == {"driver_version": "5.9.25"} and skipped == []


@sample("vendor_smi/002_rocm_smi_vega_20_WKS_GL_XE.json", "rocm-smi")
def test_vega_20(data, skipped):
    (card,) = data["cards"].values()
    assert card["power_watts"] == 26 and card["use_percent"] == 0
    assert (card["memory_total_bytes"], card["memory_used_bytes"]) == (34342961152, 10850304)
    assert card["fields"]["vis_vram_total_used_memory_bytes"] == 10850304
    assert skipped == []


@sample("vendor_smi/004_rocm_smi_mi100_rocm602.json", "rocm-smi")
def test_mi100(data, skipped):
    assert [data["cards"][f"card{n}"]["power_watts"] for n in range(2)] == [36, 44]
    assert all(card["power_watts"] is not None for card in data["cards"].values())
    assert data["cards"]["card0"]["temperature_junction_celsius"] == 55
    assert skipped == []


@sample("vendor_smi/006_rocm_smi_rx6700xt_rocm571.json", "rocm-smi")
def test_rocm_5_7(data, skipped):
    (card,) = data["cards"].values()
    assert card["power_watts"] == 6 and card["temperature_edge_celsius"] == 45
    assert card["name"] == "Navi 22 [Radeon RX 6700/6700 XT / 6800M]"
    assert card["fields"]["unique_id"] is None and skipped == []


@sample("vendor_smi/007_rocm_smi_rx6700xt_rocm612.json", "rocm-smi")
def test_rocm_6_1(data, skipped):
    (card,) = data["cards"].values()
    assert card["power_watts"] == 6 and card["temperature_edge_celsius"] == 45
    assert card["name"] == "Navi 22 [Radeon RX 6700/6700 XT / 6800M]"
    assert card["memory_total_bytes"] == 12868124672 and skipped == []


@sample("vendor_smi/009_xpu_smi_v2_table.txt", "xpu-smi")
def test_arc_b580(data, skipped):
    (gpu,) = data["gpus"]
    assert gpu["name"] == "Intel(R) Arc(TM) B580" and gpu["temperature_celsius"] == 25
    assert (gpu["power_draw_watts"], gpu["power_limit_watts"]) == (66, 380)
    assert (gpu["memory_used_bytes"], gpu["memory_total_bytes"]) == (239 * MIB, 12216 * MIB)
    assert gpu["utilization_percent"] == 0 and gpu["fan_percent"] is None
    assert [row["pid"] for row in data["processes"]] == [2874292] and skipped == []


@sample("vendor_smi/011_amd_smi_static_text.txt", "amd-smi")
def test_mi300a(data, skipped):
    assert [entry["cpu"] for entry in data["cpus"]] == [0, 1, 2, 3]
    assert [entry["gpu"] for entry in data["gpus"]] == [0, 1, 2, 3]
    gpu = data["gpus"][0]
    assert gpu["asic"]["market_name"] == "MI300A" and gpu["limit"]["max_power_watts"] == 550
    assert gpu["limit"]["slowdown_edge_temperature_celsius"] is None
    assert gpu["limit"]["shutdown_vram_temperature_celsius"] == 115
    assert gpu["vram"]["size_bytes"] == 64289 * MIB and gpu["process_isolation"] is None
    assert gpu["soc_pstate"]["policies"]["policy_id"] == ["0", "1", "2", "3"]
    # The fences of the document and the prompt.
    assert [piece.line for piece in skipped] == [1, 2, 528]


@sample("vendor_smi/012_ixsmi_bi_v150_2gpu.txt", "ixsmi")
def test_a_card_with_two_dies(data, skipped):
    first, second = data["gpus"]
    assert first["power_draw_watts"] is None and first["power_limit_watts"] is None
    assert (second["power_draw_watts"], second["power_limit_watts"]) == (104, 350)
    for gpu in data["gpus"]:
        assert (gpu["memory_used_bytes"], gpu["memory_total_bytes"]) == (64 * MIB, 32768 * MIB)
        assert gpu["utilization_percent"] == 0 and gpu["clock_sm_mhz"] == 1500
    assert data["processes"] is None and skipped == []


@sample("vendor_smi/014_npu_smi_ascend910_dualchip.txt", "npu-smi")
def test_a_module_with_two_chips(data, skipped):
    first, second = data["npus"]
    assert (first["npu"], first["chip"], first["power_watts"]) == (0, 0, 178.9)
    assert (first["hbm_used_bytes"], first["hbm_total_bytes"]) == (3412 * MIB, 65536 * MIB)
    assert first["phy_id"] == 0 and first["bus_id"] == "0000:9D:00.0"
    assert second["npu"] == 0 and second["power_watts"] is None
    assert second["chip"] is None and [piece.reason for piece in skipped] == [
        "the last entry is cut"
    ]


@sample("vendor_smi/016_npu_smi_22_310P3.txt", "npu-smi")
def test_310p3(data, skipped):
    (npu,) = data["npus"]
    assert npu["name"] == "310P3" and npu["power_watts"] == 16.2
    assert (npu["memory_used_bytes"], npu["memory_total_bytes"]) == (994 * MIB, 21534 * MIB)
    assert npu["hbm_used_bytes"] is None and npu["device"] == 0
    assert (data["tool_version"], data["driver_version"]) == ("22.0.0", "22.0.2")
    assert skipped == []


@sample("vendor_smi/017_mx_smi_c550.txt", "mx-smi")
def test_c550_cut(data, skipped):
    assert data["attached"] == 8 and len(data["gpus"]) == 2
    for gpu in data["gpus"]:
        assert (gpu["power_draw_watts"], gpu["power_limit_watts"]) == (53, 450)
        assert (gpu["memory_used_bytes"], gpu["memory_total_bytes"]) == (858 * MIB, 65536 * MIB)
    assert data["gpus"][0]["gpu_state"] == "Available" and data["gpus"][1]["gpu_state"] is None
    assert [piece.reason for piece in skipped] == [
        "cut in the last cell",
        "8 devices attached, rows of 2: cut",
    ]


@sample("vendor_smi/019_rocm_smi_csv_three_temps.csv", "rocm-smi")
def test_three_temperatures(data, skipped):
    card = data["cards"]["card0"]
    assert card["temperature_edge_celsius"] == 64
    assert card["temperature_junction_celsius"] == 79
    assert card["temperature_memory_celsius"] == 92
    assert card["use_percent"] == 99 and skipped == []

"""The right values of recorded outputs of nvidia-smi, worked out by hand."""

from tests.corpus import sample

MIB = 2**20


@sample("nvidia_smi/001_h200_query_all_fields_load.csv", "nvidia-smi-csv")
def test_h200_all_fields(data, skipped):
    (row,) = data["rows"]
    assert (row["name"], row["index"], row["count"]) == ("NVIDIA H200", 0, 1)
    assert row["power_draw_watts"] == 627.4 and row["power_limit_watts"] == 700
    assert (row["utilization_gpu_percent"], row["utilization_memory_percent"]) == (100, 7)
    assert row["memory_used_bytes"] == 32362 * MIB and row["memory_total_bytes"] == 143771 * MIB
    assert (row["temperature_gpu_celsius"], row["temperature_memory_celsius"]) == (52, 40)
    assert row["clocks_current_sm_mhz"] == 1980
    assert row["display_mode"] is None and row["power_management"] is None
    assert row["clocks_applications_graphics_mhz"] is None and row["fan_speed_percent"] is None
    assert row["clocks_event_reasons_active"] == "0x0000000000000000"
    assert row["driver_version"] == "590.48.01" and row["serial"] == "0000000000000"
    assert row["timestamp"] == "2026/07/03 22:11:09.763"
    assert row["platform_chassis_serial_number"] is None and len(row) == 212
    assert skipped == []


@sample("nvidia_smi/002_h100_mig_query_all_fields_load.csv", "nvidia-smi-csv")
def test_h100_mig_all_fields(data, skipped):
    (row,) = data["rows"]
    assert row["utilization_gpu_percent"] is None and row["utilization_memory_percent"] is None
    assert 430 < row["power_draw_watts"] < 445
    assert row["memory_used_bytes"] == 11125 * MIB and row["memory_total_bytes"] == 81559 * MIB
    assert skipped == []


@sample("nvidia_smi/004_l40s_query_all_idle.csv", "nvidia-smi-csv")
def test_l40s_all_fields(data, skipped):
    (row,) = data["rows"]
    assert row["name"] == "NVIDIA L40S" and row["driver_version"] == "595.80"
    assert row["temperature_memory_celsius"] is None and row["temperature_gpu_celsius"] == 63
    assert row["memory_used_bytes"] == 0 and row["power_draw_watts"] == 144.97
    assert row["clocks_event_reasons_counters_sw_power_cap_s"] == 200.740215
    assert skipped == []


@sample("nvidia_smi/006_h100_mig_dmon_load.txt", "nvidia-smi-dmon")
def test_dmon_of_a_mig_parent(data, skipped):
    rows = data["rows"]
    assert [row["pwr_watts"] for row in rows] == [438, 440, 437, 439, 439]
    assert [row["tick"] for row in rows] == [0, 1, 2, 3, 4]
    for name in ("sm", "mem", "enc", "dec", "jpg", "ofa"):
        assert {row[f"{name}_percent"] for row in rows} == {None}
    assert {(row["mclk_mhz"], row["pclk_mhz"]) for row in rows} == {(2619, 1980)}
    assert skipped == []


@sample("nvidia_smi/007_h200_dmon_load.txt", "nvidia-smi-dmon")
def test_dmon_of_an_h200(data, skipped):
    rows = data["rows"]
    assert {row["gpu"] for row in rows} == {0}
    assert [row["pwr_watts"] for row in rows] == [630, 628, 629, 632, 630]
    assert [row["mtemp_celsius"] for row in rows] == [41, 42, 42, 42, 42]
    assert {(row["sm_percent"], row["mem_percent"]) for row in rows} == {(100, 8)}
    assert skipped == []


@sample("nvidia_smi/009_h100_mig_pmon_load.txt", "nvidia-smi-dmon")
def test_pmon_of_a_mig_parent(data, skipped):
    rows = data["rows"]
    for tick in {row["tick"] for row in rows}:
        found = [(row["pid"], row["command"]) for row in rows if row["tick"] == tick]
        assert found == [(21180, "memhog"), (21181, "memhog"), (21198, "gpu_burn")]
    assert {row["sm_percent"] for row in rows} == {None} and {row["type"] for row in rows} == {"C"}
    assert len(rows) == 15 and skipped == []


@sample("nvidia_smi/011_h200_compute_apps.csv", "nvidia-smi-csv")
def test_compute_apps(data, skipped):
    rows = data["rows"]
    assert [row["pid"] for row in rows] == [10291, 10293, 10309]
    assert sum(row["used_gpu_memory_bytes"] for row in rows) == 32342 * MIB
    assert rows[2]["process_name"] == "./gpu_burn"
    assert skipped == []


@sample("nvidia_smi/012_h200_nvlink_s_18links.txt", "nvidia-smi-nvlink")
def test_eighteen_nvlinks(data, skipped):
    (gpu,) = data["gpus"]
    assert len(gpu["links"]) == 18
    assert {link["bytes_per_s"] for link in gpu["links"].values()} == {26.562e9}
    assert {link["active"] for link in gpu["links"].values()} == {True}
    assert gpu["message"] is None and skipped == []


@sample("nvidia_smi/014_l40s_nvlink_unsupported.txt", "nvidia-smi-nvlink")
def test_no_nvlink(data, skipped):
    (gpu,) = data["gpus"]
    assert gpu["name"] == "NVIDIA L40S" and gpu["links"] is None
    assert gpu["message"] == "Device does not have or support Nvlink"


@sample("nvidia_smi/016_win_topo_exit255.txt", "nvidia-smi-topo")
def test_no_topology_on_windows(data, skipped):
    assert data["links"] is None and data["nics"] is None and data["numa_node"] is None
    assert data["error"].startswith("ERROR: Option -m is missing its value.")


@sample("nvidia_smi/017_h100_mig_default_table.txt", "nvidia-smi-table")
def test_table_of_a_mig_parent(data, skipped):
    (gpu,) = data["gpus"]
    assert gpu["utilization_percent"] is None and gpu["fan_percent"] is None
    assert (gpu["power_draw_watts"], gpu["power_limit_watts"]) == (432, 700)
    assert gpu["name"] == "NVIDIA H100 80GB HBM3" and gpu["persistence_mode"] == "On"
    assert gpu["mig_mode"] == "Enabled" and gpu["temperature_celsius"] == 52
    assert [row["gpu_instance"] for row in data["mig_devices"]] == [2, 3, 9, 10]
    assert [row["memory_used_bytes"] // MIB for row in data["mig_devices"]] == [11091, 17, 9, 9]
    assert [row["bar1_total_bytes"] // MIB for row in data["mig_devices"]] == [
        24739, 12369, 6184, 6184,
    ]  # fmt: skip
    assert [row["memory_used_bytes"] // MIB for row in data["processes"]] == [2296, 1272, 7484]
    assert (data["driver_version"], data["cuda_version"]) == ("590.48.01", "13.1")
    assert skipped == []


@sample("nvidia_smi/019_h100_mig_q_text.txt", "nvidia-smi-q")
def test_query_of_a_mig_parent(data, skipped):
    (gpu,) = data["gpus"]
    assert data["attached_gpus"] == 1 and data["driver_version"] == "590.48.01"
    assert gpu["utilization"]["gpu_percent"] is None
    assert gpu["fb_memory_usage"]["used_bytes"] == 11125 * MIB
    assert [each["gpu_instance_id"] for each in gpu["mig_device"]] == [2, 3, 9, 10]
    assert gpu["mig_device"][0]["shared_fb_memory_usage"]["used_bytes"] == 11091 * MIB
    assert gpu["gpu_power_readings"]["average_power_draw_watts"] == 432.21
    assert gpu["module_power_readings"]["average_power_draw_watts"] is None
    assert gpu["temperature"]["gpu_current_temp_celsius"] == 53
    assert gpu["temperature"]["gpu_shutdown_t_limit_temp_celsius"] == -8
    assert gpu["clocks"]["memory_mhz"] == 2619
    assert gpu["applications_clocks"]["graphics_mhz"] is None
    assert gpu["pci"]["tx_throughput_bytes_per_s"] == 9139000
    assert [each["process_id"] for each in gpu["processes"]] == [21180, 21181, 21198]
    assert gpu["processes"][2]["used_gpu_memory_bytes"] == 7484 * MIB
    assert gpu["serial_number"] == "2805131416837" and gpu["capabilities"] == {"egm": "disabled"}
    assert skipped == []


@sample("nvidia_smi/021_exporter_query_two_rows.csv", "nvidia-smi-csv")
def test_two_rows(data, skipped):
    rows = data["rows"]
    assert [row["fan_speed_percent"] for row in rows] == [38, 50]
    assert [row["memory_used_bytes"] for row in rows] == [575 * MIB, 1234 * MIB]
    assert [row["serial"] for row in rows] == [None, None]
    assert skipped == []


@sample("nvidia_smi/022_xml_a100_sxm4_v12_mig.xml", "nvidia-smi-xml")
def test_xml_of_an_a100_with_mig(data, skipped):
    assert data["attached_gpus"] == 4 and len(data["gpus"]) == 1
    gpu = data["gpus"][0]
    assert gpu["id"] == "00000000:01:00.0" and gpu["complete"] is True
    assert len(gpu["mig_devices"]) == 4
    assert {each["fb_memory_usage"]["used_bytes"] for each in gpu["mig_devices"]} == {12 * MIB}
    assert gpu["utilization"]["gpu_util_percent"] is None
    assert gpu["gpu_power_readings"]["power_draw_watts"] == 67.03
    assert gpu["module_power_readings"]["power_draw_watts"] is None
    assert gpu["pci"]["tx_util_bytes_per_s"] == 4000000
    assert skipped == []


@sample("nvidia_smi/024_xml_gtx1070ti_old.xml", "nvidia-smi-xml")
def test_old_xml(data, skipped):
    (gpu,) = data["gpus"]
    assert data["attached_gpus"] is None
    assert gpu["power_readings"]["power_draw_watts"] is None
    assert gpu["fb_memory_usage"]["used_bytes"] == 42 * MIB
    assert gpu["fan_speed_percent"] == 100 and gpu["clocks"]["sm_clock_mhz"] == 135
    assert skipped == []


@sample("nvidia_smi/026_xml_tesla_t4.xml", "nvidia-smi-xml")
def test_xml_of_a_t4(data, skipped):
    (gpu,) = data["gpus"]
    assert gpu["power_readings"]["power_draw_watts"] == 26.78
    assert gpu["fb_memory_usage"]["used_bytes"] == 1032 * MIB
    assert gpu["mig_devices"] == [] and skipped == []


@sample("nvidia_smi/027_xml_netdata_a100_mig.xml", "nvidia-smi-xml")
def test_xml_of_an_a100_with_two_mig_devices(data, skipped):
    (gpu,) = data["gpus"]
    assert len(gpu["mig_devices"]) == 2 and gpu["utilization"]["gpu_util_percent"] is None
    assert gpu["power_readings"]["power_draw_watts"] == 66.92
    assert skipped == []


@sample("nvidia_smi/029_xml_netdata_2080_win.xml", "nvidia-smi-xml")
def test_xml_on_windows(data, skipped):
    (gpu,) = data["gpus"]
    assert gpu["utilization"]["gpu_util_percent"] == 2
    assert gpu["power_readings"]["power_draw_watts"] == 14.5
    assert gpu["fb_memory_usage"]["used_bytes"] == 862 * MIB
    assert gpu["processes"][0]["pid"] == 7724
    assert {each["used_memory_bytes"] for each in gpu["processes"]} == {None}
    assert skipped == []


@sample("nvidia_smi/031_az_q_8gpu_retired_pages_text.txt", "nvidia-smi-q")
def test_retired_pages(data, skipped):
    assert data["attached_gpus"] == 8
    pages = [gpu["retired_pages"] for gpu in data["gpus"]]
    assert [page["single_bit_ecc"] for page in pages] == [60, 2, 0, 6, 0, 20, 0, 8]
    assert [page["double_bit_ecc"] for page in pages] == [5, 61, 0, 0, 0, 45, 0, 56]
    assert [page["pending_page_blacklist"] for page in pages] == ["No", "Yes"] * 4
    assert skipped == []


@sample("nvidia_smi/032_az_nvlink_inactive.txt", "nvidia-smi-nvlink")
def test_inactive_nvlinks(data, skipped):
    (gpu,) = data["gpus"]
    assert gpu["index"] == 6 and gpu["links"] is None
    assert gpu["message"].endswith("all links are inactive")


@sample("nvidia_smi/034_gpud_nvlink_a100.txt", "nvidia-smi-nvlink")
def test_nvlinks_of_eight_gpus(data, skipped):
    assert [gpu["index"] for gpu in data["gpus"]] == list(range(8))
    assert {len(gpu["links"]) for gpu in data["gpus"]} == {12}
    speeds = {link["bytes_per_s"] for gpu in data["gpus"] for link in gpu["links"].values()}
    assert speeds == {25_000_000_000} and skipped == []


@sample("nvidia_smi/036_mle_topo_8xH100_NV18.txt", "nvidia-smi-topo")
def test_topology_of_eight_h100(data, skipped):
    gpus = [f"GPU{n}" for n in range(8)]
    for gpu in gpus:
        assert data["links"][gpu] == {other: "NV18" for other in gpus if other != gpu}
    assert data["cpu_affinity"]["GPU0"] == "0-51" and data["cpu_affinity"]["GPU7"] == "52-103"
    assert list(data["numa_node"].values()) == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [piece.line for piece in skipped] == [1]


@sample("nvidia_smi/037_mle_topo_2gpu_NV2.txt", "nvidia-smi-topo")
def test_topology_of_two_gpus(data, skipped):
    assert data["links"] == {"GPU0": {"GPU1": "NV2"}, "GPU1": {"GPU0": "NV2"}}
    assert data["numa_node"] == {"GPU0": None, "GPU1": None}
    assert data["cpu_affinity"] == {"GPU0": "0-23", "GPU1": "0-23"}
    assert skipped == []


@sample("nvidia_smi/039_topo_8xH_10nic_ansi.txt", "nvidia-smi-topo")
def test_topology_with_ten_nics(data, skipped):
    gpus = [f"GPU{n}" for n in range(8)]
    assert all(data["links"][a][b] == "NV18" for a in gpus for b in gpus if a != b)
    near = {
        gpu: [name for name, link in data["links"][gpu].items() if link == "PIX"] for gpu in gpus
    }
    assert near == {
        "GPU0": ["NIC3"], "GPU1": ["NIC5"], "GPU2": ["NIC4"], "GPU3": ["NIC0", "NIC1", "NIC2"],
        "GPU4": ["NIC7"], "GPU5": ["NIC9"], "GPU6": ["NIC8"], "GPU7": ["NIC6"],
    }  # fmt: skip
    assert list(data["numa_node"].values()) == [0, 0, 0, 0, 1, 1, 1, 1]
    assert data["gpu_numa_node"] == dict.fromkeys(gpus)
    assert data["nics"] == {f"NIC{n}": f"mlx5_{n}" for n in range(10)}
    assert data["links"]["NIC9"]["GPU5"] == "PIX" and len(data["links"]) == 18
    assert skipped == []


@sample("nvidia_smi/041_dmon_multi_gpu_fb.txt", "nvidia-smi-dmon")
def test_dmon_of_two_gpus_cut(data, skipped):
    assert [(row["tick"], row["gpu"]) for row in data["rows"]] == [(0, 0), (0, 1), (1, 0)]
    assert data["rows"][2]["fb_bytes"] == 452 * MIB and data["rows"][2]["bar1_bytes"] == 4 * MIB
    assert skipped == []


@sample("nvidia_smi/042_dmon_mclk_dash_igpu.txt", "nvidia-smi-dmon")
def test_dmon_of_an_integrated_gpu(data, skipped):
    (row,) = data["rows"]
    assert row["mclk_mhz"] is None and row["mtemp_celsius"] is None and row["pwr_watts"] == 3
    assert skipped == []


@sample("nvidia_smi/044_csv_compute_apps_not_supported.csv", "nvidia-smi-csv")
def test_a_process_list_that_is_not_known(data, skipped):
    found = [(row["column_2"], row["column_3"]) for row in data["rows"]]
    assert found == [(48448, 4000), (153223, 4000), (192453, 3000), (None, None)]
    assert data["rows"][3]["column_1"].startswith("GPU-05ac5a7c") and skipped == []

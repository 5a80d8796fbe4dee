"""The right values of recorded outputs of network tools, worked out by hand."""

from tests.corpus import sample

GBIT = 10**9


def port(data, device, number=1):
    (found,) = [one for one in data["devices"] if one["name"] == device]
    (found,) = [one for one in found["ports"] if one["port"] == number]
    return found


@sample("hca/001_sysfs_h100_grep_H.txt", "hca-counters")
def test_nine_devices_of_an_h100_node(data, skipped):
    assert len(data["devices"]) == 9
    first = port(data, "mlx5_0")
    assert first["counters"]["port_xmit_bytes"] == 230442669431839 * 4
    assert first["counters"]["port_rcv_bytes"] == 230539874932483 * 4
    assert (first["state"], first["rate_bits_per_s"]) == ("ACTIVE", 400 * GBIT)
    assert (first["physical_state"], first["link_layer"]) == ("LinkUp", "InfiniBand")
    assert first["hw_counters"]["rx_write_requests"] == 3809045607
    assert first["settings"] == {"lifespan_ms": 12}
    assert port(data, "mlx5_1")["counters"]["link_downed"] == 255
    assert skipped == []


@sample("hca/002_sysfs_procfs_fixture.txt", "hca-counters")
def test_devices_of_several_makers(data, skipped):
    assert [one["name"] for one in data["devices"]] == ["hfi1_0", "mlx4_0", "mlx5_0"]
    assert [one["port"] for one in data["devices"][1]["ports"]] == [1, 2]
    second = port(data, "mlx4_0", 2)
    assert (second["rate_bits_per_s"], second["link_layer"]) == (40 * GBIT, "InfiniBand")
    assert second["counters"]["port_xmit_wait"] == 3846
    assert second["counters"]["port_xmit_bytes"] == 26540356890 * 4
    omni_path = port(data, "hfi1_0")
    assert (omni_path["rate_bits_per_s"], omni_path["hw_counters"]) == (100 * GBIT, {})
    assert port(data, "mlx5_0")["hw_counters"]["resp_cqe_error"] == 8109
    assert data["devices"][2]["attributes"]["node_guid"] == "0a7f:bc12:45ef:d23b"
    assert skipped == []


@sample("hca/004_ib_traffic_ibstat.txt", "ibstat")
def test_a_list_of_hosts_and_guids(data, skipped):
    assert (len(data["hosts"]), data["devices"]) == (10, [])
    assert data["hosts"][0] == {
        "host": "vma414bbc00005I", "system_image_guids": ["0x0ff08c4321664e96"],
    }  # fmt: skip
    assert data["hosts"][9]["system_image_guids"] == ["0x043f720300e61112"]
    assert skipped == []


@sample("hca/006_ibstat_down_port_qsfp.txt", "ibstat")
def test_the_rate_of_a_port_that_is_down_is_not_one(data, skipped):
    down, up = port(data, "mlx5_1"), port(data, "mlx5_2")
    assert (down["usable"], down["rate_bits_per_s"], down["state"]) == (False, None, "Down")
    assert (up["usable"], up["rate_bits_per_s"]) == (True, 100 * GBIT)
    assert data["devices"][0]["attributes"]["firmware_version"] == "40.46.5500"
    assert skipped == []


@sample("hca/007_rdma_statistic_two_links.txt", "rdma-statistic")
def test_a_link_that_is_cut(data, skipped):
    first, second = data["links"]
    assert (first["device"], first["port"], len(first["counters"])) == ("mlx5_0", 1, 29)
    counts = [first["counters"][name] for name in ("out_of_buffer", "resp_cqe_error")]
    assert (*counts, first["counters"]["req_cqe_error"]) == (135, 1009, 22)
    assert second["counters"] == {
        "rx_write_requests": 0, "rx_read_requests": 0, "rx_atomic_requests": 0, "out_of_buffer": 0,
    }  # fmt: skip
    assert [(piece.line, "out_" in piece.reason) for piece in skipped] == [(2, True)]


@sample("hca/009_show_gids_roce.txt", "show-gids")
def test_the_gid_for_roce_v2(data, skipped):
    assert [gid["ipv4"] for gid in data["gids"]] == [None, None, "10.77.0.2", "10.77.0.2"]
    assert [gid["version"] for gid in data["gids"]] == ["v1", "v2", "v1", "v2"]
    assert {gid["netdev"] for gid in data["gids"]} == {"gp0rdma0"}
    assert data["roce_v2_ipv4"] == [{"device": "mlx5_0", "port": 1, "index": 3}]
    assert skipped == []


@sample("hca/011_ethtool_S_prio3_pause.txt", "ethtool-statistics")
def test_pause_frames(data, skipped):
    (block,) = data["blocks"]
    assert block["counters"]["tx_prio3_pause"] == 1290418
    assert block["counters"]["rx_prio3_pause"] == 41927
    assert block["counters"]["rx_prio3_bytes"] == 84719203847362
    assert len(block["counters"]) == 12
    assert skipped == []

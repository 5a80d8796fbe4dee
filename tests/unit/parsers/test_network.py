"""Network tools: values worked out by hand."""

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.corpus import extract

MADE = Path(__file__).parent / "made"


def made(name, kind):
    return extract(kind, (MADE / name).read_bytes()).data


def test_counters_of_words_become_bytes_and_an_unknown_one_is_null():
    first, second = made("hca-counters.txt", "hca-counters")["devices"]
    (port,) = first["ports"]
    assert first["attributes"] == {"fw_ver": "28.41.1000"}
    assert port["counters"] == {
        "port_rcv_bytes": 10_000_000_000, "port_xmit_bytes": (2**64 - 1) * 4, "symbol_error": None,
    }  # fmt: skip
    assert (port["hw_counters"], port["settings"]) == ({"out_of_sequence": 12}, {"lifespan_ms": 10})
    assert (port["rate_bits_per_s"], port["physical_state"]) == (400 * 10**9, "LinkUp")
    (down,) = second["ports"]
    assert (down["state"], down["rate_bits_per_s"], down["rate"]) == (
        "DOWN", None, "10 Gb/sec (4X SDR)",
    )  # fmt: skip
    (bond,) = made("hca-counters.2.txt", "hca-counters")["devices"]
    assert bond["ports"][0]["hw_counters"] == {"np_cnp_sent": 42}
    assert bond["ports"][0]["rate_bits_per_s"] == 2_500_000_000


def test_a_relative_path_and_a_value_that_is_none():
    found = extract(
        "hca-counters",
        b"mlx5_0/ports/1/counters/port_xmit_data:25\n"
        b"mlx5_0/ports/1/hw_counters/out_of_buffer:many\n"
        b"mlx5_0/ports/1/gids/0:fe80::1\n",
    )
    (port,) = found.data["devices"][0]["ports"]
    assert (port["counters"], port["hw_counters"]) == ({"port_xmit_bytes": 100}, {})
    assert [piece.line for piece in found.skipped] == [2, 3]


def test_rdma_statistic_in_one_line_in_several_and_as_json():
    first, second = made("rdma-statistic.txt", "rdma-statistic")["links"]
    assert first["counters"] == {"rx_write_requests": 17, "out_of_buffer": 3, "req_cqe_error": 0}
    assert second == {
        "device": "mlx5_1", "port": 1,
        "counters": {"rx_write_requests": 5, "out_of_buffer": 0},
    }  # fmt: skip
    (link,) = made("rdma-statistic.2.json", "rdma-statistic")["links"]
    assert link["counters"] == {"rx_write_requests": 17, "out_of_buffer": 3}


NAMES = st.from_regex(r"[a-z][a-z_]{0,20}", fullmatch=True)


@settings(deadline=None)
@given(st.dictionaries(NAMES, st.integers(0, 2**64 - 1), min_size=1, max_size=8), st.data())
def test_a_link_that_is_cut_anywhere_gives_only_counters_with_their_names(counters, data):
    text = "link mlx5_0/1 " + " ".join(f"{name} {count}" for name, count in counters.items())
    words = text.split(" ")
    kept = data.draw(st.integers(2, len(words)))
    found = extract("rdma-statistic", f"{' '.join(words[:kept])}\n".encode())
    read = found.data["links"][0]["counters"]
    assert read == dict(list(counters.items())[: (kept - 2) // 2])
    assert len(found.skipped) == kept % 2


def test_only_a_port_that_is_active_has_a_rate():
    first, second = made("ibstat.txt", "ibstat")["devices"]
    (port,) = first["ports"]
    assert (port["usable"], port["rate_bits_per_s"]) == (True, 400 * 10**9)
    assert (port["link_layer"], port["attributes"]["base_lid"]) == ("InfiniBand", 7)
    assert first["attributes"]["firmware_version"] == "28.40"
    assert first["attributes"]["system_image_guid"] == "0x0000000000000002"
    (port,) = second["ports"]
    assert (port["usable"], port["rate_bits_per_s"], port["state"]) == (False, None, "Initializing")
    assert made("ibstat.2.txt", "ibstat")["hosts"] == [
        {"host": "head01", "system_image_guids": ["0x0ff08c4321664e96", "0x0ff08c4321664e97"]},
        {"host": "worker01", "system_image_guids": []},
    ]


def test_a_complaint_of_ibstat_is_no_attribute():
    text = (MADE / "ibstat.txt").read_text()
    panic = "ibpanic: [13] main: stat of IB device 'mlx5_8' failed: No such file or directory\n"
    found = extract("ibstat", (text + panic).encode())
    assert found.data == made("ibstat.txt", "ibstat")
    assert [piece.line for piece in found.skipped] == [len(text.splitlines()) + 1]


def test_gids_and_none_of_them():
    data = made("show-gids.txt", "show-gids")
    assert (len(data["gids"]), data["announced"]) == (4, 4)
    assert data["gids"][0]["ipv4"] is None and data["gids"][3]["ipv4"] == "10.77.0.1"
    assert data["roce_v2_ipv4"] == [{"device": "mlx5_0", "port": 1, "index": 3}]
    none = extract("show-gids", b"DEV\tPORT\tINDEX\tGID\tIPv4\tVER\tDEV\nn_gids_found=0\n")
    assert (none.data["gids"], none.data["announced"], none.skipped) == ([], 0, [])


def test_ethtool():
    (block,) = made("ethtool-statistics.txt", "ethtool-statistics")["blocks"]
    assert block["counters"]["rx_packets"] == 2**64 - 1
    assert block["counters"]["[3]: rx_xdp_drop"] == 7
    first, second = made("ethtool.txt", "ethtool")["interfaces"]
    assert (first["interface"], first["speed_bits_per_s"]) == ("ens1f0np0", 400 * 10**9)
    assert (first["duplex"], first["link"], first["autonegotiation"]) == ("Full", True, True)
    assert first["settings"]["supported_link_modes"] == [
        "1000baseKX/Full", "10000baseKR/Full", "400000baseCR4/Full",
    ]  # fmt: skip
    assert (second["speed_bits_per_s"], second["duplex"], second["link"]) == (None, None, False)


def test_a_counter_that_stands_twice_is_said():
    found = extract("ethtool-statistics", b"NIC statistics:\n  pkts: 1\n  pkts: 2\n")
    assert found.data["blocks"][0]["counters"] == {"pkts": 1}
    assert [piece.line for piece in found.skipped] == [3]


def test_ports_of_ibv_devinfo_have_a_rate_only_where_they_are_linked():
    first, second = made("ibv-devinfo.txt", "ibv-devinfo")["devices"]
    assert (first["name"], first["attributes"]["fw_ver"]) == ("mlx5_0", "16.2")
    (port,) = first["ports"]
    assert (port["state"], port["link_layer"]) == ("PORT_ACTIVE", "Ethernet")
    assert (port["max_mtu_bytes"], port["active_mtu_bytes"]) == (4096, 1024)
    assert port["rate_bits_per_s"] == 200 * 10**9
    assert port["gids"][1] == {"index": 3, "gid": "::ffff:10.1.2.3", "type": "RoCE v2"}
    (down,) = second["ports"]
    assert (down["state"], down["physical_state"]) == ("PORT_DOWN", "DISABLED")
    assert (down["rate_bits_per_s"], down["gids"]) == (None, [])


def test_without_v_ibv_devinfo_has_no_rate_and_lists_of_capabilities_are_skipped():
    raw = b"hca_id:\ta\n\trc_odp_caps:\n\t\tport:\t1\n\t\t\tstate:\t\tPORT_ACTIVE (4)\n"
    data, skipped = extract("ibv-devinfo", raw)
    (port,) = data["devices"][0]["ports"]
    assert (port["physical_state"], port["rate_bits_per_s"], port["max_mtu_bytes"]) == (None,) * 3
    assert [piece.line for piece in skipped] == [2]

"""The right values of recorded communication tests and logs, worked out by hand."""

import pytest

from tests.corpus import sample


def gb(value):
    """Return GB/s as printed as bytes/s, without the noise of the binary fraction."""
    return round(value * 1e9, 3)


def row(data, size, run=0):
    (found,) = [one for one in data["runs"][run]["rows"] if one["size_bytes"] == size]
    return found


def busbw(data, size):
    """Return busbw of a size in GB/s as printed: out-of-place and in-place."""
    found = row(data, size)
    return tuple(found[half]["busbw_bytes_per_s"] / 1e9 for half in ("out_of_place", "in_place"))


def head(data):
    """Return what a sample says of its one run, without the lists."""
    (run,) = data["runs"]
    return {name: run[name] for name in ("collective", "ranks", "nodes", "out_of_bounds")}


@sample("nccl_tests/001_sb_allreduce_8xA100_old_NA_inlinelog.log", "nccl-tests")
def test_all_reduce_of_the_old_layout(data, skipped):
    assert head(data) == {"collective": "all_reduce", "ranks": 8, "nodes": 1, "out_of_bounds": 0}
    run = data["runs"][0]
    assert len(run["rows"]) == 34
    found = row(data, 67108864)
    assert found["out_of_place"]["algbw_bytes_per_s"] == gb(114.81)
    assert found["in_place"]["algbw_bytes_per_s"] == gb(115.33)
    assert busbw(data, 67108864) == (200.91, 201.82)
    assert busbw(data, 8589934592)[0] == 235.26
    assert max(one["out_of_place"]["busbw_bytes_per_s"] for one in run["rows"]) == gb(235.26)
    assert run["average_busbw_bytes_per_s"] == gb(68.4048)
    assert {one["out_of_place"]["max_error"] for one in run["rows"]} == {None}
    assert {one["in_place"]["max_error"] for one in run["rows"]} == {None}
    assert skipped == []


@sample("nccl_tests/002_sb_alltoall_8xA100_no_redop.log", "nccl-tests")
def test_alltoall_leaves_the_cell_of_redop_blank(data, skipped):
    assert head(data) == {"collective": "alltoall", "ranks": 8, "nodes": 1, "out_of_bounds": 0}
    run = data["runs"][0]
    assert run["collective_from"] == "columns"
    assert busbw(data, 67108864) == (147.99, 151.73)
    assert busbw(data, 8589934592)[0] == 224.31
    assert run["average_busbw_bytes_per_s"] == gb(58.6481)
    found = row(data, 67108864)
    assert (found["redop"], found["root"], found["out_of_place"]["max_error"]) == (None,) * 3
    assert skipped == []


@sample("nccl_tests/004_sb_reducescatter_old.log", "nccl-tests")
def test_reduce_scatter(data, skipped):
    assert head(data)["collective"] == "reduce_scatter"
    found = row(data, 67108864)
    assert (found["count"], found["type"], found["redop"]) == (2097152, "float", "sum")
    assert found["out_of_place"] == {
        "time_s": pytest.approx(356.1e-6), "algbw_bytes_per_s": gb(188.45),
        "busbw_bytes_per_s": gb(164.89), "max_error": None,
    }  # fmt: skip
    assert found["in_place"] == {
        "time_s": pytest.approx(352.1e-6), "algbw_bytes_per_s": gb(190.57),
        "busbw_bytes_per_s": gb(166.75), "max_error": None,
    }  # fmt: skip
    assert data["runs"][0]["average_busbw_bytes_per_s"] == gb(60.168)
    assert skipped == []


@sample("nccl_tests/006_sb_broadcast_old_with_root.log", "nccl-tests")
def test_broadcast_has_a_root(data, skipped):
    assert head(data)["collective"] == "broadcast"
    found = row(data, 67108864)
    assert (found["count"], found["redop"], found["root"]) == (16777216, None, 0)
    assert found["out_of_place"]["time_s"] == pytest.approx(374.8e-6)
    assert busbw(data, 67108864) == (179.05, 179.23)
    assert data["runs"][0]["average_busbw_bytes_per_s"] == gb(64.8653)
    assert skipped == []


@sample("nccl_tests/007_dgxc_allreduce_h100_mpi_new.txt", "nccl-tests")
def test_all_reduce_of_one_rank_a_process(data, skipped):
    assert head(data) == {"collective": "all_reduce", "ranks": 8, "nodes": 1, "out_of_bounds": 0}
    run = data["runs"][0]
    assert busbw(data, 67108864) == (361.67, 361.68)
    assert row(data, 67108864)["out_of_place"]["algbw_bytes_per_s"] == gb(206.67)
    assert row(data, 67108864)["in_place"]["wrong"] == 0
    assert run["average_busbw_bytes_per_s"] == gb(159.151)
    assert (run["parameters"]["graph"], run["parameters"]["iterations"]) == (0, 20)
    assert run["devices"][7] == {
        "rank": 7, "group": 0, "pid": 1005906, "host": "node01", "device": 7,
        "bus_id": "0000:e4:00", "name": "NVIDIA H100 80GB HBM3",
    }  # fmt: skip
    # The fences of the document.
    assert [piece.line for piece in skipped] == [1, 52]


@sample("nccl_tests/009_cw_allreduce_gb200_nvl72_rank71.txt", "nccl-tests")
def test_ranks_are_counted_from_the_last_one_listed(data, skipped):
    assert head(data) == {
        "collective": "all_reduce", "ranks": 72, "nodes": None, "out_of_bounds": 0,
    }  # fmt: skip
    assert busbw(data, 536870912) == (586.06, 576.74)
    assert busbw(data, 8589934592)[0] == 834.57
    assert data["runs"][0]["average_busbw_bytes_per_s"] == gb(745.53)
    assert data["runs"][0]["devices"][0]["name"] == "NVIDIA Graphics Device"
    assert skipped == []


@sample("nccl_tests/011_aws_allgather_prefixed_rank0_p4d.txt", "nccl-tests")
def test_the_rank_that_srun_wrote_is_removed(data, skipped):
    assert head(data) == {
        # busbw / algbw is 1.875 = 2 x 15 / 16 and redop is sum, whatever the file is called.
        "collective": "all_reduce", "ranks": None, "nodes": None, "out_of_bounds": None,
    }  # fmt: skip
    run = data["runs"][0]
    assert (run["process"], len(run["rows"])) == ("0", 29)
    assert busbw(data, 67108864) == (47.58, 47.53)
    assert run["average_busbw_bytes_per_s"] is None
    assert skipped == []


@sample("nccl_tests/012_aws_allreduce_prefixed_p5.txt", "nccl-tests")
def test_another_of_srun(data, skipped):
    assert head(data)["collective"] == "all_reduce"
    assert busbw(data, 67108864) == (209.19, 208.26)
    assert busbw(data, 17179869184) == (487.09, 487.26)
    assert skipped == []


@sample("nccl_tests/014_aws_batch_mpi_tagged_colspace.txt", "nccl-tests")
def test_the_tag_of_mpirun_is_removed(data, skipped):
    run = data["runs"][0]
    assert run["process"] == "1,0"
    assert busbw(data, 67108864) == (359.54, 359.71)
    assert (run["average_busbw_bytes_per_s"], run["out_of_bounds"]) == (gb(156.742), 0)
    assert skipped == []


@sample("nccl_tests/016_interleaved_info_2xA100_pcie.log", "nccl-tests")
def test_rows_that_the_log_broke_are_joined(data, skipped):
    assert head(data) == {"collective": "all_reduce", "ranks": 2, "nodes": 1, "out_of_bounds": 0}
    run = data["runs"][0]
    assert run["collective_from"] == "name"
    assert [one["size_bytes"] for one in run["rows"]] == [2**n for n in range(23, 34)]
    found = row(data, 67108864)
    rate = gb(171.36)
    assert found["out_of_place"] == {
        "time_s": pytest.approx(391.6e-6), "algbw_bytes_per_s": rate, "busbw_bytes_per_s": rate,
        "wrong": 0,
    }  # fmt: skip
    assert found["in_place"]["time_s"] == pytest.approx(391.5e-6)
    assert busbw(data, 67108864) == (171.36, 171.42)
    assert run["average_busbw_bytes_per_s"] == gb(178.078)
    assert skipped == []


@sample("nccl_tests/016_interleaved_info_2xA100_pcie.log", "nccl-log")
def test_a_network_that_is_there_is_not_one_that_is_used(data, skipped):
    assert data["versions"] == ["2.27.7+cuda13.0"]
    assert (data["intra_node"], data["inter_node"]) == (["P2P/direct pointer"], [])
    (path,) = data["paths"]
    assert (path["channels"], path["options"], path["gdrdma"]) == (24, ["read"], None)
    assert data["channels"] == [
        {"collective": 24, "collnet": 24, "nvls": 0, "p2p": 32, "p2p_per_peer": 32}
    ]
    network = data["network"]
    assert network["used"] == ["IB"]
    assert [one["name"] for one in network["devices"]] == ["mlx5_0", "mlx5_1"]
    assert {one["link_layer"] for one in network["devices"]} == {"RoCE"}
    assert data["gdrdma_used"] is None
    assert network["gpu_direct_rdma"]["mlx5_0"] is False
    of_64m = [one for one in data["algorithms"] if one["size_bytes"] == 67108864]
    assert [(one["algorithm"], one["protocol"], one["channels"]) for one in of_64m] == [
        ("RING", "SIMPLE", 24)
    ]
    assert sum(one["times"] for one in data["algorithms"]) == 495
    assert data["environment"] == {"NCCL_TOPO_DUMP_FILE": ["nccl_topo_dump.xml"]}
    assert data["communicators"] == [
        {"id": "0x54fe282d32a87d85", "ranks": 2, "nodes": 1, "completed": 2}
    ]


@sample("nccl_tests/017_interleaved_info_2xA100_fault_topo.log", "nccl-tests")
def test_a_slow_run_without_an_error(data, skipped):
    found = row(data, 67108864)
    assert found["out_of_place"]["time_s"] == pytest.approx(2372.0e-6)
    assert busbw(data, 67108864)[0] == 28.29
    assert data["runs"][0]["average_busbw_bytes_per_s"] == gb(28.2632)
    assert skipped == []


@sample("nccl_tests/017_interleaved_info_2xA100_fault_topo.log", "nccl-log")
def test_the_log_of_the_slow_run_names_the_topology_file(data, skipped):
    assert data["channels"][0]["collective"] == 2
    assert data["environment"]["NCCL_TOPO_FILE"] == ["/home/user1/nccl-tests/topo_fail.xml"]
    assert data["findings"] == []


@sample("nccl_tests/019_efa_16gpu_2node_prefixed_full.log", "nccl-tests")
def test_a_table_among_the_lines_of_sixteen_ranks(data, skipped):
    assert head(data) == {"collective": "all_reduce", "ranks": 16, "nodes": 2, "out_of_bounds": 0}
    found = row(data, 67108864)
    assert busbw(data, 67108864) == (23.71, 23.74)
    assert found["out_of_place"]["max_error"] == 5e-07
    assert data["runs"][0]["average_busbw_bytes_per_s"] == gb(11.2432)
    assert len(data["runs"][0]["rows"]) == 30
    # Nine lines of kubectl, and the version that NCCL prints without its usual head.
    assert [piece.line for piece in skipped] == [*range(1, 10), 34]


@sample("nccl_tests/019_efa_16gpu_2node_prefixed_full.log", "nccl-log")
def test_two_nodes_over_efa(data, skipped):
    assert data["versions"] == ["2.9.9+cuda11.2"]
    assert len(data["hosts"]) == 2 and len(data["ranks"]) == 16
    assert data["communicators"] == [{"id": None, "ranks": 16, "nodes": None, "completed": 16}]
    assert data["network"]["used"] == ["AWS Libfabric"]
    assert data["network"]["plugins"] == ["efa"]
    assert (data["intra_node"], data["inter_node"]) == (["P2P/IPC"], ["NET/AWS Libfabric"])
    assert data["gdrdma_used"] is True
    assert data["channels"][0] == {
        "collective": 8, "collnet": None, "nvls": None, "p2p": 8, "p2p_per_peer": 1,
    }  # fmt: skip
    assert data["ring_orders"]["00"] == [0, 7, 6, 5, 4, 3, 2, 1, 8, 15, 14, 13, 12, 11, 10, 9]


@sample("nccl_logs/001_ofi_fsdp_p5_excerpt.log", "nccl-log")
def test_a_plugin_and_lines_of_a_trainer(data, skipped):
    assert data["versions"] == ["2.26.2+cuda12.2"]
    assert data["network"]["seen"] == ["OFI"]
    assert data["network"]["plugins"] == ["aws-ofi-nccl 1.13.2-aws"]
    # Three tasks of srun, two of which name their hosts.
    assert (data["launcher_labels"], data["hosts"]) == (["0", "1", "2"], ["node03", "node04"])
    assert (data["inter_node"], data["gdrdma_used"]) == ([], None)
    assert len(skipped) == 9


@sample("nccl_logs/002_doc_net_lines_variants.txt", "nccl-log")
def test_lines_of_a_document(data, skipped):
    devices = data["network"]["devices"]
    by_network = {one["network"]: 0 for one in devices}
    for one in devices:
        by_network[one["network"]] += 1
    assert by_network == {"FastSocket": 8, "IB": 8, "Socket": 1}
    assert {one["link_layer"] for one in devices if one["network"] == "IB"} == {"IB"}
    assert devices[-1] == {
        "network": "Socket", "index": 0, "name": "eth0", "address": "10.77.0.16<0>",
    }  # fmt: skip
    assert data["network"]["out_of_band"][0]["interface"] == "eno1"
    assert data["network"]["used"] == []


@sample("nccl_logs/004_socket_fallback_2.27_4rank.log", "nccl-log")
def test_sockets_between_nodes(data, skipped):
    assert (data["inter_node"], data["intra_node"]) == (["NET/Socket"], [])
    assert data["gdrdma_used"] is False and data["ring_flags"] == [{"pxn": 0, "gdr": 0}]
    assert data["communicators"] == [
        {"id": "0x15c1c76db987339e", "ranks": 4, "nodes": None, "completed": 1}
    ]
    assert data["ranks"] == [
        {"rank": 3, "host": "node04", "pid": 53, "device": 0, "bus_id": "1e0", "net_devices": [0]}
    ]
    assert [piece.line for piece in skipped] == [11]


@sample("nccl_logs/006_socket_old_2.11_two_nodes_interleaved.log", "nccl-log")
def test_the_old_form_with_bus_ids(data, skipped):
    assert (data["library"], data["versions"]) == ("NCCL", ["2.11.4+cuda11.4"])
    assert data["hosts"] == ["node01", "node02"]
    assert data["network"]["used"] == ["Socket"]
    assert data["inter_node"] == ["NET/Socket"]
    assert [(one["class"], one["line"]) for one in data["findings"]] == [("no-libibverbs", 6)]
    assert skipped == []


@sample("nccl_logs/007_shm_direct_2xA800.log", "nccl-log")
def test_shared_memory_within_a_node(data, skipped):
    assert (data["intra_node"], data["inter_node"]) == (["SHM/direct"], [])
    # `GDR 1` is printed although no network is used.
    assert data["ring_flags"] == [{"pxn": 0, "gdr": 1}] and data["gdrdma_used"] is None
    assert data["communicators"] == [
        {"id": "0x2253366728668019", "ranks": 2, "nodes": None, "completed": 2}
    ]
    assert [piece.line for piece in skipped] == [3, 4, 11]


@sample("nccl_logs/009_p2p_cumem_8gpu_timeout_tail.log", "nccl-log")
def test_the_tail_of_a_start_that_took_too_long(data, skipped):
    assert data["intra_node"] == ["P2P/CUMEM"]
    assert data["paths"][0]["ranks"] == 8
    assert [one["class"] for one in data["findings"]] == ["startup-timeout"]
    # The head of the tail, and the line that it begins within.
    assert [piece.line for piece in skipped] == [2, 3, 4]


@sample("nccl_logs/011_fail_no_socket_interface.log", "nccl-log")
def test_an_interface_that_is_not_there(data, skipped):
    assert [one["class"] for one in data["findings"]] == ["bootstrap-no-interface"]
    assert data["environment"] == {"NCCL_SOCKET_IFNAME": ["eth0"]}
    assert data["warnings"][0]["place"] == "bootstrap.cc:45"
    assert {(one["code"], one["name"]) for one in data["error_codes"]} == {(3, "ncclInternalError")}


@sample("nccl_logs/012_fail_ib_completion_err12_wrapped.log", "nccl-log")
def test_a_peer_that_does_not_answer(data, skipped):
    assert [one["class"] for one in data["findings"]] == ["ib-transport-retry-exceeded"]
    devices = data["network"]["devices"]
    assert [one["name"] for one in devices] == ["ibP111p0s0", "rdmaP1111p0s2"]
    assert [one["link_layer"] for one in devices] == ["IB", "RoCE"]
    assert {(one["code"], one["name"]) for one in data["error_codes"]} == {(6, "ncclRemoteError")}
    # The second half of the wrapped line.
    assert [piece.line for piece in skipped] == [3]


@sample("nccl_logs/013_fail_vllm_tp2_oom_shm.log", "nccl-log")
def test_two_failures_of_one_server(data, skipped):
    assert [(one["attempt"], one["class"]) for one in data["findings"]] == [
        (0, "weights-too-large"), (1, "cuda-out-of-memory"), (1, "shm-too-small"),
    ]  # fmt: skip


@sample("nccl_logs/014_libfabric_newest_2.31_flush.log", "nccl-log")
def test_libfabric_with_gdrdma(data, skipped):
    assert data["versions"] == ["2.31.2+cuda13.3"]
    assert (data["inter_node"], data["gdrdma_used"]) == (["NET/Libfabric"], True)
    assert data["paths"][0]["options"] == ["GDRDMA", "flush=None"]
    assert skipped == []


def matrix(data, **wanted):
    (found,) = [
        one for one in data["matrices"] if all(one[name] == value for name, value in wanted.items())
    ]
    return found


@sample("p2p_bandwidth/001_p2p_2gpu_commented.txt", "p2p-bandwidth")
def test_a_commented_excerpt(data, skipped):
    first, second = data["matrices"]
    # The title was cut off, so neither the unit nor the direction is known.
    assert (first["title"], first["direction"], first["values"][0][1]) == (None, None, 5.47)
    assert (second["direction"], second["p2p"], second["rows"]) == ("bidirectional", True, ["0"])
    assert second["bandwidth_bytes_per_s"] == [[gb(135.42), gb(5.48)]]
    assert skipped == []


@sample("p2p_bandwidth/002_p2p_4gpu_no_p2p.txt", "p2p-bandwidth")
def test_cards_without_peer_access(data, skipped):
    first, second = data["matrices"]
    assert first["values"] == [[8.75, 8.76, 836.4, 8.76], [8.75, 8.75, 8.74, 835.74]]
    assert (first["columns"], first["rows"]) == (None, ["2", "3"])
    assert second["p2p"] is True
    assert second["bandwidth_bytes_per_s"][0][1:] == [gb(8.75), gb(8.74), gb(8.75)]
    assert skipped == []


@sample("p2p_bandwidth/003_p2p_4gpu_nvlink_v100ish.txt", "p2p-bandwidth")
def test_all_matrices_of_four_cards(data, skipped):
    assert len(data["matrices"]) == 8
    enabled = matrix(data, direction="unidirectional", p2p=True)
    assert (enabled["bandwidth_bytes_per_s"][0][1], enabled["operation"]) == (gb(48.35), "write")
    both = matrix(data, direction="bidirectional", p2p=True)
    assert both["bandwidth_bytes_per_s"][0][1] == gb(96.87)
    assert matrix(data, direction="unidirectional", p2p=False)["bandwidth_bytes_per_s"][0] == [
        gb(783.21), gb(15.80), gb(15.82), gb(15.81),
    ]  # fmt: skip
    latency = matrix(data, measure="latency", p2p=True, timed_by="GPU")
    assert latency["latency_s"][0][1] == pytest.approx(1.55e-6)
    cpu = matrix(data, measure="latency", p2p=False, timed_by="CPU")
    assert cpu["latency_s"][0][1] == pytest.approx(6.80e-6)
    assert matrix(data, measure="connectivity")["connected"] == [[True] * 4] * 4
    assert skipped == []


@sample("p2p_bandwidth/004_nvbandwidth_readme_d2d_write.txt", "nvbandwidth")
def test_the_example_of_the_readme(data, skipped):
    (test,) = data["tests"]
    (found,) = test["matrices"]
    assert test["name"] == "device_to_device_memcpy_write_ce"
    assert (len(found["rows"]), len(found["columns"]), found["sum"]) == (8, 8, None)
    values = found["bandwidth_bytes_per_s"]
    # Old versions print 0.00 where nothing is measured.
    assert [values[n][n] for n in range(8)] == [None] * 8
    assert (values[0][1], values[7][6]) == (gb(276.07), gb(276.45))
    # The fences and the heading of the document.
    assert [piece.line for piece in skipped] == [1, 2, 14]


@sample("p2p_bandwidth/006_nvbandwidth_gh200_waived.log", "nvbandwidth")
def test_waived_tests_and_a_latency(data, skipped):
    assert (data["version"], data["waived_without_name"]) == ("v0.6", 17)
    tests = {test["name"]: test["matrices"][0] for test in data["tests"]}
    first = tests["host_to_device_memcpy_ce"]
    assert first["sum"] == gb(1985.60)
    assert first["sum"] == pytest.approx(sum(sum(one) for one in first["bandwidth_bytes_per_s"]))
    latency = tests["host_device_latency_sm"]
    assert latency["latency_s"] == [[pytest.approx(772.58e-9)]]
    assert latency["sum"] == pytest.approx(772.58e-9)
    assert "bandwidth_bytes_per_s" not in latency
    assert (len(tests), {test["status"] for test in data["tests"]}) == (15, {"passed"})
    assert skipped == []


@sample("p2p_bandwidth/007_nvbandwidth_json_shape.json", "nvbandwidth")
def test_the_json_form(data, skipped):
    read = data["tests"][1]["matrices"][0]
    assert read["bandwidth_bytes_per_s"] == [[None, gb(24.90)], [gb(24.95), None]]
    assert read["sum"] == gb(49.85)
    assert (data["tests"][2]["status"], data["tests"][2]["matrices"]) == ("waived", [])
    assert skipped == []


@sample("p2p_bandwidth/009_sb_gpu_copy_bw.log", "gpu-copy")
def test_copies_by_path(data, skipped):
    copies = {one["name"]: one for one in data["copies"]}
    assert len(copies) == 57
    assert copies["gpu0_to_cpu_by_sm_under_numa0"]["bandwidth_bytes_per_s"] == gb(5.67346)
    write = copies["gpu0_to_gpu1_write_by_sm"]
    assert (write["source"], write["target"], write["operation"]) == ("gpu0", "gpu1", "write")
    assert (write["bandwidth_bytes_per_s"], write["numa_node"]) == (gb(258.397), None)
    both = copies["cpu_and_gpu1_by_dma_under_numa1"]
    assert (both["bidirectional"], both["numa_node"], both["by"]) == (True, 1, "dma")
    assert skipped == []


@sample("p2p_bandwidth/011_rocm_bandwidth_h2d.log", "hip-bandwidth")
def test_copies_by_size(data, skipped):
    rows = {(one["test"], one["size_bytes"]): one for one in data["rows"]}
    assert (data["device"], len(rows)) == ("Device 738c", 46)
    largest = rows["H2D_Bandwidth_pinned", 524288 * 1024]
    time = rows["H2D_Timepinned", 524288 * 1024]
    assert largest["median_bytes_per_s"] == gb(24.7523)
    assert time["median_s"] == pytest.approx(21.6897e-3)
    # The tool's own rows agree only where a kB is of 1024 bytes and a GB of 10^9.
    assert 524288 * 1024 / time["median_s"] == pytest.approx(
        largest["median_bytes_per_s"], rel=1e-4
    )
    assert [piece.line for piece in skipped] == [50, 51]

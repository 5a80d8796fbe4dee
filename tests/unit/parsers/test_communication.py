"""Communication tests and NCCL's log: values worked out by hand, and tables that were broken."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servemap.model.errors import ParseError
from tests.corpus import extract

MADE = Path(__file__).parent / "made"


def made(name, kind):
    return extract(kind, (MADE / name).read_bytes()).data


def runs(text):
    return extract("nccl-tests", f"{text}\n".encode()).data["runs"]


def log(text):
    return extract("nccl-log", text.encode()).data


def test_rows_broken_by_the_log_and_values_that_are_wrong():
    (run,) = made("nccl-tests.txt", "nccl-tests")["runs"]
    assert (run["collective"], run["collective_from"]) == ("all_reduce", "name")
    assert (run["ranks"], run["nodes"], run["out_of_bounds"]) == (2, 1, 3)
    assert run["average_busbw_bytes_per_s"] == 29.0617e9 and run["average_check"] is None
    assert run["parameters"]["min_bytes"] == 1024 and run["parameters"]["step_factor"] == 2
    assert [row["in_place"]["wrong"] for row in run["rows"]] == [0, 3, 0]
    last = run["rows"][2]
    assert last["out_of_place"] == {
        "time_s": 0.00150025, "algbw_bytes_per_s": 44.73e9, "busbw_bytes_per_s": 44.73e9,
        "wrong": 0,
    }  # fmt: skip
    assert last["in_place"]["time_s"] == 0.0014905


def test_the_old_layout_of_one_of_two_processes():
    (run,) = made("nccl-tests.2.txt", "nccl-tests")["runs"]
    assert (run["process"], run["collective"]) == ("1,0", "all_gather")
    assert (run["ranks"], run["nodes"], run["average_check"]) == (2, 2, "OK")
    assert run["parameters"]["step_bytes"] == 1048544
    # The summary says 0 wrong values although the copy in place is off by 1.
    assert [row["in_place"]["max_error"] for row in run["rows"]] == [None, 1.0]
    assert (run["rows"][1]["out_of_place"]["max_error"], run["out_of_bounds"]) == (0.0, 0)
    assert run["wrong_at_bytes"] == {"out_of_place": [], "in_place": [run["rows"][1]["size_bytes"]]}
    assert (run["summary_contradicted"], run["distributed"]) == (True, True)


def test_the_json_of_nccl_tests_reads_as_its_text_does():
    (run,) = made("nccl-tests.3.json", "nccl-tests")["runs"]
    assert (run["collective"], run["ranks"], run["nodes"]) == ("reduce_scatter", 2, 1)
    (row,) = run["rows"]
    assert (row["size_bytes"], row["redop"], row["root"]) == (16777216, "sum", None)
    assert row["out_of_place"]["busbw_bytes_per_s"] == 33.49e9
    assert row["out_of_place"]["iteration_max_s"] == 0.0003005
    assert (row["out_of_place"]["wrong"], row["in_place"]["wrong"]) == (0, None)
    assert (run["average_busbw_bytes_per_s"], run["average_check"]) == (33.455e9, None)
    assert run["parameters"]["step_factor"] == 2 and "blocking_collectives" not in run["parameters"]


@pytest.mark.parametrize(
    ("option", "direct"),
    [("/GDRDMA", True), ("/GDRDMA(PCI)", True), ("/GDRDMA(PCI)/Shared", True), ("/Shared", False)],
)
def test_how_data_reach_the_card(option, direct):
    """NCCL 2.27 and later write `GDRDMA(PCI)` where the way is over PCIe (src/transport/net.cc)."""
    line = f"a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0{option}\n"
    assert log(line)["gdrdma_used"] is direct


def test_two_processes_that_did_not_find_each_other():
    """nccl-tests built without MPI: each process is rank 0 of its own run."""
    start = "# nThread 1 nGpus 1 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20\n"
    device = "#  Rank  0 Group  0 Pid {pid} on head01 device  0 [0x00] Tesla V100\n"
    text = start * 2 + device.format(pid=10) + device.format(pid=11)
    (run,) = runs(text)
    assert (run["duplicate_ranks"], run["ranks"], run["distributed"]) == ([0], 1, False)
    (first, second) = runs(
        "".join(
            f"[1,{rank}]<stdout>:{line}\n"
            for line in (start + device.format(pid=10)).splitlines()
            for rank in (0, 1)
        )
    )
    assert (first["process"], second["process"], second["ranks"]) == ("1,0", "1,1", 1)
    assert (first["distributed"], second["distributed"]) == (False, False)


def test_a_test_that_failed_says_why():
    data = extract(
        "nccl-tests",
        b"# nThread 1 nGpus 2 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20\n"
        b"head01: Test NCCL failure all_reduce.cu:55 'unhandled system error / Broken pipe'\n"
        b" .. head01 pid 41: Test failure common.cu:401\n",
    ).data
    assert data["runs"] == []
    assert [one["line"] for one in data["failures"]] == [2, 3]
    assert data["failures"][0]["text"].endswith("'unhandled system error / Broken pipe'")


HEADING = (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    "     time   algbw   busbw #wrong\n"
)


def test_two_programs_one_after_the_other():
    row = "        1024           256     float    none      -1    12.50    2.00    1.00      0"
    row += "    12.25    2.10    1.05    N/A\n"
    start = "# nThread 1 nGpus 2 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20\n"
    first, second = runs(
        f"$ ./build/alltoall_perf -g 2\n{start}{HEADING}{row}# Avg bus bandwidth    : 1.5\n"
        f"$ mpirun -np 2 ./all_gather_perf_mpi -g 1\n{start}{HEADING}{row}{row}"
    )
    assert (first["collective"], len(first["rows"])) == ("alltoall", 1)
    assert (second["collective"], second["collective_from"]) == (None, None)
    assert (len(second["rows"]), second["rows"][0]["in_place"]["wrong"]) == (2, None)


@pytest.mark.parametrize(
    ("redop", "root", "algbw", "busbw", "collective"),
    [
        ("sum", "-1", "10.00", "17.50", "all_reduce"),
        ("sum", "-1", "10.00", "10.00", "all_reduce"),
        ("avg", "-1", "10.00", "8.75", "reduce_scatter"),
        ("sum", "2", "10.00", "10.00", "reduce"),
        ("none", "0", "10.00", "10.00", "broadcast"),
        # Several write such a table: gather and scatter; all_gather and alltoall; sendrecv.
        ("none", "0", "10.00", "8.75", None),
        ("none", "-1", "10.00", "8.75", None),
        ("none", "-1", "10.00", "10.00", None),
        # Two decimals of 0.01 GB/s say nothing of a ratio.
        ("sum", "-1", "0.02", "0.03", None),
    ],
)
def test_a_collective_is_named_only_where_no_other_writes_such_a_table(
    redop, root, algbw, busbw, collective
):
    half = f"12.50  {algbw}  {busbw}  0"
    (run,) = runs(f"{HEADING} 1048576 262144 float {redop} {root} {half} {half}\n")
    assert run["collective"] == collective
    assert run["rows"][0]["root"] == (None if root == "-1" else int(root))


def test_in_place_only_per_iteration_and_timestamps():
    only = "#       size         count      type   redop    root     time   algbw   busbw #wrong\n"
    (run,) = runs(f"{only}        1024  256  float  sum  -1  12.50  0.08  0.08  0\n")
    assert run["rows"][0]["out_of_place"] is None
    assert run["rows"][0]["in_place"]["time_s"] == 12.5e-06
    blank = " " * 32
    (run,) = runs(f"{HEADING}        1024  256  float  sum  -1{blank}  12.50  0.08  0.08  0\n")
    assert run["rows"][0]["out_of_place"] is None and run["rows"][0]["in_place"]["wrong"] == 0
    times = "cputime   algbw   busbw  #wrong   i_min   i_max   i_p99   i_cv%"
    (run,) = runs(
        f"# size count type redop root {times} {times} timestamp\n"
        "1024 256 float sum -1 12.5 0.08 0.08 0 12 14 13.5 2.5 12.6 0.08 0.08 1e+06 12 15 14 3 "
        "2026-01-01 00:00:09\n"
    )
    assert run["rows"][0]["out_of_place"] == {
        "cpu_time_s": 12.5e-06, "algbw_bytes_per_s": 80000000.0, "busbw_bytes_per_s": 80000000.0,
        "wrong": 0, "iteration_min_s": 12e-06, "iteration_max_s": 14e-06,
        "iteration_p99_s": 13.5e-06, "iteration_cv_percent": 2.5,
    }  # fmt: skip
    assert run["rows"][0]["in_place"]["wrong"] == 1000000


def test_a_row_that_is_cut_is_skipped():
    whole = "        1024           256     float     sum      -1    12.50    0.08    0.08      0"
    found = extract("nccl-tests", f"{HEADING}{whole}  12.25  0.08  0.08  0\n{whole}  12\n".encode())
    assert len(found.data["runs"][0]["rows"]) == 1
    assert [(piece.line, piece.reason) for piece in found.skipped] == [
        (3, "a row that is cut short")
    ]


VALUES = st.tuples(
    st.integers(0, 2**40), st.sampled_from(["float", "bfloat16", "fp8_e4m3"]),
    st.sampled_from(["sum", "avg", "none"]), st.integers(-1, 7),
    st.lists(st.decimals(0, 9999, places=2), min_size=6, max_size=6),
    st.lists(st.integers(0, 10**6) | st.none(), min_size=2, max_size=2),
)  # fmt: skip


def halves(times, wrong):
    for index in (0, 1):
        time, algbw, busbw = times[3 * index : 3 * index + 3]
        count = "N/A" if wrong[index] is None else f"{float(wrong[index]):g}"
        yield f"  {time:7}  {algbw:6}  {busbw:6}  {count:>6}"


@settings(deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=6), st.data())
def test_lines_of_the_log_between_and_within_rows_change_nothing(rows, data):
    """Rows as src/util.cu prints them; NCCL's lines begin where a row is not yet whole."""
    message = "9-node.x:12:13 [0] NCCL INFO AllReduce: opCount 0 count 8\n"
    text = "#  Rank  0 Group  0 Pid 12 on 9-node.x device  0 [0000:17:00] NVIDIA H100\n" + HEADING
    for size, kind, redop, root, times, wrong in rows:
        parts = [f"{size:12}  {size // 4:12}  {kind:>8}  {redop:>6}  {root:>6}"]
        for part in [*parts, *halves(times, wrong)]:
            text += part + message * data.draw(st.integers(0, 2))
        text += "\n" + message * data.draw(st.integers(0, 2))
    (run,) = runs(text)
    assert [row["size_bytes"] for row in run["rows"]] == [row[0] for row in rows]
    for row, (_, kind, redop, root, times, wrong) in zip(run["rows"], rows, strict=True):
        assert (row["type"], row["redop"]) == (kind, None if redop == "none" else redop)
        assert row["root"] == (None if root < 0 else root)
        assert row["out_of_place"]["time_s"] == pytest.approx(float(times[0]) / 1e6)
        assert row["in_place"]["busbw_bytes_per_s"] == pytest.approx(float(times[5]) * 1e9)
        shown = [None if one is None else int(float(f"{float(one):g}")) for one in wrong]
        assert [row[half]["wrong"] for half in ("out_of_place", "in_place")] == shown


def test_a_log_of_two_nodes():
    data = made("nccl-log.txt", "nccl-log")
    assert (data["library"], data["versions"]) == ("NCCL", ["2.28.3+cuda12.9"])
    assert data["communicators"] == [{"id": "0xabc", "ranks": 4, "nodes": 2, "completed": 1}]
    assert [(row["rank"], row["host"], row["net_devices"]) for row in data["ranks"]] == [
        (0, "head01", [0]), (1, "head01", [0]), (2, "worker01", [0]),
    ]  # fmt: skip
    assert data["intra_node"] == ["P2P/CUMEM"]
    assert data["inter_node"] == ["COLLNET/SHARP", "NET/IB"]
    assert data["gdrdma_used"] is True
    net = next(path for path in data["paths"] if path["path"] == "NET/IB")
    assert (net["links"], net["pairs"], net["options"]) == (2, 1, ["GDRDMA", "Shared"])
    assert (net["net_devices"], net["net_device_names"]) == ([0], ["mlx5_0"])
    assert data["network"]["gpu_direct_rdma"] == {"mlx5_0": True}
    assert data["network"]["out_of_band"] == [{"interface": "eth0", "address": "10.77.0.1"}]
    assert data["environment"] == {"NCCL_IB_HCA": ["mlx5_0,mlx5_3"]}
    assert data["trees"] == [
        {"rank": 0, "channel": 0, "parent": None, "children": [1]},
        {"rank": 0, "channel": 1, "parent": 3, "children": []},
    ]
    assert data["rings"] == [{"rank": 0, "channel": 0, "previous": 3, "next": 1}]
    assert data["algorithms"] == [
        {
            "collective": "AllReduce", "size_bytes": 67108864, "algorithm": "RING",
            "protocol": "SIMPLE", "channels": 24, "times": 2,
        }
    ]  # fmt: skip
    assert [(one["class"], one["line"]) for one in data["findings"]] == [
        ("ib-transport-retry-exceeded", 24)
    ]
    assert data["error_codes"][0]["name"] == "ncclRemoteError"


def test_rccl_and_old_forms():
    data = made("nccl-log.2.txt", "nccl-log")
    assert (data["library"], data["versions"]) == ("RCCL", ["2.20.5-HEAD:a1b2c3"])
    assert [path["path"] for path in data["paths"]] == ["P2P/direct pointer", "SHM/direct"]
    assert data["launcher_labels"] == ["0", "1"]
    assert data["algorithms"][0]["algorithm"] == "TREE"
    assert data["algorithms"][0]["protocol"] == "LL"
    old = log(
        " [0] NCCL INFO Ring 00 : 15[41000] -> 0[1b000] [receive] via NET/IB/0\n"
        " [0] NCCL INFO Ring 00 : 0[1b000] -> 7[41000] via direct shared memory\n"
        "n1:5:5 [0] NCCL INFO NET/IB: [0] mlx5_1:1/IB\n"
        "n1:5:5 [0] NCCL INFO Using internal Network IB\n"
        "n1:5:6 [7] NCCL INFO comm 0x7f57 rank 15 nranks 32 cudaDev 7 nvmlDev 7 - Init COMPLETE\n"
    )
    assert (old["inter_node"], old["intra_node"]) == (["NET/IB"], ["SHM/direct"])
    assert old["network"]["used"] == ["IB"] and old["network"]["devices"][0]["name"] == "mlx5_1"
    assert old["communicators"] == [{"id": None, "ranks": 32, "nodes": None, "completed": 1}]


@pytest.mark.parametrize(
    "before",
    ["(RayWorker pid=7, ip=10.77.0.3) ", "[default3]:", "3: ", "vllm-1  | ", "[1,3]<stderr>:",
     "[2026-01-01 00:00:00] ", "INFO 01-01 00:00:00 "],
)  # fmt: skip
def test_what_launchers_and_loggers_write_before_a_line(before):
    data = log(
        f"{before}n7:30:31 [0] NCCL INFO Channel 00/0 : 3[0] -> 4[0] [send] via NET/Socket/0"
        " [repeated 7x across cluster]\n"
    )
    assert (data["hosts"], data["inter_node"]) == (["n7"], ["NET/Socket"])
    assert data["ranks"][0]["rank"] == 3


def test_lines_of_two_processes_that_ran_into_each_other():
    first = "n1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
    second = "n2:2:2 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [send] via NET/IB/0"
    data = log(f"{second}\n{first}{second}\n")
    assert {path["path"]: path["links"] for path in data["paths"]} == {"P2P/CUMEM": 1, "NET/IB": 2}
    assert data["hosts"] == ["n1", "n2"]
    found = extract("nccl-log", f"{first}{second}\n".encode())
    assert [path["path"] for path in found.data["paths"]] == ["NET/IB"]
    assert found.data["hosts"] == ["n1"]
    assert [piece.line for piece in found.skipped] == [1]


def test_the_network_within_a_node_and_a_name_that_two_nodes_have():
    line = "{host}:{pid}:9 [{device}] NCCL INFO Channel 00/0 : {link} via NET/Socket/0\n"
    one = log(
        line.format(host="n1", pid=1, device=0, link="0[0] -> 1[1] [send]")
        + line.format(host="n1", pid=2, device=1, link="0[0] -> 1[1] [receive]")
    )
    assert (one["intra_node"], one["inter_node"]) == (["NET/Socket"], [])
    two = log(
        line.format(host="pod", pid=1, device=0, link="0[0] -> 1[0] [send]")
        + line.format(host="pod", pid=1, device=0, link="0[0] -> 1[0] [receive]")
    )
    assert (two["intra_node"], two["inter_node"]) == ([], ["NET/Socket"])


def test_connections_name_virtual_devices_where_there_are_some():
    data = log(
        "n1:1:2 [0] NCCL INFO NET/IB : Made virtual device [0] name=mlx5_0 speed=1 ndevs=1\n"
        "n1:1:2 [0] NCCL INFO NET/IB : Made virtual device [2] name=mlx5_0+mlx5_1 speed=2 ndevs=2\n"
        "n1:1:2 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [2]mlx5_7:1/RoCE [RO]\n"
        "n1:1:3 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/2\n"
    )
    assert data["paths"][0]["net_device_names"] == ["mlx5_0+mlx5_1"]
    assert data["gdrdma_used"] is False


@pytest.mark.parametrize("before", ["[1,0]<stdout>:", "0: ", "[rank0]: ", "head01: ", "pod-0  | "])
def test_tables_behind_what_launchers_write(before):
    text = (MADE / "nccl-tests.txt").read_text().splitlines()
    kept = [line for line in text if "NCCL INFO" not in line and "  1490.5" not in line]
    (run,) = runs("\n".join(f"{before}{line}" for line in kept))
    assert [row["size_bytes"] for row in run["rows"]] == [1024, 4194304]
    assert (run["process"], run["ranks"]) == (re.sub(r"[^\w,-]|stdout", "", before), 2)


def test_a_text_without_nccl_is_refused():
    with pytest.raises(ParseError, match="NCCL INFO or NCCL WARN"):
        log("Bandwidth is fine\nNo NCCL here\n")


def test_matrices_between_cards():
    data = made("p2p-bandwidth.txt", "p2p-bandwidth")
    assert data["devices"][1] == {
        "index": 1, "name": "NVIDIA H100 80GB HBM3", "bus_id": "0000:65:00",
    }  # fmt: skip
    assert data["peer_access"][1] == {"from": 1, "to": 0, "possible": False}
    said = [
        (one["measure"], one["direction"], one["p2p"], one["operation"], one["timed_by"])
        for one in data["matrices"]
    ]
    assert said == [
        ("connectivity", None, None, None, None),
        ("bandwidth", "unidirectional", False, None, None),
        ("bandwidth", "unidirectional", True, "write", None),
        ("bandwidth", "bidirectional", True, None, None),
        ("latency", None, True, "read", "GPU"),
        ("latency", None, True, "read", "CPU"),
    ]
    assert data["matrices"][0]["connected"] == [[True, True], [False, True]]
    assert data["matrices"][2]["bandwidth_bytes_per_s"] == [[2500.5e9, 380.25e9], [381e9, 2511e9]]
    assert data["matrices"][5]["latency_s"][1][0] == 1.3e-06


def test_a_matrix_that_is_cut_keeps_its_whole_rows():
    text = (MADE / "p2p-bandwidth.txt").read_text()
    cut = text[: text.index(" 380.25") + 4]
    found = extract("p2p-bandwidth", cut.encode())
    assert [one["rows"] for one in found.data["matrices"]] == [["0", "1"], ["0", "1"]]
    assert len(found.skipped) == 1


def test_nvbandwidth_as_text_and_as_json():
    data = made("nvbandwidth.txt", "nvbandwidth")
    assert data["devices"][1] == {
        "index": 1, "name": "NVIDIA H100 80GB HBM3 (00000000:65:00)", "host": "head01",
    }  # fmt: skip
    copy, both, latency, local = data["tests"]
    assert copy["matrices"][0] == {
        "description": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)", "copy": "CE",
        "columns": ["0", "1"], "rows": ["0"], "bandwidth_bytes_per_s": [[55.25e9, 55.5e9]],
        "sum": 110.75e9, "min": 55.25e9, "max": 55.5e9, "average": 55.38e9,
    }  # fmt: skip
    assert both["matrices"][1]["bandwidth_bytes_per_s"] == [[None, 370.5e9], [371.5e9, None]]
    assert (latency["matrices"][0]["sum"], latency["matrices"][0]["copy"]) == (1.55275e-06, "SM")
    assert (local["status"], local["message"]) == ("error", "out of memory")
    assert data["waived_without_name"] == 1
    same = made("nvbandwidth.2.json", "nvbandwidth")["tests"]
    # The file puts the matrices of a test below each other and describes only the last.
    parts = same[0]["matrices"]
    assert [part["description"] is None for part in parts] == [True, True, False]
    assert parts[2]["bandwidth_bytes_per_s"] == both["matrices"][1]["bandwidth_bytes_per_s"]
    assert parts[0]["bandwidth_bytes_per_s"] == [[None, 185.25e9], [185.75e9, None]]
    assert (parts[0]["sum"], parts[2]["sum"]) == (None, 742e9)
    assert "values" not in parts[0]
    assert same[1]["matrices"][0]["latency_s"] == [[7.725e-07]]
    assert (same[2]["status"], same[2]["matrices"]) == ("waived", [])


def test_copy_programs():
    first, second, third, fourth = made("gpu-copy.txt", "gpu-copy")["copies"]
    assert (first["bandwidth_bytes_per_s"], first["numa_node"]) == (26.25e9, 0)
    assert (second["operation"], second["by"], second["numa_node"]) == ("write", "dma", None)
    assert third["bidirectional"] is True and fourth["target"] == "gpu_all"
    data = made("hip-bandwidth.txt", "hip-bandwidth")
    assert data["device"] == "AMD Instinct MI300X"
    assert data["rows"][0]["size_bytes"] == 64
    assert data["rows"][1]["median_bytes_per_s"] == 16.25e9
    assert data["rows"][2]["max_s"] == 6.55e-05
    first, second = made("cuda-bandwidth.txt", "cuda-bandwidth")["rows"]
    assert first == {
        "direction": "H2D", "memory": "Pinned", "size_bytes": 32000000,
        "bandwidth_bytes_per_s": 55.5e9, "devices": 1,
    }  # fmt: skip
    assert (second["direction"], second["memory"]) == ("D2D", None)


def test_perftest_units_and_a_peak_that_was_not_measured():
    (test,) = made("perftest.txt", "perftest")["tests"]
    assert (test["name"], test["parameters"]["device"]) == ("RDMA_Write BW", "mlx5_0")
    assert test["parameters"]["mtu"] == 4096 and test["parameters"]["ibv_wr_api"] == "ON"
    assert test["rows"] == [
        {
            "size_bytes": 65536, "iterations": 5000, "bandwidth_peak_bytes_per_s": 49062500000.0,
            "bandwidth_bytes_per_s": 48906250000.0, "messages_per_s": 746250.0,
        },
        {
            "size_bytes": 1048576, "iterations": 5000, "bandwidth_peak_bytes_per_s": None,
            "bandwidth_bytes_per_s": 49000000000.0, "messages_per_s": 46730.0,
        },
    ]  # fmt: skip
    latency, cut = made("perftest.2.txt", "perftest")["tests"]
    assert latency["parameters"] == {"dual_port": "OFF", "device": "mlx5_0", "gid_index": 3}
    assert latency["rows"][0] == {
        "size_bytes": 2, "iterations": 1000, "latency_min_s": 1.25e-06, "latency_max_s": 6.5e-06,
        "latency_typical_s": 1.5e-06, "latency_average_s": 1.75e-06, "latency_stdev_s": 2.5e-07,
        "latency_p99_s": 2.5e-06, "latency_p999_s": 6.25e-06,
    }  # fmt: skip
    # A MB of perftest is of 2^20 bytes: 24056.5 x 1048576 = 3007.06 x 8388608.
    assert cut["name"] is None
    assert cut["rows"][0]["bandwidth_bytes_per_s"] == 24056.5 * 1048576


def test_the_unit_of_perftests_json_is_the_one_that_agrees_with_its_message_rate():
    (test,) = made("perftest.3.json", "perftest")["tests"]
    assert test["name"] == "RDMA Write BW" and test["parameters"]["mtu"] == 4096
    assert test["rows"][0]["bandwidth_bytes_per_s"] == 49000000000.0
    assert test["rows"][0]["bandwidth_peak_bytes_per_s"] is None
    raw = (MADE / "perftest.3.json").read_bytes()
    as_mib = extract("perftest", raw.replace(b"392.00", b"46730.0")).data["tests"][0]
    assert as_mib["rows"][0]["bandwidth_bytes_per_s"] == 46730 * 1048576
    neither = extract("perftest", raw.replace(b"392.00", b"5.0")).data["tests"][0]
    assert neither["rows"][0]["bandwidth_bytes_per_s"] is None

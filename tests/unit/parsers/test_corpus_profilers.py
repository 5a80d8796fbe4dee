"""Recorded output of Nsight Systems: the samples of the corpus, values worked out by hand."""

from tests.corpus import sample


def named(data, report):
    """Return the rows of a report, of each time that it was printed."""
    return [one["rows"] for one in data["reports"] if one["report"] == report]


@sample("nsys/001_nsys_stats_torch_gcn.txt", "nsys-stats")
def test_a_run_of_torch(data, skipped) -> None:
    assert skipped == []
    assert [one["report"] for one in data["reports"]] == [
        *("nvtx_sum", "osrt_sum", "cuda_api_sum"),
        *("cuda_gpu_kern_sum", "cuda_gpu_mem_time_sum", "cuda_gpu_mem_size_sum"),
    ]
    assert data["reports"][0]["empty"] == "does not contain NV Tools Extension (NVTX) data"
    (calls,) = named(data, "cuda_api_sum")
    assert calls[0] == {
        "time_percent": 62.8, "total_time_ns": 929629185, "num_calls": 105,
        "avg_ns": 8853611.3, "med_ns": 5000, "min_ns": 2670, "max_ns": 929052953,
        "stddev_ns": 90665743.8, "name": "cudaMemcpyAsync",
    }  # fmt: skip
    (waits,) = named(data, "osrt_sum")
    assert len(waits) == 29 and waits[0]["name"] == "poll" and waits[-1]["name"] == "bind"
    # The shares are of the table's own total.
    total = sum(row["total_time_ns"] for row in waits)
    assert all(abs(100 * r["total_time_ns"] / total - r["time_percent"]) <= 0.051 for r in waits)
    (kernels,) = named(data, "cuda_gpu_kern_sum")
    assert len(kernels) == 19
    for row in kernels:
        assert abs(row["avg_ns"] * row["instances"] - row["total_time_ns"]) <= row["instances"]


@sample("nsys/002_nsys_stats_paddle_gcn.txt", "nsys-stats")
def test_a_run_of_paddle_whose_last_line_has_no_end(data, skipped) -> None:
    assert [piece.line for piece in skipped] == [130]
    (waits,) = named(data, "osrt_sum")
    assert waits[0]["total_time_ns"] == 4009727563 and waits[0]["num_calls"] == 5
    (kernels,) = named(data, "cuda_gpu_kern_sum")
    assert [row["total_time_ns"] for row in kernels[:1]] == [64892]
    assert all(row["name"] for row in kernels)


@sample("nsys/004_nsys_stats_vecadd_readme.md", "nsys-stats")
def test_five_runs_in_a_document_full_of_prose(data, skipped) -> None:
    assert [piece.line for piece in skipped] == [424]
    kernels = named(data, "cuda_gpu_kern_sum")
    assert [rows[0]["instances"] for rows in kernels] == [1010, 1010, 1010, 110, 410]
    assert [rows[0]["total_time_ns"] for rows in kernels] == [
        *(1831281, 1830493, 383261009, 38607885, 14835396),
    ]
    ranges = named(data, "nvtx_sum")[3]
    assert [(row["style"], row["range"]) for row in ranges] == [
        *(("PushPop", "Serial_Bottleneck_Loop"), ("PushPop", "iteration"), ("PushPop", "Warmup")),
    ]
    # 40,000.000 MB of 200 copies of 200 MB: the tool's MB are decimal.
    assert named(data, "cuda_gpu_mem_size_sum")[3][0]["total_bytes"] == 40_000_000_000

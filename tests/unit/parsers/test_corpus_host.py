"""The right values of recorded outputs of host tools, worked out by hand."""

from tests.corpus import sample


@sample("sysstat/026_numastat_plain.txt", "numastat")
def test_numastat_pages(data, skipped):
    nodes = data["tables"][0]["nodes"]
    hit, miss = nodes["0"]["numa_hit_pages"], nodes["0"]["numa_miss_pages"]
    assert (hit, miss) == (201272180, 13292062)
    assert round(100 * miss / (hit + miss), 2) == 6.19
    assert nodes["1"]["other_node_pages"] == 29744759
    assert skipped == []


@sample("sysstat/027_numastat_n_MB.txt", "numastat")
def test_numastat_mb(data, skipped):
    nodes = data["tables"][0]["nodes"]
    assert list(nodes) == ["0", "1", "total"]
    assert nodes["0"]["numa_hit_bytes"] == round(5148653259.43 * 2**20)
    assert nodes["total"]["interleave_hit_bytes"] == round(192.61 * 2**20)
    assert skipped == []

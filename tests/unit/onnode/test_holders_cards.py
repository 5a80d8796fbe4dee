"""What the vendors' tools say of the cards: recorded outputs (simulated: no card is asked)."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.onnode import holders_cards as hc
from tests.parts import need

MIB = 1 << 20
CARDS = """\
index, uuid, memory.used [MiB], memory.total [MiB], name
0, GPU-a, 2570 MiB, 143771 MiB, NVIDIA H200
1, GPU-b, [N/A], [N/A], NVIDIA GB10
"""
APPS = """\
gpu_uuid, pid, used_gpu_memory [MiB], process_name
GPU-a, 10291, 2566 MiB, python3 -c a, b, c
GPU-b, 77, [N/A], [Insufficient Permissions]
GPU-c, [Not Supported], [Not Supported], [Not Supported]
"""


def recorded(name: str) -> str:
    (path,) = Path(need("corpus")).glob(f"*/{name}.*")
    return path.read_text(errors="replace")


def test_nvidia_cards() -> None:
    first, second = hc.parse_nvidia_cards(CARDS)
    assert first == {
        "vendor": "nvidia",
        "card": "0",
        "uuid": "GPU-a",
        "used_bytes": 2570 * MIB,
        "total_bytes": 143771 * MIB,
    }
    assert (second["used_bytes"], second["total_bytes"]) == (None, None), "unknown is not 0"


def test_nvidia_apps_with_commas_and_what_is_not_said() -> None:
    found = hc.parse_nvidia_apps(APPS)
    assert [(one["card"], one["pid"], one["used_bytes"], one["name"]) for one in found] == [
        ("GPU-a", 10291, 2566 * MIB, "python3 -c a, b, c"),
        ("GPU-b", 77, None, "[Insufficient Permissions]"),
    ]


def test_recorded_nvidia_apps() -> None:
    found = hc.parse_nvidia_apps(recorded("011_h200_compute_apps"))
    assert [one["pid"] for one in found] == [10291, 10293, 10309]
    assert sum(one["used_bytes"] for one in found) == 32342 * MIB
    assert found[2]["name"] == "./gpu_burn"


def test_recorded_list_that_a_card_cannot_give() -> None:
    body = recorded("044_csv_compute_apps_not_supported")
    names = "gpu_uuid, pid, used_gpu_memory, process_name\n"
    rows = "".join(f"{line}, -\n" for line in body.splitlines())
    found = hc.parse_nvidia_apps(names + rows)
    assert [one["pid"] for one in found] == [48448, 153223, 192453]
    assert sum(one["used_bytes"] for one in found) == 11000 * MIB


def test_recorded_mig_parent() -> None:
    text = recorded("002_h100_mig_query_all_fields_load")
    (card,) = hc.parse_nvidia_cards(text)
    assert (card["used_bytes"], card["total_bytes"]) == (11125 * MIB, 81559 * MIB)


@pytest.mark.parametrize("text", ["", "No devices were found\n", "index, uuid\n0, GPU-a\n"])
def test_what_is_no_table_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="no table"):
        hc.parse_nvidia_cards(text)


@pytest.mark.parametrize(
    ("name", "used"),
    [
        ("001_rocm_smi_vega_10_XT", [17776640]),
        ("002_rocm_smi_vega_20_WKS_GL_XE", [10850304]),
        ("004_rocm_smi_mi100_rocm602", [6750208] * 4),
        ("007_rocm_smi_rx6700xt_rocm612", [1572745216]),
    ],
)
def test_recorded_rocm_cards(name: str, used: list[int]) -> None:
    found = hc.parse_rocm_cards(recorded(name))
    assert [one["used_bytes"] for one in found] == used
    assert [one["card"] for one in found] == [str(index) for index in range(len(used))]


def test_rocm_pids() -> None:
    rows = {
        "PID77": "python3, 8, 6352367616, 0, unknown",
        "PID78": "a, b, 1, 5, 0, 0",
        "PID79": "gone",
        "Driver version": "6.3",
    }
    found = hc.parse_rocm_pids("WARNING: x\n" + json.dumps({"system": rows}))
    assert [(one["pid"], one["used_bytes"], one["name"]) for one in found] == [
        (77, 6352367616, "python3"),
        (78, 5, "a, b"),
        (79, None, "gone"),
    ]
    assert hc.parse_rocm_pids("") == []


def test_recorded_ixsmi() -> None:
    text = recorded("012_ixsmi_bi_v150_2gpu")
    cards, processes = hc.parse_ixsmi(text)
    assert [(one["card"], one["used_bytes"], one["total_bytes"]) for one in cards] == [
        ("0", 64 * MIB, 32768 * MIB),
        ("1", 64 * MIB, 32768 * MIB),
    ]
    assert processes == []
    # The recording ends in the head of this box.
    row = "|    1      30512      python3 -m vllm serve                              27000     |\n"
    _, (process,) = hc.parse_ixsmi(text + row)
    assert (process["card"], process["pid"], process["used_bytes"]) == ("1", 30512, 27000 * MIB)
    assert process["name"] == "python3 -m vllm serve"


@given(st.text() | st.text(alphabet='|{}[]:",0123456789 MiB/\nPID'))
def test_odd_text_is_a_reason_or_rows(text: str) -> None:
    for parse in (
        hc.parse_nvidia_cards,
        hc.parse_nvidia_apps,
        hc.parse_rocm_cards,
        hc.parse_rocm_pids,
        hc.parse_ixsmi,
    ):
        try:
            parse(text)
        except ValueError as error:
            assert str(error)


names = st.text(alphabet="abc,./ []-", min_size=1).filter(lambda text: text.strip(" ,"))


@given(st.lists(st.tuples(st.integers(1, 4_000_000), st.integers(0, 200_000), names)))
def test_no_row_is_lost_whatever_a_process_is_called(rows: list[tuple[int, int, str]]) -> None:
    text = "gpu_uuid, pid, used_gpu_memory [MiB], process_name\n"
    text += "".join(f"GPU-a, {pid}, {used} MiB, {name}\n" for pid, used, name in rows)
    found = hc.parse_nvidia_apps(text)
    assert [(one["pid"], one["used_bytes"]) for one in found] == [
        (pid, used * MIB) for pid, used, _ in rows
    ]


def shim(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def say(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return f"exec /bin/cat {folder / name}"


def test_all_tools_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated: programs on PATH print what was recorded."""
    cards, apps = say(tmp_path, "cards", CARDS), say(tmp_path, "apps", APPS)
    cases = f"case $1 in --query-gpu*) {cards};; --query-compute-apps*) {apps};; esac"
    shim(tmp_path / "bin", "nvidia-smi", cases)
    shim(tmp_path / "bin", "rocm-smi", "echo 'Driver not initialized' >&2; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(hc, "DRM_ROOT", str(tmp_path / "drm"))
    found = hc.cards()
    assert [card["card"] for card in found["cards"]] == ["0", "1"]
    assert [(one["card"], one["pid"]) for one in found["processes"]] == [("0", 10291), ("1", 77)]
    assert found["failed"] == {"rocm-smi": "Driver not initialized"}, "ixsmi is not there"


def test_a_machine_without_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(hc, "DRM_ROOT", str(tmp_path / "drm"))
    assert hc.cards() == {"cards": [], "processes": [], "failed": {}}


def test_the_kernel_counts_where_no_tool_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated: files as the amdgpu driver has them."""
    for name, used in (("card0", "1000\n"), ("card1", None), ("card0-DP-1", "1\n")):
        device = tmp_path / "drm" / name / "device"
        device.mkdir(parents=True)
        if used:
            (device / "mem_info_vram_used").write_text(used)
            (device / "mem_info_vram_total").write_text("5000\n")
    monkeypatch.setattr(hc, "DRM_ROOT", str(tmp_path / "drm"))
    monkeypatch.setenv("PATH", str(tmp_path))
    (card,) = hc.cards()["cards"]
    assert (card["vendor"], card["used_bytes"], card["total_bytes"]) == ("amd", 1000, 5000)

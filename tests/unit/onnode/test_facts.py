"""Facts of a node: formats, damaged model files, and a whole run of the program."""

import hashlib
import json
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from agent_process import agent_argv
from hypothesis import given
from hypothesis import strategies as st

from servemap.onnode import (
    facts_host,
    facts_models,
    facts_pci,
    facts_software,
    facts_state,
    probe,
)
from servemap.onnode.facts import section
from tests.waiting import wait_for

X86 = """processor\t: 0
vendor_id\t: GenuineIntel
model name\t: Xeon
physical id\t: 0
core id\t\t: 0
microcode\t: 0x1
flags\t\t: fpu vme avx512f

processor\t: 1
model name\t: Xeon
physical id\t: 0
core id\t\t: 0
flags\t\t: fpu vme avx512f

processor\t: 2
model name\t: Xeon
physical id\t: 1
core id\t\t: 0
flags\t\t: fpu vme avx512f
"""
ARM = """processor\t: 0
Features\t: fp asimd
CPU implementer\t: 0x41
CPU part\t: 0xd0c

processor\t: 1
Features\t: fp asimd
CPU implementer\t: 0x41
CPU part\t: 0xd0c
"""
# Rows as the kernel prints them: addresses are words in the machine's byte order.
TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid ... inode
   0: {here}:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 777 1 x
   1: {here}:1F91 {here}:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 778 1 x
"""


def words(packed: bytes) -> str:
    return "".join(f"{word:08X}" for word in struct.unpack(f"={len(packed) // 4}I", packed))


def safetensors(tensors: dict[str, list[int]], data: int, **extra: Any) -> bytes:
    table = {
        name: {"dtype": "U8", "shape": [end - start], "data_offsets": [start, end]}
        for name, (start, end) in tensors.items()
    }
    header = json.dumps({**table, **extra}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(data)


def model_of(path: Path, cache: Path | None = None) -> dict[str, Any]:
    found = facts_models.models([str(path)], str(cache) if cache else None)
    (model,) = found["models"]
    return model


def test_cpu_counts_sockets_cores_and_threads() -> None:
    found = facts_host.parse_cpuinfo(X86)
    assert found == {
        "model": {"Xeon": 3},
        "vendor": "GenuineIntel",
        "microcode": "0x1",
        "sockets": 2,
        "cores": 2,
        "threads": 3,
        "flags": 3,
    }


def test_cpu_without_the_rows_of_x86_has_nulls() -> None:
    found = facts_host.parse_cpuinfo(ARM)
    assert (found["model"], found["vendor"], found["flags"]) == ({"0xd0c": 2}, "0x41", 2)
    assert (found["sockets"], found["cores"], found["microcode"]) == (None, None, None)
    assert facts_host.parse_cpuinfo("")["threads"] is None


def test_memory_of_the_machine_and_of_one_numa_node() -> None:
    text = "MemTotal:  24 kB\nHugePages_Total:   7\n"
    assert facts_host.parse_kb(text, ["MemTotal", "HugePages_Total", "Absent"]) == {
        "MemTotal": 24,
        "HugePages_Total": 7,
    }
    assert facts_host.parse_kb("Node 0 MemTotal:  12 kB\n", ["MemTotal"]) == {"MemTotal": 12}


def test_os_release() -> None:
    text = '# comment\nNAME="Debian GNU/Linux"\nID=debian\n\nEMPTY=\n'
    assert facts_host.parse_os_release(text) == {
        "NAME": "Debian GNU/Linux",
        "ID": "debian",
        "EMPTY": "",
    }


def test_addresses_of_interfaces() -> None:
    text = json.dumps(
        [
            {"ifname": "lo", "addr_info": [{"local": "127.0.0.1", "prefixlen": 8}]},
            {"ifname": "ib0", "address": "aa:bb", "addr_info": []},
            {},
        ]
    )
    assert facts_host.parse_ip_addresses(text) == {"lo": ["127.0.0.1/8"], "ib0": []}


@pytest.mark.parametrize("address", ["127.0.0.1", "10.77.0.12", "::1", "fd00::12", "::"])
def test_addresses_of_sockets(address: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    assert facts_state.decode_address(words(socket.inet_pton(family, address))) == address


def test_only_listening_sockets_are_listed() -> None:
    text = TCP.format(here=words(socket.inet_aton("127.0.0.1")))
    assert facts_state.parse_listening(text) == [
        {"address": "127.0.0.1", "port": 8080, "uid": 1000, "inode": 777}
    ]


def test_listening_socket_names_its_owner() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        (row,) = [row for row in facts_state.listening() if row["port"] == port]
    assert (row["address"], row["pid"], row["uid"]) == ("127.0.0.1", os.getpid(), os.getuid())
    assert row["comm"]


def test_containers_of_docker_and_of_podman() -> None:
    docker = '{"ID":"a","Image":"i","Command":"\\"serve --api-key s3cret\\"","Labels":"l"}\n'
    podman = '[{"Id": "a", "Command": ["serve", "--api-key", "s3cret"], "Ports": null}]'
    (one,) = facts_software.parse_containers(docker)
    assert set(one) == {"ID", "Image", "Command"}
    (other,) = facts_software.parse_containers(podman)
    assert other == {"Id": "a", "Command": "serve --api-key <redacted>", "Ports": None}
    assert "s3cret" not in json.dumps(one)
    assert facts_software.parse_containers("") == []
    for bad in ("{", "[1]"):
        with pytest.raises(ValueError):
            facts_software.parse_containers(bad)


def test_environment_is_picked_by_prefix_and_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZZ_NCCL_A", "no")
    monkeypatch.setenv("NCCL_A", "1")
    monkeypatch.setenv("NCCL_TOKEN", "x")
    monkeypatch.setenv("NCCL_URL", "http://u:p@h")
    found = facts_software.environment(["NCCL_"])
    assert found == {"NCCL_A": "1", "NCCL_TOKEN": "<redacted>", "NCCL_URL": "http://<redacted>@h"}
    assert facts_software.environment([]) == {}


def test_what_podman_leaves_in_a_session_of_its_own_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "podman"
    pid_file = tmp_path / "pid"
    script = (
        f"setsid sh -c 'echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 600'"
    )
    tool.write_text(
        f"#!/bin/sh\n{script} >/dev/null 2>&1 </dev/null &\n"
        f"while [ ! -e {pid_file} ]; do sleep 0.01; done\necho '[]'\n"
    )
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert facts_software.containers()["podman"] == {"running": []}
    left = Path(f"/proc/{pid_file.read_text().strip()}")
    wait_for(lambda: not left.exists(), "its end")


def test_tools_answer_hang_fail_or_lack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def tool(name: str, body: str) -> None:
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)

    tool("good", 'echo "$LC_ALL $1"; echo warn >&2; exit 3')
    tool("slow", "sleep 600")
    (tmp_path / "odd").write_bytes(b"\x00\x01")
    (tmp_path / "odd").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert probe.run_tool(["good", "-L"]) == {
        "argv": ["good", "-L"],
        "code": 3,
        "stdout": "C -L\n",
        "stderr": "warn\n",
    }
    assert probe.run_tool(["slow"], timeout_s=0.1)["error"] == "did not end within 0.1 s"
    assert "cannot be started" in probe.run_tool(["odd"])["error"]
    assert probe.run_tool(["no-such-tool"])["error"] == "no-such-tool is not on PATH"
    found = facts_software.cards((("good", "-L"), ("no-such-tool", "-q"), ("no-such-tool", "-L")))
    assert (found["found"], found["absent"]) == (True, ["no-such-tool"])
    assert list(found["tools"]) == ["good -L"]
    nothing = facts_software.cards((("no-such-tool",),))
    assert nothing["found"] is False
    assert "none found" in nothing["reason"]


def test_safetensors_header_is_counted_and_hashed(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    data = safetensors({"a": [0, 4], "b": [4, 10]}, 10, __metadata__={"format": "pt"})
    path.write_bytes(data)
    (record,) = model_of(path)["files"]
    (length,) = struct.unpack("<Q", data[:8])
    assert record["errors"] == []
    assert record["sha256"] == hashlib.sha256(data).hexdigest()
    assert (record["size"], record["mtime_ns"]) == (len(data), path.stat().st_mtime_ns)
    assert record["safetensors"] == {
        "tensors": 2,
        "header_bytes": length,
        "header_sha256": hashlib.sha256(data[8 : 8 + length]).hexdigest(),
    }


@given(st.data())
def test_every_truncation_of_safetensors_is_an_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    whole = safetensors({"a": [0, 40]}, 40)
    keep = data.draw(st.integers(0, len(whole) - 1))
    path = tmp_path_factory.mktemp("st") / "m.safetensors"
    path.write_bytes(whole[:keep])
    (record,) = model_of(path)["files"]
    assert "truncated" in record["errors"][0]
    assert "safetensors" not in record
    assert record["sha256"] == hashlib.sha256(whole[:keep]).hexdigest()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (safetensors({"a": [0, 4]}, 5), "too long"),
        (b"GGUF" + bytes(100), "not a safetensors file"),
        (b"<html>not a model</html>", "not a safetensors file"),
        (struct.pack("<Q", 2) + b"[]", "damaged"),
        (struct.pack("<Q", 2) + b"\xff\xff", "damaged"),
        (struct.pack("<Q", 9) + b'{"a": {}}', "damaged"),
    ],
)
def test_what_is_no_safetensors_is_an_error(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(data)
    (record,) = model_of(path)["files"]
    assert said in record["errors"][0]


def test_gguf_head() -> None:
    head = b"GGUF" + struct.pack("<IQQ", 3, 51, 24)
    assert facts_models.parse_gguf(head) == {"version": 3, "tensors": 51, "metadata_pairs": 24}
    for bad, said in (
        (head[:20], "truncated"),
        (b"GGML" + head[4:], "not a GGUF"),
        (b"GGUF" + struct.pack(">IQQ", 3, 51, 24), "version 50331648"),
        (b"", "not a GGUF"),
    ):
        with pytest.raises(ValueError, match=said):
            facts_models.parse_gguf(bad)


def test_model_folder_is_listed_in_order_with_its_missing_shards(tmp_path: Path) -> None:
    model = tmp_path / "model"
    (model / "sub").mkdir(parents=True)
    (model / ".cache").mkdir()
    (model / ".cache" / "lock").touch()
    (model / "sub" / "b.txt").write_text("b")
    (tmp_path / "blob").write_text("{}")
    (model / "config.json").symlink_to(tmp_path / "blob")
    (model / "gone").symlink_to(tmp_path / "absent")
    os.mkfifo(model / "pipe")
    index = {"weight_map": {"x": "a-1.safetensors", "y": "a-2.safetensors"}}
    (model / "a.safetensors.index.json").write_text(json.dumps(index))
    (model / "a-1.safetensors").write_bytes(safetensors({}, 0))
    files = {record["name"]: record for record in model_of(model)["files"]}
    assert list(files) == [
        "a-1.safetensors", "a.safetensors.index.json", "config.json", "gone", "pipe", "sub/b.txt",
    ]  # fmt: skip
    assert files["a.safetensors.index.json"]["errors"] == ["missing shards: a-2.safetensors"]
    assert files["config.json"]["sha256"] == hashlib.sha256(b"{}").hexdigest()
    assert files["gone"]["size"] is None
    assert "No such file" in files["gone"]["errors"][0]
    assert files["pipe"]["errors"] == ["not a regular file"]


def test_config_of_a_model_is_kept(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "tokenizer_config.json").write_text("{}")
    (tmp_path / "sub" / "config.json").write_text("{}")
    files = {record["name"]: record for record in model_of(tmp_path)["files"]}
    assert files["config.json"]["config"] == {"model_type": "llama"}
    assert "config" not in files["tokenizer_config.json"]
    assert "config" not in files["sub/config.json"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"[]", "not a JSON object"),
        (b"{", "Expecting"),
        (b"\xff", "decode"),
        (b"[" * 100_000, "too deeply"),
        (b" " * ((1 << 20) + 1), "larger than"),
    ],
)
def test_config_that_cannot_be_read_says_why(tmp_path: Path, data: bytes, said: str) -> None:
    (tmp_path / "config.json").write_bytes(data)
    (record,) = model_of(tmp_path)["files"]
    assert "config" not in record
    assert said in record["config_error"]
    assert record["errors"] == []


def test_model_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert model_of(tmp_path / "absent")["errors"] == ["no such file or folder"]
    assert model_of(tmp_path / "empty")["errors"] == ["the folder holds no files"]


def test_checksum_is_read_from_the_cache_until_the_file_changes(tmp_path: Path) -> None:
    model, cache = tmp_path / "m.bin", tmp_path / "cache.json"
    model.write_bytes(b"one")
    model_of(model, cache)
    stored = json.loads(cache.read_text())
    (entry,) = stored["entries"].values()
    assert entry["sha256"] == hashlib.sha256(b"one").hexdigest()
    entry["sha256"] = "from the cache"
    cache.write_text(json.dumps(stored))
    assert model_of(model, cache)["files"][0]["sha256"] == "from the cache"
    model.write_bytes(b"two")
    assert model_of(model, cache)["files"][0]["sha256"] == hashlib.sha256(b"two").hexdigest()


@pytest.mark.parametrize("text", ["{", "[]", '{"entries": 3}', '{"entries": {"x": 1}}', ""])
def test_damaged_cache_is_replaced(tmp_path: Path, text: str) -> None:
    model, cache = tmp_path / "m.bin", tmp_path / "cache.json"
    model.write_bytes(b"one")
    cache.write_text(text)
    assert model_of(model, cache)["files"][0]["sha256"] == hashlib.sha256(b"one").hexdigest()
    assert str(model) in json.loads(cache.read_text())["entries"]


def test_cache_that_cannot_be_written_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "m.bin").write_bytes(b"one")
    (tmp_path / "file").touch()
    cache = str(tmp_path / "file" / "cache.json")
    found = facts_models.models([str(tmp_path / "m.bin")], cache)
    assert "cannot be written" in found["cache_error"]
    assert found["models"][0]["files"][0]["sha256"]


def test_section_that_fails_says_why() -> None:
    def fail() -> None:
        raise KeyError("odd")

    assert section(fail) == {"error": "KeyError: 'odd'"}


def test_whole_facts_of_this_machine(tmp_path: Path) -> None:
    (tmp_path / "a.bin").touch()
    argv = agent_argv(
        "facts", "--model", str(tmp_path / "a.bin"), str(tmp_path / "b.bin"), "--env-prefix",
        "NCCL_,CUDA_", "--cache", str(tmp_path / "cache" / "sums.json"),
    )  # fmt: skip
    environment = {**os.environ, "NCCL_DEBUG": "INFO", "CUDA_TOKEN": "x"}
    done = subprocess.run(argv, capture_output=True, check=True, env=environment)
    facts = json.loads(done.stdout)
    assert [name for name, one in facts.items() if isinstance(one, dict) and "error" in one] == []
    assert facts["kernel"]["release"] == os.uname().release
    assert facts["cpu"]["threads"] == len(facts["cpu"]["topology"])
    assert facts["memory"]["MemTotal"] > 0
    assert "127.0.0.1/8" in (facts["nics"]["interfaces"]["lo"]["addresses"] or ["127.0.0.1/8"])
    assert facts["python"]["executable"] == sys.executable
    assert "pytest" in facts["python"]["packages"]
    assert facts["env"]["NCCL_DEBUG"] == "INFO"
    assert facts["env"]["CUDA_TOKEN"] == "<redacted>"
    assert isinstance(facts["accelerators"]["found"], bool)
    assert set(facts["containers"]) == {"docker", "podman"}
    assert [len(model["files"]) for model in facts["models"]["models"]] == [1, 0]
    assert (tmp_path / "cache" / "sums.json").exists()


def test_volatile_state_of_this_machine() -> None:
    done = subprocess.run(agent_argv("facts", "--state"), capture_output=True, check=True)
    state = json.loads(done.stdout)
    assert set(state) == {"schema", "taken_ns", "cards", "containers", "network"}
    lo = state["network"]["interfaces"]["lo"]
    assert lo["counters"]["rx_bytes"] == lo["counters"]["tx_bytes"] >= 0


def test_machine_without_any_of_it_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CPU_ROOT", "NODE_ROOT", "NET_ROOT", "RDMA_ROOT"):
        monkeypatch.setattr(facts_host, name, "/absent")
    monkeypatch.setenv("PATH", "/absent")
    assert facts_host.cpu()["governors"] is None
    assert "names no node" in facts_host.numa()["error"]
    nics = facts_host.nics()
    assert (nics["interfaces"], nics["rdma"]) == ({}, {})
    assert "ip is not on PATH" in nics["addresses_error"]


def test_links_of_cards_and_network_devices_and_of_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files as in Documentation/ABI/testing/sysfs-bus-pci of Linux."""
    whole = {
        "class": "0x030200", "vendor": "0x10de", "device": "0x2330", "numa_node": "1",
        "current_link_speed": "2.5 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe",
        "current_link_width": "16", "max_link_width": "16",
    }  # fmt: skip
    function = {**whole, "class": "0x020000", "numa_node": "-1", "current_link_speed": "Unknown",
                "current_link_width": "0", "max_link_width": "255"}  # fmt: skip
    found = {"0000:17:00.0": whole, "0000:65:00.1": function, "0000:00:00.0": {"class": "0x060000"},
             "0000:3b:00.0": {"class": "0x120000"}}  # fmt: skip
    for address, files in found.items():
        for name, content in files.items():
            path = tmp_path / address / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(content + "\n")
    monkeypatch.setattr(facts_pci, "PCI_ROOT", str(tmp_path))
    devices = facts_pci.pci()["devices"]
    assert devices.keys() == {"0000:17:00.0", "0000:65:00.1", "0000:3b:00.0"}
    assert devices["0000:17:00.0"] == {
        "kind": "card", "vendor": "0x10de", "device": "0x2330", "numa_node": 1,
        "speed": "2.5 GT/s PCIe", "max_speed": "32.0 GT/s PCIe", "width": 16, "max_width": 16,
    }  # fmt: skip
    function = devices["0000:65:00.1"]
    assert (function["kind"], function["max_speed"]) == ("network", "32.0 GT/s PCIe")
    assert [function[k] for k in ("numa_node", "speed", "width", "max_width")] == [None] * 4
    assert set(devices["0000:3b:00.0"].values()) == {"card", None}
    monkeypatch.setattr(facts_pci, "PCI_ROOT", str(tmp_path / "none"))
    assert facts_pci.pci() == {"devices": {}}

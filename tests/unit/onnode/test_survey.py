"""The survey of a node: this machine, and made-up trees of /proc and /sys (simulated hardware)."""

import http.server
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_process import agent_argv
from hypothesis import given
from hypothesis import strategies as st

from servemap.nodes.agent_zip import build_agent
from servemap.onnode import survey_fabric, survey_host, survey_software
from servemap.onnode.ident import machine_boot_id
from tests.parts import need


def survey(request: Any, *args: str, **env: str) -> dict[str, Any]:
    done = subprocess.run(
        agent_argv("survey", *args),
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **env},
    )
    return json.loads(done.stdout)


def tree(root: Path, files: dict[str, str]) -> str:
    """Write the files of a made-up machine and return the folder that stands for its root."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(root)


def shim(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_this_machine(tmp_path: Path) -> None:
    model = tmp_path / "model"
    tree(model, {"a.safetensors": "12345", "sub/b.json": "{}", ".cache/c": "hidden"})
    (model / "lost").symlink_to("nowhere")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        found = survey(
            {
                "workdir": str(tmp_path / "not" / "there"),
                "paths": [str(model), str(tmp_path / "none")],
                "ports": [port, 1],
                "tools": ["sh", "no-such-tool"],
                "netdevs": ["lo", "no-such-link"],
            }
        )
    assert found["python"]["version"] == list(sys.version_info[:3])
    assert found["disk"]["folder"] == str(tmp_path)
    assert 0 < found["disk"]["free_bytes"] <= found["disk"]["total_bytes"]
    assert found["disk"]["writable"] is True
    assert found["disk"]["type"]
    assert found["paths"][str(model)] == {
        "files": {"a.safetensors": 5, "sub/b.json": 2},
        "errors": ["lost: No such file or directory"],
    }
    assert found["paths"][str(tmp_path / "none")]["errors"] == ["no such file or folder"]
    assert [(row["port"], row["pid"]) for row in found["ports"]] == [(port, os.getpid())]
    assert found["tools"]["sh"].endswith("/sh")
    assert found["tools"]["no-such-tool"] is None
    assert found["netdevs"]["lo"]["mtu"] > 1000
    assert found["netdevs"]["no-such-link"] is None
    assert found["runtime"] is None
    assert found["cards"] is None
    assert [key for key, one in found.items() if isinstance(one, dict) and "error" in one] == []


def test_a_model_that_is_one_file(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_text("1234")
    assert survey_host.listing(str(path)) == {"files": {"m.gguf": 4}, "errors": []}


def test_under_the_oldest_python(tmp_path: Path) -> None:
    name, data = build_agent()
    (tmp_path / name).write_bytes(data)
    argv = [need("python38"), str(tmp_path / name), "survey"]
    request = {
        "paths": [str(tmp_path)],
        "netdevs": ["lo"],
        "ports": [1],
        "tools": ["sh"],
        "cards": True,
        "sudo": True,
        "runtime": {"argv": ["no-such-runtime"], "images": ["x"]},
        "urls": ["http://127.0.0.1:9/"],
    }
    done = subprocess.run(argv, input=json.dumps(request), capture_output=True, text=True)
    found = json.loads(done.stdout)
    assert found["python"]["version"][:2] == [3, 8]
    assert found["paths"][str(tmp_path)]["files"] == {name: len(data)}
    assert found["runtime"]["error"] == "no-such-runtime is not on PATH"
    bad = [key for key, one in found.items() if isinstance(one, dict) and set(one) == {"error"}]
    assert bad == []


def test_a_request_that_is_none(tmp_path: Path) -> None:
    for text in ("[]", "{", "[" * 100_000):
        done = subprocess.run(agent_argv("survey"), input=text, capture_output=True, text=True)
        assert done.returncode == 2
        assert done.stderr.startswith("survey: the request cannot be read")
        assert "Traceback" not in done.stderr


def roce(root: Path) -> str:
    """A made-up node with one RoCE and one InfiniBand device (simulated)."""
    port = "sys/class/infiniband/mlx5_0/ports/1"
    return tree(
        root,
        {
            f"{port}/state": "4: ACTIVE\n",
            f"{port}/rate": "400 Gb/sec (4X NDR)\n",
            f"{port}/link_layer": "Ethernet\n",
            f"{port}/gids/0": "fe80:0000:0000:0000:689c:b8ff:fedf:3b01\n",
            f"{port}/gids/3": "0000:0000:0000:0000:0000:ffff:0a4d:0002\n",
            f"{port}/gids/10": survey_fabric.NO_GID + "\n",
            f"{port}/gid_attrs/types/0": "IB/RoCE v1\n",
            f"{port}/gid_attrs/types/3": "RoCE v2\n",
            f"{port}/gid_attrs/ndevs/3": "eth0\n",
            "sys/class/infiniband/mlx5_0/device/net/eth0/mtu": "9000\n",
            "sys/class/infiniband/mlx5_1/ports/1/state": "1: DOWN\n",
            "sys/class/infiniband/mlx5_1/ports/1/link_layer": "InfiniBand\n",
            "sys/class/net/eth0/mtu": "9000\n",
            "sys/class/net/eth0/operstate": "up\n",
            "sys/class/net/eth0/speed": "-1\n",
            "proc/modules": "nvidia_peermem 16384 0 - Live 0x0\nib_core 1 0 - Live 0x0\n",
            "proc/kallsyms": "0000000000000000 T ib_umem_dmabuf_get\t[ib_uverbs]\n",
            "proc/sys/kernel/osrelease": "5.15.0-25\n",
            "proc/sys/kernel/perf_event_paranoid": "4\n",
            "proc/driver/nvidia/version": "NVRM version: NVIDIA UNIX Open Kernel Module\nGCC\n",
            "proc/self/mounts": "rootfs / ext4 rw 0 0\nhead:/x /tmp\\040dir nfs4 rw 0 0\n",
        },
    )


def test_made_up_fabric(tmp_path: Path) -> None:
    found = survey({"netdevs": ["eth0"]}, "--root", roce(tmp_path))
    assert found["netdevs"] == {"eth0": {"mtu": 9000, "operstate": "up", "speed_mbit": None}}
    device = found["rdma"]["mlx5_0"]
    assert device["netdevs"] == ["eth0"]
    assert device["ports"]["1"]["state"] == "4: ACTIVE"
    assert device["ports"]["1"]["gids"] == {
        "0": {
            "gid": "fe80:0000:0000:0000:689c:b8ff:fedf:3b01",
            "type": "IB/RoCE v1",
            "netdev": None,
        },
        "3": {
            "gid": "0000:0000:0000:0000:0000:ffff:0a4d:0002",
            "type": "RoCE v2",
            "netdev": "eth0",
        },
    }
    assert found["rdma"]["mlx5_1"]["ports"]["1"]["gids"] == {}
    assert found["peer_memory"] == {
        "modules": ["nvidia_peermem"],
        "dma_buf": True,
        "amdgpu": False,
    }
    assert found["kernel"] == {
        "hostname": socket.gethostname(),
        "boot_id": machine_boot_id(),
        "release": "5.15.0-25",
        "nvidia_driver": "NVRM version: NVIDIA UNIX Open Kernel Module",
    }
    assert found["perf_event_paranoid"] == {"level": 4, "reason": None}


def test_an_address_of_this_machine_and_one_that_is_not() -> None:
    assert survey({"address": "127.0.0.1"})["address"] == {"ours": True, "reason": None}
    found = survey({"address": "192.0.2.1"})["address"]
    assert (found["ours"], found["reason"]) == (False, "Cannot assign requested address")
    assert survey({})["address"] is None


def test_an_interpreter_and_its_modules(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine/__init__.py").write_text("raise SystemExit('it must not be imported')")
    request = {"python": sys.executable, "modules": ["engine", "none_such"]}
    asked = [{**request, "root": root} for root in (str(tmp_path), None)]
    found, without = survey({"engines": asked})["engines"]
    assert found["modules"] == {"engine": str(tmp_path / "engine/__init__.py"), "none_such": None}
    assert found["packages"]["pytest"]
    assert without["modules"]["engine"] is None
    (broken,) = survey({"engines": [{**request, "python": "/no/python", "root": None}]})["engines"]
    assert broken["error"].endswith("no such program: /no/python")


def test_the_environment_of_a_load_client() -> None:
    (found,) = survey({"clients": [{"python": sys.executable, "modules": ["json"], "root": None}]})[
        "clients"
    ]
    assert found["modules"]["json"]
    assert survey({})["clients"] == []


def test_a_machine_without_any_of_it(tmp_path: Path) -> None:
    found = survey({"ports": [1]}, "--root", str(tmp_path))
    assert found["rdma"] == {}
    assert found["peer_memory"] == {"modules": [], "dma_buf": None, "amdgpu": False}
    assert found["perf_event_paranoid"]["level"] is None
    assert found["perf_event_paranoid"]["reason"] == "No such file or directory"
    assert found["disk"]["type"] is None
    assert found["ports"] == []


def test_recorded_devices(tmp_path: Path) -> None:
    """Replays the files of a recorded sysfs tree (simulated)."""
    text = (Path(need("corpus")) / "hca/002_sysfs_procfs_fixture.txt").read_text()
    rows = [line.partition(":") for line in text.splitlines() if line.startswith("/sys/")]
    root = tree(tmp_path, {path.lstrip("/"): f"{value}\n" for path, _, value in rows})
    found = survey_fabric.devices(root)
    assert found["hfi1_0"]["ports"]["1"]["state"] == "4: ACTIVE"
    assert found["hfi1_0"]["ports"]["1"]["rate"] == "100 Gb/sec (4X EDR)"
    assert sorted(found["mlx4_0"]["ports"]) == ["1", "2"]
    assert found["mlx4_0"]["ports"]["1"]["gids"] == {}


def test_mounts_with_escapes() -> None:
    text = "a / ext4 rw 0 0\nb /data nfs rw 0 0\nc /my\\040dir xfs rw 0 0\nshort\n"
    mounts = survey_host.parse_mounts(text)
    assert mounts == [("/", "ext4"), ("/data", "nfs"), ("/my dir", "xfs")]
    for path, kind in {
        "/data": "nfs",
        "/data/x": "nfs",
        "/database": "ext4",
        "/my dir/x": "xfs",
    }.items():
        assert survey_host.file_system(path, mounts) == kind


@given(st.lists(st.sampled_from(["/", "/a", "/a/b", "/ab", "/c"]), max_size=8))
def test_the_last_of_the_longest_mounts_counts(points: list[str]) -> None:
    mounts = [(point, str(number)) for number, point in enumerate(points)]
    above = [one for one in mounts if one[0] in ("/", "/a", "/a/b")]
    expected = max(above, key=lambda one: (len(one[0]), int(one[1])))[1] if above else None
    assert survey_host.file_system("/a/b/c", mounts) == expected


RUNTIME = """
case "$1 $2" in
"--version ") echo "Docker version 27.0";;
"ps -q") ;;
"image inspect") [ "$5" = there:1 ] || exit 1
  echo 'sha256:abc ["there@sha256:d2","other@sha256:d1","there@sha256:d1"]';;
*) exit 9;;
esac"""


def test_a_container_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shim in the place of docker (simulated)."""
    shim(tmp_path, "docker", RUNTIME)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert survey_software.runtime(["docker"], ["there:1", "none"]) == {
        "version": "Docker version 27.0",
        "error": None,
        "images": {
            "there:1": {"id": "sha256:abc", "digests": ["sha256:d1", "sha256:d2"]},
            "none": None,
        },
    }
    shim(tmp_path, "docker", "echo denied >&2; exit 1")
    assert survey_software.runtime(["docker"], ["there:1"]) == {
        "version": None,
        "error": "denied",
        "images": {},
    }
    monkeypatch.setenv("PATH", str(tmp_path))
    absent = survey_software.runtime(["podman"], [])
    assert absent["error"] == "podman is not on PATH"


def test_cards_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers of the vendors' tools (simulated)."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert survey_software.cards() == {"tool": None, "count": None, "errors": []}
    lines = "GPU 0: NVIDIA H100 (UUID: GPU-1)\\n  MIG 1g.10gb Device 0: (UUID: MIG-2)\\nGPU 1: N\\n"
    shim(
        tmp_path,
        "rocm-smi",
        "printf 'GPU[0]\\t: Device ID: 0x1\\nGPU[0]\\t: Rev: 1\\nGPU[1]: x\\n'",
    )
    assert survey_software.cards()["count"] == 2
    shim(tmp_path, "nvidia-smi", "echo 'cannot talk to the driver' >&2; exit 9")
    found = survey_software.cards()
    assert (found["tool"], found["count"]) == ("rocm-smi", 2)
    assert found["errors"] == ["nvidia-smi: cannot talk to the driver"]
    shim(tmp_path, "nvidia-smi", f"printf '{lines}'")
    assert survey_software.cards() == {"tool": "nvidia-smi", "count": 2, "errors": []}


@pytest.fixture
def site() -> Iterator[str]:
    """A web server on loopback."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/away":
                self.send_response(302)
                self.send_header("Location", "/json")
                self.end_headers()
                return
            self.send_response(500 if self.path == "/broken" else 200)
            self.end_headers()
            self.wfile.write(b'{"a": 1}' if self.path == "/json" else b"<html>")

        def log_message(self, *args: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_urls(site: str) -> None:
    proxy = {"http_proxy": "http://127.0.0.1:9"}
    urls = [f"{site}/{name}" for name in ("json", "html", "broken", "away")]
    found = survey({"urls": [*urls, "http://127.0.0.1:9/"]}, **proxy)["urls"]
    assert found[urls[0]] == {"status": 200, "json": {"a": 1}}
    assert found[urls[1]] == {"status": 200, "json": None}
    assert found[urls[2]] == {"status": 500, "json": None}
    assert found[urls[3]] == {"status": 302, "json": None}
    assert "refused" in found["http://127.0.0.1:9/"]["error"]

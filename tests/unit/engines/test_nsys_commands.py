"""Command lines of Nsight Systems, and what it says of itself (simulated)."""

import json

import pytest

from servemap.engines import nsys
from servemap.engines.nsys import MARK, Launch, Version
from servemap.engines.profiling import refuse_profiler
from servemap.model.errors import ConfigError
from servemap.model.server_spec import ServerSpec

HELP = """
\t-t, --trace=

\t   Possible values are 'cuda', 'nvtx', 'mpi', 'osrt',
\t   'nccl', 'python-gil' or 'none'.
\t   Select the API(s) to trace. '<api>-annotations' is no name.

\t--other=
\t   Possible values are 'wrong'.
"""


def version(*traces: str) -> Version:
    return Version("2025.6.1", 2025, 6, traces)


def test_the_version_and_what_it_can_trace_are_what_the_tool_says() -> None:
    found = nsys.read_version("NVIDIA Nsight Systems version 2025.6.3.541-2563377v0\n", HELP)
    assert found == Version(
        "2025.6.3.541", 2025, 6, ("cuda", "nvtx", "mpi", "osrt", "nccl", "python-gil", "none")
    )
    assert nsys.read_version("nsys: command not found", HELP) is None
    bare = nsys.read_version("NVIDIA Nsight Systems version 2024.1", "no such help")
    assert bare is not None and bare.traces == ()


@pytest.mark.parametrize(
    ("said", "old"), [("2022.3.9", True), ("2022.4.2", False), ("2023.1", False)]
)
def test_what_is_too_old(said, old) -> None:
    found = nsys.read_version(f"NVIDIA Nsight Systems version {said}", HELP)
    assert found is not None and found.too_old is old


def test_traced_is_what_all_nodes_can_and_nccl_only_where_it_is_a_name() -> None:
    new, older = version("cuda", "nvtx", "osrt", "nccl"), version("nvtx", "cuda", "osrt", "mpi")
    assert nsys.traced([new]) == ("cuda", "nvtx", "osrt", "nccl")
    assert nsys.traced([new, older]) == ("cuda", "nvtx", "osrt")


def test_a_server_is_launched_in_a_session_of_its_rank() -> None:
    how = Launch("/opt/nsys", "servemap-r", ("cuda", "nvtx"), "graph")
    argv = nsys.launched(["python", "-m", "vllm"], {MARK: how.mark()}, 1)
    assert argv == [
        "/opt/nsys",
        "launch",
        "--session-new=servemap-r-r1",
        "--trace=cuda,nvtx",
        "--cuda-graph-trace=graph",
        "--trace-fork-before-exec=true",
        "--wait=primary",
        *("python", "-m", "vllm"),
    ]
    host = Launch("nsys", "s", ("osrt",), "node")
    assert "--cuda-graph-trace=node" not in nsys.launched(["x"], {MARK: host.mark()}, 0)
    assert nsys.launched(["x"], {"OTHER": "1"}, 0) == ["x"]


def test_the_commands_of_a_session() -> None:
    assert nsys.start_argv("nsys", "s", "/d/rank0") == [
        *("nsys", "start", "--session=s", "--sample=none", "--cpuctxsw=none"),
        *("--force-overwrite=true", "--output=/d/rank0"),
    ]
    assert nsys.stop_argv("nsys", "s") == ["nsys", "stop", "--session=s"]
    assert nsys.cancel_argv("nsys", "s") == ["nsys", "cancel", "--session=s"]
    assert nsys.shutdown_argv("nsys", "s")[-1] == "--kill=sigterm"
    assert nsys.export_argv("nsys", "a.nsys-rep", "a.sqlite")[-1] == "a.nsys-rep"


def test_sessions_are_read_whatever_their_name() -> None:
    text = (
        "              ID         TIME                       STATE LAUNCH NAME\n"
        "         1026662        00:03                    Launched      1 my session\n"
        "         1026663        00:05                  Collection      2 b\n"
    )
    assert nsys.read_sessions(text) == {"my session": "Launched", "b": "Collection"}
    assert nsys.read_sessions("There are no active sessions.\n") == {}


@pytest.mark.parametrize("engine", ["vllm", "sglang", "llamacpp"])
def test_no_campaign_may_have_results_from_a_server_under_nsys(engine) -> None:
    server = ServerSpec(engine=engine, env={MARK: json.dumps({})})
    with pytest.raises(ConfigError, match="gives no results"):
        refuse_profiler(server)

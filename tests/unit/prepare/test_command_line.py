"""Command lines of running servers, as people write them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servemap.engines.base import flags
from servemap.prepare.command_line import (
    Command,
    find_server,
    options,
    read_command,
    shell_words,
    spellings,
    typed,
)


def read(line: str) -> Command:
    found = find_server(shell_words(line))
    assert found is not None, line
    return read_command(*found)


def test_vllm_serve() -> None:
    found = read(
        "/opt/entry.sh /usr/bin/vllm serve /models/x --served-model-name x y -tp 2 "
        "--pipeline-parallel-size=4 --max-model-len 8192 --port 8001 --enforce-eager "
        "--gpu-memory-utilization 0.90 --no-enable-prefix-caching --seed -1 "
        """--compilation-config '{"mode": 3}'"""
    )
    assert found == Command(
        engine="vllm",
        port=8001,
        model="/models/x",
        name="x",
        context=8192,
        topology={"tp": 2, "pp": 4},
        args={
            "enforce-eager": True,
            "gpu-memory-utilization": "0.90",
            "no-enable-prefix-caching": True,
            "seed": -1,
            "compilation-config": '{"mode": 3}',
        },
    )


def test_vllm_as_a_module() -> None:
    found = read(
        "python3 -m vllm.entrypoints.openai.api_server --model=org/name --data_parallel_size 2"
    )
    assert (found.engine, found.model, found.port) == ("vllm", "org/name", 8000)
    assert found.topology == {"dp": 2}


def test_sglang_on_two_nodes() -> None:
    found = read(
        "bash -lc 'cd /x && exec python3 -m sglang.launch_server --model-path /m --tp 16 "
        "--ep-size 16 --dist-init-addr 10.0.0.1:20000 --nnodes 2 --node-rank 0 --host 0.0.0.0 "
        "--context-length 4096 --cuda-graph-bs 1 2 4 2>&1 | tee /log'"
    )
    assert found == Command(
        engine="sglang",
        port=30000,
        model="/m",
        bind="0.0.0.0",
        context=4096,
        topology={"tp": 16, "ep": 16},
        nodes=2,
        master_port=20000,
        args={"cuda-graph-bs": ["1", "2", "4"]},
    )


def test_what_servemap_gives_itself_is_not_an_argument() -> None:
    found = read(
        "vllm serve m --nnodes 2 --node-rank 1 --master-addr 10.0.0.1 --master-port 29501 "
        "--headless"
    )
    assert (found.args, found.nodes, found.master_port) == ({}, 2, 29501)


@pytest.mark.parametrize(
    "option",
    [
        "--api-key abcdef",
        "--hf-token hf_abcdefghijkl",
        "--extra hf_abcdefghijkl",
        "--x http://u:p@h/",
    ],
)
def test_secrets_are_left_out(option: str) -> None:
    found = read(f"vllm serve m {option} --seed 3")
    assert found.args == {"seed": 3}
    assert len(found.left_out) == 1
    assert option.split()[0] in found.left_out[0]
    assert option.split()[1] not in found.left_out[0]


def test_a_short_option_is_left_out_with_a_word() -> None:
    found = read("vllm serve m -O3")
    assert (found.args, found.left_out) == ({}, ["-O3: give the long form of this option"])


@pytest.mark.parametrize(
    "line",
    ["sleep infinity", "", "bash", "bash -c", "sh -c 'sleep 1 # vllm'", "vllm bench serve",
     "grep sglang.launch_server log", "python -m other"],
)  # fmt: skip
def test_no_server(line: str) -> None:
    assert find_server(shell_words(line)) is None


def test_numbers_that_are_none() -> None:
    found = read("vllm serve m --port http --max-model-len auto -tp 0")
    assert (found.port, found.context, found.topology) == (8000, None, {})


@given(st.lists(st.text(max_size=12) | st.sampled_from(["vllm", "serve", "bash", "-c", "-m"])))
def test_any_words_are_read(words: list[str]) -> None:
    found = find_server(words)
    if found is not None:
        read_command(*found)


WORDS = st.text("abcXYZ019./_:=", min_size=1, max_size=8)
NAMES = st.from_regex(r"x[a-z]{0,6}(-[a-z]{1,4}){0,2}", fullmatch=True)
VALUES = st.booleans().filter(bool) | st.integers(-99, 99) | WORDS | st.lists(WORDS, min_size=2)


@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_arguments_come_back_as_they_were_given(args: dict[str, Any]) -> None:
    line = flags(args)
    found = read_command("vllm", ["model", *line])
    assert found.left_out == []
    assert flags(found.args) == line


@given(st.text(max_size=10))
def test_a_typed_value_gives_the_same_text(text: str) -> None:
    assert str(typed(text)) == text
    assert typed("inf") == "inf"


@given(st.lists(st.text(max_size=6)))
def test_no_word_of_an_option_is_lost(words: list[str]) -> None:
    before, found = options(words)
    again = before + [part for name, values in found for part in (name, *values)]
    assert "".join(again).replace("=", "") == "".join(words).replace("=", "")


def test_the_table_covers_both_engines() -> None:
    table = spellings()
    assert set(table) == {"vllm", "sglang"}
    for spelling in table.values():
        names = [name for group in spelling.options.values() for name in group]
        assert len(names + spelling.given_by_us) == len({*names, *spelling.given_by_us})
        assert {"model", "name", "port", "bind", "context", "tp"} <= set(spelling.options)

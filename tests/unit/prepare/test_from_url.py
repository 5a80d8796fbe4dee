"""A campaign from the URL of a running server. The pages are shaped after the engines' own."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from servemap.measure.setup import load_context
from servemap.model.errors import ConfigError, NodeError
from servemap.prepare.from_url import Served, draft_from_url, read_answers
from tests.unit.cli.test_cli import call

VLLM = {
    "/v1/models": {
        "data": [{"id": "Qwen/Qwen3", "owned_by": "vllm", "root": "/m/q", "max_model_len": 8192}]
    },
    "/version": {"version": "0.11.0"},
}
SGLANG = {
    "/v1/models": {"data": [{"id": "m", "owned_by": "sglang", "max_model_len": 2048}]},
    "/get_server_info": {"model_path": "/m/x", "max_running_requests": 4, "context_length": None},
}
LLAMA = {
    "/v1/models": {
        "data": [{"id": "tiny", "owned_by": "llamacpp", "meta": {"n_ctx": 4096, "n_vocab": 1024}}]
    },
    "/props": {
        "default_generation_settings": {"n_ctx": 512},
        "total_slots": 2,
        "model_path": "/t.gguf",
    },
}


def test_what_engines_say() -> None:
    assert read_answers(VLLM) == Served("vllm", "Qwen/Qwen3", "/m/q", 8192)
    assert read_answers(SGLANG) == Served("sglang", "m", "/m/x", 2048, max_active=4)
    assert read_answers(LLAMA) == Served("llamacpp", "tiny", "/t.gguf", 512, 2, 1024)


def test_an_engine_is_known_by_its_pages() -> None:
    bare = {"/v1/models": {"data": [{"id": "m"}]}}
    assert read_answers(bare).engine is None
    for path, page, engine in (
        ("/props", LLAMA["/props"], "llamacpp"),
        ("/get_server_info", SGLANG["/get_server_info"], "sglang"),
        ("/server_info", SGLANG["/get_server_info"], "sglang"),
        ("/version", VLLM["/version"], "vllm"),
        ("/version", [], None),
    ):
        assert read_answers({**bare, path: page}).engine == engine


@pytest.mark.parametrize("pages", [VLLM, SGLANG, LLAMA])
def test_a_campaign_that_can_be_planned(serve: Any, pages: Any) -> None:
    port = serve(pages)
    text = draft_from_url(f"http://127.0.0.1:{port}/v1/")
    context = load_context(yaml.safe_load(text))
    campaign, served = context.plan.campaign, read_answers(pages)
    assert campaign.server.attach == f"http://127.0.0.1:{port}"
    assert campaign.server.engine == served.engine
    assert campaign.model.name == served.name
    assert campaign.model.path == served.path
    assert campaign.model.context == served.context
    assert campaign.model.vocab[1] <= (served.vocab or 30_000)
    assert max(case.concurrency for case in campaign.cases) <= (served.max_active or 8)
    assert context.plan.rows()
    assert text.count("CHANGE") == 2, "the head explains it, and where the load runs is a choice"


def test_what_a_server_does_not_say_is_marked(serve: Any) -> None:
    port = serve({"/v1/models": {"data": [{"id": "m"}, {"id": "other\nname"}]}})
    text = draft_from_url(f"http://127.0.0.1:{port}")
    marked = [line for line in text.splitlines()[3:] if "CHANGE" in line]
    assert [line.split("CHANGE: ")[1][:20] for line in marked] == [
        "to keep the network ",
        "the server does not ",
        "the server does not ",
        "the server does not ",
        "it serves 2 models; ",
    ]


@pytest.mark.parametrize(
    ("pages", "said"),
    [
        ({}, "names no model"),
        ({"/v1/models": {"data": []}}, "names no model"),
        ({"/v1/models": [1]}, "names no model"),
        ({"/v1/models": 401}, "wants a key (401)"),
        ({"/v1/models": 500}, "names no model"),
    ],
)
def test_what_is_no_server(serve: Any, pages: Any, said: str) -> None:
    port = serve(pages)
    with pytest.raises(NodeError) as caught:
        draft_from_url(f"http://127.0.0.1:{port}")
    assert said in caught.value.what


def test_urls_that_are_refused() -> None:
    for url in ("ftp://x", "https://x", "http://u:secret@x", "x", "http://x?key=1", "http://[::1"):
        with pytest.raises(ConfigError) as caught:
            draft_from_url(url)
        assert "secret" not in str(caught.value)
    with pytest.raises(NodeError, match="nobody answers"):
        draft_from_url("http://127.0.0.1:9")


def test_the_command(
    serve: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    url = f"http://127.0.0.1:{serve(VLLM)}"
    code, said = call(capsys, monkeypatch, "init", "--from-url", url, "-o", "c.yaml")
    assert code == 0
    assert "written: c.yaml" in said
    assert "servemap doctor --configfile c.yaml" in said
    before = Path("c.yaml").read_text()
    code, said = call(capsys, monkeypatch, "init", "--from-url", url, "-o", "c.yaml")
    assert (code, "--force" in said) == (1, True)
    assert Path("c.yaml").read_text() == before
    assert call(capsys, monkeypatch, "init", "--from-url", url, "-o", "c.yaml", "--force")[0] == 0
    code, said = call(capsys, monkeypatch, "plan", "--configfile", "c.yaml")
    assert (code, "attached, never started" in said) == (0, True)
    for args in (
        [],
        ["--from-container", "x"],
        ["--from-url", url, "--from-container", "x", "--nodes", "a"],
        ["--from-url", url, "--user", "u"],
    ):
        code, said = call(capsys, monkeypatch, "init", *args, "-o", "d.yaml")
        assert (code, said[:6]) == (1, "error:")
    assert not Path("d.yaml").exists()

"""Chats and tools against a started engine with the tiny model: its tokenizer, cases, answers."""

import json
import shutil
from pathlib import Path
from typing import Any

from servemap.analysis.requests import FLAG_REASONING, Request, parse_requests
from servemap.engines.embedded import tiny_model
from servemap.measure.case import run_case
from servemap.measure.job import Job
from servemap.parsers.jsonl import stream_jsonl
from servemap.server.context import Context

ODD = ["user", "system", "user", "assistant", "system", "user"]
_SHAPE: dict[str, Any] = {"osl": 8, "concurrency": 2, "num_prompts": 4}
TALKS: list[dict[str, Any]] = [
    {"id": "chat", "kind": "chat", "isl": 500, "roles": ODD, **_SHAPE},
    {"id": "tools", "kind": "tools", "isl": 1500, **_SHAPE},
    {"id": "emptied", "kind": "tools", "isl": 1500, "cache": "flush", **_SHAPE},
]


def talking(model: Path) -> Path:
    """A model beside `model` whose tokenizer knows thoughts, and whose template names tools.

    Nothing after which a parser of reasoning looks is in the tiny model's random answers, so all
    of an answer is reasoning.
    """
    folder = model.parent / "talking"
    shutil.copytree(model, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    mark = tokenizer["added_tokens"][0]
    for number, content in enumerate(("<think>", "</think>"), tiny_model.VOCAB):
        tokenizer["added_tokens"].append({**mark, "id": number, "content": content})
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    names = "{% for t in tools or [] %}{{ t['function']['name'] }} {% endfor %}"
    config["chat_template"] = names + config["chat_template"]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def talked(context: Context, case: dict[str, Any]) -> tuple[dict[str, Any], list[Request]]:
    """Measure a case, check what every chat must be; return client.json and the requests."""
    folder = context.run_dir / f"cases/baseline/{case['id']}/r1"
    meta = run_case(context, Job("baseline", case["id"], 1, 1), folder / "meta.json")
    assert meta["status"] == "ok", meta["reasons"]
    raw = folder / "attempts/001/raw"
    rows = parse_requests(list(stream_jsonl(raw / "requests.jsonl", [])), {}).rows
    assert [(row.status, row.output_tokens) for row in rows] == [("ok", 8)] * 4
    # The tiny model's tokenizer has words of two to four tokens, so single prompts vary.
    asked = case["isl"]
    assert all(abs((row.input_tokens or 0) - asked) < 0.03 * asked for row in rows)
    assert {int(row.chunk_tokens.sum()) for row in rows} == {8}
    assert all(row.first_ns is not None and row.first_text_ns is None for row in rows)
    return json.loads((raw / "client.json").read_text()), rows


def uncounted(rows: list[Request]) -> bool:
    """Whether all that came was reasoning, of which the server counted less."""
    return all(row.reasoning_tokens is None and FLAG_REASONING in row.flags for row in rows)


def check_flush(client: dict[str, Any], rows: list[Request]) -> None:
    """Check that the window began without the prefix that all requests share."""
    (done,) = client["flushes"]
    assert (done["before"], done["status"], done["problem"]) == ("main", 200, None)
    assert client["warmup"]["end_ns"] <= done["start_ns"] <= done["end_ns"]
    assert done["end_ns"] <= client["segments"][0]["start_ns"]
    # Two start together, and the engine may take the second one first.
    assert 0 in {row.cached_tokens for row in rows[:2]}
    assert all((row.cached_tokens or 0) > 200 for row in rows[2:])

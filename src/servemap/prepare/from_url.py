"""`servemap init --from-url`: a campaign that measures a running server."""

from dataclasses import dataclass, field
from typing import Any

from servemap.engines.base import longest_sequence, served_models
from servemap.model.check_server import check_attach
from servemap.model.errors import NodeError
from servemap.onnode.survey_software import get
from servemap.prepare.draft import render_draft, slug
from servemap.prepare.small_cases import small_cases

PATHS = ("/v1/models", "/props", "/get_server_info", "/server_info", "/version")
"""SGLang has its settings at one of the pages `server_info`, by version."""
GUESSED_CONTEXT = 4096
LAST_TOKEN = 30_000
"""Where the range of `model.vocab` ends by default; its start keeps clear of special tokens."""


@dataclass(frozen=True)
class Served:
    """What a running server says of itself; None for what it does not say."""

    engine: str | None
    name: str
    path: str | None = None
    context: int | None = None
    max_active: int | None = None
    vocab: int | None = None
    notes: list[str] = field(default_factory=list)


def ask_server(url: str) -> dict[str, Any]:
    """Return `{path: answer}` of the pages that tell about a server; absent where it has none.

    Raises:
        NodeError: nobody answers, or what answers is no OpenAI-compatible server.
    """
    answers: dict[str, Any] = {}
    for path in PATHS:
        try:
            found = get(url + path)
        except (OSError, ValueError) as error:
            if path == PATHS[0]:
                raise NodeError(
                    f"nobody answers there: {error}", url, "give the URL of a running server"
                ) from error
            continue
        if path == PATHS[0] and found["status"] in (401, 403):
            raise NodeError(
                f"the server wants a key ({found['status']})",
                url + path,
                "start it without, on an address that only you reach",
            )
        if found["status"] == 200 and found["json"] is not None:
            answers[path] = found["json"]
    if not served_models(answers.get(PATHS[0])):
        raise NodeError(
            "the server names no model at /v1/models", url, "give an OpenAI-compatible server's URL"
        )
    return answers


def read_answers(answers: dict[str, Any]) -> Served:
    """Return what the pages of a server say."""
    models = served_models(answers["/v1/models"])
    first = models[0]
    props = _mapping(answers.get("/props"))
    info = _mapping(answers.get("/get_server_info") or answers.get("/server_info"))
    meta = _mapping(first.get("meta"))
    notes = []
    if len(models) > 1:
        names = ", ".join(str(model["id"]) for model in models[1:6])
        notes.append(f"it serves {len(models)} models; the others are {names}")
    paths = (info.get("model_path"), props.get("model_path"), first.get("root"))
    return Served(
        engine=_engine(first, props, info, answers),
        name=first["id"],
        path=next(filter(None, map(_text, paths)), None),
        context=longest_sequence(models, props or None) or _count(info.get("context_length")),
        max_active=_count(props.get("total_slots")) or _count(info.get("max_running_requests")),
        vocab=_count(meta.get("n_vocab")),
        notes=notes,
    )


def _engine(
    model: dict[str, Any], props: dict[str, Any], info: dict[str, Any], answers: dict[str, Any]
) -> str | None:
    owner = str(model.get("owned_by", "")).lower()
    if owner in ("vllm", "sglang", "llamacpp"):
        return owner
    if "default_generation_settings" in props:
        return "llamacpp"
    if "model_path" in info:
        return "sglang"
    return "vllm" if "version" in _mapping(answers.get("/version")) else None


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def draft_from_url(given: str) -> str:
    """Return a campaign's text for the server at a URL.

    Raises:
        ConfigError: the URL is none that can be measured.
        NodeError: nobody answers there, or no OpenAI-compatible server.
    """
    check_attach(given, "--from-url")
    url = given.rstrip("/").removesuffix("/v1")
    served = read_answers(ask_server(url))
    context = served.context or GUESSED_CONTEXT
    last = served.vocab
    vocab = [last * 3 // 10, last] if last is not None and last < LAST_TOKEN else None
    return render_draft(
        "attach.yaml.j2",
        url=url,
        run=slug(served.name),
        title=f"{served.name}, measured as it runs",
        nodes=["local"],
        name=served.name,
        path=served.path,
        context=context,
        context_known=served.context is not None,
        vocab=vocab,
        engine=served.engine or "vllm",
        engine_known=served.engine is not None,
        notes=served.notes,
        cases=small_cases(context, served.max_active),
    )

"""Survey of programs: tools, cards, sudo, the container runtime and its images, local URLs."""

import json
import re
import urllib.error
import urllib.request
from typing import Any, Dict, List, Optional

from .facts_engine import interpreter
from .probe import run_tool
from .redact import redact_text
from .sources import program_path

URL_TIMEOUT_S = 5.0
MAX_BODY_BYTES = 1 << 20
FIND_S = 60.0
# It has to run under whatever Python a server has; looking for a module does not import it.
FIND = """
import importlib.util, json, sys
found = {}
for name in sys.argv[1:]:
    spec = importlib.util.find_spec(name)
    places = list(spec.submodule_search_locations or []) if spec else []
    found[name] = (spec.origin or (places or [name])[0]) if spec else None
print(json.dumps(found))
"""
# How each vendor's tool lists its cards, and the lines of its answer that are one card each.
CARD_LISTS = (
    (("nvidia-smi", "-L"), re.compile(r"^GPU (\d+):", re.MULTILINE)),
    (("ixsmi", "-L"), re.compile(r"^GPU (\d+):", re.MULTILINE)),
    (("rocm-smi", "--showid"), re.compile(r"^GPU\[(\d+)\]", re.MULTILINE)),
)


def tools(names: List[str]) -> Dict[str, Optional[str]]:
    """Return where each tool is; null where it is not."""
    return {name: program_path(name) for name in names}


def count_cards(pattern: "re.Pattern[str]", text: str) -> int:
    """Return how many different cards a tool's list names."""
    return len(set(pattern.findall(text)))


def cards() -> Dict[str, Any]:
    """Return `{"tool", "count", "errors"}` of the first vendor's tool that lists cards.

    `tool` and `count` are null where none answers; `errors` say what those that are there said.
    """
    errors: List[str] = []
    for argv, pattern in CARD_LISTS:
        record = run_tool(list(argv))
        if "is not on PATH" in record.get("error", ""):
            continue
        if record.get("code") == 0:
            return {
                "tool": argv[0],
                "count": count_cards(pattern, record["stdout"]),
                "errors": errors,
            }
        errors.append("%s: %s" % (argv[0], _said(record)))
    return {"tool": None, "count": None, "errors": errors}


def engine(python: str, modules: List[str], root: Optional[str]) -> Dict[str, Any]:
    """Return whether an interpreter finds some modules, `root` before its own folders.

    Returns:
        `{"modules": {name: its file, null if there is none}, "version", "executable",
        "packages", ...}`, the rest as in facts_engine.py. ValueError if it does not run.
    """
    found = interpreter(python)
    path = ["env", "PYTHONPATH=" + root] if root else []
    record = run_tool([*path, python, "-c", FIND, *modules], FIND_S)
    if record.get("code") != 0:
        raise ValueError(_said(record))
    return dict(found, modules=json.loads(record["stdout"].strip().splitlines()[-1]))


def sudo() -> Dict[str, Any]:
    """Return whether `sudo -n` works, and what it says if not."""
    record = run_tool(["sudo", "-n", "true"])
    works = record.get("code") == 0
    return {"works": works, "said": None if works else _said(record)}


def runtime(argv: List[str], images: List[str]) -> Dict[str, Any]:
    """Return whether a container runtime answers and which of some images it has.

    Returns:
        `{"version", "error", "images": {name: {"id", "digests"} or null}}`; `error` is null where
        the runtime answers.
    """
    version = run_tool([*argv, "--version"])
    alive = run_tool([*argv, "ps", "-q"])
    error = None if alive.get("code") == 0 else _said(alive)
    return {
        "version": version["stdout"].strip() if version.get("code") == 0 else None,
        "error": error,
        "images": {} if error else {name: image(argv, name) for name in images},
    }


def image(argv: List[str], name: str) -> Optional[Dict[str, Any]]:
    """Return id and digests of an image; None where the runtime does not have it."""
    # Not the whole answer, which holds the image's environment: redaction may break its JSON.
    layout = "{{.Id}} {{json .RepoDigests}}"
    record = run_tool([*argv, "image", "inspect", "--format", layout, name])
    if record.get("code") != 0:
        return None
    identity, _space, digests = record["stdout"].strip().partition(" ")
    return {
        "id": identity if ":" in identity else "sha256:" + identity,
        "digests": sorted({one.rpartition("@")[2] for one in json.loads(digests or "null") or []}),
    }


def _said(record: Dict[str, Any]) -> str:
    text = record.get("error") or record.get("stderr") or record.get("stdout") or "no word of why"
    return str(text).strip()[-300:]


def get(url: str) -> Dict[str, Any]:
    """Return `{"status", "json"}` of a server's answer; no proxy is asked, no redirect followed.

    `json` is null where the body is none. An OSError says that nobody answers.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Straight())
    try:
        with opener.open(url, timeout=URL_TIMEOUT_S) as answer:
            status, body = answer.status, answer.read(MAX_BODY_BYTES)
    except urllib.error.HTTPError as error:
        with error:
            status, body = error.code, b""
    except urllib.error.URLError as error:
        raise OSError(redact_text(str(error.reason))) from error
    try:
        return {"status": status, "json": json.loads(body.decode("utf-8", "replace"))}
    except (ValueError, RecursionError):
        return {"status": status, "json": None}


class _Straight(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a page of another server is no answer of this one."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Say that there is no request to make."""
        return

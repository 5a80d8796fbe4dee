"""Facts of the software around a server: Python, environment, accelerator tools, containers."""

import json
import os
import platform
import sys
from typing import Any, Dict, List

from .probe import run_tool
from .redact import redact_text, redact_variable

# What each vendor's tools say of the cards; a tool that is not there is recorded as absent.
CARD_TOOLS = (
    ("nvidia-smi", "-L"),
    ("nvidia-smi", "-q"),
    ("nvidia-smi", "topo", "-m"),
    ("nvidia-smi", "nvlink", "-s"),
    ("amd-smi", "static"),
    ("rocm-smi",),
    ("rocm-smi", "--showallinfo"),
    ("ixsmi",),
    ("ixsmi", "-L"),
    ("ixsmi", "-q"),
    ("npu-smi", "info"),
    ("mx-smi",),
    ("xpu-smi",),
    ("dcgmi", "discovery", "-l"),
)
# What changes while something runs on the cards.
CARD_STATE_TOOLS = (
    (
        "nvidia-smi",
        "--query-gpu=index,uuid,memory.used,memory.total,utilization.gpu",
        "--format=csv,noheader",
    ),
    (
        "nvidia-smi",
        "--query-compute-apps=gpu_uuid,pid,process_name,used_memory",
        "--format=csv,noheader",
    ),
    ("rocm-smi", "--showmeminfo", "vram", "--showuse"),
    ("rocm-smi", "--showpids"),
    ("ixsmi",),
)
CONTAINER_TOOLS = ("docker", "podman")
CONTAINER_KEYS = ("ID", "Id", "Names", "Image", "Command", "State", "Status", "Ports")


def python() -> Dict[str, Any]:
    """Return the interpreter that runs this and the distributions it sees ({name: version})."""
    from importlib import metadata

    packages: Dict[str, str] = {}
    damaged = 0
    for distribution in metadata.distributions():
        try:
            name, version = distribution.metadata["Name"], distribution.version
        except Exception:  # noqa: BLE001 - half-removed distributions raise what they like
            damaged += 1
            continue
        if name and version:
            # The first one on the path is the one that gets imported.
            packages.setdefault(name, version)
        else:
            damaged += 1
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": sys.executable,
        "packages": dict(sorted(packages.items(), key=lambda pair: pair[0].lower())),
        "damaged_packages": damaged,
    }


def environment(prefixes: List[str]) -> Dict[str, str]:
    """Return the variables whose name starts with a prefix, secrets taken out."""
    return {
        name: redact_variable(name, value)
        for name, value in sorted(os.environ.items())
        if name.startswith(tuple(prefixes))
    }


def cards(tools: Any = CARD_TOOLS) -> Dict[str, Any]:
    """Return what the vendors' tools say; `found` is false with a reason where none is there."""
    answers: Dict[str, Any] = {}
    absent: List[str] = []
    for argv in tools:
        if argv[0] in absent:
            continue
        record = run_tool(list(argv))
        if "is not on PATH" in record.get("error", ""):
            absent.append(argv[0])
        else:
            answers[" ".join(argv)] = record
    found: Dict[str, Any] = {"found": bool(answers), "tools": answers, "absent": absent}
    if not answers:
        found["reason"] = "none found: no tool for accelerators is on PATH"
    return found


def container_rows(text: str) -> List[Dict[str, Any]]:
    """Parse `ps --format json` of docker (one object a line) or podman (one list).

    ValueError if it is neither.
    """
    stripped = text.strip()
    rows = (
        json.loads(stripped)
        if stripped.startswith("[")
        else [json.loads(line) for line in stripped.splitlines()]
    )
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError("a container is not an object")
    return list(rows)


def parse_containers(text: str) -> List[Dict[str, Any]]:
    """Return the kept keys of containers, secrets taken out of commands. ValueError: no JSON."""
    return [
        {key: _redacted(row[key]) for key in CONTAINER_KEYS if key in row}
        for row in container_rows(text)
    ]


def _redacted(value: Any) -> Any:
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        # podman gives a command as a list; joined, an option and its secret stand together.
        value = " ".join(value)
    return redact_text(value) if isinstance(value, str) else value


def containers() -> Dict[str, Any]:
    """Return the running containers of each container tool, or why they are not known."""
    found: Dict[str, Any] = {}
    for tool in CONTAINER_TOOLS:
        layout = "{{json .}}" if tool == "docker" else "json"
        record = run_tool([tool, "ps", "--no-trunc", "--format", layout])
        if record.get("code") != 0:
            found[tool] = {"error": record.get("error") or record["stderr"].strip()}
            continue
        try:
            found[tool] = {"running": parse_containers(record["stdout"])}
        except ValueError as error:
            found[tool] = {"error": "%s ps gave no JSON: %s" % (tool, error)}
    return found

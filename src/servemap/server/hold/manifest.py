"""`run_manifest.json`: whose results a folder holds; another campaign's are refused."""

import time
from pathlib import Path
from typing import Any

import servemap
from servemap.model.attempts import read_json
from servemap.model.campaign import Campaign
from servemap.model.canon import write_json_atomic
from servemap.model.errors import ResultsError
from servemap.model.protocol import SCHEMA


def identity(campaign: Campaign) -> dict[str, Any]:
    """Return what may not change within a run: the model, the engine and the nodes."""
    return {
        "run": campaign.run,
        "model": [campaign.model.name, campaign.model.path],
        "engine": campaign.server.engine,
        "attach": campaign.server.attach,
        "nodes": [[node.id, node.transport, node.address] for node in campaign.nodes],
    }


def check_manifest(run_dir: Path, campaign: Campaign) -> None:
    """Refuse a folder that holds another campaign's or another version's results.

    Raises:
        ResultsError: says what differs and how to go on.
    """
    path = run_dir / "run_manifest.json"
    if not path.exists():
        return
    data = read_json(path)
    way_out = f"give the campaign another `run` name, or move {run_dir} away"
    if data is None:
        raise ResultsError("the manifest cannot be read", str(path), way_out)
    if data.get("schema") != SCHEMA:
        raise ResultsError(
            f"results of schema {data.get('schema')!r}; this version writes {SCHEMA}",
            str(path),
            way_out,
        )
    wanted, found = identity(campaign), data.get("identity")
    if not isinstance(found, dict):
        raise ResultsError("the manifest does not say whose results these are", str(path), way_out)
    differing = [key for key, value in wanted.items() if found.get(key) != value]
    if differing:
        key = differing[0]
        raise ResultsError(
            f"the folder holds another campaign: its {key} is {found.get(key)!r}, "
            f"this campaign's is {wanted[key]!r}",
            str(path),
            way_out,
        )


def write_manifest(run_dir: Path, campaign: Campaign, session: dict[str, Any]) -> None:
    """Write the manifest, keeping when the run was created and the sessions it had."""
    path = run_dir / "run_manifest.json"
    old = read_json(path) or {}
    sessions = [*old.get("sessions", []), session]
    write_json_atomic(
        path,
        {
            "schema": SCHEMA,
            "run": campaign.run,
            "identity": identity(campaign),
            "servemap": servemap.__version__,
            "created_ns": old.get("created_ns", time.time_ns()),
            "sessions": sessions[-50:],
            "campaign": campaign.model_dump(mode="json"),
        },
    )

"""config/README.md documents every key of the models, and no other, with its default."""

import json
import re
from pathlib import Path

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from servemap.model import (
    baselines,
    campaign,
    cases,
    clients,
    collectors,
    phases,
    policy,
    server_spec,
    targets,
    transport,
)
from servemap.model.base import Model

README = Path(__file__).parents[3] / "config/README.md"
SECTIONS: dict[str, type[BaseModel]] = {
    "Campaign": campaign.Campaign,
    "nodes": server_spec.NodeSpec,
    "nodes.rails": server_spec.Rail,
    "model": server_spec.ModelSpec,
    "server": server_spec.ServerSpec,
    "server.topology": server_spec.Topology,
    "server.settings": server_spec.Settings,
    "server.env": server_spec.Secret,
    "server.container": server_spec.Container,
    "server.container.build": server_spec.Build,
    "server.package": server_spec.Package,
    "server.transport": transport.Transport,
    "server.transport.baselines": transport.RequiredBaseline,
    "server.patches": server_spec.PatchSpec,
    "server.patches.verify": server_spec.Verify,
    "variables": campaign.Variable,
    "variants": campaign.Variant,
    "grids": campaign.Grid,
    "grids.axes": campaign.Axis,
    "grids.axes.levels": campaign.Level,
    "cases (kind fixed)": cases.FixedCase,
    "cases.fallback": cases.Fallback,
    "cases (kind rate)": cases.RateCase,
    "cases (kind curve)": cases.CurveCase,
    "cases (kind search)": cases.SearchCase,
    "cases (kind prefix)": cases.PrefixCase,
    "cases (kind replay)": cases.ReplayCase,
    "cases (kind chat)": cases.ChatCase,
    "cases (kind tools)": cases.ToolsCase,
    "cases (kind mixed)": cases.MixedCase,
    "cases.background": cases.Background,
    "cases.inject": cases.Inject,
    "clients": clients.ClientSpec,
    "baselines (kind tcp)": baselines.TcpBaseline,
    "baselines (kind collective)": baselines.CollectiveBaseline,
    "baselines (kind copies)": baselines.CopiesBaseline,
    "phases": phases.PhaseSpec,
    "phases.milestone": phases.Milestone,
    "phases.captures": phases.CaptureSpec,
    "collectors": collectors.CollectorSetting,
    "collectors.table": collectors.CollectorTable,
    "collectors.table.columns": collectors.CollectorColumn,
    "scale": policy.Scale,
    "policy": policy.Policy,
    "freeze": policy.Freeze,
    "slo": campaign.Slo,
    "limits": campaign.Limits,
    "weights": campaign.Weights,
    "targets": targets.Target,
}


BASES = {cases.CaseBase, cases.LevelsCase, campaign.Chosen, baselines.BaselineBase}


def sections() -> dict[str, dict[str, str]]:
    """{heading: {key: default as written}} of the reference tables."""
    found: dict[str, dict[str, str]] = {}
    heading = ""
    reference = README.read_text(encoding="utf-8").partition("\n## Reference\n")[2]
    for line in reference.splitlines():
        if line.startswith("### "):
            heading = line.removeprefix("### ")
        row = re.match(r"\| `(\w+)` \| (.+?) \| ", line)
        if row and heading:
            found.setdefault(heading, {})[row[1]] = row[2]
    return found


def default_as_written(field: FieldInfo) -> str | None:
    """How the table shows a default; None where it is too long for a table."""
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "–"
    if isinstance(value, str) and value:
        return f"`{value}`"
    if isinstance(value, BaseModel) or (isinstance(value, list) and len(value) > 3):
        return None
    if isinstance(value, list) and value and isinstance(value[0], BaseModel):
        return f"one, `{value[0].id}`"  # type: ignore[attr-defined]
    return f"`{json.dumps(value)}`"


def models(base: type[BaseModel] = Model) -> set[type[BaseModel]]:
    below = [one for one in base.__subclasses__() if one.__module__.startswith("servemap.model.")]
    return {*below, *(deeper for model in below for deeper in models(model))}


def test_every_model_has_a_section() -> None:
    assert set(SECTIONS.values()) == models() - BASES
    assert sections().keys() == SECTIONS.keys()


@pytest.mark.parametrize("heading", SECTIONS)
def test_a_section_has_the_models_keys_and_defaults(heading: str) -> None:
    rows = sections()[heading]
    fields = SECTIONS[heading].model_fields
    assert rows.keys() == fields.keys()
    for key, field in fields.items():
        expected = default_as_written(field)
        if expected is None:
            assert rows[key].startswith("see "), key
        else:
            assert rows[key] == expected, key


def test_the_functions_of_a_patchs_expression_are_told() -> None:
    from servemap.onnode.patch_check import _FUNCTIONS

    assert " ".join(sorted(_FUNCTIONS)) in README.read_text(encoding="utf-8")


def test_every_figure_that_a_target_may_name_is_told() -> None:
    section = README.read_text(encoding="utf-8").partition("\n### targets\n")[2]
    said = set(re.findall(r"`(\w+)`", section.partition("\n### ")[0]))
    for name, figure in targets.figures().items():
        series, point = re.sub(r"_s$", "", name).rpartition("_")[::2]
        assert name in said or {series, point} <= said, figure

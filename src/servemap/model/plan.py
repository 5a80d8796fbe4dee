"""The plan of a campaign: what is measured, in which order, and what identifies each job."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

from servemap.model import protocol
from servemap.model.baselines import BaselineSpec
from servemap.model.calibration import streams
from servemap.model.campaign import Campaign, Variant
from servemap.model.canon import canonical_json
from servemap.model.cases import CaseSpec
from servemap.model.grids import cells_of, variants_of
from servemap.model.groups import cases_of, groups_of
from servemap.model.order import CaseKey, JobKey, job_sequence, repeats_in_order
from servemap.model.phases import CaptureSpec, PhaseSpec
from servemap.model.resolve import resolved_baseline, resolved_case, resolved_server
from servemap.model.steps import compared_with


@dataclass(frozen=True)
class PhaseItems:
    """What a phase and the phases it requires ask for, each in the planned order."""

    baselines: list[str] = field(default_factory=list)
    repeats: list[CaseKey] = field(default_factory=list)
    captures: list[tuple[str, str]] = field(default_factory=list)

    @property
    def variants(self) -> list[str]:
        """The variants whose server is started, in order, without doubles."""
        names = [key[0] for key in self.repeats] + [key[0] for key in self.captures]
        return list(dict.fromkeys(names))


@dataclass(frozen=True)
class Plan:
    """A checked campaign, expanded."""

    campaign: Campaign

    @cached_property
    def variants(self) -> dict[str, Variant]:
        """Variants by id, in the order of the file; then the cells of the grids."""
        return {variant.id: variant for variant in variants_of(self.campaign)}

    @cached_property
    def _grids(self) -> dict[str, list[str]]:
        """The ids of each grid's variants."""
        return {
            name: [cell.variant.id for cell in cells]
            for name, cells in cells_of(self.campaign).items()
        }

    def variants_of(self, phase: PhaseSpec) -> list[str]:
        """Return the ids of the variants that a phase is about; a grid stands for its cells."""
        if not phase.variants:
            return list(self.variants)
        return [item for name in phase.variants for item in self._grids.get(name, [name])]

    @cached_property
    def cases(self) -> dict[str, CaseSpec]:
        """Cases by id, in the order of the file; those of a group stand in its place."""
        return {case.id: case for case in cases_of(self.campaign)}

    @cached_property
    def _groups(self) -> dict[str, list[str]]:
        """The ids of the cases that a curve or compared watching stands for."""
        return groups_of(self.campaign)

    def cases_of(self, phase: PhaseSpec) -> list[str]:
        """Return the ids of the cases that a phase measures."""
        return self._points(phase.cases)

    def _points(self, cases: Iterable[str]) -> list[str]:
        """Return the ids of cases, of a group those that it stands for."""
        return [item for name in cases for item in self._groups.get(name, [name])]

    @cached_property
    def baselines(self) -> dict[str, BaselineSpec]:
        """Baselines by id."""
        return {baseline.id: baseline for baseline in self.campaign.baselines}

    @cached_property
    def phases(self) -> dict[str, PhaseSpec]:
        """Phases by id, in the order of the file."""
        return {phase.id: phase for phase in self.campaign.phases}

    @property
    def head(self) -> str:
        """The id of the head node."""
        return next(node.id for node in self.campaign.nodes if node.role == "head")

    @property
    def load_node(self) -> str:
        """The id of the node that the load client runs on."""
        return self.campaign.load_node or self.head

    @cached_property
    def calibrated(self) -> list[int]:
        """The numbers in flight that the client's error is measured at; none where it is not."""
        return streams(self.cases.values()) if self.campaign.policy.calibrate else []

    def repeats_of(self, case: str, phase: PhaseSpec) -> int:
        """Return how many repeats of a case a phase plans: no fewer than its milestone asks for."""
        planned = self.cases[case].repeats or self.campaign.policy.repeats
        return max(planned, phase.rule.repeats) if phase.rule else planned

    def items(self, *phases: str) -> PhaseItems:
        """Return what the named phases (all if none is named) and their requirements ask for."""
        chosen = self._chosen(*phases)
        baselines = {name for phase in chosen for name in phase.baselines}
        baselines |= {
            name
            for phase in chosen
            if phase.cases or phase.captures
            for variant in self.variants_of(phase)
            for name in self.required_baselines(variant)
        }
        repeats: dict[tuple[str, str], int] = {}
        for phase in chosen:
            for variant, case in product(self.variants_of(phase), self.cases_of(phase)):
                least = repeats.get((variant, case), 0)
                repeats[variant, case] = max(least, self.repeats_of(case, phase))
        captures = {
            (variant, capture.case)
            for phase in chosen
            for variant in self.variants_of(phase)
            for capture in phase.captures
        }
        return PhaseItems(
            [name for name in self.baselines if name in baselines],
            repeats_in_order(
                self.campaign.policy.order, list(self.variants), list(self.cases), repeats
            ),
            [
                (variant, case)
                for variant in self.variants
                for case in self.cases
                if (variant, case) in captures
            ],
        )

    def captured(self, case: str) -> CaptureSpec:
        """Return the capture of a case: the first that a phase asks for."""
        return next(
            capture
            for phase in self.campaign.phases
            for capture in phase.captures
            if capture.case == case
        )

    def milestones(self, *phases: str) -> list[dict[str, Any]]:
        """Return what the milestones among some phases and their requirements ask for.

        Each has phase, repeats, cv, metric, and of its own cases the planned repeats as in `rows`.
        """
        found = []
        for phase in self._chosen(*phases):
            if phase.rule is None:
                continue
            own = set(product(self.variants_of(phase), self.cases_of(phase)))
            keys = [key for key in self.items(phase.id).repeats if key[:2] in own]
            found.append(
                {
                    "phase": phase.id,
                    **phase.rule.model_dump(mode="json"),
                    "rows": [self._row(key) for key in keys],
                }
            )
        return found

    def rows(self) -> list[dict[str, Any]]:
        """Return every planned repeat for tables.

        Each has variant, case, repeat, expect, spec_sha256, compared_with (see `steps`), the
        targets of its case, and the nodes' memory bandwidth where the campaign declares it.
        """
        return [self._row(key) for key in self.items().repeats]

    @cached_property
    def _comparable(self) -> dict[str, list[str]]:
        return compared_with(self.campaign)

    def _row(self, key: CaseKey) -> dict[str, Any]:
        variant, case, repeat = key
        return {
            "variant": variant,
            "case": case,
            "repeat": repeat,
            "expect": self.cases[case].expect,
            "spec_sha256": self.spec_sha256("case", variant, case),
            "compared_with": self._comparable[variant],
            "targets": self._targets(case),
            **self._declared_bandwidth,
        }

    @cached_property
    def _declared_bandwidth(self) -> dict[str, Any]:
        """The nodes' declared memory bandwidth; no key where none is, as in plans before it."""
        found = {
            node.id: {"gb_s": node.memory_bandwidth_gb_s, "accelerators": node.accelerators}
            for node in self.campaign.nodes
            if node.memory_bandwidth_gb_s is not None
        }
        return {"memory_bandwidth": found} if found else {}

    def _chosen(self, *phases: str) -> list[PhaseSpec]:
        """Return the named phases, all if none is named, each after those that it requires."""
        wanted: list[str] = []
        for name in phases or tuple(self.phases):
            self._collect(name, wanted)
        return [self.phases[name] for name in wanted]

    def _targets(self, case: str) -> list[dict[str, Any]]:
        return [
            {"target": target.target, "gate": target.gate}
            for target in self.campaign.targets
            if not target.cases or case in self._points(target.cases)
        ]

    def _collect(self, name: str, into: list[str]) -> None:
        for required in self.phases[name].requires:
            self._collect(required, into)
        if name not in into:
            into.append(name)

    @cached_property
    def sequence(self) -> dict[JobKey, int]:
        """Positions of all measuring jobs (see `order.job_sequence`)."""
        items = self.items()
        calibrated = bool(self.calibrated and items.repeats)
        return job_sequence(items.baselines, calibrated, items.repeats, items.captures)

    def priority(self, *key: str) -> int:
        """Return the job priority of a measuring job: higher runs first, 0 if no phase has it."""
        return len(self.sequence) - self.sequence.get(key, len(self.sequence))

    @property
    def derive_priority(self) -> int:
        """Priority of derive jobs: above every measuring job."""
        return len(self.sequence) + 1

    @cached_property
    def _servers(self) -> dict[str, dict[str, Any]]:
        return {
            name: resolved_server(self.campaign, variant) for name, variant in self.variants.items()
        }

    @cached_property
    def _collectors(self) -> dict[str, dict[str, Any]]:
        return {name: setting.identity() for name, setting in self.campaign.collectors.items()}

    @cached_property
    def _specs(self) -> dict[tuple[str, ...], str]:
        return {}

    def server_spec(self, variant: str) -> dict[str, Any]:
        """Return what identifies a variant's server (see `resolve.resolved_server`)."""
        return self._servers[variant]

    def nodes_of(self, variant: str) -> list[str]:
        """Return the ids of the nodes that a variant's server runs on."""
        return [node["id"] for node in self._servers[variant]["nodes"]]

    def required_baselines(self, variant: str) -> list[str]:
        """Return the ids of the baselines that must bear out a variant's `transport`."""
        transport = self._servers[variant]["server"].get("transport") or {}
        return [str(one["id"]) for one in transport.get("baselines", [])]

    def spec(self, kind: str, *key: str) -> str:
        """Return the canonical JSON that identifies a job: `kind` launch, patch, case, ..."""
        cached = self._specs.get((kind, *key))
        if cached is None:
            cached = self._specs[(kind, *key)] = canonical_json(self._spec(kind, *key))
        return cached

    def spec_sha256(self, kind: str, *key: str) -> str:
        """Return the sha256 of `spec`, as it is stored in records."""
        return hashlib.sha256(self.spec(kind, *key).encode()).hexdigest()

    def spec_data(self, kind: str, *key: str) -> dict[str, Any]:
        """Return what `spec` spells, as data."""
        return self._spec(kind, *key)

    def _spec(self, kind: str, *key: str) -> dict[str, Any]:
        campaign = self.campaign
        if kind == "launch":
            return {"protocol": protocol.LAUNCH, **self._servers[key[0]]}
        if kind == "patch":
            return {
                "protocol": protocol.PATCH,
                "patches": self._servers[key[0]]["server"]["patches"],
            }
        if kind == "case":
            return {
                "protocol": protocol.CASE,
                "case": resolved_case(campaign, self.cases[key[1]]),
                "server": self._servers[key[0]],
                "collectors": self._collectors,
                "load_node": self.load_node,
            }
        if kind == "capture":
            return {
                "protocol": protocol.CAPTURE,
                "capture": self.captured(key[1]).model_dump(mode="json", exclude_none=True),
                "case": resolved_case(campaign, self.cases[key[1]]),
                "server": self._servers[key[0]],
            }
        if kind == "baseline":
            return {
                "protocol": protocol.BASELINE,
                **resolved_baseline(campaign, self.baselines[key[0]]),
            }
        if kind == "calibrate":
            return {
                "protocol": protocol.CALIBRATION,
                "node": self.load_node,
                "concurrency": self.calibrated,
            }
        if kind == "derive":
            return {
                "limits": campaign.limits.model_dump(),
                "weights": campaign.weights.model_dump() if campaign.weights else None,
                "slo": campaign.slo.model_dump(),
            }
        if kind == "freeze":
            return {
                "protocol": protocol.FREEZE,
                "freeze": campaign.freeze.model_dump(mode="json"),
                "model": campaign.model.path,
            }
        raise ValueError(kind)

    @property
    def controller_is_measured(self) -> bool:
        """Whether the controller's own machine is a node, so that nothing may run beside a case."""
        return any(node.transport == "local" for node in self.campaign.nodes)

    def all_nodes(self) -> list[str]:
        """Return the ids of all nodes."""
        return [node.id for node in self.campaign.nodes]

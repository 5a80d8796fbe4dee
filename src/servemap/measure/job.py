"""What identifies one planned repetition of a case, and how its records say so."""

from dataclasses import dataclass
from typing import Any

from servemap.server.context import Context


@dataclass(frozen=True)
class Job:
    """One planned repetition, and the token that its attempt carries."""

    variant: str
    case: str
    repeat: int
    token: int

    @property
    def label(self) -> str:
        """Name for people."""
        return f"{self.variant}/{self.case} r{self.repeat}"


def identity(context: Context, job: Job) -> dict[str, Any]:
    """Return the part of an attempt's record that is known before it begins."""
    key = ("case", job.variant, job.case)
    return {
        "run": context.run,
        "variant": job.variant,
        "case": job.case,
        "repeat": job.repeat,
        "token": job.token,
        "spec": context.plan.spec_data(*key),
        "spec_sha256": context.plan.spec_sha256(*key),
    }


def resolved(context: Context, job: Job) -> dict[str, Any]:
    """Return the job's case with every length in tokens (see `resolve.resolved_case`)."""
    case: dict[str, Any] = context.plan.spec_data("case", job.variant, job.case)["case"]
    return case

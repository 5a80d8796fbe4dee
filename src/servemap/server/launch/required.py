"""The baselines that a variant requires, before its server is started."""

from servemap.model.attempts import read_json
from servemap.server.context import Context
from servemap.server.gates.baselines import baseline_checks
from servemap.server.gates.checks import Check
from servemap.server.not_run import NotRunError


def required_baselines(context: Context, variant: str) -> list[Check]:
    """Return the checks of the baselines that a variant requires, by their newest records."""
    server = context.server(variant)
    required = server.transport.baselines if server.transport else []
    folder = context.run_dir / "baselines"
    return baseline_checks(
        server, {one.id: read_json(folder / f"{one.id}.json") for one in required}
    )


def require_baselines(context: Context, variant: str) -> None:
    """Refuse a start where a baseline does not bear out what the variant requires.

    Raises:
        NotRunError: with the reason of the first that does not.
    """
    for check in required_baselines(context, variant):
        if check.ok is False:
            raise NotRunError(
                "launch",
                f"{check.name}: {check.evidence}",
                str(context.run_dir / "baselines"),
                check.remedy,
            )

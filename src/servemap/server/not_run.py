"""Why a job's work is not done, where that is no failure of the job itself."""

from servemap.model.errors import ServemapError
from servemap.onnode.redact import redact_text


class NotRunError(ServemapError):
    """A job's work is not done, for a reason that is recorded and not the job's own failure.

    What it says is stored, so what looks like a credential is taken out of it.
    `cause`: stop, abort, launch, breaker, drift, patch, collector or unreachable.
    """

    def __init__(self, cause: str, what: str, where: str, remedy: str) -> None:
        super().__init__(redact_text(what), redact_text(where), redact_text(remedy))
        self.cause = cause

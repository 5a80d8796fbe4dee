"""Whether a case can end within its time: what its own keys make it last at least."""

from servemap.model.cases import CaseSpec, CurveCase, MixedCase, RateCase, ReplayCase, SearchCase
from servemap.model.curves import arrivals_at
from servemap.model.errors import ConfigError


def check_times(case: CaseSpec) -> None:
    """Refuse a case that lasts longer than its `case_timeout_s`, however fast the server is.

    Raises:
        ConfigError: names the key and the remedy.
    """
    least, remedy = _least(case)
    if least > case.case_timeout_s:
        raise ConfigError(
            f"the case takes {least:.0f} s at least, case_timeout_s is {case.case_timeout_s:g}",
            f"cases.{case.id}.case_timeout_s",
            f"raise it, or {remedy}",
        )


def _least(case: CaseSpec) -> tuple[float, str]:
    """Return the shortest time of a case in seconds, and what shortens it.

    A replay's is that of its trace, a curve's that of each point. Of a search it is the first
    probe's.
    """
    shorter = "give a shorter min_window_s"
    if isinstance(case, ReplayCase | CurveCase):
        return 0.0, ""
    if isinstance(case, RateCase):
        return (case.num_prompts - 1) / case.rate_rps, "give fewer num_prompts or a higher rate_rps"
    if isinstance(case, MixedCase):
        window, inject = case.background.min_window_s, case.inject
        last = inject.after_s + (inject.count - 1) * (inject.every_s or 0.0)
        # Control and injected segment, one after the other.
        return window + max(window, last), f"{shorter}, or inject earlier or less often"
    if isinstance(case, SearchCase) and case.over == "rate":
        prompts = arrivals_at(case.start, case.num_prompts, case.min_window_s)
        return (prompts - 1) / case.start, "give fewer num_prompts or a higher start"
    return case.min_window_s, shorter

"""Series sample by sample, in the order of time."""

from servemap.parsers.records import Sample
from servemap.parsers.series import Parsed


def samples(parsed: Parsed) -> list[Sample]:
    """Return the samples of all series."""
    found = [
        Sample(t_ns, from_ns, one.entity, one.metric, one.unit, value)
        for one in parsed.series
        for t_ns, from_ns, value in zip(
            one.t_ns.tolist(),
            [None] * one.t_ns.size if one.from_ns is None else one.from_ns.tolist(),
            one.value.tolist(),
            strict=True,
        )
    ]
    return sorted(found, key=lambda sample: sample.t_ns)

"""The registry of kinds: what `servemap parse` reads, by name."""

from servemap.model.errors import ParseError
from servemap.parsers import (
    accelerators,
    bench_result,
    client_reports,
    client_tables,
    communication,
    engine_log,
    engine_metrics,
    host,
    network,
    profilers,
)
from servemap.parsers.frame import Extract, Kind, extract

AREAS: dict[str, tuple[Kind, ...]] = {
    "Accelerators": accelerators.KINDS,
    "Hosts": host.KINDS,
    "Network": network.KINDS,
    "Communication": communication.KINDS,
    "Profilers": profilers.KINDS,
    "Engines": engine_metrics.KINDS + engine_log.KINDS,
    "Load clients": bench_result.KINDS + client_reports.KINDS + client_tables.KINDS,
}
KINDS: dict[str, Kind] = {kind.name: kind for kinds in AREAS.values() for kind in kinds}


def parse(name: str, raw: bytes) -> Extract:
    """Return what `raw`, the output of a tool of kind `name`, holds.

    Raises:
        ParseError: there is no such kind, or `raw` holds nothing of it.
    """
    if name not in KINDS:
        raise ParseError(
            f"there is no kind {name!r}", "servemap parse", f"name one of: {', '.join(KINDS)}"
        )
    return extract(KINDS[name], raw)

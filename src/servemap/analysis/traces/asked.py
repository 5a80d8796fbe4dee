"""What the ten questions share: the devices, hosts and classes of a capture, and why not."""

from servemap.analysis.traces.analyse import Analysis, DeviceReport, FileReport
from servemap.analysis.traces.behind import Behind, of_calls, of_classes
from servemap.analysis.traces.host import HostFigures

Said = tuple[str, list[Behind]]


class NoAnswerError(Exception):
    """The capture does not hold what a question needs."""


def say_ms(ns: float) -> str:
    """Return a time in ns as ms with four figures."""
    return f"{ns / 1e6:.4g} ms"


def devices(analysis: Analysis) -> list[tuple[FileReport, DeviceReport]]:
    """Return all devices with their files; NoAnswerError where none was traced."""
    found = [(file, one) for file in analysis.files for one in file.devices]
    if not found:
        raise NoAnswerError("no device was traced")
    return found


def device_name(file: FileReport, report: DeviceReport) -> str:
    """Return how a device is named in answers: by its rank if the file says one."""
    if file.file.rank is not None:
        return f"rank {file.file.rank}"
    return f"device {report.figures.device}"


def hosts(analysis: Analysis) -> list[tuple[FileReport, HostFigures]]:
    """Return the ranks whose work ran on the host; none where a device was traced."""
    if any(file.devices for file in analysis.files):
        return []
    return [
        (file, file.host)
        for file in analysis.files
        if file.host is not None and file.host.operators
    ]


def host_name(file: FileReport) -> str:
    """Return how a host is named in answers."""
    rank = file.file.rank
    return "the host" if rank is None else f"host of rank {rank}"


def class_by_rank(analysis: Analysis, name: str) -> tuple[dict[str, int], list[Behind]]:
    """Return the time of a class on each rank, ns, and what it is of."""
    times: dict[str, int] = {}
    behind: list[Behind] = []
    for file, host in hosts(analysis):
        times |= {host_name(file): one.total_ns for one in host.classes if one.id == name}
        behind += of_calls(host_name(file), (one for one in host.operators if one.class_id == name))
    if not hosts(analysis):
        for file, report in devices(analysis):
            classes = report.figures.classes
            times |= {device_name(file, report): one.total_ns for one in classes if one.id == name}
            behind += of_classes(device_name(file, report), report.figures, {name})
    return times, behind

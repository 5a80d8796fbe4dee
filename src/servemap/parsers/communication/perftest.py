"""perftest: ib_write_bw, ib_send_lat and the like, as text or as JSON (--out_json)."""

import re
from typing import Any

from servemap.parsers.cells import Number, key, number, scaled, value
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.jsontext import read_document
from servemap.parsers.jsonvalues import amount, integer, is_json, mapping
from servemap.parsers.lines import ended
from servemap.parsers.records import Skipped

_TITLE = re.compile(r"\s*(\w{1,40}(?: \w{1,40}){0,6}) Test")
_HEADING = re.compile(
    r"#bytes|#sl|#iterations|BW (?:peak|average|Port[12])\s?\[[^\]]{1,20}\]"
    r"|MsgRate(?: Port[12])?\s?\[Mpps\]|t_(?:min|max|typical|avg|stdev)\s?\[usec\]"
    r"|99(?:\.9)?% percentile\s?\[usec\]|tps average|CPU_Util\s?\[%{1,2}\]"
)
# A megabyte here is of 2^20 bytes, a gigabit of 10^9 bits (print_report_bw: 0x100000, 125000000).
_RATES = {"MB/sec": 1048576, "MiB/sec": 1048576, "Gb/sec": 125000000}
_KEYS: dict[str, tuple[str, Number]] = {
    "#bytes": ("size_bytes", 1),
    "#sl": ("service_level", 1),
    "#iterations": ("iterations", 1),
    "t_min": ("latency_min_s", 1e-6),
    "t_max": ("latency_max_s", 1e-6),
    "t_typical": ("latency_typical_s", 1e-6),
    "t_avg": ("latency_average_s", 1e-6),
    "t_stdev": ("latency_stdev_s", 1e-6),
    "99% percentile": ("latency_p99_s", 1e-6),
    "99.9% percentile": ("latency_p999_s", 1e-6),
    "tps average": ("transactions_per_s", 1),
    "CPU_Util": ("cpu_percent", 1),
    "MsgRate": ("messages_per_s", 1e6),
    "MsgRate Port1": ("messages_port1_per_s", 1e6),
    "MsgRate Port2": ("messages_port2_per_s", 1e6),
    "BW peak": ("bandwidth_peak_bytes_per_s", 0),
    "BW average": ("bandwidth_bytes_per_s", 0),
    "BW Port1": ("bandwidth_port1_bytes_per_s", 0),
    "BW Port2": ("bandwidth_port2_bytes_per_s", 0),
}
_JSON_KEYS = {
    "MsgSize": "#bytes", "n_iterations": "#iterations", "t_min": "t_min", "t_max": "t_max",
    "t_typical": "t_typical", "t_avg": "t_avg", "t_stdev": "t_stdev", "MsgRate": "MsgRate",
    "percentile_99": "99% percentile", "percentile_99.9": "99.9% percentile",
    "tps_average": "tps average",
    "CPU_util": "CPU_Util",
}  # fmt: skip
_PARAMETER = re.compile(
    r"(?:^|\s)([A-Za-z][\w*./-]{0,30}(?: [\w*./-]{1,30}){0,4})\s{0,30}:\s{1,9}(\S{1,99})"
)
_REMARKS = re.compile(
    r"[-*\s]+|\* Waiting for client.*|\s*(?:local|remote) address:.*|\s*GID: .*|\s*WARNING: .*"
    r"|\s*Waiting for .*|\s*Please run .*|\s*(?:Test with events|MultiCast runs).*|#.*"
    r"|\s*(?:Conflicting CPU frequency|Warning: |Requested mtu|Couldn't set).*"
)


def parse_perftest(text: str) -> Extract:
    """Bandwidth, message rate and latency of RDMA operations by size.

    `tests`, one a table: `name` (`RDMA_Write BW`, null where the title was cut off), `parameters`
    as printed (`device`, `link_type`, `mtu`, `number_of_qps` ...) and `rows` with `size_bytes`,
    `iterations` and what the test measures: `bandwidth_bytes_per_s` (the average),
    `bandwidth_peak_bytes_per_s` (null where it was not measured, which perftest prints as 0),
    `messages_per_s`; `latency_min_s`, `latency_typical_s` (the median), `latency_average_s`,
    `latency_p99_s` and so on.

    The JSON form has no units; a rate is read in the unit in which it agrees with the message rate
    and the size, and is null where it agrees in none.

    Raises:
        ParseError: there is no table and no result.
    """
    if is_json(text):
        return _from_json(text)
    tests: list[dict[str, Any]] = []
    skipped: list[Skipped] = []
    columns: list[tuple[str, Number]] = []
    current: dict[str, Any] = _test(None)
    for line, row in ended(text, skipped):
        if title := _TITLE.fullmatch(row):
            current, columns = _test(title[1]), []
            tests.append(current)
        elif "#bytes" in row:
            if columns and current["rows"]:
                current = _test(None)
            columns = [_column(name) for name in _HEADING.findall(row)]
            if current not in tests[-1:]:
                tests.append(current)
        elif columns and (values := _row(row, columns)):
            current["rows"].append(values)
        elif _REMARKS.fullmatch(row):
            continue
        elif columns or not current["name"] or not _read_parameters(current, row):
            skipped.append(Skipped(line, "no line of perftest"))
    tests = [test for test in tests if test["rows"] or test["parameters"]]
    if not any(test["rows"] for test in tests):
        raise foreign("perftest", "table that begins with #bytes")
    return Extract({"tests": [test for test in tests if test["rows"]]}, skipped)


def _test(name: str | None) -> dict[str, Any]:
    return {"name": name, "parameters": {}, "rows": []}


def _column(name: str) -> tuple[str, Number]:
    plain, _, unit = name.partition("[")
    found, factor = _KEYS[plain.strip()]
    return found, factor or _RATES.get(unit.rstrip("]"), 0)


def _row(line: str, columns: list[tuple[str, Number]]) -> dict[str, Any] | None:
    cells = line.split()
    if len(cells) != len(columns):
        return None
    values = [number(cell) for cell in cells]
    if not isinstance(values[0], int) or any(value is None for value in values):
        return None
    row = {
        name: scaled(found, factor) if factor else None
        for (name, factor), found in zip(columns, values, strict=True)
    }
    # With -D, -a over 20000 iterations or --noPeak there is no peak, and 0 is printed.
    if row.get("bandwidth_peak_bytes_per_s") == 0:
        row["bandwidth_peak_bytes_per_s"] = None
    return row


def _read_parameters(test: dict[str, Any], line: str) -> bool:
    """Read `Name : value`, one or two of which stand in a line."""
    found = _PARAMETER.findall(line)
    test["parameters"] |= {key(name): value(said.removesuffix("[B]")) for name, said in found}
    return bool(found)


def _from_json(text: str) -> Extract:
    document = read_document("perftest", text)
    results = mapping(mapping(document.value).get("results"))
    row: dict[str, Any] = {}
    for source, column in _JSON_KEYS.items():
        if source in results:
            name, scale = _KEYS[column]
            row[name] = scaled(amount(results[source]), scale)
    size, rate = integer(results.get("MsgSize")), row.get("messages_per_s")
    average = amount(results.get("BW_average"))
    factor = _rate_factor(size, rate, average)
    if average is not None:
        peak = amount(results.get("BW_peak"))
        row["bandwidth_peak_bytes_per_s"] = scaled(peak, factor) if peak and factor else None
        row["bandwidth_bytes_per_s"] = scaled(average, factor) if factor else None
    if not row:
        raise foreign("perftest", "object results with MsgSize")
    info = mapping(mapping(document.value).get("test_info"))
    name = info.pop("test", None)
    test = _test(name.removesuffix("_Test").replace("_", " ") if isinstance(name, str) else None)
    test["parameters"] = {
        key(str(one)): said for one, said in info.items() if isinstance(said, str | int | float)
    }
    test["rows"].append(row)
    return Extract({"tests": [test]}, document.skipped)


def _rate_factor(size: int | None, rate: Number | None, average: Number | None) -> Number | None:
    """Return the bytes/s of the unit in which bandwidth = messages/s x size, within 1 %."""
    if not size or not rate or not average:
        return None
    for factor in sorted(set(_RATES.values())):
        if abs(average * factor / (size * rate) - 1) < 0.01:
            return factor
    return None

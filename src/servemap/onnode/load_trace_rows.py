"""The lines of a trace: its form, and from a line of any form the facts of one request."""

import csv
import json
import re
from datetime import datetime, timedelta, timezone
from typing import Any, Dict, List, NamedTuple, NoReturn, Optional, Tuple

from .checked import MAX_COUNT, SpecError
from .load_trace_formats import FORMATS, TEXTS, Format

Json = Dict[str, Any]

MAX_REQUESTS = 200_000
"""Most requests that are replayed at once."""

_DATE = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(\.\d{1,12})?(?:(Z)|([+-])(\d\d):?(\d\d))?$"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class TraceError(SpecError):
    """A trace that cannot be replayed: what is wrong, at which file and line, what to do."""

    def __init__(self, what: str, where: str, remedy: str) -> None:
        self.what, self.where, self.remedy = what, where, remedy
        super().__init__(f"{where}: {what}; {remedy}")


class Row(NamedTuple):
    """One recorded request, not fitted yet; times in seconds."""

    isl: int
    osl: int
    at_s: Optional[float]
    elapsed_s: float
    think_s: Optional[float]
    conversation: Optional[str]
    blocks: List[int]


class Reader:
    """Takes a trace line by line, up to `most` requests.

    A unit of time counts `timestamp_s` seconds, or what the trace's form says. `left_out` counts
    the requests that had failed when they were recorded.
    """

    def __init__(self, path: str, most: Optional[int], timestamp_s: Optional[float]) -> None:
        self.form: Optional[Format] = None
        self.rows: List[Row] = []
        self.left_out = 0
        self._path = path
        self._most = most
        self._timestamp_s = timestamp_s
        self._columns: List[str] = []
        self._roots: Dict[str, str] = {}

    @property
    def full(self) -> bool:
        """Whether there are as many requests as were asked for."""
        return self._most is not None and len(self.rows) >= self._most

    def take(self, line: str, place: int) -> None:
        """Take a line; raises TraceError."""
        where = f"{self._path}, line {place}"
        if not line.strip():
            return
        if self.form is None:
            self.form, self._columns = _form(line, where)
            if self.form.csv:
                return
        raw = _cells(line, self._columns, where) if self.form.csv else _object(line, where)
        row = self._row(self.form, raw, where)
        if row is None:
            self.left_out += 1
            return
        if len(self.rows) >= MAX_REQUESTS:
            raise TraceError(
                f"the trace holds more than {MAX_REQUESTS} requests",
                where,
                "say how many of its first ones to replay (num_prompts)",
            )
        self.rows.append(row)

    def _row(self, form: Format, raw: Json, where: str) -> Optional[Row]:
        found = {ours: raw.get(theirs) for ours, theirs in form.names.items()}
        least = 0 if form.failures else 1
        isl, osl = (
            _whole(found[name], f"{form.names[name]}", where, least) for name in ("isl", "osl")
        )
        conversation = self._conversation(form, found, where)
        if not isl or not osl:
            return None
        at_s = _time(found.get("at"), form, self._timestamp_s, where)
        elapsed = _seconds(found.get("elapsed"), form.names.get("elapsed", ""), where)
        think = _seconds(found.get("think_s"), form.names.get("think_s", ""), where)
        blocks = [] if found.get("blocks") is None else found["blocks"]
        if not isinstance(blocks, list) or not all(type(block) is int for block in blocks):
            _refuse(form.names["blocks"], blocks, where, "give a list of whole numbers")
        return Row(isl, osl, at_s, elapsed or 0.0, think, conversation, blocks)

    def _conversation(self, form: Format, found: Json, where: str) -> Optional[str]:
        """Return the name of the conversation, that of its first request where chats are linked."""
        if "chat" in form.names:
            chat, parent = (
                _text(found[name], form.names[name], where) for name in ("chat", "parent")
            )
            if chat is None:
                _refuse(form.names["chat"], None, where, "give a number or a text")
            root = chat if parent in (None, "-1") else self._roots.get(str(parent), str(parent))
            self._roots[chat] = root
            return root
        return _text(found.get("conversation"), form.names.get("conversation", ""), where)


def _form(line: str, where: str) -> Tuple[Format, List[str]]:
    """Return the form of a trace and its columns from its first line."""
    start = line.lstrip()[:1]
    if start == "[":
        raise TraceError(
            "the file is one JSON list, as sets of conversations are (ShareGPT)",
            where,
            "texts cannot be replayed without the model's tokenizer: give one object a line with "
            "isl and osl in tokens",
        )
    if start == "{":
        raw = _object(line, where)
        for form in FORMATS:
            if not form.csv and all(name in raw for name in form.header):
                return form, []
        texts = [name for name in TEXTS if name in raw]
        if texts:
            raise TraceError(
                f"the trace holds texts ({texts[0]!r}) and no lengths",
                where,
                "texts cannot be replayed without the model's tokenizer: give isl and osl in "
                "tokens",
            )
        return _unknown(sorted(raw), where)
    columns = _split(line, where)
    for form in FORMATS:
        if form.csv and all(name in columns for name in form.header):
            for name in form.names.values():
                if columns.count(name) > 1:
                    raise TraceError(
                        f"the column {name} is there twice", where, "remove the one that is wrong"
                    )
            return form, columns
    return _unknown(columns, where)


def _unknown(names: List[str], where: str) -> NoReturn:
    known = "; ".join(f"{form.name}: {', '.join(form.header)}" for form in FORMATS)
    raise TraceError(
        f"no form of trace has the fields {', '.join(names)[:100]}",
        where,
        f"give one of these ({known}), or lines of JSON with isl and osl",
    )


def _object(line: str, where: str) -> Json:
    try:
        raw = json.loads(line, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise TraceError(
            f"the line is not JSON ({error})", where, "give one object a line"
        ) from error
    if not isinstance(raw, dict):
        _refuse("the line", raw, where, "give an object")
    return raw


def _once(pairs: List[Tuple[str, Any]]) -> Json:
    """Return the object; ValueError names a key that is there twice, which JSON does not forbid."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {ascii(twice)[:80]} is there twice")
    return found


def _split(line: str, where: str) -> List[str]:
    try:
        return [cell.strip() for cell in next(csv.reader([line], strict=True), [])]
    except csv.Error as error:
        raise TraceError(f"the line is not CSV ({error})", where, "mend the line") from error


def _cells(line: str, columns: List[str], where: str) -> Json:
    cells = _split(line, where)
    if len(cells) != len(columns):
        raise TraceError(
            f"the line has {len(cells)} fields, the header {len(columns)}", where, "mend the line"
        )
    return {columns[place]: cell or None for place, cell in enumerate(cells)}


def _refuse(name: str, value: Any, where: str, remedy: str) -> NoReturn:
    shown = json.dumps(value, default=repr)[:80]
    raise TraceError(f"{name} is {shown}", where, remedy)


def _number(value: Any) -> Optional[float]:
    """Return a finite number, also one that a CSV file spells."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 1e16 else None  # also refuses nan and infinities


def _whole(value: Any, name: str, where: str, least: int) -> int:
    found = _number(value)
    if found is None or not found.is_integer() or not least <= found <= MAX_COUNT:
        _refuse(name, value, where, f"give a whole number from {least} to {MAX_COUNT}")
    return int(found)


def _seconds(value: Any, name: str, where: str) -> Optional[float]:
    if value is None:
        return None
    found = _number(value)
    if found is None or found < 0:
        _refuse(name, value, where, "give a number of seconds that is not negative")
    return found


def _text(value: Any, name: str, where: str) -> Optional[str]:
    if value is None or value == "":
        return None
    text = str(value)
    if isinstance(value, (dict, list)) or not text.isprintable():
        _refuse(name, value, where, "give a number or a printable text")
    return text


def _time(value: Any, form: Format, unit_s: Optional[float], where: str) -> Optional[float]:
    if value is None:
        return None
    name = form.names["at"]
    if form.timestamp_s is None:
        found = _date(value)
        if found is None:
            _refuse(name, value, where, "give a date such as 2023-11-16 18:15:46.68")
        return found
    number = _number(value)
    if number is None or number < 0:
        _refuse(name, value, where, "give a time that is not negative")
    return number * (form.timestamp_s if unit_s is None else unit_s)


def _date(value: Any) -> Optional[float]:
    """Return epoch seconds of a date without a zone (UTC) or with one, to a fraction of a µs."""
    match = _DATE.match(value) if isinstance(value, str) else None
    if match is None:
        return None
    day, clock, fraction, _, sign, hours, minutes = match.groups()
    try:
        at = datetime.fromisoformat(f"{day} {clock}")
        zone = timedelta(hours=int(hours or 0), minutes=int(minutes or 0))
        since = at.replace(tzinfo=timezone.utc) - _EPOCH
    except (ValueError, OverflowError):
        return None
    since = since + zone if sign == "-" else since - zone
    return since.total_seconds() + float(fraction or 0)

"""Tables in boxes that the *-smi tools draw for people, read by declared columns (boxes.yaml)."""

import re
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import yaml

from servemap.parsers.accelerators.nvidia_fields import says_failure
from servemap.parsers.cells import is_missing, quantity, scaled, unit, value
from servemap.parsers.clean import cut_line, numbered
from servemap.parsers.frame import Extract, foreign
from servemap.parsers.records import Skipped

Entry = dict[str, Any]

_BLANKS = re.compile(r"\s+")
_RULE = re.compile(r"[|+\s=-]*")
_NUMBER = re.compile(r"(?<![A-Za-z])[0-9]")
# A wider cell is none of these tools'.
_WIDEST = 200


class _Row(NamedTuple):
    """One line of an entry: the expressions of its cells, None for an empty one."""

    cells: tuple[re.Pattern[str] | None, ...]

    @property
    def optional(self) -> bool:
        return None in self.cells

    def match(self, cells: list[str], cut: bool) -> Entry | None:
        """Return the groups of all cells; None for a missing cell and the last of a cut line."""
        if len(cells) != len(self.cells):
            return None
        found: Entry = {}
        for position, (pattern, cell) in enumerate(zip(self.cells, cells, strict=True)):
            if pattern is None:
                if cell:
                    return None
            elif cut and position == len(cells) - 1:
                if position == 0:
                    return None
                found.update(dict.fromkeys(pattern.groupindex))
            elif match := pattern.fullmatch(cell):
                found.update(match.groupdict())
            elif position > 0 and cell and is_missing(cell):
                found.update(dict.fromkeys(pattern.groupindex))
            else:
                return None
        return found


class Tool(NamedTuple):
    """How one tool draws its tables; see boxes.yaml."""

    title: re.Pattern[str]
    attached: re.Pattern[str] | None
    facts: dict[str, re.Pattern[str]]
    rows: dict[str, tuple[_Row, ...]]
    none: dict[str, re.Pattern[str]]
    renames: dict[str, dict[str, str]]
    binary: dict[str, str]


@cache
def _content() -> dict[str, Any]:
    file = files("servemap.parsers.accelerators").joinpath("boxes.yaml")
    content: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return content


@cache
def tool(name: str) -> Tool:
    """Return the declared tables of a tool."""
    spec = _content()["tools"][name]
    return Tool(
        re.compile(spec["title"]),
        re.compile(spec["attached"]) if "attached" in spec else None,
        {key: re.compile(pattern) for key, pattern in spec["facts"].items()},
        {
            part: tuple(
                _Row(tuple(None if cell is None else re.compile(cell) for cell in line))
                for line in lines
            )
            for part, lines in spec["rows"].items()
        },
        {part: re.compile(pattern) for part, pattern in spec["none"].items()},
        spec.get("renames", {}),
        spec.get("binary", {}),
    )


def read_boxes(name: str, text: str) -> Extract:
    """Return the tables that tool `name` drew.

    The data have the tool's facts, and a list for each part that boxes.yaml declares: None where
    the text has no such table. Each entry has `sample`, which counts the tables in the text from 0.

    Raises:
        ParseError: there is neither a table of this tool nor a message of it.
    """
    declared = tool(name)
    rows = declared.rows
    parts: dict[str, list[Entry] | None] = dict.fromkeys(rows)
    titles = 0
    skipped: list[Skipped] = []
    error: str | None = None
    last: tuple[str, int] | None = None
    # Whether the lines are of a table that another tool drew.
    others = False
    line = 1
    unended, width = cut_line(text), 0
    # A line in a box is whole up to the box's edge.
    whole = text if text.endswith(("\n", "|", "+")) else text[: text.rfind("\n") + 1]
    for line, row in numbered(text):
        if declared.title.search(row):
            titles, last, others = titles + 1, None, False
            continue
        if others or _other_title(name).search(row):
            if not others:
                skipped.append(Skipped(line, "a table that another tool drew"))
            last, others = None, True
            continue
        for part, pattern in declared.none.items():
            if pattern.search(row):
                parts[part] = parts[part] or []
                break
        else:
            if _RULE.fullmatch(row) or _is_fact(declared, row):
                width = len(row) if row.startswith("+") else width
                continue
            if not row.lstrip().startswith("|"):
                if says_failure(row):
                    error = error or row.strip()
                elif "===" not in row:
                    skipped.append(Skipped(line, "outside the tables"))
                continue
            cut = not row.endswith("|") or (line == unended and len(row) < width)
            found = _place(declared, row, last, cut)
            if found is None:
                # Headings have no numbers.
                if _NUMBER.search(row):
                    skipped.append(Skipped(line, "no row that this tool is known to write"))
                continue
            part, position, groups = found
            entries = parts[part] = parts[part] or []
            if position == 0:
                blank = {key: None for known in rows[part] for cell in known.cells if cell
                         for key in cell.groupindex}  # fmt: skip
                entries.append({"sample": max(titles - 1, 0), **blank})
            entries[-1].update({key: _value(declared, key, cell) for key, cell in groups.items()})
            last = (part, position)
            if cut:
                skipped.append(Skipped(line, "cut in the last cell"))
    if not titles and all(part is None for part in parts.values()) and error is None:
        raise foreign(name, "table of it")
    data: Entry = {key: _first(pattern, whole) for key, pattern in declared.facts.items()}
    _rename(declared, whole, parts)
    if declared.attached:
        attached = _first(declared.attached, whole)
        data["attached"] = None if attached is None else int(attached)
        count = len({entry.get("gpu") for entry in parts["gpus"] or []})
        if attached is not None and count < int(attached):
            skipped.append(Skipped(line, f"{attached} devices attached, rows of {count}: cut"))
    if whole != text and (not skipped or skipped[-1].line != unended):
        skipped.append(Skipped(unended, "a line without its end"))
    if last is not None and _is_open(rows, last):
        skipped.append(Skipped(line, "the last entry is cut"))
    return Extract({**data, **parts, "error": error}, skipped)


@cache
def _other_title(name: str) -> re.Pattern[str]:
    titles = [spec["title"] for other, spec in _content()["tools"].items() if other != name]
    return re.compile("|".join(f"(?<![A-Za-z-])(?:{title})" for title in titles))


def _is_open(rows: dict[str, tuple[_Row, ...]], last: tuple[str, int]) -> bool:
    """Return whether lines of the entry that began last are still missing."""
    part, position = last
    return any(not row.optional for row in rows[part][position + 1 :])


def _place(
    declared: Tool, row: str, last: tuple[str, int] | None, cut: bool
) -> tuple[str, int, Entry] | None:
    """Return part, line of the entry and groups of a row, None where it matches none."""
    inner = row.strip().removeprefix("|").removesuffix("|")
    cells = [_BLANKS.sub(" ", cell).strip() for cell in inner.split("|")]
    if any(len(cell) > _WIDEST for cell in cells):
        return None
    tries = [(part, 0) for part in declared.rows]
    if last is not None:
        part, position = last
        tries = [(part, at) for at in range(position + 1, len(declared.rows[part]))] + tries
    for part, position in tries:
        groups = declared.rows[part][position].match(cells, cut)
        if groups is not None:
            return part, position, groups
    return None


def _value(declared: Tool, key: str, cell: str | None) -> Any:
    content = _content()
    if cell is None or is_missing(cell):
        return None
    if key in content["text"]:
        return cell
    suffix = key.rpartition("_")[2]
    if suffix in ("bytes", "watts", "celsius", "percent", "mhz"):
        found = quantity(cell)
        spelled = found.unit if found and found.unit else content["plain"].get(suffix)
        kept = unit(declared.binary.get(spelled, spelled))
        if found is None or (found.unit and (kept is None or kept.suffix != suffix)):
            return None
        return scaled(found.value, kept.factor if kept else 1)
    return value(cell)


def _is_fact(declared: Tool, row: str) -> bool:
    patterns = [*declared.facts.values(), *([declared.attached] if declared.attached else [])]
    return any(pattern.search(row) for pattern in patterns)


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match[1].strip() if match else None


def _rename(declared: Tool, text: str, parts: dict[str, list[Entry] | None]) -> None:
    for heading, names in declared.renames.items():
        if heading in text:
            for part, entries in parts.items():
                parts[part] = entries and [
                    {names.get(key, key): cell for key, cell in entry.items()} for entry in entries
                ]


def parse_nvidia_table(text: str) -> Extract:
    """The table that nvidia-smi draws without options.

    `driver_version`, `cuda_version`, `timestamp`, and lists, null where there is no such table:
    `gpus` {`gpu`, `name`, `bus_id`, `temperature_celsius`, `power_draw_watts`, `power_limit_watts`,
    `memory_used_bytes`, `memory_total_bytes`, `utilization_percent`, `mig_mode`, ...},
    `mig_devices` and `processes` {`gpu`, `pid`, `type`, `process_name`, `memory_used_bytes`}.
    `sample` in each entry counts the tables in the text from 0. `error` is what nvidia-smi said
    instead, else null.

    Raises:
        ParseError: there is neither such a table nor a message of nvidia-smi.
    """
    return read_boxes("nvidia-smi", text)


def parse_ixsmi(text: str) -> Extract:
    """The table that ixsmi draws for Iluvatar cards.

    As `nvidia-smi-table`, with `clock_sm_mhz` and `clock_memory_mhz`. Of a card with two dies only
    one has the power of the board; the other one's is null.

    Raises:
        ParseError: there is neither such a table nor a message of the tool.
    """
    return read_boxes("ixsmi", text)


def parse_mx_smi(text: str) -> Extract:
    """The table that mx-smi draws for MetaX cards.

    As `nvidia-smi-table`, with `maca_version`, `bios_version`, `gpu_state`, and `attached`, the
    number of cards that the tool counts; if rows are fewer, `skipped` says so.

    Raises:
        ParseError: there is neither such a table nor a message of the tool.
    """
    return read_boxes("mx-smi", text)

"""The environment as it was frozen, and what changed on the nodes between before and after."""

from typing import Any

from servemap.parsers.values import integer, mapping, sequence, text
from servemap.report.clocks import NODE_COLUMNS, NODE_NOTE, node_rows
from servemap.report.document import Block, Cell, Section, Table, cell
from servemap.report.numbers import moment, size
from servemap.report.run import Run

_DEPTH = 3
_LONGEST = 400
# More rows than this of one kind are shown only when asked for.
_FOLD = 60
# Sections with tables of their own, and lists that would bury the rest.
_APART = frozenset(
    {"workflow", "packages", "commands", "env", "models", "schema", "taken_ns", "digests", "apart"}
)
# Counters and times change by themselves and are no difference.
_VOLATILE = frozenset({"counters", "taken_ns", "schema"})


def environment(run: Run) -> Section:
    """Facts of each node, models, the workflow's own state, and the before/after difference."""
    tables: list[Table] = []
    if found := node_rows(run):
        tables.append(Table(NODE_COLUMNS, found, frozenset(NODE_COLUMNS[6:]), NODE_NOTE))
    nodes = list(run.freezes)
    facts = {node: _flat(mapping(run.freezes[node].get("facts")), _APART) for node in nodes}
    tables += side_by_side("Frozen facts of the nodes", "Fact", nodes, facts)
    tables += side_by_side("Packages on the nodes", "Package", nodes, _packages(run))
    if models := _models(run):
        tables.append(
            Table(["Node", "File", "Size", "sha256"], models, frozenset({"Size"}), "Model files")
        )
    if variables := _variables(run):
        tables.append(
            Table(
                ["Node", "Variable", "Value"],
                variables,
                caption="Environment variables that matter (redacted)",
            )
        )
    tables.append(_difference(run))
    workflow = next(
        (mapping(mapping(f.get("facts")).get("workflow")) for f in run.freezes.values()), {}
    )
    if workflow:
        rows = [[Cell(key), cell(value)] for key, value in _flat(workflow, _APART).items()]
        sessions = sequence(run.manifest.get("sessions"))
        if argv := sequence(mapping(sessions[-1] if sessions else None).get("argv")):
            rows.append([Cell("newest command"), Cell(" ".join(map(str, argv)))])
        tables.insert(0, Table(["Workflow", ""], rows, caption="The workflow itself"))
    blocks = []
    if packages := mapping(workflow.get("packages")):
        listed = [f"{name} {version}" for name, version in sorted(packages.items())]
        blocks.append(Block(f"Packages of the controller ({len(listed)})", [", ".join(listed)]))
    paragraphs = [] if nodes else ["No frozen facts were found for this run."]
    return Section("environment", "Environment", paragraphs, tables, blocks=blocks)


def side_by_side(
    caption: str, first: str, nodes: list[str], facts: dict[str, dict[str, str]]
) -> list[Table]:
    """Return facts of nodes: those that differ in a column a node, then the equal ones, folded.

    Args:
        caption: what the facts are.
        first: title of the column with their names.
        nodes: the nodes, in the order of the columns.
        facts: {node: {name: value}}.
    """
    keys = dict.fromkeys(key for node in nodes for key in facts[node])
    if len(nodes) < 2:
        rows = [[Cell(key), cell(facts[node].get(key))] for node in nodes for key in keys]
        folded = len(rows) > _FOLD
        return [Table([first, *nodes], rows, caption=caption, folded=folded)] if rows else []
    values = {key: [facts[node].get(key) for node in nodes] for key in keys}
    differ = [[Cell(k), *map(cell, found)] for k, found in values.items() if len(set(found)) > 1]
    equal = [[Cell(k), cell(found[0])] for k, found in values.items() if len(set(found)) == 1]
    tables = []
    if differ:
        tables.append(Table([first, *nodes], differ, caption=f"{caption}: what differs"))
    if equal:
        title = f"{caption}: the same on {', '.join(nodes)} ({len(equal)})"
        tables.append(Table([first, "Value"], equal, caption=title, folded=True))
    return tables


def _packages(run: Run) -> dict[str, dict[str, str]]:
    """Return {node: {name: version}} of all packages that a node's facts list, of any interpreter.

    A name is led by where the facts list it, such as `python: torch`.
    """

    def walk(item: Any, path: tuple[str, ...]) -> dict[str, str]:
        found: dict[str, str] = {}
        for key, inner in mapping(item).items():
            if key == "packages" and isinstance(inner, dict):
                found |= {f"{'.'.join(path)}: {n}": _inline(v) for n, v in sorted(inner.items())}
            elif len(path) < _DEPTH and (path or key != "workflow"):
                found |= walk(inner, (*path, str(key)))
        return found

    return {node: walk(record.get("facts"), ()) for node, record in run.freezes.items()}


def _flat(value: dict[str, Any], leave_out: frozenset[str]) -> dict[str, str]:
    """Return nested facts as {dotted key: text}, lists and deep parts in one line."""
    result: dict[str, str] = {}

    def walk(item: Any, path: tuple[str, ...]) -> None:
        if isinstance(item, dict) and item and len(path) < _DEPTH:
            for key, inner in item.items():
                if key not in leave_out:
                    walk(inner, (*path, str(key)))
        elif item not in (None, "", [], {}):
            result[".".join(path)] = _shortened(_inline(item))

    walk(value, ())
    return result


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        known = {key: item for key, item in value.items() if item not in (None, "", [], {})}
        return ", ".join(f"{key}: {_inline(item)}" for key, item in known.items())
    if isinstance(value, list):
        return ", ".join(map(_inline, value))
    return str(value)


def _shortened(value: str) -> str:
    return value if len(value) <= _LONGEST else value[:_LONGEST] + " ..."


def _models(run: Run) -> list[list[Cell]]:
    rows = []
    for node, record in run.freezes.items():
        models = mapping(mapping(record.get("facts")).get("models"))
        for model in map(mapping, sequence(models.get("models"))):
            for item in map(mapping, sequence(model.get("files"))):
                found = text(item.get("sha256")) or _inline(sequence(item.get("errors")))
                name = f"{model.get('path')}: {item.get('name')}"
                rows.append([Cell(node), Cell(name), Cell(size(item.get("size"))), cell(found)])
            for error in sequence(model.get("errors")):
                rows.append([Cell(node), cell(model.get("path")), cell(None), cell(_inline(error))])
    return rows


def _variables(run: Run) -> list[list[Cell]]:
    return [
        [Cell(node), Cell(name), cell(value)]
        for node, record in run.freezes.items()
        for name, value in mapping(mapping(record.get("facts")).get("env")).items()
    ]


def _difference(run: Run) -> Table:
    """Differences of cards, containers and network between the two snapshots of each node."""
    columns = ["Node", "What", "Before", "After"]
    rows: list[list[Cell]] = []
    nodes = list(dict.fromkeys(node for node, _ in run.snapshots))
    for node in nodes:
        before, after = (run.snapshots.get((node, when)) for when in ("before", "after"))
        if not before or not after:
            gone = "after" if before else "before"
            rows.append(
                [Cell(node), Cell(f"no snapshot from {gone} the run"), cell(None), cell(None)]
            )
            continue
        states = [_state(record) for record in (before, after)]
        keys = dict.fromkeys([*states[0], *states[1]])
        changed = [key for key in keys if states[0].get(key) != states[1].get(key)]
        rows += [
            [Cell(node), Cell(key), *(cell(state.get(key)) for state in states)] for key in changed
        ]
        if not changed:
            times = [moment(integer(r.get("taken_ns")), run.zone) for r in (before, after)]
            rows.append([Cell(node), Cell("no difference"), *map(Cell, times)])
    if not nodes:
        rows.append([cell(None), Cell("no snapshots were taken"), cell(None), cell(None)])
    caption = "Cards, containers and network before and after the run"
    return Table(columns, rows, caption=caption)


def _state(record: dict[str, Any]) -> dict[str, str]:
    result: dict[str, str] = {}

    def walk(item: Any, path: tuple[str, ...]) -> None:
        if isinstance(item, dict):
            for key, inner in item.items():
                if key not in _VOLATILE:
                    walk(inner, (*path, str(key)))
        else:
            result[".".join(path)] = _shortened(_inline(item)) if item not in (None, []) else ""

    walk(mapping(record.get("state")), ())
    return result

"""`servemap bench --search`: the load client alone, again and again, until the SLO is missed.

It is what a case of kind `search` does, without telemetry: each probe is one run of the client in a
folder of its own.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError

from servemap.analysis.search import Probe, read_probe, search_figures
from servemap.analysis.table import say_answer
from servemap.model.canon import write_json_atomic
from servemap.model.cases import SearchCase
from servemap.model.check_reachable import check_slo
from servemap.model.curves import arrivals_at, whole_waves
from servemap.model.errors import ConfigError
from servemap.model.search import Probed, bounds_of, next_step, say_level
from servemap.model.wording import say_problems
from servemap.parsers.values import mapping

OPTION = "--search"
_NOT_WITH = ("--concurrency", "--rate", "--spec", "--trace", "--prefix-share")
_WHERE = "servemap bench --search"


def search(argv: Sequence[str], client: Callable[[list[str]], int]) -> int:
    """Run the search; return 0, 1 if no level met the SLO, or what the client ended with.

    Raises:
        ConfigError: options that do not go together, or bounds that are refused.
    """
    options, rest = _parser().parse_known_args(argv)
    for word in rest:
        if word.partition("=")[0] in _NOT_WITH:
            raise ConfigError(
                f"{word.partition('=')[0]} does not go with {OPTION}",
                _WHERE,
                "remove it: each probe is token-id prompts at a level that the search chooses",
            )
    out = Path(options.out)
    if (out / "search.json").exists():
        raise ConfigError(f"{out} holds a finished search", _WHERE, "name another folder")
    case = _case(vars(options))
    bounds, begun = bounds_of(case), time.monotonic()
    probes: list[Probe] = []
    step = next_step(bounds, [], 0.0)
    while step.level is not None:
        name = f"probe-{len(probes) + 1:02d}"
        typer.echo(f"{name}: {say_level(case['over'], step.level)}")
        words = [*rest, *_level(case, step.level, not probes), "--out", str(out / name)]
        code = client(words)
        probe = read_probe(out / name, case, step.level, {}) if code in (0, 1) else None
        if probe is None:
            return code or 1
        probes.append(probe)
        judgement = probe.judgement
        typer.echo(f"result    {': '.join([judgement.outcome, *judgement.reasons])}\n")
        judged = [Probed(one.level, one.judgement.outcome) for one in probes]
        step = next_step(bounds, judged, time.monotonic() - begun)
    found = search_figures(case, {"ended": step.ended}, probes)
    write_json_atomic(out / "search.json", {"schema": 1, **found})
    typer.echo("\n".join(_answers(found)))
    return 0 if found["within_slo"] else 1


def _answers(found: dict[str, Any]) -> list[str]:
    """Return the three answers and how the search ended, a line each."""
    lines = [f"{say_answer(found)} ({found['said']})"]
    for key, words in (
        ("most_succeeded", "most without a failed request, of the levels probed"),
        ("most_throughput", "most throughput, of the levels probed"),
    ):
        answer = mapping(found[key])
        level = "none"
        if answer:
            level = f"{say_level(found['over'], answer['level'])}, {answer['probe']}"
        lines.append(f"{words}: {level}")
    return lines + [f"not monotonic: {one}" for one in found["non_monotonic"]]


def _level(case: dict[str, Any], level: float, first: bool) -> list[str]:
    """Return the client's options for a probe; only the first one is warmed up."""
    warmup = [] if first else ["--warmup", "0"]
    if case["over"] == "rate":
        prompts = arrivals_at(level, case["num_prompts"], case["min_window_s"])
        return ["--rate", repr(level), "--num-prompts", str(prompts), *warmup]
    prompts = whole_waves(case["num_prompts"], int(level))
    window = ["--min-window", repr(case["min_window_s"])]
    return ["--concurrency", str(int(level)), "--num-prompts", str(prompts), *window, *warmup]


def _case(options: dict[str, Any]) -> dict[str, Any]:
    """Return the search that options ask for, checked as a case of a campaign is."""
    given = {name: value for name, value in options.items() if value is not None}
    keys = {"id": "bench", "kind": "search", "isl": 1, "osl": 1, "over": given.pop("search")}
    del given["out"]
    try:
        # Words of a command line are text, also where they are numbers.
        case = SearchCase.model_validate({**keys, **given, "slo": _slo(given["slo"])}, strict=False)
    except ValidationError as error:
        _, line, _ = say_problems(error.errors(), "search.")[0]
        raise ConfigError(_by_option(line), _WHERE, "see servemap bench --search --help") from error
    if case.slo is not None:
        check_slo(case.slo, "search.slo")
    return case.model_dump(mode="json")


def _by_option(line: str) -> str:
    """Return an error of a case with the option in the place of its key."""
    key, _, said = line.partition(": ")
    _, *names = key.split(".")
    if not names:
        return said
    option = {"min_window_s": "min-window", "over": "search"}.get(names[0], names[0])
    return " ".join(["--" + option.replace("_", "-"), *names[1:]]) + f": {said}"


def _slo(text: str) -> dict[str, Any]:
    pairs = [word.partition("=") for word in text.split(",")]
    return {name.strip(): value.strip() for name, _, value in pairs}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="servemap bench --search",
        description="Find the largest concurrency or rate that meets an SLO, by doubling and "
        "bisection. Other options are those of `servemap bench`.",
        allow_abbrev=False,
        argument_default=None,
    )
    add = parser.add_argument
    add(OPTION, nargs="?", const="concurrency", choices=["concurrency", "rate"], help="over what")
    add("--slo", required=True, metavar="NAME=S,...", help="ttft_s, tpot_s, e2e_s, itl_p99_s")
    add("--most", required=True, type=float, metavar="N", help="no level is above it")
    add("--out", required=True, metavar="DIR", help="for probe-NN and search.json")
    add("--start", type=float, metavar="N", help="the first level (1)")
    add("--slo-share", type=float, metavar="S", help="of requests that must meet the SLO (0.99)")
    add("--tolerance", type=float, metavar="T", help="how far above the next miss may lie (0.05)")
    add("--max-probes", type=int, metavar="N", help="most probes (16)")
    add("--max-s", type=float, metavar="S", help="no probe begins after so long (1800)")
    add("--num-prompts", type=int, metavar="N", help="requests of a probe, in whole waves (100)")
    add("--min-window", type=float, metavar="S", dest="min_window_s", help="shortest window (0)")
    return parser

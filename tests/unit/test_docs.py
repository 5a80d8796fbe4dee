"""What the documents name exists: commands, targets, phases, paths, policies and constants."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
import yaml

from servemap.cli import app
from servemap.measure.setup import load_context
from servemap.model.campaign import Campaign
from servemap.model.checks import check

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "profiles/README.md",
    *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")),
]  # fmt: skip
FENCE = re.compile(r"^```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)\)")
# Options that take a value; the words behind them are no targets.
VALUED = {"--cores", "--configfile", "--profile", "--reason", "--quiet"}
# What a user makes, not what the repository holds.
MADE = ("results/", "attempts/", "boots/", "tables/", "report/", "cases/", "server/", "patches/",
        "baselines/", "captures/", "freeze/", "snapshots/", "logs/", "profiles/NAME")  # fmt: skip


PLACEHOLDERS = ("PATH/meta.json", "TARGET", "results/RUN/cases/VARIANT/CASE/r1/meta.json")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def commands(text: str) -> Iterator[list[str]]:
    """Yield every command line in code, comments and continuation lines resolved."""
    blocks = FENCE.findall(text)
    inline = INLINE.findall(FENCE.sub("", text))
    for line in "\n".join([*blocks, *inline]).replace("\\\n", " ").splitlines():
        words = line.removeprefix("$ ").strip()
        if words.startswith(("make ", "snakemake ", "servemap ")):
            yield shlex.split(words, comments=True)


def all_commands(program: str) -> list[tuple[str, list[str]]]:
    found = [(name, words) for name in DOCUMENTS for words in commands(read(name))]
    return [(name, words) for name, words in found if words[0] == program]


def positional(words: list[str]) -> list[str]:
    """Return the words that are neither options nor their values."""
    rest, found = iter(words), []
    for word in rest:
        if word in VALUED:
            next(rest)
        elif not word.startswith("-"):
            found.append(word)
    return found


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", read("Makefile"), re.MULTILINE))


def rule_names() -> set[str]:
    files = [ROOT / "Snakefile", *(ROOT / "workflow/rules").glob("*.smk")]
    return {name for path in files for name in re.findall(r"^rule (\w+):", path.read_text(), re.M)}


def phase_names() -> set[str]:
    config = yaml.safe_load(read("config/config.yaml"))
    return {phase["id"] for phase in config["phases"]}


def cli_options(command: str) -> set[str]:
    group = typer.main.get_command(app)
    known = group.commands[command]  # type: ignore[attr-defined]
    return {name for param in known.params for name in param.opts} | {"--help"}


def passed_on(command: str) -> set[str]:
    """The options of a command that hands its words on to the on-node program of that name."""
    return set(re.findall(r'\(\s*"(--[a-z-]+)",', read(f"src/servemap/onnode/{command}.py")))


PASSED_ON = {"bench": "bench_options", "calibrate": "calibrate", "reference-server": "reference"}


def test_the_documents_show_commands() -> None:
    """The checks below look at something."""
    assert len(all_commands("make")) >= 3
    assert len(all_commands("snakemake")) >= 10
    assert len({words[1] for _, words in all_commands("servemap")}) >= 8


@pytest.mark.parametrize(("document", "words"), all_commands("make"))
def test_make_targets_exist(document: str, words: list[str]) -> None:
    assert set(words[1:]) <= make_targets(), document


@pytest.mark.parametrize(("document", "words"), all_commands("servemap"))
def test_servemap_commands_and_options_exist(document: str, words: list[str]) -> None:
    command, whole = words[1], typer.main.get_command(app)
    if command.startswith("--"):
        assert [command] in [one.opts for one in whole.params], document
        return
    assert command in whole.commands, document  # type: ignore[attr-defined]
    options = {word for word in words[2:] if word.startswith("--")}
    known = cli_options(command)
    if command in PASSED_ON:
        known |= passed_on(PASSED_ON[command])
    for option, module in (("--search", "cli_search"), ("--curve", "cli_curve")):
        if option in options:
            found = re.findall(r'\("(--[a-z-]+)"', read(f"src/servemap/{module}.py"))
            known |= {option, *found}
    assert options <= known, document
    if command == "plan":
        assert set(positional(words[2:])) <= phase_names(), document


@pytest.mark.parametrize(("document", "words"), all_commands("snakemake"))
def test_snakemake_targets_exist(document: str, words: list[str]) -> None:
    for target in positional(words[1:]):
        known = target in rule_names() | phase_names()
        by_path = re.fullmatch(r"results/demo/cases/[\w-]+/([\w-]+)/r\d+/meta\.json", target)
        if by_path:
            cases = {case["id"] for case in yaml.safe_load(read("config/config.yaml"))["cases"]}
            assert by_path[1] in cases, document
        else:
            assert known or target in PLACEHOLDERS, f"{document}: {target}"


@pytest.mark.parametrize(("document", "words"), all_commands("snakemake"))
def test_no_option_swallows_a_target(document: str, words: list[str]) -> None:
    """`--quiet` and `--configfile` take all words that follow, up to the next option."""
    for option in ("--quiet", "--configfile"):
        if option in words:
            following = [*words[words.index(option) + 2 :], "--"][0]
            assert following.startswith("-"), f"{document}: {' '.join(words)}"


def named_paths(text: str) -> set[str]:
    """Return the repository paths in inline code and links."""
    prose = FENCE.sub("", text)
    tops = {path.name for path in ROOT.iterdir()}
    found = set(LINK.findall(prose))
    for code in INLINE.findall(prose):
        is_path = re.fullmatch(r"[\w./-]+", code) and ("/" in code or "." in code)
        if is_path and code.split("/")[0] in tops and not code.startswith(MADE):
            found.add(code)
    return found


@pytest.mark.parametrize("document", DOCUMENTS)
def test_paths_exist(document: str) -> None:
    missing = [path for path in named_paths(read(document)) if not (ROOT / path).exists()]
    assert not missing


def test_the_readme_names_paths() -> None:
    assert {"config/config.yaml", "docs/report.png", "docs/rerun.md"} <= named_paths(
        read("README.md")
    )


@pytest.mark.parametrize("document", ["README.md", "docs/rerun.md"])
def test_policies_exist_with_the_defaults_shown(document: str) -> None:
    policy = Campaign.model_fields["policy"].get_default(call_default_factory=True)
    for name, default in re.findall(r"`policy\.(\w+)`(?: \((\d+)\))?", read(document)):
        assert name in type(policy).model_fields
        if default:
            assert getattr(policy, name) == int(default)


def test_the_examples_of_the_readme_are_campaigns() -> None:
    examples = re.findall(r"^```yaml\n(.*?)^```$", read("README.md"), re.MULTILINE | re.DOTALL)
    attached, started, cluster = map(yaml.safe_load, examples)
    assert Campaign.model_validate(attached).server.attach
    own = load_context({**attached, **started})
    assert not own.server("baseline").attach
    server = {"engine": "llamacpp", **cluster["server"]}
    check(Campaign.model_validate({**attached, **cluster, "server": server}))


def test_the_profile_keys_are_explained() -> None:
    text = read("profiles/README.md")
    for profile in ("default", "cluster"):
        for key in yaml.safe_load(read(f"profiles/{profile}/profile.yaml")):
            assert f"`{key}: " in text, f"profiles/{profile}: {key}"


def test_protocol_numbers_of_the_changelog() -> None:
    source = read("src/servemap/model/protocol.py")
    numbers = {int(number) for number in re.findall(r"^[A-Z]+ = (\d+)$", source, re.MULTILINE)}
    assert numbers == {1}
    assert "Protocol numbers: all 1. Schema: 1." in read("CHANGELOG.md")


def test_the_picture_is_small() -> None:
    assert (ROOT / "docs/report.png").stat().st_size < 300_000

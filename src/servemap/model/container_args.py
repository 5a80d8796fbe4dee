"""The free options of a container, `server.container.args`: what they are and which are refused."""

from collections.abc import Mapping, Sequence

from servemap.model.errors import ConfigError
from servemap.model.server_spec import Container

_OWN = "containers are named, labelled and removed by servemap, which finds and ends them so"
_FOREGROUND = "the container's client stays in the foreground, and its output is the server's log"

REFUSED: Mapping[str, str] = {
    "--name": _OWN,
    "--label": _OWN,
    "-l": _OWN,
    "--label-file": _OWN,
    "--rm": _OWN,
    "--replace": _OWN,
    "--restart": "a server that died must not come back unseen",
    "--detach": _FOREGROUND,
    "-d": _FOREGROUND,
    "--tty": _FOREGROUND,
    "-t": _FOREGROUND,
    "--interactive": _FOREGROUND,
    "-i": _FOREGROUND,
    "--pull": "server.container.pull says whether an image is fetched",
}
_BARE = frozenset(
    {"--privileged", "--init", "--read-only", "--publish-all", "--oom-kill-disable", "--no-hosts",
     "--no-healthcheck", "--quiet", "-P", "-q"}
)  # fmt: skip
"""Options without a value; any other one may take the word that follows it."""
_BARE_LETTERS = frozenset("ditPq")


def option_values(args: Sequence[str]) -> dict[str, list[str]]:
    """Return the options in free arguments and the values of each, as far as they are written.

    `--net=host`, `--net host` and `-v/a:/b` are understood; `-itd` is `-i`, `-t` and `-d`.
    """
    found: dict[str, list[str]] = {}
    last: str | None = None
    for word in args:
        if last is not None and not word.startswith("-"):
            found[last].append(word)
            last = None
            continue
        last = None
        if word.startswith("--"):
            name, given, value = word.partition("=")
            found.setdefault(name, []).extend([value] if given else [])
            last = None if given or name in _BARE else name
        elif word.startswith("-"):
            for at, letter in enumerate(word[1:], start=1):
                found.setdefault(f"-{letter}", [])
                if letter not in _BARE_LETTERS:
                    value = word[at + 1 :].removeprefix("=")
                    found[f"-{letter}"] += [value] if value else []
                    last = None if value else f"-{letter}"
                    break
    return found


def check_container(container: Container, where: str) -> None:
    """Refuse free options that would take the container out of servemap's hands.

    Raises:
        ConfigError: names the option; `where` is the container's key.
    """
    for name in option_values(container.args):
        if name in REFUSED:
            raise ConfigError(
                f"the option {name} cannot be given: {REFUSED[name]}",
                f"{where}.args",
                "remove it",
            )
    follows = False
    for word in container.args:
        if not word.startswith("-") and not follows:
            raise ConfigError(
                f"{word!r} is no option, so the runtime would take it for the image",
                f"{where}.args",
                "write each option and its value as --option=value",
            )
        bare = word in _BARE or not word.startswith("-")
        follows = not bare and "=" not in word
    if container.build is not None and "@" in container.image:
        raise ConfigError(
            f"the image {container.image} is pinned by digest, and it is to be built",
            f"{where}.image",
            "give a name without a digest: the commit is added to it as a tag",
        )

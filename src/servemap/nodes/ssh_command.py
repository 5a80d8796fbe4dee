"""Command lines for a node: quoted here and nowhere else, the same under every login shell.

The login shell sees one fixed line. It holds no character that POSIX shells, csh and fish read
differently, and starts /bin/sh, which takes the real command from the first line of its stdin. So
what is in a command (secrets of the environment too) is on no command line of the shells.
"""

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from servemap.model.errors import NodeError

LAUNCHER = """exec /bin/sh -c 'IFS= read -r servemap_line; eval "$servemap_line"'"""
# `read` takes one line, so newlines in arguments come from a variable.
NEWLINE = r"servemap_nl=$(printf '\nx'); servemap_nl=${servemap_nl%x}; "
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

# A bash that takes itself for the first shell of an ssh session reads ~/.bashrc even for `-c`.
BASE_ENV = {"LC_ALL": "C", "SHLVL": "1"}

# Exit codes of the scripts below.
MISSING, FAILED = 3, 4


def quote(text: str) -> str:
    """Return `text` as one word of a POSIX shell, on one line.

    Raises:
        NodeError: it holds a NUL, which no argument can.
    """
    if "\0" in text:
        raise NodeError(
            "an argument holds a NUL character", repr(text)[:200], "remove the character"
        )
    quoted = text.replace("'", "'\\''").replace("\n", "'\"$servemap_nl\"'")
    return f"'{quoted}'"


@dataclass(frozen=True)
class Script:
    """A line for /bin/sh, and the mark that it writes to stdout and stderr when it begins.

    What a start-up file of the login shell prints comes before the mark, on whatever stream.
    """

    body: str
    mark: str = field(default_factory=lambda: f"servemap-{secrets.token_hex(12)}")

    def line(self) -> bytes:
        """Return what is sent first on stdin; raises NodeError where it is no single line."""
        text = self.body.replace("@MARK@", self.mark)
        if "servemap_nl" in text:
            text = NEWLINE + text
        return f"{text}\n".encode("utf-8", "surrogateescape")


BEGIN = "printf '%s %s\\n' @MARK@ $$; printf '%s\\n' @MARK@ >&2; "


def program(argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> Script:
    """Return the script that becomes a program: same pid, LC_ALL=C, `env` added.

    In place of the pid the mark is followed by `cwd` or `none` where there is no such folder or
    program.
    """
    parts = []
    for name, value in {**BASE_ENV, **env}.items():
        if not NAME.fullmatch(name):
            raise NodeError(
                f"{name!r} is no name of an environment variable", "env", "correct the name"
            )
        parts.append(f"export {name}={quote(value)}; ")
    if cwd is not None:
        parts.append(f"cd -- {quote(cwd)} 2>/dev/null || {{ echo @MARK@ cwd; exit 1; }}; ")
    name = quote(argv[0])
    if "/" in argv[0]:
        parts.append(f"[ -f {name} ] && [ -x {name} ]")
    else:
        parts.append(f"command -v {name} >/dev/null 2>&1")
    parts.append(" || { echo @MARK@ none; exit 1; }; ")
    parts.append(BEGIN + "exec " + " ".join(quote(word) for word in argv))
    return Script("".join(parts))


def _c_locale(body: str) -> Script:
    return Script(f"export LC_ALL=C; {BEGIN}{body}")


def _regular(path: str, then: str) -> Script:
    """Do something with a regular file; MISSING where there is none, FAILED and why otherwise.

    It may appear or vanish between two looks, so what the second says is checked by a third.
    """
    name = quote(path)
    return _c_locale(
        f"if [ -f {name} ]; then {then}; fi; "
        f"if said=$(ls -dL -- {name} 2>&1); then if [ -f {name} ]; then {then}; fi; "
        f'[ -e {name} ] || exit {MISSING}; echo "not a regular file" >&2; exit {FAILED}; fi; '
        f'case $said in *"No such file or directory"*) exit {MISSING};; esac; '
        f'echo "$said" >&2; exit {FAILED}'
    )


def read(path: str) -> Script:
    """Return the script that prints a regular file."""
    return _regular(path, f"exec cat -- {quote(path)}")


def read_from(path: str, offset: int, max_bytes: int) -> Script:
    """Return the script that prints so many bytes of a regular file from a byte on."""
    # A file that cannot be opened ends the shell here: the end of a pipe would hide it.
    then = f"exec < {quote(path)}; tail -c +{offset + 1} | head -c {max_bytes}; exit"
    return _regular(path, then)


def digest(path: str) -> Script:
    """Return the script that prints the sha256 of a regular file, as sha256sum does."""
    return _regular(path, f"exec sha256sum < {quote(path)}")


def write(path: str, size: int, mode: int) -> Script:
    """Return the script that writes `size` bytes of its stdin atomically to a file.

    The size is compared because a connection that breaks looks like the end of the input.
    """
    folder, slash, name = path.rpartition("/")
    folder = folder or slash or "."
    temporary = quote(f"{folder}/.{name}.") + "@MARK@.tmp"
    target = quote(path)
    return _c_locale(
        f"t={temporary}; trap 'rm -f -- \"$t\"' EXIT; trap 'exit {FAILED}' HUP INT TERM PIPE; "
        f'if [ -d {target} ]; then echo "it is a folder" >&2; exit {FAILED}; fi; '
        f'mkdir -p -- {quote(folder)} && cat > "$t" '
        f'&& {{ [ $(wc -c < "$t") -eq {size} ] || {{ echo "it came cut short" >&2; false; }}; }} '
        f'&& chmod {mode:o} "$t" && mv -f -- "$t" {target} && exit 0; exit {FAILED}'
    )


def kill(pid: int) -> Script:
    """Return the script that kills a process that was started here, and its group."""
    return _c_locale(f"kill -KILL -{pid} 2>/dev/null || kill -KILL {pid} 2>/dev/null; exit 0")


def stat(pid: int) -> Script:
    """Return the script that prints the boot id and, below it, /proc/PID/stat if there is one."""
    return _c_locale(f"exec cat /proc/sys/kernel/random/boot_id /proc/{pid}/stat")


def greet() -> Script:
    """Return the script that prints home, XDG_STATE_HOME, user and boot id, a line each."""
    return _c_locale(
        'printf \'%s\\n\' "$HOME" "$XDG_STATE_HOME"; id -un; cat /proc/sys/kernel/random/boot_id'
    )

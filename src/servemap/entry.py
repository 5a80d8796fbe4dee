"""How the command `servemap` is started: errors are said in words, and `trace` starts alone.

Loading all commands takes longer than reading a trace of 200 MB, and as much memory; so `trace` is
loaded without the others.
"""

import sys
from collections.abc import Callable

from servemap.model.errors import ServemapError
from servemap.onnode.any_text import take_any_text
from servemap.scripting import say_os_error


def run(app: Callable[[], object]) -> None:
    """Run a command line; errors are said in words and end with 1."""
    take_any_text()
    try:
        app()
    except ServemapError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: {say_os_error(error)}")


def main() -> None:
    """Run what the command line asks for."""
    if sys.argv[1:2] == ["trace"]:
        from servemap.cli_trace import main as chosen
    else:
        from servemap.cli import main as chosen
    chosen()

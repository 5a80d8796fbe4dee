"""How the command `servemap` is started: errors are said in words, and `trace` starts alone.

Loading all commands takes longer than reading a trace of 200 MB, and as much memory; so `trace` is
loaded without the others.
"""

import sys

from servemap.model.errors import ServemapError
from servemap.onnode.any_text import take_any_text
from servemap.scripting import say_os_error


def main() -> None:
    """Run what the command line asks for; errors are said in words and end with 1."""
    if sys.argv[1:2] == ["trace"]:
        from servemap.cli_trace import alone as app
    else:
        from servemap.cli import app
    take_any_text()
    try:
        app()
    except ServemapError as error:
        sys.exit(f"error: {error}")
    except OSError as error:
        sys.exit(f"error: {say_os_error(error)}")

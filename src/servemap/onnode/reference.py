"""`reference-server`: answers on a known schedule and logs what it really did and when.

With it a load client's error is measured instead of believed. It is no engine, and says so in
every answer: nothing it "produces" is a measurement of a server.
"""

import argparse
import signal
import sys
from typing import Any, Callable, List

from .checked import SpecError, read_json
from .ref_script import parse_script
from .ref_server import Server

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def main(argv: List[str], read: Callable[[str], Any] = read_json) -> int:
    """Run the command; 0 when it was ended by a signal, 2 on refused input, 1 on a taken port."""
    parser = argparse.ArgumentParser(
        prog="servemap reference-server", description=__doc__, allow_abbrev=False
    )
    parser.add_argument("--script", required=True, metavar="FILE", help="what to answer")
    parser.add_argument("--log", required=True, metavar="FILE", help="one JSON line a request")
    parser.add_argument("--port", type=int, default=0, help="a free one, and printed, if 0 (0)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1)")
    options = parser.parse_args(argv)
    try:
        script = parse_script(read(options.script))
    except SpecError as error:
        return _complain(str(error), 2)
    try:
        with open(options.log, "w", encoding="utf-8") as log:
            server = Server(script, (options.host, options.port), log)

            def end(*_: Any) -> None:
                # A second signal must not end the interpreter while it exits in good order.
                for number in SIGNALS:
                    signal.signal(number, signal.SIG_IGN)
                server.end()

            for number in SIGNALS:
                signal.signal(number, end)
            print(
                f"reference server, simulated answers: http://{options.host}:{server.port}",
                flush=True,
            )
            server.run()
    except (OSError, OverflowError) as error:
        return _complain(getattr(error, "strerror", None) or str(error), 1)
    return 0


def _complain(message: str, code: int) -> int:
    print(f"reference-server: {message}", file=sys.stderr)
    return code

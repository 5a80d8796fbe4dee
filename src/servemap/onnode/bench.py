"""`bench`: send the load of a specification, record every request, write the files.

Exit codes: 0 done (some requests may have failed), 1 no request succeeded or the client could not
do its job (client.json's status tells the two apart), 2 refused input, 3 the results could not be
written.
"""

import os
import sys
from typing import List, Optional

from .bench_options import option_parser, read_options
from .bench_words import BENCH, by_option
from .checked import SpecError
from .load_output import WriteError, write_json
from .load_prompts import parse_target
from .load_run import Run
from .load_summary import say_no_success, summary_lines, trace_line, vocab_hint


def main(argv: List[str]) -> int:
    """Run the command; returns its exit code."""
    options = vars(option_parser().parse_args(argv))
    out = options.pop("out")
    names = {} if "spec" in options else BENCH
    try:
        own_vocab = "vocab" in options or "spec" in options
        spec, own = read_options(options)
        target = parse_target(spec.url, spec.endpoint)
        api_key = _api_key(spec.api_key_env)
        _new_folder(out)
        if own is not None:
            write_json(out, "load.json", own)
        run = Run(spec, target, api_key, out)
        run.execute()
    except SpecError as error:
        return _complain(str(by_option(error, names)), 2)
    except WriteError as error:
        return _complain(f"results not written: {error}", 3)
    try:
        lines = [] if own is None else trace_line(own)
        lines += summary_lines(run.found, run.errors, run.client, run.lags_s)
        print("\n".join(lines), flush=True)
    except BrokenPipeError:
        # Nobody reads the summary any more; keep the interpreter from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if run.client["status"] != "ok":
        return _complain("; ".join(run.client["reasons"]), 1)
    if not run.client["counts"]["ok"]:
        hint = "" if own_vocab else vocab_hint(run.errors)
        return _complain(say_no_success(run.errors) + hint, 1)
    return 0


def _complain(message: str, code: int) -> int:
    print(f"bench: {message}", file=sys.stderr)
    return code


def _api_key(name: Optional[str]) -> Optional[str]:
    if name is None:
        return None
    value = os.environ.get(name, "")
    if not value or not value.isascii() or not value.isprintable():
        raise SpecError(f"api_key_env: {name} is not set to a token in this environment; export it")
    return value


def _new_folder(out: str) -> None:
    try:
        os.makedirs(out, exist_ok=True)
    except OSError as error:
        raise WriteError(f"{out}: {error.strerror}") from error
    if os.path.exists(os.path.join(out, "client.json")):
        raise SpecError(f"--out: {out} holds a finished run; name another folder")

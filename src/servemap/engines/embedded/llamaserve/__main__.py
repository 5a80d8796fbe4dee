"""Start llama.cpp's HTTP server and wait for SIGTERM or SIGINT.

Two lines of the log are for programs: `llamaserve: starting {...}` before the model is loaded and
`llamaserve: ready {...}` once the server listens. A failed start ends with one line
`llamaserve: error: ...` and exit code 1. After a stop by signal the exit code is 0; while the
model is being loaded a signal ends the process at once, as the signal's default action does.
"""

import argparse
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

import xllamacpp

from . import ranks, settings
from .say import StartError, log


def parse(argv: list[str]) -> argparse.Namespace:
    """Return the command line's values; a wrong one ends the process with code 2."""
    parser = argparse.ArgumentParser(prog="llamaserve", description=__doc__, allow_abbrev=False)
    parser.add_argument("--model", required=True, help="GGUF file")
    parser.add_argument("--alias", required=True, help="name that the server answers to")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True, choices=range(1, 65536), metavar="PORT")
    parser.add_argument(
        "--context", type=int, required=True, help="tokens in the KV cache, shared by all requests"
    )
    parser.add_argument("--max-active", type=int, default=8, help="requests decoded together")
    parser.add_argument("--n-threads", type=int, default=1)
    parser.add_argument("--n-batch", type=int, default=512, help="tokens of one scheduler step")
    parser.add_argument("--prefix-cache", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--rank", type=int, default=0, help="this process among --ranks")
    parser.add_argument("--ranks", type=int, default=1, help="processes that must join first")
    parser.add_argument("--master", default="", help="HOST:PORT at which rank 0 is joined")
    return parser.parse_args(argv)


def parameters(args: argparse.Namespace) -> xllamacpp.CommonParams:
    """Return llama.cpp's parameters for a command line and the settings."""
    params = xllamacpp.CommonParams()
    params.model.path = args.model
    params.model_alias = {args.alias}
    params.hostnames = [args.host]
    params.port = args.port
    params.n_ctx = args.context
    params.n_parallel = args.max_active
    params.n_batch = args.n_batch
    params.cpuparams.n_threads = args.n_threads
    params.cache_prompt = args.prefix_cache
    params.n_ubatch = settings.N_UBATCH
    params.cache_ram_mib = settings.CACHE_RAM_MIB
    params.slot_prompt_similarity = settings.SLOT_PROMPT_SIMILARITY
    # One KV cache for all requests: any of them may be as long as the model allows.
    params.kv_unified = True
    # Fitting would shrink the context without a word to the client.
    params.fit_params = False
    params.warmup = False
    params.ui = False
    params.endpoint_metrics = True
    params.endpoint_slots = True
    return params


def effective(params: xllamacpp.CommonParams) -> dict[str, Any]:
    """Return the settings as llama.cpp holds them, for the log."""
    return {
        "model": params.model.path,
        "alias": sorted(params.model_alias),
        "host": params.hostnames[0],
        "port": params.port,
        "context": params.n_ctx,
        "max_active": params.n_parallel,
        "n_batch": params.n_batch,
        "n_ubatch": params.n_ubatch,
        "n_threads": params.cpuparams.n_threads,
        "prefix_cache": params.cache_prompt,
        "cache_ram_mib": params.cache_ram_mib,
        "slot_prompt_similarity": round(params.slot_prompt_similarity, 6),
        "kv_unified": params.kv_unified,
    }


def module_path(file: Path) -> str:
    """Return this file's path: links resolved up to the folder that Python found the package in.

    The package itself may be a link that a patch made; that it lies in the right folder counts.
    """
    return str(file.parent.parent.resolve() / file.parent.name / file.name)


def check(args: argparse.Namespace) -> None:
    """Refuse what llama.cpp would only report in the middle of its own lines."""
    model = Path(args.model).absolute()
    try:
        model.open("rb").close()
    except OSError as error:
        raise StartError(f"cannot read model file {model}: {error.strerror}") from error
    family = socket.AF_INET6 if ":" in args.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((args.host, args.port))
        except OSError as error:
            raise StartError(
                f"cannot listen on {args.host} port {args.port}: {error.strerror}"
            ) from error


def say_start(params: xllamacpp.CommonParams) -> None:
    """Log what this rank is and what it was told."""
    facts = {
        "pid": os.getpid(),
        "module": module_path(Path(__file__).absolute()),
        "python": sys.version.split()[0],
        "xllamacpp": xllamacpp.__version__,
        "settings": effective(params),
    }
    log(f"starting {json.dumps(facts, sort_keys=True)}")


def start(args: argparse.Namespace) -> xllamacpp.Server:
    """Load the model and listen."""
    params = parameters(args)
    say_start(params)
    check(args)
    if args.ranks > 1:
        ranks.gather(args.master, args.ranks)
    began = time.monotonic()
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:
        # llama.cpp writes its log from a thread: let its reasons come before ours.
        time.sleep(0.3)
        model = Path(args.model).absolute()
        raise StartError(
            f"llama.cpp could not start with model file {model} ({model.stat().st_size} bytes) "
            f"and context {args.context}; its own lines above say why"
        ) from error
    ready = {"url": server.listening_address, "load_s": round(time.monotonic() - began, 3)}
    log(f"ready {json.dumps(ready, sort_keys=True)}")
    return server


def wait_for_signal() -> str:
    """Return the name of the first SIGTERM or SIGINT.

    A pipe, because the signal may be delivered to a thread of llama.cpp, which does not wake
    a main thread that waits for a lock or in `signal.pause`.
    """
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    return signal.Signals(os.read(reading, 1)[0]).name


def main(argv: list[str]) -> int:
    """Run the server until it is told to stop; return the exit code."""
    args = parse(argv)
    # The interpreter is not running while llama.cpp loads: only the default action works then.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        if args.rank > 0:
            say_start(parameters(args))
            return ranks.follow(args.master, args.rank)
        server = start(args)
    except StartError as error:
        log(f"error: {error}")
        return 1
    log(f"stopped by {wait_for_signal()} at {server.listening_address}")
    # Closing the server would wait for its running requests; there is no state to save.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

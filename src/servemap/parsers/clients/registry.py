"""Which parser reads the result files of which client."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from servemap.model.errors import ParseError
from servemap.model.files import read_bytes
from servemap.parsers.clients import aiperf, sglang_bench, vllm_bench
from servemap.parsers.clients.records import REMEDY, ClientRun


class Parser(NamedTuple):
    """The names of a client's result files, and what reads them."""

    files: tuple[str, ...]
    parse: Callable[[Mapping[str, bytes]], ClientRun]


PARSERS = {
    "vllm-bench": Parser(vllm_bench.FILES, vllm_bench.parse),
    "sglang-bench": Parser(sglang_bench.FILES, sglang_bench.parse),
    "aiperf": Parser(aiperf.FILES, aiperf.parse),
}


def read_run(name: str, folder: Path) -> ClientRun:
    """Return what a client left in its folder.

    Raises:
        ParseError: nobody reads files of that client, or they are missing or damaged.
    """
    parser = PARSERS.get(name)
    if parser is None:
        raise ParseError(f"no parser reads the files of {name!r}", str(folder), REMEDY)
    files = {}
    for file in parser.files:
        try:
            files[file] = read_bytes(folder / file)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ParseError(
                f"{file} cannot be read: {error.strerror}", str(folder / file), REMEDY
            ) from error
    return parser.parse(files)

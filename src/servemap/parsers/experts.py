"""SGLang's expert distribution recorder: how many tokens each expert of each layer got.

`/dump_expert_distribution_record` writes `expert_distribution_recorder_*.pt` with `torch.save`
(`sglang/srt/eplb/expert_distribution.py`). With `--expert-distribution-recorder-mode stat` it is
`logical_count`, summed over ranks, of shape (passes, layers, experts); with `per_pass` one file a
rank with `records`, each with `global_physical_count` of shape (layers, physical experts), and the
map from physical to logical experts. `per_token` records hold the choices themselves.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from servemap.model.errors import ParseError
from servemap.parsers.torch_file import read_torch_file

_MOST_EXPERTS = 1 << 16

Counts = NDArray[np.int64]


def expert_counts(paths: Sequence[Path]) -> Counts:
    """Return the tokens of each expert, shape (layers, experts), of all files together.

    Raises:
        OSError: a file cannot be read.
        ParseError: a file is no such record, or the files are not of one model.
    """
    whole: Counts | None = None
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise _refused("it was named twice, so its tokens would count twice", path)
        seen.add(path.resolve())
        counts = _of_file(read_torch_file(path), path)
        if whole is not None and whole.shape != counts.shape:
            raise _refused(
                f"it has {counts.shape} layers and experts, another file {whole.shape}", path
            )
        whole = counts if whole is None else whole + counts
    if whole is None:
        raise ValueError("no file was named")
    return whole


def _of_file(found: Any, path: Path) -> Counts:
    if isinstance(found, dict) and isinstance(found.get("logical_count"), np.ndarray):
        counts = _checked(found["logical_count"], 3, path)
        found_counts: Counts = counts.sum(axis=0, dtype=np.int64)
        return found_counts
    if isinstance(found, dict) and isinstance(found.get("records"), list):
        return _of_records(found["records"], found.get("last_physical_to_logical_map"), path)
    raise _refused("it holds neither logical_count nor records", path)


def _of_records(records: list[Any], logical: Any, path: Path) -> Counts:
    passes = [
        _checked(one["global_physical_count"], 2, path)
        for one in records
        if isinstance(one, dict) and isinstance(one.get("global_physical_count"), np.ndarray)
    ]
    if not passes:
        raise _refused("its records hold no counts; record with the mode stat or per_pass", path)
    if not isinstance(logical, np.ndarray):
        raise _refused("it does not say which expert each place holds", path)
    where = _checked(logical, 2, path)
    if int(where.max(initial=0)) > _MOST_EXPERTS:
        raise _refused("its map names impossible experts", path)
    whole = np.zeros((where.shape[0], int(where.max(initial=-1)) + 1), np.int64)
    for counts in passes:
        if counts.shape != where.shape:
            raise _refused("its counts and its map of experts have different shapes", path)
        np.add.at(whole, (np.arange(len(where))[:, None], where), counts)
    return whole


def _checked(numbers: NDArray[Any], dimensions: int, path: Path) -> NDArray[Any]:
    if numbers.ndim != dimensions or numbers.dtype.kind not in "iu":
        raise _refused(f"its numbers are no whole ones in {dimensions} dimensions", path)
    if not numbers.size:
        raise _refused("it holds no counts", path)
    if int(numbers.min()) < 0 or int(numbers.max()) >= 1 << 48:
        raise _refused("its counts are negative or impossible", path)
    return numbers


def _refused(why: str, path: Path) -> ParseError:
    return ParseError(
        f"the file is no record of experts: {why}",
        str(path),
        "name what SGLang's /dump_expert_distribution_record wrote, mode stat or per_pass",
    )

"""Arrow arrays from Python values through their buffers.

`pyarrow.array` imports pandas whenever it is installed, which would cost every derive job more
than its work; layouts as in the Arrow columnar format, validity bitmaps LSB first.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def column(values: Sequence[Any], kind: Any) -> Any:
    """Return an Arrow array of `kind` (int64, float64, bool, string, or a list of one of them).

    None is null. Lists are sequences or numpy arrays and are never null.
    """
    if pa.types.is_list(kind):
        lengths = np.fromiter((len(v) for v in values), np.int64, len(values))
        if lengths.size and isinstance(values[0], np.ndarray):
            inner = column(np.concatenate(values), kind.value_type)  # type: ignore[arg-type]
        else:
            inner = column([item for value in values for item in value], kind.value_type)
        buffers = [None, _buffer(_offsets(lengths))]
        return pa.Array.from_buffers(kind, len(values), buffers, children=[inner])
    if isinstance(values, np.ndarray):
        return pa.Array.from_buffers(kind, len(values), [None, _data(values, kind)])
    present = np.fromiter((v is not None for v in values), np.bool_, len(values))
    validity = None if present.all() else _bits(present)
    if pa.types.is_string(kind):
        encoded = [b"" if v is None else v.encode("utf-8", "replace") for v in values]
        lengths = np.fromiter((len(v) for v in encoded), np.int64, len(encoded))
        text = [validity, _buffer(_offsets(lengths)), pa.py_buffer(b"".join(encoded))]
        return pa.Array.from_buffers(kind, len(values), text)
    filled = np.array([0 if v is None else v for v in values], kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, len(values), [validity, _data(filled, kind)])


def _data(values: NDArray[Any], kind: Any) -> Any:
    if pa.types.is_boolean(kind):
        return _bits(values.astype(np.bool_))
    return _buffer(values.astype(kind.to_pandas_dtype(), copy=False))


def _offsets(lengths: NDArray[np.int64]) -> NDArray[np.int32]:
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise ValueError("a column holds more than 2^31 values")
    return offsets.astype(np.int32)


def _bits(values: NDArray[np.bool_]) -> Any:
    return _buffer(np.packbits(values, bitorder="little"))


def _buffer(values: NDArray[Any]) -> Any:
    return pa.py_buffer(np.ascontiguousarray(values))

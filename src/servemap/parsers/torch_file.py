"""Files of `torch.save` read as data: numbers, texts, lists, dictionaries and dense tensors.

The format is a zip file with `NAME/data.pkl`, a pickle, and `NAME/data/KEY`, the bytes of each
storage (`torch/serialization.py`). A pickle is a program; it is never run here. Its instructions
are walked with `pickletools`, and only those that such data need are followed. Names in it are
compared with a few that are known and are never looked up.
"""

import lzma
import pickletools
import struct
import zipfile
import zlib
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from servemap.model.errors import ParseError
from servemap.model.files import regular

_LARGEST_PROGRAM = 32 << 20
_LARGEST_STORAGE = 1 << 30

_STORAGES: dict[str, type[np.generic]] = {
    "IntStorage": np.int32,
    "LongStorage": np.int64,
    "ShortStorage": np.int16,
    "CharStorage": np.int8,
    "ByteStorage": np.uint8,
    "BoolStorage": np.bool_,
    "FloatStorage": np.float32,
    "DoubleStorage": np.float64,
    "HalfStorage": np.float16,
}


class _Name(NamedTuple):
    """What a pickle names to be called."""

    text: str


class _Damaged(Exception):
    """The file is none of these; the text says why."""


_UNREADABLE = (
    _Damaged, zipfile.BadZipFile, zlib.error, ValueError, LookupError, TypeError, AttributeError,
    RuntimeError, EOFError, OverflowError, MemoryError, OSError, lzma.LZMAError, struct.error,
)  # fmt: skip
"""What the libraries raise on damaged input."""


def read_torch_file(path: Path) -> Any:
    """Return what a file holds; tensors become numpy arrays.

    Raises:
        OSError: the file cannot be read.
        ParseError: it is no such file, is damaged, or holds something else than plain data.
    """
    with open(path, "rb", opener=regular) as file:
        try:
            return _read(file)
        except _UNREADABLE as error:
            said = str(error) if isinstance(error, _Damaged) else f"damaged ({error})"
            raise ParseError(
                f"the file cannot be read as plain data of torch.save: {said}",
                str(path),
                "name a file that SGLang's expert distribution recorder wrote",
            ) from error


def _read(file: IO[bytes]) -> Any:
    with zipfile.ZipFile(file) as archive:
        programs = [one for one in archive.namelist() if one.endswith("/data.pkl")]
        if len(programs) != 1:
            raise _Damaged("it has no data.pkl")
        folder = programs[0].removesuffix("data.pkl")
        orders = {one for one in archive.namelist() if one == f"{folder}byteorder"}
        if orders and _member(archive, f"{folder}byteorder", 100).strip() != b"little":
            raise _Damaged("its bytes are in big-endian order")

        def storage(key: str, kind: type[np.generic]) -> NDArray[Any]:
            return np.frombuffer(_member(archive, f"{folder}data/{key}", _LARGEST_STORAGE), kind)

        return _Walk(storage).run(_member(archive, programs[0], _LARGEST_PROGRAM))


def _member(archive: zipfile.ZipFile, name: str, largest: int) -> bytes:
    if archive.getinfo(name).file_size > largest:
        raise _Damaged(f"{name} is larger than {largest} bytes")
    return archive.read(name)


class _Walk:
    """The stack and the memory of one pickle."""

    def __init__(self, storage: Callable[[str, type[np.generic]], NDArray[Any]]) -> None:
        self._storage = storage
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memory: dict[int, Any] = {}

    def run(self, program: bytes) -> Any:
        for opcode, argument, _ in pickletools.genops(program):
            name = opcode.name
            if name == "STOP":
                return self._stack.pop()
            self._step(name, argument)
        raise _Damaged("its pickle does not end")

    def _step(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in ("PROTO", "FRAME"):
            return
        if name in ("BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1",
                    "BINFLOAT"):  # fmt: skip
            stack.append(argument)
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name]())
        elif name == "MARK":
            self._marks.append(len(stack))
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memory[argument] = stack[-1]
        elif name == "MEMOIZE":
            self._memory[len(self._memory)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self._memory[argument])
        elif name == "GLOBAL":
            stack.append(_Name(argument))
        elif name == "TUPLE":
            stack.append(tuple(self._marked()))
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            stack.append(tuple(self._last(int(name[-1]))))
        elif name in ("APPEND", "APPENDS"):
            items = self._last(1) if name == "APPEND" else self._marked()
            self._top(list).extend(items)
        elif name in ("SETITEM", "SETITEMS"):
            pairs = self._last(2) if name == "SETITEM" else self._marked()
            self._top(dict).update(zip(pairs[::2], pairs[1::2], strict=True))
        elif name == "BINPERSID":
            stack.append(self._of_storage(stack.pop()))
        elif name == "REDUCE":
            arguments = stack.pop()
            stack.append(_called(stack.pop(), arguments))
        else:
            raise _Damaged(f"its pickle does more than hold data ({name})")

    def _last(self, count: int) -> list[Any]:
        if len(self._stack) < count:
            raise _Damaged("its pickle takes more than it has")
        items = self._stack[-count:]
        del self._stack[-count:]
        return items

    def _marked(self) -> list[Any]:
        begin = self._marks.pop()
        items = self._stack[begin:]
        del self._stack[begin:]
        return items

    def _top(self, kind: type) -> Any:
        if not isinstance(self._stack[-1], kind):
            raise _Damaged("its pickle fills what is no list or dictionary")
        return self._stack[-1]

    def _of_storage(self, said: Any) -> NDArray[Any]:
        match said:
            case ("storage", _Name(text), str(key), str(), int()):
                module, _, name = text.partition(" ")
                if module == "torch" and name in _STORAGES:
                    return self._storage(key, _STORAGES[name])
                raise _Damaged(f"it holds numbers of an unknown kind ({text})")
        raise _Damaged("it refers to something else than a storage")


_CONSTANTS: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
}


def _called(what: Any, arguments: Any) -> Any:
    match what, arguments:
        case _Name("collections OrderedDict"), ():
            return {}
        case _Name("torch._utils _rebuild_tensor_v2"), (np.ndarray() as numbers, int(first), *rest):
            return _tensor(numbers, first, rest)
    raise _Damaged(f"it asks to call {what.text if isinstance(what, _Name) else 'something'}")


def _tensor(numbers: NDArray[Any], first: int, rest: list[Any]) -> NDArray[Any]:
    """Return a dense tensor: `rest` begins with its shape and its strides, in elements."""
    shape, strides = rest[0], rest[1]
    whole = all(isinstance(one, int) and one >= 0 for one in (first, *shape, *strides))
    if not whole or len(shape) != len(strides):
        raise _Damaged("a tensor has an impossible shape")
    if prod(shape):
        last = first + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        if last >= len(numbers) or prod(shape) > len(numbers):
            raise _Damaged("a tensor is larger than its storage")
    steps = [stride * numbers.itemsize for stride in strides]
    return np.lib.stride_tricks.as_strided(numbers[first:], shape, steps, writeable=False)

"""Bytes of a file that may be plain, gzip or zstd, in pieces, as far as they can be had."""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from servemap.model.files import regular

PIECE_BYTES = 1 << 19
"""Bytes of plain text that are looked at together."""

_READ_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"


class TextPieces:
    """An iterator over plain bytes; `lost` says afterwards why the end is missing, or is empty.

    What was compressed is unpacked at most `PIECE_BYTES` at a time, so that a small file which
    unpacks to a huge one costs no memory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lost = ""
        self.bytes_read = 0

    def __iter__(self) -> Iterator[bytes]:
        with open(self.path, "rb", opener=regular) as file:
            magic = file.read(4)
            file.seek(0)
            if magic[:2] == _GZIP:
                pieces = self._gzip(file)
            elif magic == _ZSTD:
                pieces = self._zstd(file)
            else:
                pieces = iter(lambda: file.read(PIECE_BYTES), b"")
            for piece in pieces:
                self.bytes_read += len(piece)
                yield piece

    def _gzip(self, file: IO[bytes]) -> Iterator[bytes]:
        """Members one after another, as gzip(1) reads them; RFC 1952."""
        unpack = zlib.decompressobj(31)
        packed = file.read(_READ_BYTES)
        while packed:
            try:
                piece = unpack.decompress(packed, PIECE_BYTES)
            except zlib.error as error:
                self.lost = f"the gzip data are damaged ({error})"
                return
            if piece:
                yield piece
            packed = unpack.unconsumed_tail or unpack.unused_data
            if unpack.eof:
                packed = packed.lstrip(b"\0") or file.read(_READ_BYTES)
                if packed:
                    unpack = zlib.decompressobj(31)
            elif not packed:
                packed = file.read(_READ_BYTES)
        if not unpack.eof:
            self.lost = "the gzip data end early"

    def _zstd(self, file: IO[bytes]) -> Iterator[bytes]:
        # Loaded here, since it takes 30 MB and most traces are of another kind.
        import pyarrow as pa

        with pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "zstd") as plain:
            part = b"start"
            while part:
                parts: list[bytes] = []
                try:
                    # Small reads: of one that fails, nothing is had.
                    while sum(len(one) for one in parts) < PIECE_BYTES and (
                        part := plain.read(1 << 16)
                    ):
                        parts.append(part)
                except OSError as error:
                    self.lost = f"the zstd data are damaged or end early ({error})"
                    part = b""
                if piece := b"".join(parts):
                    yield piece

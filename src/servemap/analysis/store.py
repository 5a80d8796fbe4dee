"""requests.parquet, and what all derived tables share: writing whole files, reading them back."""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from servemap.analysis.columns import column
from servemap.analysis.requests import Request
from servemap.model.files import regular

SCHEMA = 1
_FOOTER = b"servemap"
_ROWS = 4096

REQUESTS = pa.schema(
    [
        ("id", pa.string()),
        ("stream", pa.string()),
        ("segment", pa.string()),
        ("scheduled_ns", pa.int64()),
        ("sent_ns", pa.int64()),
        ("first_ns", pa.int64()),
        ("first_text_ns", pa.int64()),
        ("last_ns", pa.int64()),
        ("status", pa.string()),
        ("error", pa.string()),
        ("http_status", pa.int64()),
        ("attempts", pa.int64()),
        ("input_planned", pa.int64()),
        ("output_planned", pa.int64()),
        ("input_tokens", pa.int64()),
        ("output_tokens", pa.int64()),
        ("cached_tokens", pa.int64()),
        ("reasoning_tokens", pa.int64()),
        ("partial_output_tokens", pa.int64()),
        ("ttft_s", pa.float64()),
        ("tpot_s", pa.float64()),
        ("e2e_s", pa.float64()),
        ("req_output_tps", pa.float64()),
        ("itl_s", pa.list_(pa.float64())),
        ("chunk_gap_s", pa.list_(pa.float64())),
        ("chunk_tokens", pa.list_(pa.int64())),
        ("itl_overlaps_injection", pa.list_(pa.bool_())),
        ("flags", pa.list_(pa.string())),
    ]
)


def write_requests(path: Path, rows: Sequence[Request], attempt: int | None) -> None:
    """Write requests.parquet, one row a request.

    It is made in parts: a table of all would hold every token's time a second time.
    """
    parts = [rows[at : at + _ROWS] for at in range(0, len(rows), _ROWS)] or [rows]
    write_tables(path, REQUESTS, (_table(part, REQUESTS) for part in parts), attempt)


def _table(rows: Sequence[tuple[Any, ...]], schema: Any) -> Any:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [column(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def write_tables(path: Path, schema: Any, tables: Iterable[Any], attempt: int | None) -> None:
    """Write tables whole or not at all, with schema number and attempt in the file's footer."""
    footer = json.dumps({"schema": SCHEMA, "attempt": attempt}).encode()
    marked = schema.with_metadata({_FOOTER: footer})
    # Times of millions of tokens do not repeat: a dictionary of them only costs time.
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with pq.ParquetWriter(temporary, marked, use_dictionary=texts) as writer:
            for table in tables:
                writer.write_table(table.replace_schema_metadata(marked.metadata))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_table(path: Path, attempt: int | None, columns: Sequence[str] | None = None) -> Any | None:
    """Return a derived table, or None where it is missing, damaged or of another attempt.

    Of requests.parquet a reader names the columns: those of single tokens may be a gigabyte.
    """
    try:
        with open(path, "rb", opener=regular) as handle, pq.ParquetFile(handle) as file:
            return file.read(columns=columns) if is_of(file, attempt) else None
    except (OSError, ValueError, pa.ArrowException):
        return None


def table_trouble(path: Path, attempt: int | None) -> str | None:
    """Return why a derived table cannot be read; None where its schema and its end are there."""
    try:
        with open(path, "rb", opener=regular) as handle, pq.ParquetFile(handle) as file:
            return None if is_of(file, attempt) else "is of another attempt or version"
    except FileNotFoundError:
        return "is missing"
    except (OSError, ValueError, pa.ArrowException) as error:
        return f"is damaged, and its figures are left out: {error}"


def is_of(file: Any, attempt: int | None) -> bool:
    """Say whether an open parquet file has this schema and is of this attempt; may raise as it."""
    footer = json.loads((file.schema_arrow.metadata or {}).get(_FOOTER, b"{}"))
    return bool(footer == {"schema": SCHEMA, "attempt": attempt})

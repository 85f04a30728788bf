"""Tables as Parquet files, by pyarrow: the format's own implementation, and large, so it is an extra."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import util
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kbslurm.domain.archive import Kind
from kbslurm.errors import Invalid

AT_ONCE = 2_000  # rows that are held until they are written together


def is_there() -> bool:
    """Whether pyarrow is installed."""
    return util.find_spec("pyarrow") is not None


def check() -> None:
    """Invalid if it isn't."""
    if not is_there():
        raise Invalid("Parquet needs pyarrow, which isn't installed", hint="Run: pip install 'kbslurm[parquet]'")


class ParquetFile:
    """A Parquet file while rows are added; leaving the block completes it. Columns of kind `json` are text."""

    def __init__(self, file: Path, columns: Mapping[str, Kind]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds: Mapping[Kind, Any] = {
            "int": pa.int64(),
            "float": pa.float64(),
            "bool": pa.bool_(),
            "text": pa.string(),
            "json": pa.string(),
            "ints": pa.list_(pa.int64()),
            "floats": pa.list_(pa.float64()),
        }
        self._pa, self._columns = pa, columns
        self._schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")
        self._held: list[dict[str, Any]] = []

    def add(self, row: Mapping[str, Any]) -> None:
        """One more row."""
        self._held.append({name: _cell(row[name], kind) for name, kind in self._columns.items()})
        if len(self._held) >= AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if self._held:
            self._writer.write_table(self._pa.Table.from_pylist(self._held, schema=self._schema))
            self._held.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
        self._writer.close()


def _cell(value: Any, kind: Kind) -> Any:
    if value is None:
        return None
    return json.dumps(value, sort_keys=True) if kind == "json" else value

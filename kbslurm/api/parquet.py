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
_sorted = json.JSONEncoder(sort_keys=True).encode


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
        self._pa = pa
        self._schema = pa.schema([(name, kinds[kind]) for name, kind in columns.items()])
        self._writer = pq.ParquetWriter(file, self._schema, compression="zstd")
        self._rows = 0
        self._held: dict[str, list[Any]] = {name: [] for name in columns}
        self._json = frozenset(name for name, kind in columns.items() if kind == "json")

    def add(self, row: Mapping[str, Any]) -> None:
        """One more row."""
        for name, cells in self._held.items():
            value = row[name]
            if name in self._json and value is not None:
                value = _sorted(value)
            cells.append(value)
        self._rows += 1
        if self._rows >= AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if self._rows:
            arrays = [self._pa.array(self._held[one.name], type=one.type) for one in self._schema]
            self._writer.write_table(self._pa.Table.from_arrays(arrays, schema=self._schema))
            self._rows = 0
            for cells in self._held.values():
                cells.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._flush()
        self._writer.close()

"""A problem from its files, ready to be sent: the files that it consists of, also those beside its directory."""

from __future__ import annotations

import os
import zipfile
from functools import cached_property
from io import BytesIO
from pathlib import Path

from kbslurm.domain.problem import Problem
from kbslurm.problems import folder, loading

FILE_NAME = "problem.zip"


class Packed:
    """The problem at a path, loaded, or Invalid; packed once somebody asks for its bytes."""

    def __init__(
        self, path: Path, problem: Problem | None = None, *, root: Path | None = None, name: str | None = None
    ):
        self._path, self._root = path, root
        self.problem = problem or loading.load(path, root=root, name=name)

    @property
    def name(self) -> str:
        return self.problem.name

    @property
    def file_name(self) -> str:
        return FILE_NAME

    @property
    def entry(self) -> str:
        """The path within the pack that is loaded."""
        return self._files[0].relative_to(self._top).as_posix()

    @property
    def data(self) -> bytes:
        """A zip of its files, always with the same bytes."""
        packed = BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as file:
            for place in self._files:
                row = zipfile.ZipInfo(place.relative_to(self._top).as_posix())
                row.compress_type, row.external_attr = zipfile.ZIP_DEFLATED, 0o100644 << 16
                file.writestr(row, self._contents[place])
        return packed.getvalue()

    @cached_property
    def _contents(self) -> dict[Path, bytes]:
        """Every file that loading reads; first the one that describes the problem."""
        place = self._path.resolve()
        if place.is_dir():
            place = next(place / known for known in folder.TASK_FILES if (place / known).is_file())
        with folder.recorded() as seen:
            loading.load(place, root=self._root, name=self.name)
        return {place: place.read_bytes(), **seen}

    @property
    def _files(self) -> list[Path]:
        return list(self._contents)

    @cached_property
    def _top(self) -> Path:
        return Path(os.path.commonpath([place.parent for place in self._files]))

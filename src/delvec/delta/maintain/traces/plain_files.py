"""Files of any version as a set that a scan reads: whole, with no vector and no statistics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from delvec.delta.log.file_set import FileSet
from delvec.delta.log.json_actions import adds_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delvec.delta.log.action_columns import Kind
    from delvec.delta.log.file_set import DataFile
    from delvec.delta.schema.metadata import Metadata

__all__ = ["plain_files"]


def plain_files(metadata: Metadata, root: str, files: Sequence[DataFile]) -> FileSet:
    """Return files as those of a definition of the table; all their rows are live.

    Args:
        metadata: The definition.
        root: The table.
        files: The files; vectors are ignored.
    """
    names = [field.physical_name for field in metadata.partition_fields]
    rows = [
        {
            "path": file.path,
            "size": file.size,
            "modificationTime": file.modification_time,
            "partitionValues": {name: file.partition_values.get(name) for name in names},
        }
        for file in files
    ]
    table = pa.Table.from_pylist(rows, adds_schema(names)).combine_chunks()
    return FileSet(
        metadata,
        root,
        pa.array([file.path for file in files], pa.string()),
        table.drop_columns(["path"]),
        (_NoStatistics(),),
        np.zeros(len(files), dtype=np.int32),
        np.arange(len(files), dtype=np.int64),
    )


@dataclass
class _NoStatistics:
    def json_statistics(self) -> pa.Array | None:
        return None

    def parsed_statistics(self, *path: str) -> pa.Array | None:  # noqa: ARG002
        return None

    def actions(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        raise AssertionError(f"the files {rows} have no entries in the log")

    def pieces(
        self, kind: Kind, partition_names: Sequence[str], more: Sequence[str] = ()
    ) -> Iterator[pa.StructArray]:
        raise AssertionError(f"no {kind} of {partition_names} {more} is written of them")

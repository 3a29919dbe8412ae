"""Files that a vacuum may delete: no hidden names, and no files of other tables inside the table.

The latter delta-spark deletes.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.segment import LOG
from delvec.delta.schema.hidden_names import CHANGES

if TYPE_CHECKING:
    from delvec.storage import Storage

__all__ = ["FILES", "Candidates", "folds_names", "kind_of", "table_of"]

FILES: Final = pa.schema(
    {"path": pa.string(), "bytes": pa.int64(), "modified": pa.timestamp("ms", "UTC")}
)
"""The columns of files to delete; paths are keys below the table."""

_VECTOR: Final = re.compile(r"(?:.*/)?deletion_vector_[0-9a-f-]{36}\.bin")
_INNER_TABLE: Final = re.compile(
    r"(?P<delta>.+?)/_delta_log/.*|(?:(?P<iceberg>.+)/)?metadata/[^/]+\.metadata\.json", re.DOTALL
)


@dataclass(frozen=True)
class Candidates:
    """What a vacuum found.

    Attributes:
        files: Files to delete; the columns of `FILES`.
        files_kept: Files that the log refers to.
        files_young: Files that the log does not refer to, modified within the retention.
        folders: Folders that were looked into.
        inner_tables: Folders of other tables inside the table; the `metadata` of its own Iceberg
            metadata is among them.
        unaddressable: Files whose names no store but a disk can have.
    """

    files: pa.Table = field(default_factory=FILES.empty_table)
    files_kept: int = 0
    files_young: int = 0
    folders: int = 1
    inner_tables: tuple[str, ...] = ()
    unaddressable: int = 0

    @property
    def bytes(self) -> int:
        """The size of the files to delete."""
        return int(pc.sum(self.files["bytes"], min_count=0).as_py())


def table_of(key: str) -> str | None:
    """Return the folder of the inner table whose log or metadata a file is, None if of none.

    >>> table_of("old/_delta_log/00000000000000000000.json"), table_of("metadata/v1.metadata.json")
    ('old', 'metadata')
    >>> table_of("part-0.parquet")
    """
    found = _INNER_TABLE.fullmatch(key) if "/_delta_log/" in key or key.endswith(".json") else None
    return None if found is None else found["delta"] or found["iceberg"] or "metadata"


def folds_names(storage: Storage) -> bool:
    """Return whether a disk does not tell cases apart, or may not: `A` and `a` are one file there.

    The log is looked for by a name in the wrong case: one listing, and none in an object store.
    """
    if "://" in storage.root:
        return False
    return sys.platform == "darwin" or any(True for _ in storage.list(LOG.upper()))


def kind_of(path: str) -> str:
    """Return what a file is by its name, for a report."""
    if path.startswith(f"{CHANGES}/"):
        return "change file"
    if _VECTOR.fullmatch(path):
        return "vector file"
    return "data file" if path.endswith(".parquet") else "other file"

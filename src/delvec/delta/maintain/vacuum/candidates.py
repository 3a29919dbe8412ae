"""Files that a vacuum may delete, and the names that it never touches.

A name that begins with `_` or `.` is hidden, as in delta-spark, with all below it; but folders of
partitions such as `_day=1` and the folder of change files are not. So is `metadata` where Iceberg
metadata is kept there (UniForm). Folders of other tables inside the table are left alone, which
delta-spark does not do.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.segment import LOG

if TYPE_CHECKING:
    from delvec.delta.schema.metadata import Metadata
    from delvec.storage import Storage

__all__ = ["CHANGES", "FILES", "Candidates", "NameRules", "folds_names", "kind_of", "table_of"]

CHANGES: Final = "_change_data"
"""The folder of the change files."""

FILES: Final = pa.schema(
    {"path": pa.string(), "bytes": pa.int64(), "modified": pa.timestamp("ms", "UTC")}
)
"""The columns of files to delete; paths are keys below the table."""

_UNIFORM: Final = "delta.universalFormat.enabledFormats"
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


@dataclass(frozen=True)
class NameRules:
    """Which names below a table are hidden.

    >>> rules = NameRules(("_day=",))
    >>> [rules.is_hidden(key) for key in ("a/_tmp/x", "_day=1/x", "_change_data/x", "a/.x.crc")]
    [True, False, False, True]
    """

    shown: tuple[str, ...] = ()
    hides_metadata: bool = False

    @classmethod
    def of(cls, metadata: Metadata) -> NameRules:
        """Return the rules of a table; partition folders have logical names or physical ones."""
        fields = metadata.partition_fields
        names = {name for each in fields for name in (each.name, each.physical_name)}
        formats = metadata.configuration.get(_UNIFORM, "").lower()
        return cls(tuple(sorted(f"{name}=" for name in names)), "iceberg" in formats)

    def is_hidden(self, key: str) -> bool:
        """Return whether a file or folder is hidden, or is below a hidden folder."""
        plain = key[0] not in "_." and "/_" not in key and "/." not in key
        if plain and not self.hides_metadata:
            return False  # by far the most
        return any(self._is_hidden_name(name) for name in key.split("/"))

    def _is_hidden_name(self, name: str) -> bool:
        if name == "metadata":
            return self.hides_metadata
        return name.startswith(("_", ".")) and name != CHANGES and not name.startswith(self.shown)


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

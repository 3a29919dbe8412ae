"""One data file of a snapshot, as a reader needs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delvec.storage.listed_files import is_absolute

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delvec.vector.descriptor import Descriptor

__all__ = ["DataFile"]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that a version of the table holds, with what the log says of it.

    Attributes:
        path: Percent-decoded, as `Storage` takes names: relative to the table's root, or absolute
            (a plain path on local disk, else scheme, bucket and key).
        size: Bytes of the whole file.
        partition_values: The log's text form by physical column name.
        descriptor: Where the deletion vector is; None without one.
        row_count: All rows in the file, deleted ones too; None if the log does not say.
        modification_time: Milliseconds since 1970.

    >>> DataFile("year=2021/part-0.parquet", 500, {"year": "2021"}, None, 10, 0).is_absolute
    False
    >>> DataFile("s3://lake/part-0.parquet", 500, {}, None, None, 0).is_absolute
    True
    """

    path: str
    size: int
    partition_values: Mapping[str, str | None]
    descriptor: Descriptor | None
    row_count: int | None
    modification_time: int

    @property
    def is_absolute(self) -> bool:
        """Whether the path is not below the table's root, as in shallow clones."""
        return is_absolute(self.path)

"""Old dates in the hybrid Julian and Gregorian calendar, which Iceberg would read wrongly.

Spark before version 3, and later versions in legacy mode, write dates before 1582-10-15 and
timestamps before 1900 in the hybrid calendar, and record it in the file's footer. Spark and Delta
rebase them when they read; Iceberg does not, and is some days off.
"""

from __future__ import annotations

from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.parquet.footer_statistics import read_parquet_footer
from delvec.delta.schema.walk import walk
from delvec.documents import whole_number
from delvec.errors import UnsupportedFeatureError
from delvec.storage.listed_files import open_listed_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from delvec.delta.log.file_set import FileSet
    from delvec.storage import Storage

__all__ = ["require_modern_dates"]

_LIMITS: Final = {
    "date": pa.scalar(date(1582, 10, 15), pa.date32()),
    "timestamp": pa.scalar(datetime(1900, 1, 1, tzinfo=timezone.utc), pa.timestamp("us", "UTC")),
}
_LEGACY: Final = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_WRITER: Final = b"org.apache.spark.version"
_MODERN: Final = (3, 1)  # from this version on footers record the calendar


def require_modern_dates(files: FileSet, new: NDArray[np.int64], storage: Storage) -> None:
    """Refuse new files whose old dates Iceberg would read wrongly.

    Statistics of the log show which files have old dates; few tables have any. Only the footers of
    these are read. Columns without statistics are not checked.

    Raises:
        UnsupportedFeatureError: There is such a file; the error names it.
    """
    if not len(new):
        return
    chosen = files.select(new)
    suspects = np.zeros(len(chosen), dtype=np.bool_)
    for path in walk(files.metadata.schema, structs_only=True):
        kind = str(path[-1].type)
        bounds = (
            chosen.bounds(tuple(each.name for each in path), "UTC") if kind in _LIMITS else None
        )
        if bounds is not None and bounds.minimum is not None:
            old = pc.less(bounds.minimum, _LIMITS[kind])
            suspects |= pc.fill_null(old, False).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(suspects).tolist():
        name = chosen.paths[row].as_py()
        place, key = open_listed_file(storage, name)
        footer = read_parquet_footer(place, key, int(chosen.sizes[row]))
        if _is_hybrid_calendar(footer.metadata or {}):
            raise UnsupportedFeatureError(
                f"{name} of {files.root} has dates before 1582, or timestamps before 1900, in a"
                " calendar that Iceberg does not read them by",
                feature="dates of the hybrid calendar",
                needed_by=files.root,
                hint="rewrite the file with Spark 3 or later, by OPTIMIZE or an UPDATE of its rows",
            )


def _is_hybrid_calendar(footer: Mapping[bytes, Any]) -> bool:
    if any(flag in footer for flag in _LEGACY):
        return True
    numbers = footer.get(_WRITER, b"").decode(errors="replace").split(".")[:2]
    found = map(whole_number, numbers)
    version = tuple(number for number in found if number is not None)
    return bool(version) and version < _MODERN

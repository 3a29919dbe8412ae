"""Whether the files of a snapshot exist, with the sizes that the manifests say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from delvec.errors import FormatError, ObjectNotFoundError, StorageError
from delvec.iceberg.client.failures import explained
from delvec.report.findings import Finding
from delvec.storage.listed_files import local_path, open_listed_file, outside_of
from delvec.storage.parallel import in_order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame

    from delvec.report.findings import Findings
    from delvec.storage import Storage

__all__ = ["IS_VECTOR", "FoundFiles", "check_files"]

IS_VECTOR: Final = "lower(data_file.file_format) = 'puffin'"
"""SQL that tells deletion vectors from position-delete files."""

_REQUESTS_AT_ONCE: Final = 32
_IN_FLIGHT: Final = 1_000  # files
_FIRST: Final = 3


@dataclass(frozen=True)
class FoundFiles:
    """The files that were looked for.

    Attributes:
        data: How many data files.
        deletes: How many delete files.
        has_vectors: Whether there are deletion vectors among these.
        unusable: Paths of delete files that are not as they should be.
        outside: How many are outside of the table's location.
        first_outside: The first of these.
    """

    data: int
    deletes: int
    has_vectors: bool
    unusable: frozenset[str]
    outside: int = 0
    first_outside: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Listed:
    path: str
    size: int
    is_data: bool
    has_vectors: bool


def check_files(live: DataFrame, storage: Storage, table: str, findings: Findings) -> FoundFiles:
    """Look for each live file: one HEAD request each, and a thousand paths in memory.

    Paths on another kind of store than the table's are not followed.

    Args:
        live: The live entries of a snapshot's manifests.
        storage: The table's location.
        table: The name of the table, for errors.
        findings: Gets what is found.
    """
    counts = {True: 0, False: 0}
    has_vectors = False
    unusable = set()
    outside, first = 0, list[str]()

    def work(file: _Listed) -> tuple[_Listed, Finding | None]:
        return file, _looked_at(storage, file)

    with explained(table):
        items = ((each, 1) for each in _listed(live))
        for file, finding in in_order(work, items, threads=_REQUESTS_AT_ONCE, budget=_IN_FLIGHT):
            counts[file.is_data] += 1
            has_vectors |= file.has_vectors
            if outside_of(storage.root, [file.path]):
                outside += 1
                first += [file.path] * (outside <= _FIRST)
            if finding is not None:
                findings.add(finding)
                if not file.is_data:
                    unusable.add(file.path)
    return FoundFiles(
        counts[True], counts[False], has_vectors, frozenset(unusable), outside, tuple(first)
    )


def _listed(live: DataFrame) -> Iterator[_Listed]:
    columns = (
        F.col("data_file.file_path"),
        F.col("data_file.file_size_in_bytes"),
        (F.col("data_file.content") == 0).alias("is_data"),
        F.expr(f"data_file.content = 1 AND {IS_VECTOR}").alias("has_vectors"),
    )
    data = live.where("data_file.content = 0").select(*columns)
    deletes = live.where("data_file.content <> 0").select(*columns).distinct()  # share Puffin files
    for row in data.unionAll(deletes).toLocalIterator(prefetchPartitions=True):
        yield _Listed(*row)


def _looked_at(storage: Storage, file: _Listed) -> Finding | None:
    what = "data" if file.is_data else "delete"
    try:
        place, key = open_listed_file(storage, local_path(file.path))
    except FormatError as error:
        return Finding("warning", "other-store", file.path, f"not looked at: {error.describe()}")
    try:
        size = place.size(key)
    except ObjectNotFoundError:
        return Finding(
            "error",
            "missing-file",
            file.path,
            f"the {what} file is gone",
            "restore it, or roll back to a snapshot that does not have it",
        )
    except StorageError as error:
        return Finding("error", "unreadable-file", file.path, error.describe(), error.hint)
    if size != file.size:
        return Finding(
            "error",
            "wrong-size",
            file.path,
            f"the {what} file has another size: expected {file.size} bytes, found {size}",
            "somebody has changed it: restore it",
        )
    return None

"""Checking a snapshot: its files, and that its deletes are what the manifests say.

Data files are looked for and not opened. All deletes by key and all deletion vectors are read, by
the driver, with bounded memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from delvec import errors
from delvec.documents import parse_json
from delvec.iceberg.client.catalog import LoadedTable
from delvec.iceberg.client.failures import translate_errors
from delvec.iceberg.client.files import EqualityDeleteFile, equality_deletes, snapshot_table
from delvec.iceberg.client.metadata import TableMetadata
from delvec.iceberg.commit.lock_state import is_lock_tag
from delvec.iceberg.commit.marks import is_staging
from delvec.iceberg.maintain.check_keys import check_keys
from delvec.iceberg.maintain.delete_groups import data_sequences, is_global
from delvec.report.findings import CheckedReport, Finding, Findings
from delvec.report.format import format_count, format_counts
from delvec.report.hints import call, format_hint
from delvec.report.rendering import Line, Stopwatch, doc, documented, required, summary
from delvec.spark.engine import open_storage
from delvec.spark.jobs import describe_jobs, interruptible
from delvec.storage import Storage
from delvec.storage.listed_files import local_path, open_listed_file, outside_of
from delvec.storage.parallel import map_in_order
from delvec.vector.frame import decode_frame

_IS_VECTOR: Final = "data_file.content = 1 AND lower(data_file.file_format) = 'puffin'"
_LOOKS_AT_ONCE: Final = 32
_FILES_IN_FLIGHT: Final = 1_000  # files
_FIRST: Final = 3
_READS_AT_ONCE: Final = 16
_BYTES_IN_FLIGHT: Final = 64 << 20
_KIND: Final = "deletion-vector"


@dataclass
class FoundFiles:
    """The files that were looked for; `unusable` delete files are not as they should be."""

    data: int = 0
    deletes: int = 0
    has_vectors: bool = False
    unusable: set[str] = field(default_factory=set)
    outside: int = 0  # of the table's location
    first_outside: list[str] = field(default_factory=list)


def check_files(live: DataFrame, storage: Storage, table: str, findings: Findings) -> FoundFiles:
    """Look for each live file: one HEAD request each, and a thousand paths in memory.

    Paths on another kind of store than the table's are not followed.
    """
    found = FoundFiles()

    def work(file: _Listed) -> tuple[_Listed, Finding | None]:
        return file, _looked_at(storage, file)

    with translate_errors(table):
        items = ((each, 1) for each in _listed(live))
        for file, finding in map_in_order(
            work, items, threads=_LOOKS_AT_ONCE, budget=_FILES_IN_FLIGHT
        ):
            found.data += file.is_data
            found.deletes += not file.is_data
            found.has_vectors |= file.has_vectors
            if outside_of(storage.root, [file.path]):
                found.outside += 1
                found.first_outside += [file.path] * (found.outside <= _FIRST)
            if finding is not None:
                findings.add(finding)
                if not file.is_data:
                    found.unusable.add(file.path)
    return found


def check_vectors(
    live: DataFrame, storage: Storage, table: str, unusable: Collection[str], findings: Findings
) -> int:
    """Read each deletion vector, and compare it with its data file; return how many there are.

    One request for each vector; those under way take 64 MiB of memory at most. Position-delete
    files are not opened.
    """

    def work(row: Row) -> list[Finding]:
        return [*_by_metadata(row), *_by_content(storage, row, unusable)]

    count = 0
    with translate_errors(table):
        rows = _with_data(live).toLocalIterator(prefetchPartitions=True)
        items = ((row, max(row["length"] or 0, 0)) for row in rows)
        for found in map_in_order(work, items, threads=_READS_AT_ONCE, budget=_BYTES_IN_FLIGHT):
            count += 1
            findings.extend(found)
    return count


class _Listed(NamedTuple):
    path: str
    size: int
    is_data: bool
    has_vectors: bool


def _listed(live: DataFrame) -> Iterator[_Listed]:
    columns = (
        F.col("data_file.file_path"),
        F.col("data_file.file_size_in_bytes"),
        (F.col("data_file.content") == 0).alias("is_data"),
        F.expr(_IS_VECTOR).alias("has_vectors"),
    )
    data = live.where("data_file.content = 0").select(*columns)
    deletes = live.where("data_file.content <> 0").select(*columns).distinct()  # share Puffin files
    for row in data.unionAll(deletes).toLocalIterator(prefetchPartitions=True):
        yield _Listed(*row)


def _looked_at(storage: Storage, file: _Listed) -> Finding | None:
    what = "data" if file.is_data else "delete"
    try:
        place, key = open_listed_file(storage, local_path(file.path))
    except errors.FormatError as error:
        return Finding("warning", "other-store", file.path, f"not looked at: {error.describe()}")
    try:
        size = place.size(key)
    except errors.ObjectNotFoundError:
        return Finding(
            "error",
            "missing-file",
            file.path,
            f"the {what} file is gone",
            "restore it, or roll back to a snapshot that does not have it",
        )
    except errors.StorageError as error:
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


def _with_data(live: DataFrame) -> DataFrame:
    """Return each vector with what the manifests say of its data file."""
    known: Any = live.schema["data_file"].dataType
    where = ["data_file.spec_id"]
    if "partition" in known.names:  # there is none if no partition spec has fields
        where.append("data_file.partition")
    vectors = live.where(_IS_VECTOR).select(
        F.col("data_file.file_path").alias("path"),
        F.col("data_file.record_count").alias("rows"),
        F.col("data_file.referenced_data_file").alias("data_path"),
        F.col("data_file.content_offset").alias("offset"),
        F.col("data_file.content_size_in_bytes").alias("length"),
        F.col("sequence_number").alias("sequence"),
        F.struct(*where).alias("place"),
        F.count("*").over(Window.partitionBy("data_file.referenced_data_file")).alias("vectors"),
    )
    data = live.where("data_file.content = 0").select(
        F.col("data_file.file_path").alias("its_path"),
        F.col("data_file.record_count").alias("its_rows"),
        F.col("sequence_number").alias("its_sequence"),
        F.struct(*where).alias("its_place"),
    )
    joined = vectors.join(data, F.col("data_path") == F.col("its_path"), "left")
    same_place = F.col("place").eqNullSafe(F.col("its_place")).alias("same_place")
    return joined.select("*", same_place).drop("place", "its_place", "its_path")


def _by_metadata(row: Row) -> Iterator[Finding]:
    wrong, data = partial(Finding, "error", _KIND, row["path"]), row["data_path"]
    if data is None or row["offset"] is None or row["length"] is None:
        yield wrong("the manifest does not say where the vector is, or of which data file")
        return
    if row["vectors"] > 1:
        yield wrong(
            f"{data} has {row['vectors']} vectors, expected 1: stock readers fail",
            "roll back to the snapshot before",
        )
    if row["its_rows"] is None:
        yield Finding(
            "warning", "dangling-vector", row["path"], f"its data file is not live: {data}"
        )
        return
    if row["sequence"] < row["its_sequence"]:
        yield wrong(
            f"the vector of {data} is older than its data file: sequence number {row['sequence']},"
            f" expected {row['its_sequence']} or more"
        )
    if not row["same_place"]:
        yield wrong(f"the vector of {data} is in another partition or spec than its data file")


def _by_content(storage: Storage, row: Row, unusable: Collection[str]) -> Iterator[Finding]:
    path, offset, length = row["path"], row["offset"], row["length"]
    wrong = partial(Finding, "error", _KIND, path)
    if path in unusable or offset is None or length is None:
        return
    try:
        place, key = open_listed_file(storage, local_path(path))
        data = place.read_range(key, offset, length)
        with errors.add_location(path, offset):
            positions = decode_frame(data, cardinality=row["rows"])
    except (errors.FormatError, errors.InvalidArgumentError, errors.StorageError) as error:
        yield wrong(error.describe(), error.hint)
        return
    rows, highest = row["its_rows"], positions.max
    if rows is not None and highest is not None and highest >= rows:
        yield wrong(
            f"the vector of {row['data_path']} deletes position {highest}, and the data file has"
            f" {rows} rows"
        )


@documented()
class CheckReport(CheckedReport):
    """What a check of a snapshot found.

    >>> from delvec.report.findings import Finding
    >>> gone = Finding("error", "missing-file", "/lake/t/data/1.parquet", "the file is gone")
    >>> print(CheckReport("lake.db.orders", "main", 7, data_files=2, errors=1, findings=(gone,)))
    CHECK of lake.db.orders, main, snapshot 7: 1 error
      looked at  2 data files
      error: the file is gone (/lake/t/data/1.parquet)
    """

    table: str = required("The name of the table.")
    branch: str | None = required("The branch; None if a snapshot was named.")
    snapshot_id: int | None = doc("The snapshot; None for a table without any.", None)
    data_files: int = doc("Data files that were looked for.", 0)
    delete_files: int = doc("Delete files that were looked for.", 0)
    equality_deletes: int = doc("Ordinary equality-delete files that were read.", 0)
    vectors: int = doc("Equality delete vectors that were read.", 0)
    deletion_vectors: int = doc("Deletion vectors that were read.", 0)
    companions: int = doc(
        "Vectors in statistics files, of equality-delete files, that were read.", 0
    )

    def _lines(self) -> Iterator[Line]:
        where = f"{self.branch}, " if self.branch is not None else ""
        counts = {
            "data file": self.data_files,
            "delete file": self.delete_files,
            "deletion vector": self.deletion_vectors,
            "equality-delete file": self.equality_deletes,
            "equality delete vector": self.vectors,
        }
        yield from summary(
            f"CHECK of {self.table}, {where}snapshot {self.snapshot_id}: {self._verdict()}",
            {"looked at": format_counts(counts), "outside": self._outside},
            self.phases,
        )
        yield from self._finding_lines()


def check(table: LoadedTable, snapshot_id: int | None, branch: str | None) -> CheckReport:
    """Check a snapshot.

    One HEAD request for each data file and each delete file; equality deletes and deletion vectors
    are read. The driver holds about 1 kB for each equality delete.
    """
    name, watch, findings = str(table.name), Stopwatch(), Findings()
    if snapshot_id is None:
        return CheckReport(name, branch)
    storage = open_storage(table.spark, local_path(table.metadata.location))
    with interruptible(table.spark), describe_jobs(table.spark, f"check of {name}"):
        with translate_errors(name):
            live = snapshot_table(table, "entries", snapshot_id).where("status < 2")
        with watch.phase("files"):
            files = check_files(live, storage, name, findings)
        vectors = 0
        if files.has_vectors:
            with watch.phase("deletion vectors"):
                vectors = check_vectors(live, storage, name, files.unusable, findings)
        with watch.phase("equality deletes"):
            deletes, companions = equality_deletes(table, snapshot_id), 0
            if deletes:
                staging = _is_staging(table.metadata, snapshot_id, branch)
                companions = check_keys(
                    table, storage, deletes, files.unusable, findings, staging=staging
                )
                _check_scopes(table, snapshot_id, deletes, findings)
    key_vectors = sum(each.is_vector for each in deletes)
    return CheckReport(
        name,
        branch,
        snapshot_id,
        data_files=files.data,
        delete_files=files.deletes,
        equality_deletes=len(deletes) - key_vectors,
        vectors=key_vectors,
        deletion_vectors=vectors,
        companions=companions,
        outside_files=files.outside,
        outside=tuple(files.first_outside),
        phases=watch.seconds,
        **findings.fields,
    )


def _is_staging(metadata: TableMetadata, snapshot_id: int, branch: str | None) -> bool:
    """Tell whether a snapshot may have equality delete vectors."""
    if branch is not None:
        return is_staging(metadata, branch)
    refs = {
        name: is_staging(metadata, name)
        for name in metadata.refs
        if not is_lock_tag(metadata, name)
        and any(each.id == snapshot_id for each in metadata.ancestors(name))
    }
    return bool(refs) and all(refs.values())


def _check_scopes(
    table: LoadedTable, snapshot_id: int, deletes: Sequence[EqualityDeleteFile], findings: Findings
) -> None:
    """Find deletes that apply to no data file."""
    sequences = data_sequences(table, snapshot_id, deletes)
    dangling = [
        each for each in deletes if not bisect_left(sequences.of(each), each.sequence_number)
    ]
    odd = [each for each in dangling if not sequences.of(each) and _is_odd(table.metadata, each)]
    for each in odd:
        message = (
            f"the delete is for the null partition of partition spec {each.spec_id}, which has no"
            " data file: was it meant for all partitions?"
        )
        hint = format_hint(
            "a delete for all partitions needs a partition spec without fields, as {} adds",
            call("delete_keys"),
        )
        findings.add(Finding("warning", "odd-partition", each.path, message, hint))
    if len(dangling) > len(odd):
        first = next(each for each in dangling if each not in odd)
        many = format_count(len(dangling) - len(odd), "equality delete")
        message = f"{many}, such as this one, apply to no data file"
        hint = format_hint("{} removes them", call("consolidate_deletes"))
        findings.add(Finding("info", "dangling-deletes", first.path, message, hint))


def _is_odd(metadata: TableMetadata, delete: EqualityDeleteFile) -> bool:
    """Tell whether a delete is of one partition, and all of its values are null."""
    values = parse_json(delete.partition_json, "the partition of a delete file", path=delete.path)
    return not is_global(metadata, delete.spec_id) and all(each is None for each in values)

"""Whether the deletion vectors of a snapshot are what the manifests say, and fit their data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

from delvec.errors import FormatError, InvalidArgumentError, StorageError, located
from delvec.iceberg.client.failures import explained
from delvec.iceberg.maintain.check_files import IS_VECTOR
from delvec.report.findings import Finding
from delvec.storage.listed_files import local_path, open_listed_file
from delvec.storage.parallel import in_order
from delvec.vector.frame import decode_frame

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pyspark.sql import DataFrame, Row

    from delvec.report.findings import Findings
    from delvec.storage import Storage

__all__ = ["check_vectors"]

_REQUESTS_AT_ONCE: Final = 16
_IN_FLIGHT: Final = 64 << 20
_KIND: Final = "deletion-vector"


def check_vectors(
    live: DataFrame,
    storage: Storage,
    table: str,
    unusable: Collection[str],
    findings: Findings,
) -> int:
    """Read each deletion vector, and compare it with its data file; return how many there are.

    One request for each vector; those under way take 64 MiB of memory at most. Position-delete
    files are not opened.

    Args:
        live: The live entries of a snapshot's manifests.
        storage: The table's location.
        table: The name of the table, for errors.
        unusable: Paths of files that are known to be damaged or gone.
        findings: Gets what is found.
    """

    def work(row: Row) -> list[Finding]:
        return [*_by_metadata(row), *_by_content(storage, row, unusable)]

    count = 0
    with explained(table):
        rows = _with_data(live).toLocalIterator(prefetchPartitions=True)
        items = ((row, max(row["length"] or 0, 0)) for row in rows)
        for found in in_order(work, items, threads=_REQUESTS_AT_ONCE, budget=_IN_FLIGHT):
            count += 1
            findings.extend(found)
    return count


def _with_data(live: DataFrame) -> DataFrame:
    """Return each vector with what the manifests say of its data file."""
    known: Any = live.schema["data_file"].dataType
    where = ["data_file.spec_id"]
    if "partition" in known.names:  # there is none if no partition spec has fields
        where.append("data_file.partition")
    vectors = live.where(f"data_file.content = 1 AND {IS_VECTOR}")
    vectors = vectors.select(
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
    def finding(message: str, hint: str | None = None) -> Finding:
        return Finding("error", _KIND, row["path"], message, hint)

    data = row["data_path"]
    if data is None or row["offset"] is None or row["length"] is None:
        yield finding("the manifest does not say where the vector is, or of which data file")
        return
    if row["vectors"] > 1:
        yield finding(
            f"{data} has {row['vectors']} vectors, expected 1: stock readers fail",
            "roll back to the snapshot before",
        )
    if row["its_rows"] is None:
        yield Finding(
            "warning", "dangling-vector", row["path"], f"its data file is not live: {data}"
        )
        return
    if row["sequence"] < row["its_sequence"]:
        yield finding(
            f"the vector of {data} is older than its data file: sequence number {row['sequence']},"
            f" expected {row['its_sequence']} or more"
        )
    if not row["same_place"]:
        yield finding(f"the vector of {data} is in another partition or spec than its data file")


def _by_content(storage: Storage, row: Row, unusable: Collection[str]) -> Iterator[Finding]:
    path, offset, length = row["path"], row["offset"], row["length"]
    if path in unusable or offset is None or length is None:
        return
    try:
        place, key = open_listed_file(storage, local_path(path))
        data = place.read_range(key, offset, length)
        with located(path, offset):
            positions = decode_frame(data, cardinality=row["rows"])
    except (FormatError, InvalidArgumentError, StorageError) as error:
        yield Finding("error", _KIND, path, error.describe(), error.hint)
        return
    rows, highest = row["its_rows"], positions.max
    if rows is not None and highest is not None and highest >= rows:
        yield Finding(
            "error",
            _KIND,
            path,
            f"the vector of {row['data_path']} deletes position {highest}, and the data file has"
            f" {rows} rows",
        )

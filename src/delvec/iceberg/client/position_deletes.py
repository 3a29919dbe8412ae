"""Data files of a snapshot with the position deletes that apply to them, as plain data."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files as package_files
from typing import TYPE_CHECKING, Any, Final

from delvec.documents import parse_json
from delvec.errors import PlanError
from delvec.iceberg.client.catalog import iceberg_view
from delvec.iceberg.client.failures import explained
from delvec.spark import jvm

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark.sql import SparkSession

    from delvec.iceberg.client.catalog import LoadedTable

__all__ = ["DataFileWithDeletes", "PositionDeleteFile", "find_position_deletes"]

_SEPARATOR: Final = "\0"
_OBJECT: Final = "position deletes"  # in the cache of the JVM


@dataclass(frozen=True)
class PositionDeleteFile:
    """A deletion vector in a Puffin file, or a position-delete file.

    Attributes:
        file_format: Such as `puffin` or `parquet`.
        record_count: Rows that it deletes, in all data files.
        span: Offset and length of a vector in its file; None for a position-delete file.
        is_file_scoped: Whether it is about a single data file.
    """

    path: str
    file_format: str
    record_count: int
    span: tuple[int, int] | None
    is_file_scoped: bool

    @property
    def key(self) -> str:
        """Its name in `RowChange.removed_deletes`."""
        return self.path if self.span is None else f"{self.path}@{self.span[0]}"


@dataclass(frozen=True)
class DataFileWithDeletes:
    """A data file and the position deletes that apply to it.

    Attributes:
        path: As the manifest has it.
        row_count: Physical rows, deleted ones included.
        partition_json: The JSON array of its partition values.
        deletes: One vector, or any number of position-delete files.
    """

    path: str
    row_count: int
    spec_id: int
    partition_json: str
    deletes: tuple[PositionDeleteFile, ...]


def find_position_deletes(
    table: LoadedTable, snapshot_id: int, paths: Iterable[str], *, require: bool = True
) -> Mapping[str, DataFileWithDeletes]:
    """Return data files of a snapshot by path, with their position deletes.

    Iceberg's planner assigns these by partition, sequence number and bounds. It reads the manifests
    on the driver, which then holds about 1 kB for each wanted file.

    Args:
        table: The table.
        snapshot_id: A snapshot of any branch.
        paths: Paths of data files, as the manifests have them.
        require: Whether all of them must be in the snapshot.

    Raises:
        PlanError: A data file is not in the snapshot.
    """
    wanted = list(paths)
    if not wanted:
        return {}
    spark = table.spark
    with explained(str(table.name)):
        view = iceberg_view(spark)
        operations = view.StaticTableOperations(table.current, table.handle.io())
        pinned = view.BaseTable(operations, str(table.name))
        text = _finder(spark).find(pinned, snapshot_id, _SEPARATOR.join(wanted))
    found = {each.path: each for each in _parsed(iter(text.split(_SEPARATOR)[:-1]))}
    missing = [path for path in wanted if path not in found]
    if missing and require:
        raise PlanError(
            f"{missing[0]} is not a data file of snapshot {snapshot_id} of {table.name}",
            hint="was the table changed since the plan was made? Make it anew",
        )
    return found


def _parsed(parts: Iterator[str]) -> Iterator[DataFileWithDeletes]:
    for part in parts:
        data = parse_json(part, "the entry of a data file")
        count = int(next(parts))
        deletes = tuple(_delete_file(next(parts), next(parts)) for _ in range(count))
        yield DataFileWithDeletes(
            data["file-path"],
            data["record-count"],
            data["spec-id"],
            json.dumps(data.get("partition", [])),
            deletes,
        )


def _delete_file(text: str, is_file_scoped: str) -> PositionDeleteFile:
    value = parse_json(text, "the entry of a delete file")
    offset = value.get("content-offset")
    span = None if offset is None else (offset, value["content-size-in-bytes"])
    return PositionDeleteFile(
        value["file-path"],
        value["file-format"].lower(),
        value["record-count"],
        span,
        is_file_scoped == "true",
    )


def _finder(spark: SparkSession) -> Any:  # noqa: ANN401
    """Return an instance of `PositionDeletes.java`, compiled once per JVM."""
    cache = jvm.cache(spark)
    if _OBJECT not in cache:
        source = package_files("delvec.iceberg.client").joinpath("PositionDeletes.java").read_text()
        [constructor] = jvm.compiled(spark, "delvec.PositionDeletes", source).getConstructors()
        no_arguments = jvm.array_of(spark, jvm.view_of(spark).java.lang.Object, [])
        cache[_OBJECT] = constructor.newInstance(no_arguments)
    return cache[_OBJECT]

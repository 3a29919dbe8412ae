"""A version of a Delta table as a DataFrame: Spark's Parquet reader, and a filter for the vectors.

Files without a vector are one scan that knows nothing of vectors. Files with one are another, whose
filter tests the bit of each row's position in generated code; see `vector_form` for how the vectors
reach that filter.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, functions
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from delvec.errors import FormatError, UnsupportedFeatureError
from delvec.identifiers import quote, require_no_own_names
from delvec.spark import jvm, sql_text
from delvec.spark.conf import time_zone
from delvec.spark.delta.scan.file_index import FileIndex
from delvec.spark.delta.scan.python_scan import by_tasks
from delvec.spark.delta.scan.relation import parquet_relation
from delvec.spark.delta.scan.vector_bits import ScanPart, load_bits
from delvec.spark.delta.scan.vector_filter import ROW_INDEX, row_filter
from delvec.spark.delta.scan.vector_form import VECTOR_MEMORY, choose_form
from delvec.spark.types import file_schema, spark_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, SparkSession

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.types import Field
    from delvec.spark.delta.scan.file_index import Hidden
    from delvec.spark.delta.scan.python_scan import Added
    from delvec.spark.delta.scan.vector_filter import Keep
    from delvec.vector import Bitmap

__all__ = ["scan"]

_ADDED: Final[dict[str, Added]] = {"_file": "file", "_pos": "position"}
_TYPES: Final = {"vector": BinaryType(), "number": LongType(), "file": StringType()}


def scan(  # noqa: PLR0913
    spark: SparkSession,
    snapshot: Snapshot,
    columns: Sequence[str] | None = None,
    files: FileSet | None = None,
    *,
    added: Mapping[str, Added] | None = None,
    vectors: Mapping[int, Bitmap] | None = None,
    keep: Keep = "live",
    stored: Sequence[StructField] = (),
    follows: bool = False,
) -> DataFrame:
    """Return the rows of a version; lazy.

    Args:
        spark: A classic session.
        snapshot: The version.
        columns: The columns to read, by default all of the table; `_file` and `_pos` are the full
            name of a row's file and its position there.
        files: The files to read, by default all of the version.
        added: More columns, after the others: names for the number of a row's file in `files`, its
            position there, the full name of the file.
        vectors: Vectors in memory, by the number of the file, instead of those that the log names.
        keep: `live` keeps rows that no vector has; `selected` only rows that `vectors` has.
        stored: Columns that the files store and the table does not have, read last.
        follows: Whether the caller asked for the newest version, and not for this one by name or
            for an operation of its own. Rows that were read so are out of date after a commit.
    """
    if not jvm.is_classic(spark):
        raise UnsupportedFeatureError(
            "to_df() needs a classic Spark session; a Spark Connect client has no JVM of its own",
            feature="Spark Connect",
            hint='read by spark.read.format("delvec").load(path), with delvec on the server',
        )
    taken = {field.physical_name.lower() for field in snapshot.metadata.schema.fields}
    if ROW_INDEX in taken:
        raise UnsupportedFeatureError(
            f"{snapshot.table} has a column {ROW_INDEX}, a name that Spark's Parquet reader takes"
            " for itself",
            feature=ROW_INDEX,
            needed_by=snapshot.table,
            hint="read it by to_arrow(), or rename the column",
        )
    _require_distinct(spark, snapshot)
    if added:
        require_no_own_names(snapshot.metadata.schema.names, snapshot.table)
    builder = _ScanBuilder(spark, snapshot, columns, added or {}, keep, stored, follows=follows)
    return builder.build(snapshot.files if files is None else files, vectors or {})


def _require_distinct(spark: SparkSession, snapshot: Snapshot) -> None:
    """Refuse names that are the same to Spark; Delta has no two columns that differ in case."""
    fields = snapshot.metadata.schema.fields
    for names in ([each.name for each in fields], [each.physical_name for each in fields]):
        twins = len({name.lower() for name in names}) < len(names)
        if twins and spark.conf.get("spark.sql.caseSensitive") != "true":
            raise FormatError(
                "the table has columns whose names differ in case only",
                path=snapshot.table,
                found=str(names)[:200],
                hint="read it by to_arrow(), or rename one of them",
            )


class _ScanBuilder:
    def __init__(
        self,
        spark: SparkSession,
        snapshot: Snapshot,
        columns: Sequence[str] | None,
        added: Mapping[str, Added],
        keep: Keep,
        stored: Sequence[StructField],
        *,
        follows: bool,
    ) -> None:
        self._spark, self._snapshot, self._keep = spark, snapshot, keep
        self._follows = follows
        self._schema, self._stored = snapshot.metadata.schema, stored
        names = [field.name for field in self._schema.fields] if columns is None else list(columns)
        self._added = {name: _ADDED[name] for name in names if self._is_added(name)} | dict(added)
        self._fields = [self._schema.field(name) for name in names if not self._is_added(name)]
        self._order = [
            name if self._is_added(name) else self._schema.field(name).name for name in names
        ]
        self._order += added
        self._time_zone = time_zone(spark)

    def _is_added(self, name: str) -> bool:
        return name in _ADDED and not any(field.name == name for field in self._schema.fields)

    def build(self, files: FileSet, vectors: Mapping[int, Bitmap]) -> DataFrame:
        in_memory = np.zeros(len(files), dtype=np.bool_)
        in_memory[np.fromiter(vectors, dtype=np.int64)] = True
        if self._keep == "selected":
            vectored, clean = in_memory, np.zeros(len(files), dtype=np.bool_)
        else:
            vectored = files.has_vector | in_memory
            clean = ~vectored
        parts = []
        if clean.any() or not vectored.any():  # with no file at all, for its columns
            part = ScanPart(files.select(clean), np.flatnonzero(clean), {})
            parts.append(self._finished(self._relation(part, ())))
        if vectored.any():
            part = ScanPart(files.select(vectored), np.flatnonzero(vectored), vectors)
            parts.append(self._through_vectors(part))
        return reduce(DataFrame.unionAll, parts)

    def _through_vectors(self, part: ScanPart) -> DataFrame:
        form = choose_form(self._spark, part, self._fields, len(self._added))
        if form == "tasks":
            return self._by_tasks(part)
        rows = self._relation(part, ("vector" if form == "constant" else "number",))
        if form == "join":
            rows = self._with_vectors(rows, part)
        return self._finished(
            rows.where(row_filter(self._spark, self._hidden("vector"), self._keep))
        )

    def _relation(self, part: ScanPart, hidden: tuple[Hidden, ...]) -> DataFrame:
        """Return the columns under their physical names, and the hidden constants after them."""
        metadata = self._snapshot.metadata
        by_id = metadata.mapping_mode == "id"
        partitions = {field.name for field in metadata.partition_fields}
        data = file_schema(
            [field for field in self._schema.fields if field.name not in partitions], by_id=by_id
        )
        data = StructType([*data.fields, *self._stored, StructField(ROW_INDEX, LongType())])
        wanted = {kind for kind in self._added.values() if kind != "position"}
        hidden = (*hidden, *sorted(wanted - set(hidden)))
        constants = StructType(
            [
                *file_schema(metadata.partition_fields).fields,
                *(StructField(self._hidden(kind), _TYPES[kind]) for kind in hidden),
            ]
        )
        index = FileIndex(
            self._spark,
            self._snapshot,
            part,
            hidden,
            self._time_zone,
            self._hidden,
            follows=self._follows,
        )
        return parquet_relation(self._spark, index, data, constants, by_id=by_id)

    def _hidden(self, kind: str) -> str:
        """Return a name for a hidden column that no column of the table has."""
        taken = {field.physical_name.lower() for field in self._schema.fields}
        name = f"__delvec_{kind}"
        while name in taken:
            name += "_"
        return name

    def _finished(self, rows: DataFrame) -> DataFrame:
        """Return the columns that were asked for, under their names in the table."""
        hidden: dict[str, str] = {
            "position": ROW_INDEX,
            "file": self._hidden("file"),
            "number": self._hidden("number"),
        }
        fields = iter(self._fields)
        columns = [
            f"{quote(hidden[self._added[name]])} AS {quote(name)}"
            if name in self._added
            else _renamed(next(fields))
            for name in self._order
        ]
        columns += [quote(field.name) for field in self._stored]
        # SQL goes to the JVM in one call, Columns by several calls each.
        sql = [column for column in columns if isinstance(column, str)]
        if len(sql) == len(columns):
            return sql_text.project(rows, *sql)
        return rows.select(
            *(
                sql_text.column(self._spark, each) if isinstance(each, str) else each
                for each in columns
            )
        )

    def _with_vectors(self, rows: DataFrame, part: ScanPart) -> DataFrame:
        """Join each row with the vector of its file, all of which are loaded now."""
        bits = load_bits(self._snapshot.storage, part)
        number, vector = self._hidden("number"), self._hidden("vector")
        table = pa.table({"number": pa.array(part.numbers, pa.int64()), "bits": bits})
        vectors = self._spark.createDataFrame(table).toDF(f"{number}_of", vector)
        return rows.join(
            functions.broadcast(vectors), functions.col(number) == vectors[f"{number}_of"], "left"
        )

    def _by_tasks(self, part: ScanPart) -> DataFrame:
        if self._stored:
            raise UnsupportedFeatureError(
                f"the vectors of {self._snapshot.table} take more memory than allowed to read"
                f" {', '.join(field.name for field in self._stored)} through them",
                feature="rowTracking",
                needed_by=self._snapshot.table,
                hint=f"raise {VECTOR_MEMORY}, or narrow the condition",
            )
        return by_tasks(
            self._spark, self._snapshot, self._order, self._added, part, follows=self._follows
        )


def _renamed(field: Field) -> str | Column:
    """Return a column of the files under its name in the table; as SQL where that is possible."""
    named, in_files = spark_type(field.type), file_schema([field]).fields[0].dataType
    column = quote(field.physical_name)
    if named.simpleString() != in_files.simpleString():
        # A cast renames the fields of a struct, by position.
        return functions.col(column).cast(named).alias(field.name)
    return column if field.physical_name == field.name else f"{column} AS {quote(field.name)}"

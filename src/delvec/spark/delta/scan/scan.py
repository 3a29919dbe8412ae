"""A version of a Delta table, or its change feed, as a DataFrame on Spark's Parquet reader.

Files without a vector are one scan that knows nothing of vectors. Files with one are another, whose
filter tests the bit of each row's position; see `vectors` for how it gets there.

Three scans read all rows of a change feed, however many versions there are: one of whole files, one
of the rows where the two vectors of a file differ, one of change data files. What is constant in a
file (type of change, commit version, commit timestamp) is joined by the number of the file: Spark
would take minutes to plan a union of one scan for each of a thousand versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial, reduce
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from delvec.delta.log.file_set import FileSet
from delvec.delta.log.history import find_version_at, version_from
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.read.change_feed import CHANGE_TYPE, FEED_COLUMNS, FeedPart, change_feed
from delvec.delta.schema.traversal import is_void, without_void
from delvec.delta.schema.types import DataType, Field
from delvec.delta.schema.types import StructType as DeltaStruct
from delvec.errors import FormatError, InvalidArgumentError, UnsupportedFeatureError
from delvec.identifiers import quote, require_no_own_names
from delvec.spark import expressions, jvm
from delvec.spark.delta.scan import vectors as scan_vectors
from delvec.spark.delta.scan.file_index import FileIndex, Hidden
from delvec.spark.delta.scan.reader import Reader, parquet_reader
from delvec.spark.engine import time_zone
from delvec.spark.positions import NUMBER, POSITION
from delvec.spark.types import file_schema, spark_type
from delvec.storage import Storage
from delvec.vector import Bitmap

_ADDED: Final[dict[str, scan_vectors.Added]] = {"_file": "file", "_pos": "position"}
_TYPES: Final = {"vector": BinaryType(), "number": LongType(), "file": StringType()}
PLACE: Final[Mapping[str, scan_vectors.Added]] = {NUMBER: "number", POSITION: "position"}
"""What is added to rows to tell where they are."""
_READ_IDS: Final = "spark.sql.parquet.fieldId.read.enabled"
_NUMBER: Final = "__delvec_change"
_KEY: Final = "__delvec_change_of"


def scan(  # noqa: PLR0913
    spark: SparkSession,
    snapshot: Snapshot,
    columns: Sequence[str] | None = None,
    files: FileSet | None = None,
    *,
    added: Mapping[str, scan_vectors.Added] | None = None,
    vectors: Mapping[int, Bitmap] | None = None,
    keep: scan_vectors.Keep = "live",
    stored: Sequence[StructField] = (),
    follows: bool = False,
) -> DataFrame:
    """Return the rows of a version; lazy."""
    if not jvm.is_classic(spark):
        raise UnsupportedFeatureError(
            "to_df() needs a classic Spark session; a Spark Connect client has no JVM of its own",
            feature="Spark Connect",
            hint='read by spark.read.format("delvec").load(path), with delvec on the server',
        )
    taken = {field.physical_name.lower() for field in snapshot.metadata.schema.fields}
    if scan_vectors.ROW_INDEX in taken:
        raise UnsupportedFeatureError(
            f"{snapshot.table} has a column {scan_vectors.ROW_INDEX}, a name that Spark's Parquet"
            " reader takes for itself",
            feature=scan_vectors.ROW_INDEX,
            needed_by=snapshot.table,
            hint="read it by to_arrow(), or rename the column",
        )
    _require_distinct(spark, snapshot)
    if added:
        require_no_own_names(snapshot.metadata.schema.names, snapshot.table)
    builder = _ScanBuilder(spark, snapshot, columns, added or {}, keep, stored, follows=follows)
    return builder.build(files, vectors or {})


def parquet_relation(
    spark: SparkSession,
    index: FileIndex,
    data: StructType,
    constants: StructType,
    reader: Reader,
    *,
    by_id: bool,
) -> DataFrame:
    """Return the rows of Parquet files; lazy."""
    sources = "org.apache.spark.sql.execution.datasources"
    schema, session = jvm.java_type(spark, constants), jvm.session_of(spark)
    owner = session
    if by_id and spark.conf.get(_READ_IDS) != "true":
        # In a copy, so that the user's session keeps its own setting, which is off by default.
        owner = jvm.copied_session(spark, {_READ_IDS: "true"})
    relation = jvm.java_class(spark, f"{sources}.HadoopFsRelation")(
        index.java(schema),
        schema,
        jvm.java_type(spark, data),
        jvm.java_class(spark, "scala.Option").empty(),
        reader.format,
        # A file that is gone or damaged is an error, whatever the session says of other files.
        jvm.java_class(spark, "org.apache.spark.api.python.PythonUtils").toScalaMap(
            {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
        ),
        owner,
    )
    return DataFrame(session.baseRelationToDataFrame(relation), spark)


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
        added: Mapping[str, scan_vectors.Added],
        keep: scan_vectors.Keep,
        stored: Sequence[StructField],
        *,
        follows: bool,
    ) -> None:
        self._spark, self._snapshot, self._keep = spark, snapshot, keep
        self._follows = follows
        self._schema, self._stored = snapshot.metadata.schema, stored
        names = list(self._schema.names if columns is None else columns)
        virtual = {name: kind for name, kind in _ADDED.items() if name not in self._schema.names}
        self._added = {name: virtual[name] for name in names if name in virtual} | dict(added)
        found = {name: self._schema.field(name) for name in names if name not in virtual}
        self._fields = [found[name] for name in names if name in found]
        self._order = [found[name].name if name in found else name for name in names]
        self._order += added
        self._time_zone = time_zone(spark)
        self._reader = parquet_reader(spark, self._hidden("bit"), self._hidden("vector"))

    def build(self, files: FileSet | None, vectors: Mapping[int, Bitmap]) -> DataFrame:
        self._is_whole = files is None and not vectors and self._keep == "live"
        files = self._snapshot.files if files is None else files
        in_memory = np.zeros(len(files), dtype=np.bool_)
        in_memory[np.fromiter(vectors, dtype=np.int64)] = True
        if self._keep == "selected":
            vectored, clean = in_memory, np.zeros(len(files), dtype=np.bool_)
        else:
            vectored = files.has_vector | in_memory
            clean = ~vectored
        parts = []
        if clean.any() or not vectored.any():  # with no file at all, for its columns
            part = scan_vectors.ScanPart(files.select(clean), np.flatnonzero(clean), {})
            parts.append(self._finished(self._relation(part, ())))
        if vectored.any():
            part = scan_vectors.ScanPart(files.select(vectored), np.flatnonzero(vectored), vectors)
            parts.append(self._through_vectors(part))
        return reduce(DataFrame.unionAll, parts)

    def _through_vectors(self, part: scan_vectors.ScanPart) -> DataFrame:
        spark, snapshot = self._spark, self._snapshot
        form, why = scan_vectors.choose_form(
            spark, part, self._fields, len(self._added), self._reader
        )
        if form == "tasks":
            if self._stored:
                raise UnsupportedFeatureError(
                    f"the vectors of {snapshot.table} take more memory than allowed to read"
                    f" {', '.join(field.name for field in self._stored)} through them",
                    feature="rowTracking",
                    needed_by=snapshot.table,
                    hint=f"raise {scan_vectors.VECTOR_MEMORY}, or narrow the condition",
                )
            order, added = self._order, self._added
            return scan_vectors.scan_in_tasks(
                spark, snapshot, order, added, part, follows=self._follows
            )
        if form == "constant":
            rows = self._relation(part, ("vector",))
            condition = scan_vectors.bit_filter(spark, self._hidden("bit"), self._keep)
        else:
            rows = self._with_vectors(self._relation(part, ("number",), why), part)
            condition = scan_vectors.row_filter(spark, self._hidden("vector"), self._keep)
        return self._finished(rows.where(condition))

    def _relation(
        self, part: scan_vectors.ScanPart, hidden: tuple[Hidden, ...], why: str = ""
    ) -> DataFrame:
        metadata = self._snapshot.metadata
        by_id = metadata.mapping_mode == "id"
        partitions = {field.name for field in metadata.partition_fields}
        data = file_schema(
            [
                replace(field, type=without_void(field.type))
                for field in self._schema.fields
                if field.name not in partitions and not is_void(field)
            ],
            by_id=by_id,
        )
        filled = [scan_vectors.ROW_INDEX]
        if "vector" in hidden:
            filled.append(self._hidden("bit"))
        filled_fields = [StructField(name, LongType()) for name in filled]
        data = StructType([*data.fields, *self._stored, *filled_fields])
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
            why,
            follows=self._follows,
            is_whole=self._is_whole,
        )
        return parquet_relation(self._spark, index, data, constants, self._reader, by_id=by_id)

    def _hidden(self, kind: str) -> str:
        """Return a name for a hidden column that no column of the table has."""
        taken = {field.physical_name.lower() for field in self._schema.fields}
        name = f"__delvec_{kind}"
        while name in taken:
            name += "_"
        return name

    def _finished(self, rows: DataFrame) -> DataFrame:
        """Return the columns that were asked for, under their names in the table."""
        hidden = {
            name: scan_vectors.ROW_INDEX if kind == "position" else self._hidden(kind)
            for name, kind in self._added.items()
        }
        fields = iter(self._fields)
        columns = [
            f"{quote(hidden[name])} AS {quote(name)}" if name in hidden else _renamed(next(fields))
            for name in self._order
        ]
        columns += [quote(field.name) for field in self._stored]
        # SQL goes to the JVM in one call, Columns by several calls each.
        sql = [column for column in columns if isinstance(column, str)]
        if len(sql) == len(columns):
            return expressions.project(rows, *sql)
        return rows.select(
            *(
                expressions.column(self._spark, each) if isinstance(each, str) else each
                for each in columns
            )
        )

    def _with_vectors(self, rows: DataFrame, part: scan_vectors.ScanPart) -> DataFrame:
        """Join each row with the vector of its file, all of which are loaded now."""
        bits = scan_vectors.load_bits(self._snapshot.storage, part)
        number, vector = self._hidden("number"), self._hidden("vector")
        table = pa.table({"number": pa.array(part.numbers, pa.int64()), "bits": bits})
        vectors = self._spark.createDataFrame(table).toDF(f"{number}_of", vector)
        return rows.join(
            functions.broadcast(vectors), functions.col(number) == vectors[f"{number}_of"], "left"
        )


def _renamed(field: Field) -> str | Column:
    """Return a column of the files under its name in the table; as SQL where that is possible."""
    named, in_files = spark_type(field.type), file_schema([field]).fields[0].dataType
    if is_void(field):
        return functions.lit(None).cast(named).alias(field.name)
    column = quote(field.physical_name)
    if without_void(field.type) != field.type:
        whole = _with_void(functions.col(column), field.type)
        return whole.cast(named).alias(field.name)
    if named.simpleString() != in_files.simpleString():
        # A cast renames the fields of a struct, by position.
        return functions.col(column).cast(named).alias(field.name)
    return column if field.physical_name == field.name else f"{column} AS {quote(field.name)}"


def _with_void(column: Column, kind: DataType) -> Column:
    """Return a column of the files with the fields that these omit, in their places."""
    if not isinstance(kind, DeltaStruct) or without_void(kind) == kind:
        return column
    fields = [
        functions.lit(None).cast(spark_type(each.type))
        if is_void(each)
        else _with_void(column.getField(each.physical_name), each.type)
        for each in kind.fields
    ]
    names = [each.physical_name for each in kind.fields]
    named = (each.alias(name) for each, name in zip(fields, names, strict=True))
    return functions.when(column.isNotNull(), functions.struct(*named))


def changes(
    spark: SparkSession,
    storage: Storage,
    start_version: int | None = None,
    end_version: int | None = None,
    *,
    start_timestamp: datetime | str | None = None,
    end_timestamp: datetime | str | None = None,
) -> DataFrame:
    """Return the rows that versions of a table inserted, updated and deleted; lazy.

    The columns are those of the table at the last version, then `_change_type` (`insert`, `delete`,
    `update_preimage`, `update_postimage`), `_commit_version` and `_commit_timestamp`. The commits
    of the range are read by this call, data files by the job.
    """
    if (start_version is None) == (start_timestamp is None):
        raise InvalidArgumentError("changes start at a version or at a time: give one of the two")
    if end_version is not None and end_timestamp is not None:
        raise InvalidArgumentError("changes end at a version or at a time: give one of the two")
    zone = time_zone(spark)
    if start_timestamp is not None:
        start_version = version_from(storage, start_timestamp, zone)
    if end_timestamp is not None:
        end_version = find_version_at(storage, end_timestamp, zone)
    feed = change_feed(storage, start_version or 0, end_version)
    rows = partial(_rows, spark, feed.snapshot, follows=end_version is None)
    found = rows(feed.whole)
    if len(feed.partial.files):
        found = found.unionAll(rows(feed.partial, keep="selected"))
    if len(feed.recorded.files):
        found = found.unionAll(rows(feed.recorded, recorded=True))
    return found


def _rows(
    spark: SparkSession,
    snapshot: Snapshot,
    part: FeedPart,
    *,
    follows: bool,
    keep: scan_vectors.Keep = "live",
    recorded: bool = False,
) -> DataFrame:
    rows = scan(
        spark,
        snapshot,
        files=part.files,
        added={_NUMBER: "number"},
        vectors=part.marks,
        keep=keep,
        stored=[StructField(CHANGE_TYPE, StringType())] if recorded else (),
        follows=follows,
    )
    names = FEED_COLUMNS.names[1:] if recorded else FEED_COLUMNS.names
    table = part.constants.select(names).append_column(
        _NUMBER, [list(range(part.constants.num_rows))]
    )
    constants = functions.broadcast(spark.createDataFrame(table).withColumnRenamed(_NUMBER, _KEY))
    # Spark would push a condition on the bare column down as a partition filter.
    number = functions.coalesce(rows[_NUMBER], functions.lit(-1).cast("long"))
    own = [functions.col(quote(name)) for name in snapshot.metadata.schema.names]
    return rows.join(constants, number == constants[_KEY]).select(*own, *FEED_COLUMNS.names)

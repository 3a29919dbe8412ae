"""A version of a Delta table as a DataFrame: Spark's Parquet reader, and a filter for the vectors.

Files without a vector are one scan that knows nothing of vectors. Those with one are another, whose
filter tests the bit of each row's position in generated code. How a vector comes to that filter:

    constant   as a hidden constant column of its file, loaded when the query is planned and only
               for files that it reads
    join       by a broadcast join on the number of the file: where Spark reads by rows it would
               copy the constant for every row
    tasks      not at all: tasks of Python read these files and their vectors, where all vectors
               together may take more than `spark.delvec.scan.vectorMemory` on the driver
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, functions
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from delvec.delta.schema.types import StructType as DeltaStruct
from delvec.errors import UnsupportedFeatureError
from delvec.identifiers import quote
from delvec.spark import jvm
from delvec.spark.conf import bytes_setting, time_zone
from delvec.spark.delta.scan.file_index import FileIndex, Part, part_bits
from delvec.spark.delta.scan.vector_filter import ROW_INDEX, is_live
from delvec.spark.types import file_schema, leaves, spark_type

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from pyspark.sql import Column, SparkSession

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.types import Field
    from delvec.spark.delta.scan.file_index import Hidden
    from delvec.vector import Bitmap

__all__ = ["VECTOR_MEMORY", "Added", "Form", "Keep", "memory_limit", "scan"]

Form = Literal["constant", "join", "tasks"]
Keep = Literal["live", "marked"]
Added = Literal["number", "position", "file"]

VECTOR_MEMORY: Final = "spark.delvec.scan.vectorMemory"
# Half of what Spark lets a task's message be (spark.rpc.message.maxSize).
_TASK_BYTES: Final = 64 << 20
_ADDED: Final[dict[str, Added]] = {"_file": "file", "_pos": "position"}
_TYPES: Final = {"vector": BinaryType(), "number": LongType(), "file": StringType()}


def scan(
    spark: SparkSession,
    snapshot: Snapshot,
    columns: Sequence[str] | None = None,
    files: FileSet | None = None,
    *,
    added: Mapping[str, Added] | None = None,
    marks: Mapping[int, Bitmap] | None = None,
    keep: Keep = "live",
    stored: Sequence[StructField] = (),
) -> DataFrame:
    """Read a version; lazy.

    Args:
        spark: A classic session.
        snapshot: The version.
        columns: The columns to give, all of the table by default; `_file` and `_pos` are the full
            name of a row's file and its position there.
        files: Which of its files may be read, all by default.
        added: More columns, after the others: names for the number of a row's file in `files`, its
            position there, the full name of the file.
        marks: Vectors in memory, by the number of the file, in place of those that the log names.
        keep: The rows that no vector has, or with `marked` those that `marks` has, and no others.
        stored: Columns that the files hold beside the table's, to be given last.
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
    reading = _Reading(spark, snapshot, columns, added or {}, keep, stored)
    return reading.build(snapshot.files if files is None else files, marks or {})


class _Reading:
    def __init__(
        self,
        spark: SparkSession,
        snapshot: Snapshot,
        columns: Sequence[str] | None,
        added: Mapping[str, Added],
        keep: Keep,
        stored: Sequence[StructField],
    ) -> None:
        self._spark, self._snapshot, self._keep = spark, snapshot, keep
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

    def build(self, files: FileSet, marks: Mapping[int, Bitmap]) -> DataFrame:
        marked = np.zeros(len(files), dtype=np.bool_)
        marked[np.fromiter(marks, dtype=np.int64)] = True
        vectored = marked if self._keep == "marked" else files.has_vector | marked
        clean = Part(files.select(~vectored), np.flatnonzero(~vectored), {})
        dirty = Part(files.select(vectored), np.flatnonzero(vectored), marks)
        form = self._form(dirty) if len(dirty.files) else None
        parts = []
        if form is None or (len(clean.files) and self._keep == "live"):
            nothing = Part(
                files.select(np.zeros(len(files), dtype=np.bool_)), clean.numbers[:0], {}
            )
            part = clean if self._keep == "live" else nothing
            parts.append(self._finished(self._relation(part, ())))
        if form == "tasks":
            parts.append(self._by_tasks(dirty))
        elif form is not None:
            rows = self._relation(dirty, ("vector" if form == "constant" else "number",))
            live = (
                self._filtered_by_constant(rows)
                if form == "constant"
                else self._filtered_by_join(rows, dirty)
            )
            parts.append(self._finished(live))
        return reduce(DataFrame.unionAll, parts)

    def _form(self, part: Part) -> Form:
        files, bits = part.files, part.files.bitmap_bytes()
        if bits.sum() > memory_limit(self._spark) and not part.marks:
            return "tasks"
        if self._reads_by_rows():
            return "join"
        if self._heaviest_task(bits, files) <= _TASK_BYTES:
            return "constant"
        return "join" if part.marks else "tasks"

    def _heaviest_task(self, bits: NDArray[np.float64], files: FileSet) -> float:
        """Bound the bytes of vectors that one task may bring, which its message has to carry."""
        partition = bytes_setting(self._spark, "spark.sql.files.maxPartitionBytes")
        at_least = bytes_setting(self._spark, "spark.sql.files.openCostInBytes")
        density = bits / np.maximum(files.sizes, max(at_least, 1))
        return float(max(bits.max(), density.max() * partition))

    def _reads_by_rows(self) -> bool:
        """Tell whether Spark may turn columns into rows before it filters."""
        conf = self._spark.conf
        count = leaves(DeltaStruct(tuple(self._fields))) + len(self._added) + 2
        nested = any(
            leaves(field.type) > 1 or hasattr(field.type, "element") for field in self._fields
        )
        return (
            conf.get("spark.sql.parquet.enableVectorizedReader") != "true"
            or conf.get("spark.sql.codegen.wholeStage") != "true"
            or count > int(conf.get("spark.sql.codegen.maxFields") or 100)
            or (
                nested
                and conf.get("spark.sql.parquet.enableNestedColumnVectorizedReader") != "true"
            )
        )

    def _relation(self, part: Part, hidden: tuple[Hidden, ...]) -> DataFrame:
        """Make a relation with the files' own column names, and hidden constants after them."""
        view, session = jvm.view_of(self._spark), self._spark._jsparkSession  # noqa: SLF001
        metadata = self._snapshot.metadata
        by_id = metadata.mapping_mode == "id"
        partitions = file_schema(metadata.partition_fields)
        names = {field.name for field in metadata.partition_fields}
        stored = [field for field in self._schema.fields if field.name not in names]
        data = file_schema(stored, by_id=by_id)
        data = StructType([*data.fields, *self._stored, StructField(ROW_INDEX, LongType())])
        wanted = {kind for kind in self._added.values() if kind != "position"}
        hidden = (*hidden, *sorted(wanted - set(hidden)))
        index = FileIndex(self._spark, self._snapshot, part, hidden, self._time_zone, self._hidden)
        constants = StructType(
            [
                *partitions.fields,
                *(StructField(self._hidden(kind), _TYPES[kind]) for kind in hidden),
            ]
        )
        sources = view.org.apache.spark.sql.execution.datasources
        java_type = view.org.apache.spark.sql.types.DataType.fromJson
        schema = java_type(constants.json())
        if by_id:
            session = _session_that_reads_ids(self._spark)
        relation = sources.HadoopFsRelation(
            index.java(schema),
            schema,
            java_type(data.json()),
            view.scala.Option.empty(),
            sources.parquet.ParquetFileFormat(),
            # A file that is gone or damaged is an error, whatever the session says of other files.
            view.org.apache.spark.api.python.PythonUtils.toScalaMap(
                {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}
            ),
            session,
        )
        java = self._spark._jsparkSession.baseRelationToDataFrame(relation)  # noqa: SLF001
        return DataFrame(java, self._spark)

    def _hidden(self, kind: str) -> str:
        """Name a hidden column as no column of the table is named."""
        taken = {field.physical_name.lower() for field in self._schema.fields}
        name = f"__delvec_{kind}"
        while name in taken:
            name += "_"
        return name

    def _finished(self, rows: DataFrame) -> DataFrame:
        """Give the columns that were asked for, under the names that users see."""
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
        # Texts go to the JVM all at once, columns by several calls each.
        texts = [column for column in columns if isinstance(column, str)]
        if len(texts) == len(columns):
            return rows.selectExpr(*texts)
        return rows.select(
            *(functions.expr(each) if isinstance(each, str) else each for each in columns)
        )

    def _filtered_by_constant(self, rows: DataFrame) -> DataFrame:
        return rows.where(self._condition())

    def _condition(self) -> Column:
        return is_live(self._spark, self._hidden("vector"), marked=self._keep == "marked")

    def _filtered_by_join(self, rows: DataFrame, part: Part) -> DataFrame:
        bits = part_bits(self._snapshot.storage, part)
        number, vector = self._hidden("number"), self._hidden("vector")
        table = pa.table({"number": pa.array(part.numbers, pa.int64()), "bits": bits})
        vectors = self._spark.createDataFrame(table).toDF(f"{number}_of", vector)
        joined = rows.join(
            functions.broadcast(vectors), functions.col(number) == vectors[f"{number}_of"], "left"
        )
        return joined.where(self._condition())

    def _by_tasks(self, part: Part) -> DataFrame:
        from delvec.spark.delta.scan.python_scan import by_tasks  # noqa: PLC0415

        if self._stored:
            raise UnsupportedFeatureError(
                f"the vectors of {self._snapshot.table} take more memory than allowed to read"
                f" {', '.join(field.name for field in self._stored)} through them",
                feature="rowTracking",
                needed_by=self._snapshot.table,
                hint=f"raise {VECTOR_MEMORY}, or narrow the condition",
            )
        return by_tasks(self._spark, self._snapshot, self._order, self._added, part)


def memory_limit(spark: SparkSession) -> int:
    """Give how many bytes of vectors a query may hold on the driver."""
    return bytes_setting(spark, VECTOR_MEMORY, "256m")


def _renamed(field: Field) -> str | Column:
    """Give a column of the files under its name in the table, as SQL where that says it."""
    named, in_files = spark_type(field.type), file_schema([field]).fields[0].dataType
    column = quote(field.physical_name)
    if named.simpleString() != in_files.simpleString():
        # Names inside a struct go by position.
        return functions.expr(column).cast(named).alias(field.name)
    return column if field.physical_name == field.name else f"{column} AS {quote(field.name)}"


def _session_that_reads_ids(spark: SparkSession) -> Any:  # noqa: ANN401
    """Give a session that finds columns of Parquet files by their field ids.

    The setting is off by default. A copy of the session has it, so that the user's own stays.
    """
    key = "spark.sql.parquet.fieldId.read.enabled"
    if spark.conf.get(key) == "true":
        return spark._jsparkSession  # noqa: SLF001
    copy = spark._jsparkSession.cloneSession()  # noqa: SLF001
    copy.conf().set(key, "true")
    return copy

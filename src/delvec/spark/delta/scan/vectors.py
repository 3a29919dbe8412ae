"""In which form deletion vectors reach the filter of a scan: is the bit of this row's position 0?

    constant   as a hidden constant column of its file, loaded when the query is planned and only
               for files that it reads; the reader fills a column with the bits
    join       by a broadcast join on the number of the file: where there is no such reader, and
               where Spark reads by rows and would copy the constant for every row
    tasks      not at all: Python tasks read these files and their vectors, where all vectors
               together may take more than `spark.delvec.scan.vectorMemory` on the driver

The log's row counts decide, see `choose_form`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession, functions

from delvec.datasource import DelvecDataSource
from delvec.datasource.options import ALLOWED, FOLLOWS
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.read.vectors import admit_files, load_vectors
from delvec.delta.schema.types import Field, StructType
from delvec.errors import UnsupportedFeatureError
from delvec.identifiers import quote
from delvec.spark import jvm
from delvec.spark.delta.scan.reader import Reader
from delvec.spark.engine import bytes_setting
from delvec.spark.expressions import word_at
from delvec.spark.session.data_source import register
from delvec.spark.types import leaves
from delvec.storage import Storage
from delvec.storage.listed_files import full_name
from delvec.vector import Bitmap

VectorForm = Literal["constant", "join", "tasks"]
VECTOR_MEMORY: Final = "spark.delvec.scan.vectorMemory"
# Half of the default of spark.rpc.message.maxSize, the limit of a task's message.
_TASK_BYTES: Final = 64 << 20
_SMALL: Final = 1 << 16
# The rows that a scan keeps: those that are not in the vectors, or only those that are.
Keep = Literal["live", "selected"]
# Spark's Parquet reader fills a column of this name with the positions of the rows.
# `_metadata.row_index` ends in the same column, and makes an object for every row as well.
ROW_INDEX: Final = "_tmp_metadata_row_index"
_WORD_BITS: Final = 64
# What a scan can add to the columns of a table: the number, the position, the full name of the
# file.
Added = Literal["number", "position", "file"]
_FILE, _NUMBER = "__delvec_file", "__delvec_number"


class ScanPart(NamedTuple):
    """A part of a version's files, and the number of each, by which rows name it.

    Vectors in memory, by the number of their file, count instead of those that the log names.
    """

    files: FileSet
    numbers: NDArray[np.int64]
    vectors: Mapping[int, Bitmap]


def choose_form(
    spark: SparkSession, part: ScanPart, fields: Sequence[Field], added: int, reader: Reader
) -> tuple[VectorForm, str]:
    """Return the form of the vectors of some files, and why it is not the usual one.

    It is chosen by the rows that the log says the files have.
    """
    total = part.files.bitmap_bytes().sum()
    if total > bytes_setting(spark, VECTOR_MEMORY, "256m") and not part.vectors:
        return "tasks", f"all vectors together may take more than {VECTOR_MEMORY}"
    if reader.why_not or _reads_by_rows(spark, fields, added):
        return "join", reader.why_not or "Spark reads this by rows"
    if _heaviest_task(spark, part.files) <= _TASK_BYTES:
        return "constant", ""
    return "join" if part.vectors else "tasks", "the vectors of one task may take more than 64 MiB"


def vector_bits(vector: Bitmap) -> bytes:
    """Return a vector as 64-bit words, big-endian, up to its last position."""
    last = vector.max
    if last is None:
        return b""
    if last < _SMALL:  # a third of the time that words of any size take
        mask = np.zeros((last // 64 + 1) * 64, dtype=np.bool_)
        mask[vector.to_numpy()] = True
        return np.packbits(mask, bitorder="little").view("<u8").astype(">u8").tobytes()
    return vector.to_words(last + 1).astype(">u8").tobytes()


def load_bits(storage: Storage, part: ScanPart) -> list[bytes]:
    """Return the vector of each file as bits: the one in memory, else the one of the log.

    Reads the stored vectors that it needs; a file without a vector has no bits.
    """
    numbers = part.numbers.tolist()
    stored = [index for index, number in enumerate(numbers) if number not in part.vectors]
    loaded = iter(load_vectors(storage, part.files.data_files(stored)) if stored else ())
    vectors = [part.vectors[each] if each in part.vectors else next(loaded) for each in numbers]
    return [b"" if vector is None else vector_bits(vector) for vector in vectors]


def row_filter(spark: SparkSession, vector: str, keep: Keep = "live") -> Column:
    """Return the condition that a scan keeps a row, by its position and the vector of its file.

    It refers to its columns by name, so that one condition serves every scan of a JVM; building it
    takes some 80 calls into the JVM.
    """
    build = partial(_condition, spark, vector, int(keep == "selected"))
    condition: Column = jvm.once(spark, ("row filter", vector, keep), build)
    return condition


def bit_filter(spark: SparkSession, bit: str, keep: Keep = "live") -> Column:
    """Return the condition that a scan keeps a row, by the bit that the reader found for it."""

    def build() -> Column:
        found = functions.col(bit)
        return functions.when(found.isNull(), _missing()).otherwise(found == int(keep != "live"))

    condition: Column = jvm.once(spark, ("bit filter", bit, keep), build)
    return condition


def scan_in_tasks(
    spark: SparkSession,
    snapshot: Snapshot,
    columns: Sequence[str],
    added: Mapping[str, Added],
    part: ScanPart,
    *,
    follows: bool = False,
) -> DataFrame:
    """Return the rows of files with vectors; lazy. Each task loads the vectors of its own files."""
    register(spark)
    storage = snapshot.storage
    # Here, where the session's Hadoop settings are known: tasks get what they need of them.
    admit_files(storage, part.files)
    options = {f"storage.{key}": value for key, value in storage.options.items()}
    if storage.fence is not None:
        options[ALLOWED] = storage.fence.text
    options |= {
        "versionAsOf": str(snapshot.version),
        "timeZone": spark.conf.get("spark.sql.session.timeZone") or "UTC",
        "splitBytes": str(_split_bytes(spark, snapshot)),
        "_files": "vectored",
        FOLLOWS: str(follows).lower(),
    }
    source = {"file": "_file", "position": "_pos", "number": "_file"}
    is_subset = len(part.files) < int(snapshot.files.has_vector.sum())
    needed = {source[kind] for kind in added.values()} | ({"_file"} if is_subset else set())
    taken = needed & set(snapshot.metadata.schema.names)
    if taken:  # the data source would read these instead
        raise UnsupportedFeatureError(
            f"{snapshot.table} has a column {taken.pop()}, and vectors that take more memory than"
            " the driver is allowed",
            feature="columns _file and _pos",
            needed_by=snapshot.table,
            hint="raise spark.delvec.scan.vectorMemory, or rename the column",
        )
    own = [name for name in columns if name not in added]
    options["columns"] = json.dumps([*own, *sorted(needed)])
    rows = spark.read.format(DelvecDataSource.name()).options(**options).load(snapshot.table)
    if is_subset or "number" in added.values():
        rows = _numbered(spark, rows, snapshot, part)
    name_of = source | {"number": _NUMBER}
    places = {name: name_of[kind] for name, kind in added.items()}
    found = ((name, functions.col(quote(places.get(name, name)))) for name in columns)
    return rows.select(*(each.alias(name) if name in added else each for name, each in found))


def _heaviest_task(spark: SparkSession, files: FileSet) -> float:
    """Return the most bytes of vectors that the message of one task may have to carry."""
    partition = bytes_setting(spark, "spark.sql.files.maxPartitionBytes")
    open_cost = bytes_setting(spark, "spark.sql.files.openCostInBytes")
    bits = files.bitmap_bytes()
    density = bits / np.maximum(files.sizes, max(open_cost, 1))
    return float(min(bits.sum(), max(bits.max(), density.max() * partition)))


def _reads_by_rows(spark: SparkSession, fields: Sequence[Field], added: int) -> bool:
    """Whether Spark may turn columns into rows before it filters."""
    conf = spark.conf
    count = leaves(StructType(tuple(fields))) + added + 2
    nested = any(leaves(field.type) > 1 or hasattr(field.type, "element") for field in fields)
    return (
        conf.get("spark.sql.parquet.enableVectorizedReader") != "true"
        or conf.get("spark.sql.codegen.wholeStage") != "true"
        or count > int(conf.get("spark.sql.codegen.maxFields") or 100)
        or (nested and conf.get("spark.sql.parquet.enableNestedColumnVectorizedReader") != "true")
    )


def _condition(spark: SparkSession, name: str, wanted: int) -> Column:
    vector, index = functions.col(name), functions.col(ROW_INDEX)
    size = functions.octet_length(vector).cast("long") * 8
    word = word_at(spark, vector, (functions.shiftright(index, 6) * 8).cast("int"))
    bit = functions.getbit(word, index.bitwiseAND(functions.lit(_WORD_BITS - 1)).cast("int"))
    return (
        functions.when(vector.isNull(), _missing())
        .when(index < size, bit == wanted)
        .otherwise(functions.lit(wanted == 0))
    )


def _missing() -> Column:
    error = functions.raise_error(functions.lit("delvec: a file came without its vector"))
    return error.cast("boolean")


def _numbered(
    spark: SparkSession, rows: DataFrame, snapshot: Snapshot, part: ScanPart
) -> DataFrame:
    """Add the number of each row's file; drop the rows of files that are not in the part."""
    names = [full_name(snapshot.table, path) for path in part.files.paths.to_pylist()]
    table = pa.table({_FILE: names, _NUMBER: pa.array(part.numbers, pa.int64())})
    numbers = functions.broadcast(spark.createDataFrame(table))
    return rows.join(numbers, rows["_file"] == numbers[_FILE])


def _split_bytes(spark: SparkSession, snapshot: Snapshot) -> int:
    """Return the bytes of a task, by Spark's own rule: work for each core, up to a limit."""
    conf = jvm.session_of(spark).sessionState().conf()
    limit, open_cost = int(conf.filesMaxPartitionBytes()), int(conf.filesOpenCostInBytes())
    files = snapshot.files
    total = int((files.sizes + open_cost)[files.has_vector].sum())
    share = total // max(1, spark.sparkContext.defaultParallelism)
    return min(limit, max(open_cost, share))

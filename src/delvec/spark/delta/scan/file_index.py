"""Files of a Delta table for Spark's own Parquet reader, chosen when a query is planned.

Spark hands over the filters of the query, so that a plain `.where(...)` prunes by the log. Filters
on partition values are enforced here exactly, by Spark's own evaluator, since Spark does not apply
them again; filters on data only leave files out that surely hold no match.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib.resources import files as resources
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StringType

from delvec.delta.pruning.predicate import And
from delvec.delta.read.load_vectors import load_vectors
from delvec.delta.schema.walk import find
from delvec.errors import DelvecError, FormatError
from delvec.spark import jvm
from delvec.spark.delta.scan.pushdown import translate
from delvec.spark.jvm import items, to_seq
from delvec.spark.types import spark_type
from delvec.storage.listed_files import full_name, is_absolute, require_same_store, spark_path

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.pruning.predicate import Predicate
    from delvec.storage import Storage
    from delvec.vector import Bitmap

__all__ = [
    "FileIndex",
    "Hidden",
    "Listing",
    "Part",
    "file_lister",
    "find_index",
    "part_bits",
    "vector_bits",
]

# What a file can bring along: its vector as bits, its number among the files, its full name.
Hidden = Literal["vector", "number", "file"]


class Part(NamedTuple):
    """Files of one scan, the number of each, and vectors in memory, by number, for some of them."""

    files: FileSet
    numbers: NDArray[np.int64]
    marks: Mapping[int, Bitmap]


_CLASS: Final = "delvec.FileLister"
_NUMBERS: Final = count(1)
_SMALL: Final = 1 << 16
_BY_NAME: Final[WeakValueDictionary[str, FileIndex]] = WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class Listing:
    """What became of the files when a query was planned.

    Attributes:
        total: Files of the version, or of this part of it.
        bytes_total: The size of these.
        by_partition: Left out since their partition values do not match.
        by_statistics: Left out since their statistics say that no row matches.
        read: What is left for Spark to read.
        bytes_read: The size of these.
        vectors: How many of them have a vector, which was loaded.
        vector_bytes: The bytes that the vectors take on their way to the tasks.
    """

    total: int = 0
    bytes_total: int = 0
    by_partition: int = 0
    by_statistics: int = 0
    read: int = 0
    bytes_read: int = 0
    vectors: int = 0
    vector_bytes: int = 0


def vector_bits(vector: Bitmap) -> bytes:
    """Give a vector as the scan tests it: 64-bit words, big-endian, up to its last marked row."""
    last = vector.max
    if last is None:
        return b""
    if last < _SMALL:  # a third of the time that words of any size take
        mask = np.zeros((last // 64 + 1) * 64, dtype=np.bool_)
        mask[vector.to_numpy()] = True
        return np.packbits(mask, bitorder="little").view("<u8").astype(">u8").tobytes()
    return vector.to_words(last + 1).astype(">u8").tobytes()


def part_bits(storage: Storage, part: Part) -> list[bytes]:
    """Give the vector of each file as bits: the one in memory, else the one that the log names."""
    numbers = part.numbers.tolist()
    stored = [index for index, number in enumerate(numbers) if number not in part.marks]
    loaded = iter(load_vectors(storage, part.files.data_files(stored)) if stored else ())
    vectors = [part.marks[each] if each in part.marks else next(loaded) for each in numbers]
    return [b"" if vector is None else vector_bits(vector) for vector in vectors]


class FileIndex:
    """A part of a version's files, as Spark asks for them: the Python half of a FileLister.

    Memory on the driver grows with the files, and during a query with the vectors of those that
    are read: one bit for each row up to the last deleted one.
    """

    def __init__(
        self,
        spark: SparkSession,
        snapshot: Snapshot,
        part: Part,
        hidden: tuple[Hidden, ...],
        time_zone: str,
        hidden_name: Callable[[Hidden], str],
    ) -> None:
        """Prepare the files of a scan.

        Args:
            spark: A classic session.
            snapshot: The version that they are of.
            part: Which of its files.
            hidden: What each file gets as constant columns after its partition values.
            time_zone: Of the session, for partition values that are timestamps without a zone.
            hidden_name: Gives the names of hidden columns.
        """
        self._spark, self.snapshot = spark, snapshot
        self._files, self._numbers, self._marks = part
        self.hidden, self._time_zone = hidden, time_zone
        self.file_column, self.number_column = hidden_name("file"), hidden_name("number")
        self.last = Listing()
        self.name = f"delvec scan {next(_NUMBERS)} of {snapshot.table} version {snapshot.version}"
        _BY_NAME[self.name] = self
        jvm.allow_calls_back(spark)

    def java(self, schema: Any) -> Any:  # noqa: ANN401
        """Make the JVM's half; `schema` is that of the constant columns, in Java."""
        view = jvm.view_of(self._spark)
        self._lister = file_lister(
            self._spark,
            view.org.apache.hadoop.fs.Path(spark_path(self.snapshot.table, "")),
            schema,
            int(self._files.sizes.sum()),
            self.name,
        )
        self._lister.ask(_Lister(self))
        return self._lister

    def list_files(self, partition_filters: Any, data_filters: Any) -> Any:  # noqa: ANN401
        """Answer Spark: the files that the query has to read, as its own objects."""
        partition, data = list(items(partition_filters)), list(items(data_filters))
        chosen, listing = self._pruned(partition, data)
        vectors = self._vectors(chosen)
        size = sum(map(len, vectors))
        self.last = replace(listing, vectors=len(vectors), vector_bytes=size)
        groups = self._grouped(chosen, vectors)
        return self._lister.directories(pickle.dumps(groups, protocol=4), self._rows)

    def _pruned(
        self, partition: Sequence[Any], data: Sequence[Any]
    ) -> tuple[NDArray[np.int64], Listing]:
        files, total = self._files, len(self._files)
        kept = self._matching_partitions(partition)
        in_partitions = int(kept.sum())
        predicate = And(tuple(self._understood(each) for each in data))
        if data and in_partitions:
            within = files.select(kept)
            matching = within.may_match(predicate, self._time_zone)
            kept[np.flatnonzero(kept)[~matching]] = False
        chosen = np.flatnonzero(kept)
        return chosen, Listing(
            total=total,
            bytes_total=int(files.sizes.sum()),
            by_partition=total - in_partitions,
            by_statistics=in_partitions - len(chosen),
            read=len(chosen),
            bytes_read=int(files.sizes[chosen].sum()),
        )

    def _understood(self, expression: Any) -> Predicate:  # noqa: ANN401
        return translate(expression, self._logical, self._lister.pickled)

    def _logical(self, physical: tuple[str, ...]) -> tuple[str, ...] | None:
        """Find the table's name of a column of the scan, which is named as in the files."""
        found = find(self.snapshot.metadata.schema, physical, physical=True)
        return None if found is None else tuple(each.name for each in found)

    def _matching_partitions(self, filters: Sequence[Any]) -> NDArray[np.bool_]:
        """Tell which files satisfy all partition filters, by Spark's own evaluator.

        They are evaluated once for each distinct combination of values; those that look at the name
        of the file, once for each file.
        """
        view = jvm.view_of(self._spark)
        expressions = view.org.apache.spark.sql.catalyst.expressions
        names = [field.physical_name for field in self.snapshot.metadata.partition_fields]
        kept = np.ones(len(self._files), dtype=np.bool_)
        for condition in filters:
            used = list(items(condition.references()))
            asked = [attribute.name() for attribute in used]
            by_file = not set(asked) <= set(names)
            columns = [*names, self.file_column, self.number_column] if by_file else names
            attributes = getattr(expressions, "package$AttributeSeq")(to_seq(self._spark, used))
            bound = expressions.BindReferences.bindReference(condition, attributes, False)
            places = jvm.array_of(self._spark, view.int, [columns.index(name) for name in asked])
            matching = self._lister.matches(
                expressions.Predicate.createInterpreted(bound),
                self._rows_of_files if by_file else self._rows,
                places,
            )
            matches = np.frombuffer(matching, np.uint8).astype(np.bool_)
            kept &= matches if by_file else matches[self._groups[0]]
        return kept

    @cached_property
    def _groups(self) -> tuple[NDArray[np.int64], list[tuple[str | None, ...]]]:
        """Which distinct partition values each file has, and these, as texts."""
        fields = self.snapshot.metadata.partition_fields
        if not fields:
            return np.zeros(len(self._files), dtype=np.int64), [()]
        return distinct_rows([self._files.partition_texts(f.physical_name) for f in fields])

    @cached_property
    def _rows(self) -> Any:  # noqa: ANN401
        """The distinct partition values as rows of the JVM."""
        return self._typed_rows(self._groups[1], [])

    @cached_property
    def _rows_of_files(self) -> Any:  # noqa: ANN401
        """The partition values, the name and the number of each file, as rows of the JVM."""
        codes, texts = self._groups
        names = [full_name(self.snapshot.table, path) for path in self._files.paths.to_pylist()]
        rows = [
            (*texts[code], name, str(number))
            for code, name, number in zip(codes, names, self._numbers.tolist(), strict=True)
        ]
        return self._typed_rows(rows, [StringType(), LongType()])

    def _typed_rows(self, rows: Sequence[tuple[str | None, ...]], more: Sequence[DataType]) -> Any:  # noqa: ANN401
        """Turn the texts of partition values into typed ones, by Spark's own casts."""
        view = jvm.view_of(self._spark)
        expressions = view.org.apache.spark.sql.catalyst.expressions
        types = view.org.apache.spark.sql.types
        fields = self.snapshot.metadata.partition_fields
        casts = [
            expressions.Cast(
                expressions.BoundReference(place, types.DataTypes.StringType, True),
                types.DataType.fromJson(kind.json()),
                view.scala.Option.apply(self._time_zone),
                expressions.EvalMode.ANSI(),
            )
            for place, kind in enumerate([*(spark_type(field.type) for field in fields), *more])
        ]
        # An empty text is null for every type.
        texts = [tuple(text or None for text in values) for values in rows]
        try:
            return self._lister.rows(
                pickle.dumps(texts, protocol=4),
                jvm.array_of(self._spark, expressions.Expression, casts),
            )
        except (Py4JJavaError, PySparkException) as error:
            cause = str(error).splitlines()[0]
            raise FormatError(
                f"a partition value of the log is not of its column's type ({cause})",
                path=self.snapshot.table,
                expected=", ".join(f"{field.name} {field.type}" for field in fields),
            ) from error

    def _vectors(self, chosen: NDArray[np.int64]) -> list[bytes]:
        if "vector" not in self.hidden:
            return []
        part = Part(self._files.select(chosen), self._numbers[chosen], self._marks)
        return part_bits(self.snapshot.storage, part)

    def _grouped(self, chosen: NDArray[np.int64], vectors: Sequence[bytes]) -> list[Any]:
        """Give (partition values, hidden values, files) for all that share their constants."""
        files, root = self._files.select(chosen), self.snapshot.table
        paths = files.paths.to_pylist()
        if len(chosen) and files.sizes.min() <= 0:
            # Spark reads as much of a file as the log says that there is.
            raise FormatError(
                f"the log has no size for {paths[int(files.sizes.argmin())]}",
                path=root,
                expected="its bytes",
                found=int(files.sizes.min()),
                hint="to_arrow() reads it",
            )
        for path in filter(is_absolute, paths):
            require_same_store(root, path)
        entries = list(
            zip(
                [spark_path(root, path) for path in paths],
                files.sizes.tolist(),
                files.modification_times.tolist(),
                strict=True,
            )
        )
        groups = self._groups[0][chosen].tolist()
        if not self.hidden:
            shared: dict[int, list[Any]] = {}
            for group, entry in zip(groups, entries, strict=True):
                shared.setdefault(group, []).append(entry)
            return [(group, (), members) for group, members in shared.items()]
        constants = {
            "vector": vectors,
            "number": self._numbers[chosen].tolist(),
            "file": [full_name(root, path) for path in paths],
        }
        hidden = zip(*(constants[kind] for kind in self.hidden), strict=True)
        return [
            (group, values, [entry])
            for group, values, entry in zip(groups, hidden, entries, strict=True)
        ]


def file_lister(
    spark: SparkSession,
    root: Any = None,  # noqa: ANN401
    schema: Any = None,  # noqa: ANN401
    size: int = 0,
    name: str = "",
) -> Any:  # noqa: ANN401
    """Make the JVM's half of an index; without arguments one that only converts values."""
    [constructor] = jvm.compiled(spark, _CLASS, _source()).getConstructors()
    kind = jvm.view_of(spark).java.lang.Object
    return constructor.newInstance(jvm.array_of(spark, kind, [root, schema, size, name]))


class _Lister:
    """What the JVM calls: a function of two arguments."""

    def __init__(self, index: FileIndex) -> None:
        self._index = index

    def apply(self, partition_filters: Any, data_filters: Any) -> Any:  # noqa: ANN401
        """Give the files, or our error as a text: an exception would hide in a traceback."""
        try:
            return self._index.list_files(partition_filters, data_filters)
        except DelvecError as error:
            return str(error)

    class Java:
        """Py4J's way to say what this implements."""

        implements: Final = ["java.util.function.BiFunction"]


def find_index(name: str) -> FileIndex | None:
    """Find the index that the JVM knows under a name."""
    return _BY_NAME.get(name)


def distinct_rows(
    columns: Sequence[pa.Array],
) -> tuple[NDArray[np.int64], list[tuple[str | None, ...]]]:
    """Number the distinct combinations of some columns; give the number of each row, and these."""
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        joined = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        _, codes = np.unique(joined, return_inverse=True)
    _, first = np.unique(codes, return_index=True)
    rows = [column.take(first).to_pylist() for column in columns]
    return codes, list(zip(*rows, strict=True))


@cache
def _source() -> str:
    return resources("delvec.spark.delta.scan").joinpath("FileLister.java").read_text()

"""Filters of a query, Spark's resolved expressions, applied to files instead of rows.

    on data         translated to a predicate; what is not understood is `Unknown`, which prunes
                    nothing: Spark applies these filters to the rows in any case
    on partitions   evaluated by Spark on the values in the log, exactly: rows are not tested again

See `file_index`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, LongType, StringType

from delvec.delta.schema.partition_values import is_null_text
from delvec.delta.skipping import predicate as nodes
from delvec.documents import EPOCH
from delvec.errors import FormatError
from delvec.spark import jvm
from delvec.spark.catalyst import Expression, read
from delvec.spark.types import spark_type
from delvec.storage.listed_files import full_name

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.skipping.predicate import ColumnPath, Operator, Predicate
    from delvec.spark.delta.scan.vectors import ScanPart

_OPERATORS: Final[dict[str, Operator]] = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
_FLIPPED: Final[dict[Operator, Operator]] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")  # each wider than those before it


def translate(
    spark: SparkSession,
    expression: Any,  # noqa: ANN401
    column: Callable[[ColumnPath], ColumnPath | None],
) -> Predicate:
    """Return the predicate of an expression, as far as it is about single columns."""
    return _Translation(column).of(read(spark, expression))


@dataclass(eq=False)
class PartitionFilters:
    """The partition values of a scan's files, as rows of the JVM; read when they are needed."""

    spark: SparkSession
    snapshot: Snapshot
    part: ScanPart
    lister: Any
    time_zone: str
    hidden: tuple[str, str]

    def matching(self, filters: Sequence[Any]) -> NDArray[np.bool_]:
        """Return which files satisfy all filters.

        A filter is evaluated once for each distinct combination of partition values; one that
        refers to the file itself, once for each file.
        """
        view = jvm.view_of(self.spark)
        expressions = view.org.apache.spark.sql.catalyst.expressions
        names = [field.physical_name for field in self.snapshot.metadata.partition_fields]
        kept = np.ones(len(self.part.files), dtype=np.bool_)
        for condition in filters:
            used = list(jvm.items(condition.references()))
            asked = [attribute.name() for attribute in used]
            by_file = not set(asked) <= set(names)
            columns = [*names, *self.hidden] if by_file else names
            attributes = getattr(expressions, "package$AttributeSeq")(jvm.to_seq(self.spark, used))
            bound = expressions.BindReferences.bindReference(condition, attributes, False)
            places = jvm.array_of(self.spark, view.int, [columns.index(name) for name in asked])
            matching = self.lister.matches(
                expressions.Predicate.createInterpreted(bound),
                self._rows_of_files if by_file else self.rows,
                places,
            )
            matches = np.frombuffer(matching, np.uint8).astype(np.bool_)
            kept &= matches if by_file else matches[self.groups]
        return kept

    @property
    def groups(self) -> NDArray[np.int64]:
        """For each file the index of its partition values in `rows`."""
        return self._distinct[0]

    @cached_property
    def rows(self) -> Any:  # noqa: ANN401
        """The distinct partition values, as rows of the JVM."""
        return self._typed_rows(self._distinct[1], [])

    @cached_property
    def _rows_of_files(self) -> Any:  # noqa: ANN401
        """The partition values, the name and the number of each file, as rows of the JVM."""
        codes, values = self._distinct
        root, paths = self.snapshot.table, self.part.files.paths.to_pylist()
        rows = [
            (*values[code], full_name(root, path), str(number))
            for code, path, number in zip(codes, paths, self.part.numbers.tolist(), strict=True)
        ]
        return self._typed_rows(rows, [StringType(), LongType()])

    @cached_property
    def _distinct(self) -> tuple[NDArray[np.int64], list[tuple[str | None, ...]]]:
        """For each file the index of its partition values, and the distinct ones, as strings."""
        files, fields = self.part.files, self.snapshot.metadata.partition_fields
        if not fields:
            return np.zeros(len(files), dtype=np.int64), [()]
        return distinct_rows([files.partition_strings(field.physical_name) for field in fields])

    def _typed_rows(self, rows: Sequence[tuple[str | None, ...]], more: Sequence[DataType]) -> Any:  # noqa: ANN401
        """Cast partition values and `more` columns from strings, by Spark's own casts."""
        fields = self.snapshot.metadata.partition_fields
        kinds = [*(spark_type(field.type) for field in fields), *more]
        casts = [self._cast(place, kind) for place, kind in enumerate(kinds)]
        base = "org.apache.spark.sql.catalyst.expressions.Expression"
        own = len(fields)
        strings = [
            tuple(
                None if text is None or is_null_text(text, field.type) else text
                for text, field in zip(values[:own], fields, strict=True)
            )
            + values[own:]
            for values in rows
        ]
        try:
            expressions = jvm.array_of(self.spark, jvm.java_class(self.spark, base), casts)
            return self.lister.rows(pickle.dumps(strings, protocol=4), expressions)
        except (Py4JJavaError, PySparkException) as error:
            cause = str(error).splitlines()[0]
            raise FormatError(
                f"a partition value of the log is not of its column's type ({cause})",
                path=self.snapshot.table,
                expected=", ".join(f"{field.name} {field.type}" for field in fields),
            ) from error

    def _cast(self, place: int, kind: DataType) -> Any:  # noqa: ANN401
        view = jvm.view_of(self.spark)
        expressions = view.org.apache.spark.sql.catalyst.expressions
        return expressions.Cast(
            expressions.BoundReference(place, jvm.java_type(self.spark, StringType()), True),
            jvm.java_type(self.spark, kind),
            view.scala.Option.apply(self.time_zone),
            expressions.EvalMode.ANSI(),
        )


def distinct_rows(
    columns: Sequence[pa.Array],
) -> tuple[NDArray[np.int64], list[tuple[str | None, ...]]]:
    """Return for each row the index of its combination of values, and the distinct combinations."""
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        joined = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        _, codes = np.unique(joined, return_inverse=True)
    _, first = np.unique(codes, return_index=True)
    rows = [column.take(first).to_pylist() for column in columns]
    return codes, list(zip(*rows, strict=True))


@dataclass(frozen=True)
class _Translation:
    column: Callable[[ColumnPath], ColumnPath | None]

    def of(self, node: Expression) -> Predicate:
        found: Predicate = nodes.Unknown()
        match node.kind:
            case "And":
                found = nodes.And(tuple(map(self.of, node.children)))
            case "Or":
                found = nodes.Or(tuple(map(self.of, node.children)))
            case "Not":
                found = nodes.Not(self.of(node.children[0]))
            case "IsNull" | "IsNotNull":
                path = self._path(node.children[0])
                found = nodes.Unknown() if path is None else nodes.IsNull(path)
                found = nodes.Not(found) if node.kind == "IsNotNull" else found
            case "In":
                found = self._in(node)
            case "StartsWith":
                found = self._starts_with(*node.children)
            case operator if operator in _OPERATORS:
                found = self._comparison(_OPERATORS[operator], *node.children)
            case "Literal" if node.type == "boolean":
                found = nodes.Always() if node.value is True else nodes.Never()
            case _ if node.type == "boolean":
                path = self._path(node)
                found = nodes.Unknown() if path is None else nodes.Comparison(path, "=", True)
        return found

    def _comparison(self, operator: Operator, left: Expression, right: Expression) -> Predicate:
        if left.kind == "Literal":
            left, right, operator = right, left, _FLIPPED.get(operator, operator)
        path = self._path(left)
        if path is None or right.kind != "Literal":
            return nodes.Unknown()
        if right.value is None:
            return nodes.IsNull(path) if operator == "<=>" else nodes.Never()
        value = _converted(right.value, right.type)
        return nodes.Unknown() if value is None else nodes.Comparison(path, operator, value)

    def _in(self, node: Expression) -> Predicate:
        path = self._path(node.children[0])
        if path is None or node.value is None:
            return nodes.Unknown()
        kind = node.children[0].type
        values = [_converted(cell, kind) for cell in node.value if cell is not None]
        if any(value is None for value in values):
            return nodes.Unknown()
        within = nodes.In(path, tuple(values))
        # With a null in the list other values give NULL instead of false: NOT IN matches nothing.
        return within if len(values) == len(node.value) else nodes.Or((within, nodes.Never()))

    def _starts_with(self, column: Expression, prefix: Expression) -> Predicate:
        path = self._path(column)
        value = _converted(prefix.value, prefix.type) if prefix.kind == "Literal" else None
        if path is None or not isinstance(value, str):
            return nodes.Unknown()
        return nodes.StartsWith(path, value)

    def _path(self, node: Expression) -> ColumnPath | None:
        """Return the column that a node is, through casts that keep values; None for all else."""
        names: list[str] = []
        while _only_widens(node):
            node = node.children[0]
        while node.name is not None:
            names.append(node.name)
            if not node.children:
                return self.column(tuple(reversed(names)))
            [node] = node.children
        return None


def _only_widens(cast: Expression) -> bool:
    """Whether a node only widens an integer, so that it changes no comparison."""
    if cast.kind != "Cast":
        return False
    source, target = cast.children[0].type, cast.type
    both_integers = source in _INTEGERS and target in _INTEGERS
    return both_integers and _INTEGERS.index(source) <= _INTEGERS.index(target)


def _converted(value: Any, kind: str | None) -> Any:  # noqa: ANN401
    """Return a constant as a Python value; None for null and for what is not compared."""
    convert = _same if str(kind).startswith("decimal") else _CONVERTERS.get(str(kind))
    if value is None or convert is None:
        return None
    try:
        return convert(value)
    except OverflowError:
        return None  # a date or time beyond the range of Python's


def _same(value: Any) -> Any:  # noqa: ANN401
    return value


def _string(value: str) -> str | None:
    return None if "\ufffd" in value else value  # also what bytes become that are not UTF-8


def _instant(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


# Not strings of another collation, under which different ones are equal.
_CONVERTERS: Final[dict[str, Callable[[Any], Any]]] = {
    **dict.fromkeys(("boolean", *_INTEGERS, "float", "double"), _same),
    "string": _string,
    "binary": bytes,
    "date": lambda days: date(1970, 1, 1) + timedelta(days=days),
    "timestamp": _instant,
    "timestamp_ntz": lambda micros: _instant(micros).replace(tzinfo=None),
}

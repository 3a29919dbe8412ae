"""Conditions, in SQL or as a Column, as predicates that prune the files of a table.

An operation scans its table again, and after a conflict again, so that columns of one DataFrame of
the table, such as `df["id"]`, are rebuilt to be resolved by name.

Filters of a query, Spark's resolved expressions, are applied to files instead of rows:

    on data         translated to a predicate; what is not understood is `Unknown`, which prunes
                    nothing: Spark applies these filters to the rows in any case
    on partitions   evaluated by Spark on the values in the log, exactly: rows are not tested again

See `file_index`.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, functions
from pyspark.sql.types import DataType, LongType, StringType

from delvec.delta.schema.partition_values import is_null_text
from delvec.delta.skipping import predicate as nodes
from delvec.delta.skipping.predicate import Always, ColumnPath, Operator, Predicate, Unknown
from delvec.delta.write.targets import Targets, find_targets
from delvec.documents import EPOCH
from delvec.errors import FormatError, InvalidArgumentError
from delvec.spark import jvm
from delvec.spark.catalyst import Expression, column_of, expression_of, name_of, read, rebuild
from delvec.spark.engine import time_zone
from delvec.spark.types import spark_type, table_schema
from delvec.storage.listed_files import full_name

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.schema.types import StructType
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


ALIAS: Final = "t"
"""What conditions and values may call the table, as those of a merge do."""
_alias: Final = ContextVar[tuple[str, ...]]("alias", default=(ALIAS,))
_T = TypeVar("_T")


def to_predicate(spark: SparkSession, schema: StructType, where: str | Column) -> Predicate:
    """Return what is understood of a condition, which Spark parses and resolves; runs no job."""
    condition = functions.expr(where) if isinstance(where, str) else where
    nothing = no_rows(spark, schema)
    try:
        plan: Any = nothing.where(condition)._jdf.queryExecution().analyzed()  # noqa: SLF001
    except AnalysisException:
        return Unknown()  # wrong, or on another DataFrame: reported when it is applied to rows
    if jvm.class_name(plan) != "Filter":
        return Unknown()  # conditions that Spark turns into joins, such as subqueries
    return translate(spark, plan.condition(), lambda path: path)


def plan_targets(spark: SparkSession, snapshot: Snapshot, where: str | Column | None) -> Targets:
    """Return the files of a version that a condition may match, by the log; reads no row."""
    predicate = Always() if where is None else to_predicate(spark, snapshot.metadata.schema, where)
    return find_targets(snapshot, predicate, time_zone(spark))


def no_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    """Return no rows of a table, under its alias.

    PySpark would make them of an RDD, in tenfold the time.
    """
    rows = jvm.java_class(spark, "java.util.ArrayList")()
    columns = jvm.java_type(spark, table_schema(schema.fields))
    return aliased(DataFrame(jvm.session_of(spark).createDataFrame(rows, columns), spark), schema)


def to_sql(where: str | Column) -> str:
    if isinstance(where, str):
        return where
    column: Any = where._jc  # noqa: SLF001
    return str(column.toString())


@contextmanager
def called(*name: str) -> Iterator[None]:
    """Let conditions and values call the table by another name than `t`, as a statement does.

    Where the name has parts, each end of it is a name of the table.
    """
    token = _alias.set(name)
    try:
        yield
    finally:
        _alias.reset(token)


def alias_in(schema: StructType) -> str | None:
    """Return the alias of a table; none if it has a column of that name, whose fields are meant."""
    alias = _alias.get()[-1]
    return None if alias.lower() in {name.lower() for name in schema.names} else alias


def aliased(rows: DataFrame, schema: StructType) -> DataFrame:
    """Return rows of a table under its alias, for a condition or values that follow."""
    alias, qualifier = alias_in(schema), _alias.get()[:-1]
    if alias is None or not qualifier:
        return rows if alias is None else rows.alias(alias)
    spark, catalyst = rows.sparkSession, "org.apache.spark.sql.catalyst"
    identifier = jvm.java_class(spark, f"{catalyst}.AliasIdentifier")(
        alias, jvm.to_seq(spark, qualifier)
    )
    plan: Any = rows._jdf.queryExecution().analyzed()  # noqa: SLF001
    aliases = jvm.java_class(spark, f"{catalyst}.plans.logical.SubqueryAlias")
    return jvm.frame_of(spark, aliases(identifier, plan))


def rebind_columns(
    spark: SparkSession,
    value: _T,
    table: tuple[str | None, Iterable[Any]],
    others: Iterable[tuple[str, DataFrame]] = (),
) -> _T:
    """Return a column with all bound columns in it replaced by names; other values as they are."""
    if not isinstance(value, Column) or not hasattr(value, "_jc"):
        return value
    known = [(table[0], list(table[1])), *((alias, [attributes_of(df)]) for alias, df in others)]
    rebuilt = rebuild(spark, expression_of(spark, value), partial(_by_name, spark, known))
    return value if rebuilt is None else column_of(spark, rebuilt)  # type: ignore[return-value]


def attributes_of(df: DataFrame) -> Any:  # noqa: ANN401
    """Return the columns of a DataFrame as a set of the JVM, which holds neither plan nor files."""
    plan: Any = df._jdf.queryExecution().analyzed()  # noqa: SLF001
    return plan.outputSet()


def _by_name(
    spark: SparkSession,
    known: Sequence[tuple[str | None, Sequence[Any]]],
    kind: str,
    node: Any,  # noqa: ANN401
    children: Sequence[Any],
) -> Any | None:  # noqa: ANN401
    """Return a node that is resolved by name instead of a bound column; None for others."""
    if kind == "AttributeReference":
        return name_of(spark, [*_aliases(known, node), node.name()])
    if not children or kind not in ("GetStructField", "GetArrayStructFields"):
        return None
    # Fields are found by name again: their place may be another one.
    name = node.extractFieldName() if kind == "GetStructField" else node.field().name()
    catalyst = jvm.view_of(spark).org.apache.spark.sql.catalyst
    literal = catalyst.expressions.Literal.apply(name)
    return catalyst.analysis.UnresolvedExtractValue(children[0], literal)


def _aliases(known: Sequence[tuple[str | None, Sequence[Any]]], attribute: Any) -> list[str]:  # noqa: ANN401
    """Return what a bound column's name has to stand behind."""
    found = [
        alias for alias, sets in known if any(attributes.contains(attribute) for attributes in sets)
    ]
    if len(found) == 1:
        return [] if found[0] is None else [found[0]]
    name = attribute.name()
    if found:
        raise InvalidArgumentError(
            f"column {name} of a DataFrame is on both sides of the merge",
            hint=f"say which: {found[0]}.{name} or {found[1]}.{name}",
        )
    raise InvalidArgumentError(
        f"column {name} is bound to a DataFrame that is not to_df() of this table",
        hint=f'write functions.col("{name}"), or the condition as a string',
    )

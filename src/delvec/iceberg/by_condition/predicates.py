"""Conditions that are a list of keys, such as `id = 5` or `id IN (1, 2, 3)`.

Spark parses, resolves and optimises the condition, so that casts, case and folded constants are
Spark's own. What is left is read as a set of keys, exactly or not at all: a condition that is not
understood is none of keys.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, functions

from delvec.iceberg.client.catalog import iceberg_view
from delvec.iceberg.deletes.key_columns import arrow_type
from delvec.spark import jvm
from delvec.spark.delta.scan.file_lister import literal_pickler
from delvec.spark.failures import quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pyspark.sql import Column

    from delvec.iceberg.client.catalog import LoadedTable
    from delvec.iceberg.deletes.key_columns import KeyColumn

__all__ = ["Condition", "KeyList", "NoKeys", "aliased", "keys_of"]

_MOST_KEYS: Final = 1_000_000  # of a product such as `a IN (...) AND b IN (...)`
# Types of keys that Spark compares as Iceberg does, with the form that Spark has their values in.
# (Floats have two zeros and many NaNs; UUIDs are strings for Spark, which differ by case.)
_PLAIN: Final = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "date": pa.int32(),
    "timestamp": pa.int64(),
    "timestamptz": pa.int64(),
    "string": pa.large_string(),
    "binary": pa.large_binary(),
}


@dataclass(frozen=True, eq=False)
class Condition:
    """The condition of a DELETE.

    Attributes:
        where: SQL or a column of Spark; None for all rows.
        alias: The name by which the condition may qualify columns, in parts; empty for none.
    """

    where: str | Column | None
    alias: tuple[str, ...] = ()

    def column(self) -> Column | None:
        """Return the condition as a column of Spark, unresolved."""
        return functions.expr(self.where) if isinstance(self.where, str) else self.where

    def applied(self, rows: DataFrame) -> DataFrame:
        """Return the rows that satisfy the condition.

        Raises:
            PySparkException: Spark cannot parse or resolve it.
        """
        column = self.column()
        return rows if column is None else aliased(rows, self.alias).where(column)


@dataclass(frozen=True, eq=False)
class KeyList:
    """The keys of exactly those rows that a condition is true for.

    Attributes:
        keys: A column for each key column, by its full name, of the type that it has in the table.
            A null stands for rows with a null. Without rows, no row of the table can match.
    """

    columns: tuple[KeyColumn, ...]
    keys: pa.Table


@dataclass(frozen=True)
class NoKeys:
    """A condition that is not a list of keys.

    Attributes:
        reason: Why not, as a part of a sentence.
    """

    reason: str


def keys_of(
    table: LoadedTable, condition: Condition, columns: Sequence[KeyColumn]
) -> KeyList | NoKeys:
    """Return the keys that a condition lists, or why it lists none; runs no job.

    Some ten milliseconds, and a fraction of one for each term that is not part of an `IN`.

    Args:
        table: The table, whose current schema the condition is about.
        condition: The condition.
        columns: The columns that make up a key.
    """
    if condition.where is None:
        return NoKeys("there is no condition")
    named = {each.id: each for each in columns}
    for each in columns:
        if _plain_type(each.type) is None:
            return NoKeys(f"values of {each.name}, of type {each.type}, are not compared as keys")
    try:
        with quiet():
            plan = _optimised(table, condition)
            found = _read(table, plan, named)
    except (PySparkException, Py4JError) as error:
        # A wrong condition fails again where it is applied to rows, and is reported there.
        return NoKeys(f"Spark cannot resolve it without the table's rows: {_first_line(error)}")
    if isinstance(found, NoKeys):
        return found
    if found.columns != tuple(named) and found.keys:
        return NoKeys(f"it is not about {_listed(columns)} alone")
    return _as_arrow(found, tuple(columns))


def aliased(rows: DataFrame, alias: tuple[str, ...]) -> DataFrame:
    """Return rows whose columns can be qualified by a name of one or more parts."""
    if not alias:
        return rows
    spark = rows.sparkSession
    plans = "org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias"
    names = jvm.java_class(spark, "org.apache.spark.sql.catalyst.AliasIdentifier")
    name = names(alias[-1], jvm.to_seq(spark, alias[:-1]))
    planned: Any = rows._jdf.logicalPlan()  # noqa: SLF001
    plan = jvm.java_class(spark, plans)(name, planned)
    datasets = jvm.java_class(spark, "org.apache.spark.sql.classic.Dataset")
    return DataFrame(datasets.ofRows(jvm.session_of(spark), plan), spark)


def _optimised(table: LoadedTable, condition: Condition) -> Any:  # noqa: ANN401
    """Return Spark's optimised plan of the condition on no rows of the table's schema."""
    spark = table.spark
    schema = iceberg_view(spark).spark.SparkSchemaUtil.convert(table.current.schema())
    session = jvm.session_of(spark)
    nothing = session.createDataFrame(jvm.java_class(spark, "java.util.ArrayList")(), schema)
    # Of an RDD, since the optimiser drops conditions on rows that it knows to be none.
    rows = nothing.queryExecution().toRdd()
    relation = DataFrame(session.internalCreateDataFrame(rows, schema, False), spark)
    filtered: Any = condition.applied(relation)._jdf  # noqa: SLF001
    return filtered.queryExecution().optimizedPlan()


def _read(table: LoadedTable, plan: Any, named: Mapping[int, KeyColumn]) -> _Keys | NoKeys:  # noqa: ANN401
    kind = _kind(plan)
    if kind == "LocalRelation":
        return _Keys(tuple(named), frozenset())  # the condition is false for all rows
    if kind == "LogicalRDD":
        return NoKeys("it is true for all rows")
    if kind != "Filter" or _kind(plan.child()) != "LogicalRDD":
        return NoKeys("it has a subquery or an expression that Spark does not fold")
    output = [each.exprId().id() for each in jvm.items(plan.child().output())]
    ids = [field["id"] for field in table.metadata.schema["fields"]]
    fields = dict(zip(output, ids, strict=True))
    return _Reading(fields, named, literal_pickler(table.spark)).of(plan.condition())


@dataclass(frozen=True)
class _Keys:
    """The values of some columns, by field id, for which an expression is true.

    Attributes:
        columns: Field ids, ascending in the order of the key.
        keys: Tuples of values; None for a null.
        not_null: Columns that are not null besides, if nothing else is said of them.
    """

    columns: tuple[int, ...]
    keys: frozenset[tuple[Any, ...]]
    not_null: frozenset[int] = frozenset()


class _NotUnderstoodError(Exception):
    """An expression is not a list of keys; the message says which."""


class _Reading:
    """Reads an expression as the set of keys for which it is true.

    Only AND and OR are combined, under which "is true" is a matter of sets: whether another key
    gives false or NULL does not matter.
    """

    def __init__(
        self,
        fields: Mapping[int, int],
        named: Mapping[int, KeyColumn],
        pickled: Callable[[Any], bytes],
    ) -> None:
        self._fields, self._named, self._pickled = fields, named, pickled
        self._order = tuple(named)

    def of(self, expression: Any) -> _Keys | NoKeys:  # noqa: ANN401
        try:
            found = self._of(expression)
        except _NotUnderstoodError as error:
            return NoKeys(str(error))
        if found.not_null:
            return NoKeys("it is not a list of keys")
        return found

    def _of(self, node: Any) -> _Keys:  # noqa: ANN401
        kind = _kind(node)
        rule = getattr(self, f"_{kind}", None)
        if rule is None:
            raise _NotUnderstoodError(f"{_sql(node)} is not a comparison with a key")
        found: _Keys = rule(node)
        return found

    def _And(self, node: Any) -> _Keys:  # noqa: ANN401, N802
        return self._both(self._of(node.left()), self._of(node.right()))

    def _Or(self, node: Any) -> _Keys:  # noqa: ANN401, N802
        # A long chain of OR is as deep as it is long.
        parts = [self._of(each) for each in _operands(node, "Or")]
        first = parts[0]
        if any(each.columns != first.columns or each.not_null for each in parts):
            raise _NotUnderstoodError(f"{_sql(node)} is not about one set of columns")
        return replace(first, keys=frozenset().union(*(each.keys for each in parts)))

    def _EqualTo(self, node: Any) -> _Keys:  # noqa: ANN401, N802
        column, literal = self._sides(node)
        value = self._value(column, literal)
        return _Keys((column,), frozenset() if value is None else frozenset([(value,)]))

    def _EqualNullSafe(self, node: Any) -> _Keys:  # noqa: ANN401, N802
        column, literal = self._sides(node)
        return _Keys((column,), frozenset([(self._value(column, literal),)]))

    def _IsNull(self, node: Any) -> _Keys:  # noqa: ANN401, N802
        return _Keys((self._column(node.child()),), frozenset([(None,)]))

    def _IsNotNull(self, node: Any) -> _Keys:  # noqa: ANN401, N802
        return _Keys((), frozenset([()]), frozenset([self._column(node.child())]))

    def _In(self, node: Any) -> _Keys:  # noqa: ANN401, N802
        literals = list(jvm.items(node.list()))
        for each in literals:
            _require_literal(each)
        if _kind(node.value()) == "CreateNamedStruct":
            return self._tuples(node.value(), [each.value() for each in literals])
        column = self._column(node.value())
        values = (self._value(column, each) for each in literals)
        return _Keys((column,), frozenset((each,) for each in values if each is not None))

    def _InSet(self, node: Any) -> _Keys:  # noqa: ANN401, N802
        if _kind(node.child()) == "CreateNamedStruct":
            return self._tuples(node.child(), list(jvm.items(node.hset())))
        column = self._column(node.child())
        cells = pickle.loads(self._pickled(node.hset().toSeq()))  # noqa: S301 - from our own JVM
        values = (self._plain(column, each) for each in cells if each is not None)
        return _Keys((column,), frozenset((each,) for each in values))

    def _AttributeReference(self, node: Any) -> _Keys:  # noqa: ANN401, N802
        return self._boolean(node, value=True)

    def _Not(self, node: Any) -> _Keys:  # noqa: ANN401, N802
        return self._boolean(node.child(), value=False)

    def _Literal(self, node: Any) -> _Keys:  # noqa: ANN401, N802
        if node.value() is True:
            return _Keys((), frozenset([()]))
        raise _NotUnderstoodError(f"{_sql(node)} is not a comparison with a key")

    def _boolean(self, node: Any, *, value: bool) -> _Keys:  # noqa: ANN401
        if _kind(node.dataType()) != "BooleanType$":
            raise _NotUnderstoodError(f"{_sql(node)} is not a comparison with a key")
        return _Keys((self._column(node),), frozenset([(value,)]))

    def _tuples(self, struct: Any, rows: Sequence[Any]) -> _Keys:  # noqa: ANN401
        """Read `(a, b) IN ((1, 2), ...)`."""
        nodes = list(jvm.items(struct.valExprs()))
        columns = tuple(self._column(each) for each in nodes)
        types = [each.dataType() for each in nodes]
        if len(set(columns)) < len(columns):
            raise _NotUnderstoodError("a column is named twice in a tuple")
        keys = set()
        for row in rows:
            cells = [] if row is None else [row.get(i, each) for i, each in enumerate(types)]
            if any(each is None for each in cells) or row is None:
                raise _NotUnderstoodError("a tuple has a null")  # null = null for Spark's structs
            pairs = zip(columns, cells, strict=True)
            keys.add(tuple(self._plain(column, each) for column, each in pairs))
        return self._sorted(columns, keys)

    def _sorted(self, columns: tuple[int, ...], keys: set[tuple[Any, ...]]) -> _Keys:
        order = sorted(range(len(columns)), key=lambda i: self._order.index(columns[i]))
        return _Keys(
            tuple(columns[i] for i in order),
            frozenset(tuple(key[i] for i in order) for key in keys),
        )

    def _both(self, left: _Keys, right: _Keys) -> _Keys:
        """Return the keys of which both are true."""
        if left.columns == right.columns:
            joined = _Keys(left.columns, left.keys & right.keys)
        elif set(left.columns) & set(right.columns):
            raise _NotUnderstoodError("conditions on a part of the key are combined")
        else:
            if len(left.keys) * len(right.keys) > _MOST_KEYS:
                raise _NotUnderstoodError(f"it lists more than {_MOST_KEYS:,} keys")
            pairs = {one + other for one, other in product(left.keys, right.keys)}
            joined = self._sorted(left.columns + right.columns, pairs)
        not_null = left.not_null | right.not_null
        places = [i for i, column in enumerate(joined.columns) if column in not_null]
        keys = (key for key in joined.keys if all(key[i] is not None for i in places))
        return _Keys(joined.columns, frozenset(keys), not_null - set(joined.columns))

    def _sides(self, node: Any) -> tuple[int, Any]:  # noqa: ANN401
        left, right = node.left(), node.right()
        if _kind(left) == "Literal":
            left, right = right, left
        _require_literal(right)
        return self._column(left), right

    def _column(self, node: Any) -> int:  # noqa: ANN401
        """Return the field id of a key column; a cast or another column is refused."""
        if _kind(node) != "AttributeReference":
            raise _NotUnderstoodError(f"{_sql(node)} is not a column")
        found = self._fields[node.exprId().id()]
        if found not in self._named:
            raise _NotUnderstoodError(f"{_sql(node)} is not part of the key")
        return found

    def _value(self, column: int, literal: Any) -> Any:  # noqa: ANN401
        value = literal.value()
        return None if value is None else self._plain(column, value)

    def _plain(self, column: int, value: Any) -> Any:  # noqa: ANN401
        kind = self._named[column].type
        if kind.startswith("decimal"):
            return str(value.toString()) if hasattr(value, "toString") else str(value)
        if kind == "string":
            text = value if isinstance(value, str) else str(value.toString())
            if "\ufffd" in text:  # also what bytes become that are no UTF-8
                raise _NotUnderstoodError("a string is not UTF-8, or has the replacement character")
            return text
        return bytes(value) if kind == "binary" else value


def _operands(node: Any, kind: str) -> Iterator[Any]:  # noqa: ANN401
    waiting = [node]
    while waiting:
        each = waiting.pop()
        if _kind(each) == kind:
            waiting += [each.right(), each.left()]
        else:
            yield each


def _require_literal(node: Any) -> None:  # noqa: ANN401
    if _kind(node) != "Literal":
        raise _NotUnderstoodError(f"{_sql(node)} is not a constant")


def _kind(value: Any) -> str:  # noqa: ANN401
    name: str = value.getClass().getSimpleName()
    return name


def _sql(node: Any) -> str:  # noqa: ANN401
    text: str = node.sql()
    return text if len(text) <= 60 else f"{text[:60]}..."


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _listed(columns: Sequence[KeyColumn]) -> str:
    return ", ".join(each.name for each in columns)


def _plain_type(kind: str) -> pa.DataType | None:
    return pa.large_string() if kind.startswith("decimal") else _PLAIN.get(kind)


def _as_arrow(found: _Keys, columns: tuple[KeyColumn, ...]) -> KeyList:
    values = list(zip(*found.keys, strict=True)) or [()] * len(columns)
    arrays = {
        each.name: pa.array(cells, _plain_type(each.type)).cast(arrow_type(each.type))
        for each, cells in zip(columns, values, strict=True)
    }
    return KeyList(columns, pa.table(arrays))

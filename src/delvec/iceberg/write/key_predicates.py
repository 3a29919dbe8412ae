"""Conditions that are a list of keys, such as `id = 5` or `id IN (1, 2, 3)`, and of which key.

Spark parses, resolves and optimises the condition, so that casts, case and folded constants are
Spark's own. What is left is read as a set of keys, exactly or not at all: a condition that is not
understood is none of keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, functions

from delvec.errors import InvalidArgumentError
from delvec.iceberg.client.catalog import LoadedTable, iceberg_view
from delvec.iceberg.client.metadata import TableMetadata
from delvec.iceberg.deletes.key_columns import columns_of, key_columns
from delvec.iceberg.deletes.key_vectors import VECTORS_ENABLED, why_no_vector
from delvec.spark import jvm
from delvec.spark.catalyst import Expression, read, sql_of
from delvec.spark.failures import quiet
from delvec.spark.input.key_values import NUMBER_TYPES, KeyColumn, arrow_type

KEY_PROPERTY: Final = "delvec.key"
"""The table property that names the columns of the key, separated by commas."""
_MOST_KEYS: Final = 1_000_000  # of a product such as `a IN (...) AND b IN (...)`


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
        column = self.column()
        return rows if column is None else aliased(rows, self.alias).where(column)


@dataclass(frozen=True)
class ChosenKey:
    """The columns of a key, and who named them, or why there are none, in a part of a sentence.

    If `any_one`, the key is the one of these columns that a condition is about.
    """

    columns: tuple[KeyColumn, ...]
    reason: str
    any_one: bool = False


def find_key(
    metadata: TableMetadata, table: str, key: str | Sequence[str] | None = None
) -> ChosenKey:
    """Return the key of a table.

    A vector needs no key of the table: where it is enabled, any column that it can hold is one.
    """
    if key is not None:
        names = [key] if isinstance(key, str) else list(key)
        return ChosenKey(key_columns(metadata.schema, names, table), "the call names it")
    named = metadata.properties.get(KEY_PROPERTY)
    if named is not None:
        names = [part.strip() for part in named.split(",")]
        return _unless_wrong(metadata, table, names, f"the property {KEY_PROPERTY}")
    ids = metadata.schema.get("identifier-field-ids", ())
    if not ids:
        known = columns_of(metadata.schema["fields"])
        able = tuple(each for each in known if why_no_vector([each], metadata) is None)
        if able:
            return ChosenKey(able, f"by the property {VECTORS_ENABLED}", any_one=True)
        reason = f"the table has neither identifier fields nor the property {KEY_PROPERTY}"
        return ChosenKey((), f"no key is known: {reason}")
    by_id = {field["id"]: field["name"] for field in metadata.schema["fields"]}
    names = [by_id.get(each, f"of field id {each}") for each in ids]
    return _unless_wrong(metadata, table, names, "the identifier fields")


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
    """A condition that is not a list of keys, and why not, as a part of a sentence."""

    reason: str


def keys_of(table: LoadedTable, condition: Condition, key: ChosenKey) -> KeyList | NoKeys:
    """Return the keys that a condition lists, or why it lists none; runs no job.

    Some ten milliseconds, and a fraction of one for each term that is not part of an `IN`.
    """
    columns, named = key.columns, {each.id: each for each in key.columns}
    for each in columns:
        if _plain_type(each.type) is None:
            return NoKeys(f"values of {each.name}, of type {each.type}, are not compared as keys")
    try:
        with quiet():
            plan = _optimised(table, condition)
            found = _read(table, plan, key)
    except (PySparkException, Py4JError) as error:
        # A wrong condition fails again where it is applied to rows, and is reported there.
        told = str(error).strip().partition("\n")[0]
        return NoKeys(f"Spark cannot resolve it without the table's rows: {told}")
    if isinstance(found, NoKeys):
        return found
    if key.any_one:
        columns = tuple(named[each] for each in found.columns) if found.keys else columns[:1]
        if len(columns) > 1:
            names = ", ".join(each.name for each in columns)
            return NoKeys(f"it is about {names}, and a vector holds values of one column")
    elif found.columns != tuple(named) and found.keys:
        return NoKeys(f"it is not about {', '.join(each.name for each in columns)} alone")
    values = list(zip(*found.keys, strict=True)) or [()] * len(columns)
    arrays = {
        each.name: pa.array(cells, _plain_type(each.type)).cast(arrow_type(each.type))
        for each, cells in zip(columns, values, strict=True)
    }
    return KeyList(tuple(columns), pa.table(arrays))


def aliased(rows: DataFrame, alias: tuple[str, ...]) -> DataFrame:
    """Return rows whose columns can be qualified by a name of one or more parts."""
    if not alias:
        return rows
    spark = rows.sparkSession
    plans = "org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias"
    names = jvm.java_class(spark, "org.apache.spark.sql.catalyst.AliasIdentifier")
    name = names(alias[-1], jvm.to_seq(spark, alias[:-1]))
    planned: Any = rows._jdf.logicalPlan()  # noqa: SLF001
    return jvm.frame_of(spark, jvm.java_class(spark, plans)(name, planned))


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


def _read(table: LoadedTable, plan: Any, key: ChosenKey) -> _Keys | NoKeys:  # noqa: ANN401
    kind = jvm.class_name(plan)
    if kind == "LocalRelation":
        # The condition is false for all rows.
        return _Keys(tuple(each.id for each in key.columns), frozenset())
    if kind == "LogicalRDD":
        return NoKeys("it is true for all rows")
    if kind != "Filter" or jvm.class_name(plan.child()) != "LogicalRDD":
        return NoKeys("it has a subquery or an expression that Spark does not fold")
    output = [each.exprId().id() for each in jvm.items(plan.child().output())]
    ids = [field["id"] for field in table.metadata.schema["fields"]]
    fields = dict(zip(output, ids, strict=True))
    condition = plan.condition()
    try:
        found = _Reading(fields, key).of(read(table.spark, condition))
    except _NotUnderstoodError as error:
        text = "" if error.node is None else sql_of(table.spark, condition, error.node)
        return NoKeys(f"{text if len(text) <= 60 else f'{text[:60]}...'} {error}".lstrip())
    return NoKeys("it is not a list of keys") if found.not_null else found


@dataclass(frozen=True)
class _Keys:
    """The values of some columns, by field id, for which an expression is true.

    The columns are in the order of the key. Those of `not_null` are not null besides, if nothing
    else is said of them.
    """

    columns: tuple[int, ...]
    keys: frozenset[tuple[Any, ...]]
    not_null: frozenset[int] = frozenset()


class _NotUnderstoodError(Exception):
    """An expression is not a list of keys; the message says which, the node where, if there is one.

    The text of the node, in SQL, goes before the message.
    """

    def __init__(self, message: str, node: Expression | None = None) -> None:
        super().__init__(message)
        self.node = node


class _Reading:
    """Reads an expression as the set of keys for which it is true.

    Only AND and OR are combined, under which "is true" is a matter of sets: whether another key
    gives false or NULL does not matter.
    """

    def __init__(self, fields: Mapping[int, int], key: ChosenKey) -> None:
        self._fields, self._named = fields, {each.id: each for each in key.columns}
        self._order = tuple(self._named)
        self._outside = "is not part of the key"
        if key.any_one:
            self._outside = "is not a column that a vector holds"

    def of(self, node: Expression) -> _Keys:
        match node.kind, node.children:
            case "And", operands:
                return reduce(self._both, map(self.of, operands))
            case "Or", _:
                parts = [self.of(each) for each in node.children]
                first = parts[0]
                if any(each.columns != first.columns or each.not_null for each in parts):
                    raise _NotUnderstoodError("is not about one set of columns", node)
                return replace(first, keys=frozenset().union(*(each.keys for each in parts)))
            case "EqualTo" | "EqualNullSafe" as kind, (left, right):
                column, value = self._sides(left, right)
                is_never = value is None and kind == "EqualTo"
                found = _Keys((column,), frozenset() if is_never else frozenset([(value,)]))
            case "IsNull", (child,):
                found = _Keys((self._column(child),), frozenset([(None,)]))
            case "IsNotNull", (child,):
                found = _Keys((), frozenset([()]), frozenset([self._column(child)]))
            case "In", (tested, *others):
                return self._in(tested, others, node.value)
            case "Literal", _ if node.value is True:
                found = _Keys((), frozenset([()]))
            case ("AttributeReference", _) | ("Not", _) if node.type == "boolean":
                column = self._column(node if node.kind != "Not" else node.children[0])
                found = _Keys((column,), frozenset([(node.kind != "Not",)]))
            case _:
                raise _NotUnderstoodError("is not a comparison with a key", node)
        return found

    def _in(self, tested: Expression, others: Sequence[Expression], cells: Any) -> _Keys:  # noqa: ANN401
        if cells is None:
            raise _NotUnderstoodError("is not a constant", (*others, tested)[0])
        if tested.kind == "CreateNamedStruct":
            return self._tuples(tested.children[1::2], cells)
        column = self._column(tested)
        values = (self._plain(column, each) for each in cells if each is not None)
        return _Keys((column,), frozenset((each,) for each in values))

    def _tuples(self, nodes: Sequence[Expression], rows: Sequence[Any]) -> _Keys:
        """Read `(a, b) IN ((1, 2), ...)`."""
        columns = tuple(self._column(each) for each in nodes)
        if len(set(columns)) < len(columns):
            raise _NotUnderstoodError("a column is named twice in a tuple")
        if any(row is None or None in row for row in rows):
            raise _NotUnderstoodError("a tuple has a null")  # null = null for Spark's structs
        keys = {tuple(map(self._plain, columns, row)) for row in rows}
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

    def _sides(self, left: Expression, right: Expression) -> tuple[int, Any]:
        if left.kind == "Literal":
            left, right = right, left
        if right.kind != "Literal":
            raise _NotUnderstoodError("is not a constant", right)
        column = self._column(left)
        return column, None if right.value is None else self._plain(column, right.value)

    def _column(self, node: Expression) -> int:
        """Return the field id of a key column; a cast or another column is refused."""
        if node.kind != "AttributeReference":
            raise _NotUnderstoodError("is not a column", node)
        found = self._fields[node.value]
        if found not in self._named:
            raise _NotUnderstoodError(self._outside, node)
        return found

    def _plain(self, column: int, value: Any) -> Any:  # noqa: ANN401
        kind = self._named[column].type
        if kind.startswith("decimal"):
            return str(value)
        if kind == "string" and "\ufffd" in value:  # also what bytes become that are no UTF-8
            raise _NotUnderstoodError("a string is not UTF-8, or has the replacement character")
        return bytes(value) if kind == "binary" else value


def _plain_type(kind: str) -> pa.DataType | None:
    """Return the form that Spark has values in; None if it does not compare them as Iceberg does.

    UUIDs are strings for Spark, which differ by case.
    """
    if kind in NUMBER_TYPES:
        return pa.int32() if arrow_type(kind).bit_width == 32 else pa.int64()
    if kind.startswith("decimal"):
        return pa.large_string()
    return arrow_type(kind) if kind in ("boolean", "string", "binary") else None


def _unless_wrong(
    metadata: TableMetadata, table: str, names: Sequence[str], source: str
) -> ChosenKey:
    """Return columns that the table itself names; what it says may be out of date."""
    try:
        return ChosenKey(key_columns(metadata.schema, names, table), f"by {source}")
    except InvalidArgumentError as error:
        return ChosenKey((), f"{source} of the table cannot be used: {error.args[0]}")

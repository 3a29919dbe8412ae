"""DELETE, UPDATE and MERGE INTO of Delta tables, as Spark has parsed them.

The rule of the analyzer hands over a statement whose expressions nobody has resolved; what is
returned is a command that Spark runs, and shows in EXPLAIN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import LongType, StructField, StructType

from delvec.door.commands import Rows, command
from delvec.door.known_tables import KnownTable, known, opened, table_of
from delvec.errors import InvalidArgumentError
from delvec.identifiers import quote
from delvec.spark import jvm
from delvec.spark.catalyst import column_of, name_of, rebuild
from delvec.spark.delta.scan.conditions import called
from delvec.spark.jvm import Java, class_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from delvec.delta.write.report import WriteReport

_DEFAULT: Final = "DEFAULT"
_AFFECTED: Final = ("num_affected_rows",)
_MERGED: Final = (*_AFFECTED, "num_updated_rows", "num_deleted_rows", "num_inserted_rows")


def delete(spark: SparkSession, plan: Java) -> Java | None:
    """Return the command for a DELETE of a Delta table; None if it is of another."""
    found = _target(spark, plan.table())
    return None if found is None else _delete(spark, plan, *found)


def update(spark: SparkSession, plan: Java) -> Java | None:
    """Return the command for an UPDATE of a Delta table; None if it is of another."""
    found = _target(spark, plan.table())
    return None if found is None else _update(spark, plan, *found)


def merge(spark: SparkSession, plan: Java) -> Java | None:
    """Return the command for a MERGE INTO a Delta table; None if it is of another."""
    found = _target(spark, plan.targetTable())
    return None if found is None else _merge(spark, plan, *found)


def truncate(spark: SparkSession, table: Java) -> None:  # noqa: ARG001
    """Carry out TRUNCATE TABLE."""
    opened(known(table)).table.delete()


def _target(
    spark: SparkSession, relation: Java
) -> tuple[KnownTable, tuple[str, ...], str | None] | None:
    """Return the table of a statement, its name in parts, and its alias."""
    alias = None
    if class_name(relation) == "SubqueryAlias":
        relation, alias = relation.child(), str(relation.alias())
    if class_name(relation) != "UnresolvedRelation":
        return None
    if alias is not None and alias.lower() == "where":
        # Spark takes the word for an alias, and would change all rows.
        raise InvalidArgumentError("the statement has a WHERE without a condition behind it")
    parts = tuple(str(each) for each in jvm.items(relation.multipartIdentifier()))
    found = table_of(spark, parts)
    if found is None and (shown := _shown_by(spark, parts)) is not None:
        found = table_of(spark, [str(each) for each in jvm.items(shown.multipartIdentifier())])
    return None if found is None else (found, parts, alias)


def _shown_by(spark: SparkSession, parts: Sequence[str]) -> Java | None:
    """Return the relation of which a temporary view shows all columns and rows."""
    state = jvm.session_of(spark).sessionState()
    view = state.catalog().getRawTempView(parts[-1]) if len(parts) == 1 else None
    if view is None or not view.isDefined():
        return None
    meta, manager = view.get().tableMeta(), state.catalogManager()
    text = meta.viewText()
    # In another database the words of the view would name another table.
    here = [manager.currentCatalog().name(), *manager.currentNamespace()]
    if not text.isDefined() or list(jvm.items(meta.viewCatalogAndNamespace())) != here:
        return None
    plan = state.sqlParser().parsePlan(text.get())
    if class_name(plan) != "Project" or class_name(plan.child()) != "UnresolvedRelation":
        return None
    listed = [class_name(each) for each in jvm.items(plan.projectList())]
    return plan.child() if listed == ["UnresolvedStar"] else None


def _delete(
    spark: SparkSession, plan: Java, found: KnownTable, parts: tuple[str, ...], alias: str | None
) -> Java:
    condition = _condition(spark, plan.condition(), parts, alias)

    def carry_out() -> Rows:
        with called(alias or parts[-1]):
            return [(found.table.delete(condition).rows_deleted,)]

    return command(spark, f"DELETE {found.name}", _longs(_AFFECTED), carry_out)


def _update(
    spark: SparkSession, plan: Java, found: KnownTable, parts: tuple[str, ...], alias: str | None
) -> Java:
    given = plan.condition()
    condition = None
    if given.isDefined():
        condition = _condition(spark, given.get(), parts, alias)
    rename = _renaming(spark, [(parts, alias, None)])
    values = _assigned(spark, plan.assignments(), rename)

    def carry_out() -> Rows:
        with called(alias or parts[-1]):
            return [(found.table.update(values, condition).rows_updated,)]

    return command(spark, f"UPDATE {found.name}", _longs(_AFFECTED), carry_out)


def _merge(
    spark: SparkSession, plan: Java, found: KnownTable, parts: tuple[str, ...], alias: str | None
) -> Java:
    source, source_parts, source_alias = _source(spark, plan.sourceTable())
    target_name = alias or parts[-1]
    source_name = source_alias or (source_parts[-1] if source_parts else "__source")
    if source_name.lower() == target_name.lower():
        raise InvalidArgumentError(
            f"both tables of the MERGE are called {target_name}",
            hint="give each an alias: MERGE INTO orders a USING changes b ON a.id = b.id",
        )
    rename = _renaming(
        spark, [(parts, alias, target_name), (source_parts, source_alias, source_name)]
    )
    on = column_of(spark, rename(plan.mergeCondition()))
    clauses = [
        clause
        for of, actions in (
            ("matched", plan.matchedActions()),
            ("not_matched", plan.notMatchedActions()),
            ("not_matched_by_source", plan.notMatchedBySourceActions()),
        )
        for clause in _clauses(spark, of, actions, rename)
    ]
    evolves = bool(plan.withSchemaEvolution()) or _is_on(
        spark, "spark.databricks.delta.schema.autoMerge.enabled"
    )

    def carry_out() -> Rows:
        builder = found.table.merge(
            source(), on, source_alias=source_name, target_alias=target_name, merge_schema=evolves
        )
        for method, arguments in clauses:
            builder = getattr(builder, method)(**arguments)
        report: WriteReport = builder.execute()
        figures = (report.rows_updated, report.rows_deleted, report.rows_inserted)
        return [(sum(figures), *figures)]

    return command(spark, f"MERGE INTO {found.name}", _longs(_MERGED), carry_out)


def _source(
    spark: SparkSession, plan: Java
) -> tuple[Callable[[], DataFrame], tuple[str, ...], str | None]:
    alias = None
    if class_name(plan) == "SubqueryAlias":
        plan, alias = plan.child(), str(plan.alias())
    parts: tuple[str, ...] = ()
    if class_name(plan) == "UnresolvedRelation":
        parts = tuple(str(each) for each in jvm.items(plan.multipartIdentifier()))
    return partial(jvm.frame_of, spark, plan), parts, alias


def _clauses(
    spark: SparkSession, of: str, actions: Java, rename: Callable[[Any], Any]
) -> Iterable[tuple[str, dict[str, Any]]]:
    for action in jvm.items(actions):
        kind = class_name(action)
        arguments: dict[str, Any] = {}
        if action.condition().isDefined():
            arguments["condition"] = column_of(spark, rename(action.condition().get()))
        if kind in ("UpdateAction", "InsertAction"):
            name = "set" if kind == "UpdateAction" else "values"
            values = _assigned(spark, action.assignments(), rename, inserts=name == "values")
            arguments[name] = values
        what = {
            "DeleteAction": "delete",
            "UpdateAction": "update",
            "UpdateStarAction": "update_all",
            "InsertAction": "insert",
            "InsertStarAction": "insert_all",
        }[kind]
        yield f"when_{of}_{what}", arguments


def _condition(
    spark: SparkSession, expression: Java, parts: tuple[str, ...], alias: str | None
) -> Column | None:
    if class_name(expression) == "Literal" and expression.value() is True:
        return None
    return column_of(spark, _renaming(spark, [(parts, alias, None)])(expression))


def _assigned(
    spark: SparkSession, assignments: Java, rename: Callable[[Any], Any], *, inserts: bool = False
) -> dict[str, Column | str]:
    """Return assignments as a mapping; a field of a struct keeps its path.

    Of `c2` and `C2` an INSERT takes the first, as delta-spark's does.
    """
    found: dict[str, Column | str] = {}
    for each in jvm.items(assignments):
        parts = [str(part) for part in jvm.items(rename(each.key()).nameParts())]
        name = parts[0] if len(parts) == 1 else ".".join(map(quote, parts))
        if twin := next((other for other in found if other.lower() == name.lower()), None):
            if inserts and twin != name:
                continue
            raise InvalidArgumentError(f"{name} is set twice", hint="set each column once")
        value = rename(each.value())
        is_default = (
            class_name(value) == "UnresolvedAttribute" and value.name().upper() == "DEFAULT"
        )
        found[name] = "DEFAULT" if is_default else column_of(spark, value)
    return found


def _renaming(
    spark: SparkSession, names: Sequence[tuple[tuple[str, ...], str | None, str | None]]
) -> Callable[[Any], Any]:
    """Return what replaces the qualifiers of columns: of each table by a name, or by none.

    Of a table without an alias every end of its full name is a qualifier.
    """
    qualifiers: dict[tuple[str, ...], str | None] = {}
    for parts, alias, name in names:
        if alias is not None:
            qualifiers[(alias.lower(),)] = name
            continue
        lower = tuple(part.lower() for part in parts)
        qualifiers |= {lower[start:]: name for start in range(len(lower))}

    def replace(kind: str, node: Java, _: object) -> Java | None:
        if kind == "UnresolvedAttribute":
            parts = [str(each) for each in jvm.items(node.nameParts())]
            for length in range(len(parts) - 1, 0, -1):
                key = tuple(part.lower() for part in parts[:length])
                if key in qualifiers:
                    name = qualifiers[key]
                    return name_of(spark, [*([name] if name else []), *parts[length:]])
        return None

    def rename(expression: Java) -> Java:
        new = rebuild(spark, expression, replace)
        return expression if new is None else new

    return rename


def _is_on(spark: SparkSession, key: str) -> bool:
    return (spark.conf.get(key, None) or "").lower() == "true"


def _longs(names: Sequence[str]) -> StructType:
    return StructType([StructField(name, LongType()) for name in names])

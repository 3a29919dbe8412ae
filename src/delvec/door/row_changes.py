"""DELETE, UPDATE and MERGE INTO of Delta tables, as Spark has parsed them.

The rule of the analyzer hands over a statement whose expressions nobody has resolved; what is
returned is a command that Spark runs, and shows in EXPLAIN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import LongType, StructField, StructType

from delvec.door.commands import Rows, command
from delvec.door.known_tables import KnownTable, find, is_open, known, opened, table_of
from delvec.errors import InvalidArgumentError, TableNotFoundError
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


@dataclass(frozen=True, eq=False)
class Change:
    """A statement that changes rows, and how many figures its result has."""

    title: str
    figures: Sequence[str]
    carry_out: Callable[[], WriteReport]

    def rows(self) -> Rows:
        """Carry it out; return the rows of its result."""
        report = self.carry_out()
        changed = (report.rows_updated, report.rows_deleted, report.rows_inserted)
        return [(sum(changed), *changed)[: len(self.figures)]]


def command_of(spark: SparkSession, plan: Java) -> Java | None:
    """Return the command for a DELETE, UPDATE or MERGE of a Delta table; None if of another."""
    found = change_of(spark, plan)
    if found is None:
        return None
    columns = StructType([StructField(name, LongType()) for name in found.figures])
    return command(spark, found.title, columns, found.rows)


def change_of(spark: SparkSession, plan: Java) -> Change | None:
    """Return what a statement changes; None if its table is none of Delta."""
    kind = class_name(plan)
    found = _target(spark, plan.targetTable() if kind == "MergeIntoTable" else plan.table())
    return None if found is None else KINDS[kind](spark, plan, *found)


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
    require_condition(alias)
    parts = tuple(str(each) for each in jvm.items(relation.multipartIdentifier()))
    view = _temporary_view(spark, parts)
    found = table_of(spark, parts) if view is None else _shown_by(spark, view)
    if view is not None and found is None:
        raise TableNotFoundError(
            f"{parts[0]} is a temporary view that does not show all rows and columns of a Delta"
            " table, as its newest version has them",
            table=parts[0],
            hint="name the table",
        )
    return None if found is None else (found, parts, alias)


def require_condition(alias: str | None) -> None:
    """Refuse a WHERE at the end: Spark takes the word for an alias, and would change all rows."""
    if alias is not None and alias.lower() == "where":
        raise InvalidArgumentError("the statement has a WHERE without a condition behind it")


def _temporary_view(spark: SparkSession, parts: Sequence[str]) -> Java | None:
    catalog = jvm.session_of(spark).sessionState().catalog()
    view = catalog.getRawTempView(parts[0]) if len(parts) == 1 else None
    return view.get() if view is not None and view.isDefined() else None


def _shown_by(spark: SparkSession, view: Java) -> KnownTable | None:
    """Return the Delta table of which a temporary view shows all rows and columns."""
    meta = view.tableMeta()
    if not meta.viewText().isDefined():
        return _shown_by_rows(spark, view.plan().get())
    plan = jvm.session_of(spark).sessionState().sqlParser().parsePlan(meta.viewText().get())
    if (
        class_name(plan) != "Project"
        or class_name(plan.child()) != "UnresolvedRelation"
        or [class_name(each) for each in jvm.items(plan.projectList())] != ["UnresolvedStar"]
        or list(jvm.items(meta.viewReferredTempViewNames()))
    ):
        return None
    parts = [str(each) for each in jvm.items(plan.child().multipartIdentifier())]
    # Where the view was made: in the current database its words may name another table.
    place = [str(each) for each in jvm.items(meta.viewCatalogAndNamespace())]
    found = table_of(spark, parts if len(parts) > 1 else [*place, *parts])
    names = tuple(meta.schema().fieldNames())  # of the view, which may have given others
    return None if found is None or found.snapshot.metadata.schema.names != names else found


def _shown_by_rows(spark: SparkSession, plan: Java) -> KnownTable | None:
    """Return the table that a DataFrame of the door reads as it is."""
    while class_name(plan) in ("View", "SubqueryAlias"):
        plan = plan.child()
    if not is_open(spark):
        return None
    table = plan.getTagValue(jvm.java_class(spark, "delvec.sql.Rules").TABLE)
    found = find(table.get()) if table.isDefined() else None
    if not isinstance(found, KnownTable) or not found.is_newest or found.changes is not None:
        return None
    return found


def _delete(
    spark: SparkSession, plan: Java, found: KnownTable, parts: tuple[str, ...], alias: str | None
) -> Change:
    condition = _condition(spark, plan.condition(), parts, alias)
    name = _full_name(spark, parts, alias)

    def carry_out() -> WriteReport:
        with called(*name):
            return found.table.delete(condition)

    return Change(f"DELETE {found.name}", _AFFECTED, carry_out)


def _update(
    spark: SparkSession, plan: Java, found: KnownTable, parts: tuple[str, ...], alias: str | None
) -> Change:
    given = plan.condition()
    condition = None
    if given.isDefined():
        condition = _condition(spark, given.get(), parts, alias)
    rename = _renaming(spark, [(parts, alias, None)])
    values = _assigned(spark, plan.assignments(), rename)
    name = _full_name(spark, parts, alias)

    def carry_out() -> WriteReport:
        with called(*name):
            return found.table.update(values, condition)

    return Change(f"UPDATE {found.name}", _AFFECTED, carry_out)


def _merge(
    spark: SparkSession, plan: Java, found: KnownTable, parts: tuple[str, ...], alias: str | None
) -> Change:
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

    def carry_out() -> WriteReport:
        builder = found.table.merge(
            source(), on, source_alias=source_name, target_alias=target_name, merge_schema=evolves
        )
        for method, arguments in clauses:
            builder = getattr(builder, method)(**arguments)
        return builder.execute()

    return Change(f"MERGE INTO {found.name}", _MERGED, carry_out)


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
            arguments[name] = _assigned(spark, action.assignments(), rename)
        what = {
            "DeleteAction": "delete",
            "UpdateAction": "update",
            "UpdateStarAction": "update_all",
            "InsertAction": "insert",
            "InsertStarAction": "insert_all",
        }[kind]
        yield f"when_{of}_{what}", arguments


def _full_name(spark: SparkSession, parts: tuple[str, ...], alias: str | None) -> tuple[str, ...]:
    """Return the name of which subqueries may say each end."""
    if alias is not None or _temporary_view(spark, parts) is not None:
        return (alias or parts[-1],)
    if len(parts) == 1:
        parts = (spark.catalog.currentDatabase(), *parts)
    return parts if parts[0].lower() == "spark_catalog" else ("spark_catalog", *parts)


def _condition(
    spark: SparkSession, expression: Java, parts: tuple[str, ...], alias: str | None
) -> Column | None:
    if class_name(expression) == "Literal" and expression.value() is True:
        return None
    return column_of(spark, _renaming(spark, [(parts, alias, None)])(expression))


def _assigned(
    spark: SparkSession, assignments: Java, rename: Callable[[Any], Any]
) -> dict[str, Column | str]:
    """Return assignments as a mapping; a field of a struct keeps its path."""
    found: dict[str, Column | str] = {}
    for each in jvm.items(assignments):
        parts = [str(part) for part in jvm.items(rename(each.key()).nameParts())]
        name = parts[0] if len(parts) == 1 else ".".join(map(quote, parts))
        if name.lower() in {other.lower() for other in found}:
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


KINDS: Final[Mapping[str, Callable[..., Change]]] = {
    "DeleteFromTable": _delete,
    "UpdateTable": _update,
    "MergeIntoTable": _merge,
}
"""How the statements are read, by their classes in Spark."""

"""Commands that change rows, by a source, by a condition or by keys."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import click

from delvec.cli.options import (
    BRANCH,
    DRY_RUN,
    MERGE_SCHEMA,
    ROWS,
    TXN,
    WRITES,
    key,
    option,
    source,
    together,
)
from delvec.cli.tables import DELTA, ICEBERG, either, read_source, report_command
from delvec.cli.values import delta_keys, partition_values, typed_keys, written_keys
from delvec.delta.table import DeltaTable
from delvec.statements.clauses import UPSERT, Cursor, assignments, parse_clause

if TYPE_CHECKING:
    from delvec.iceberg.table import IcebergTable
    from delvec.report.rendering import Rendered

_HINT: Final = "write --set \"amount = amount * 2, note = 'doubled'\""


@report_command(
    "append",
    either("--merge-schema", "--branch", spark=True),
    source(),
    option("--merge-schema", "Delta: add columns that the table lacks."),
    BRANCH,
    TXN,
    WRITES,
)
def append(
    table: DeltaTable | IcebergTable,
    *,
    source: str,
    kind: str | None = None,
    merge_schema: bool,
    branch: str,
    **how: Any,
) -> Rendered:
    """Add rows to TABLE: the path or URI of a Delta table, or the name of an Iceberg table.

    \b
    delvec append /lake/orders --source new-orders.csv
    delvec append lake.db.orders --source new-orders.parquet --branch audit
    """
    rows = read_source(table, source, kind)
    if isinstance(table, DeltaTable):
        return table.append(rows, merge_schema=merge_schema, **how)
    return table.append(rows, branch=branch, **how)


@report_command("overwrite", DELTA, source(), ROWS, MERGE_SCHEMA, TXN, WRITES)
def overwrite(table: DeltaTable, *, source: str, kind: str | None = None, **how: Any) -> Rendered:
    """Put the rows of a source in place of rows of TABLE, the path or URI of a Delta table.

    With --where those rows are replaced for which it is true, and it must be true of all new ones.

    \b
    delvec overwrite /lake/orders --source new.parquet --where "month = '2026-01'"
    """
    return table.overwrite(read_source(table, source, kind), **how)


def _as_assignments(given: dict[str, Any]) -> None:
    given["set"] = assignments(Cursor(", ".join(given["set"]), hint=_HINT))


@report_command(
    "update",
    DELTA,
    together(
        option(
            "--set COLUMN=SQL",
            "A column's new value; several with commas, or by repeating the option.",
            multiple=True,
            required=True,
        ),
        check=_as_assignments,
    ),
    ROWS,
    TXN,
    WRITES,
)
def update(table: DeltaTable, **how: Any) -> Rendered:
    """Give rows of TABLE, the path or URI of a Delta table, new values.

    \b
    delvec update /lake/orders --set "amount = amount * 2" --where "id < 10"
    """
    return table.update(**how)


def _as_clauses(given: dict[str, Any]) -> None:
    upsert, clauses = given.pop("upsert"), given["clauses"]
    if bool(clauses) == upsert:
        raise click.UsageError("give --upsert, or one --when or more")
    given["clauses"] = UPSERT if upsert else tuple(map(parse_clause, clauses))


@report_command(
    "merge",
    DELTA,
    source(),
    option("--on SQL", 'Which rows match, as in "t.id = s.id".', required=True),
    together(
        option(
            "--when clauses CLAUSE",
            "What to do with which rows; of several that fit a row the first decides.",
            multiple=True,
        ),
        option(
            "--upsert",
            'Short for --when "matched then update set *" --when "not matched then insert *".',
        ),
        check=_as_clauses,
    ),
    MERGE_SCHEMA,
    TXN,
    WRITES,
)
def merge(
    table: DeltaTable,
    *,
    source: str,
    kind: str | None = None,
    on: str,
    clauses: tuple[Any, ...],
    merge_schema: bool,
    **how: Any,
) -> Rendered:
    """Change rows of TABLE, the path or URI of a Delta table, by those of a source.

    In conditions and values the table is `t` and the source `s`. The clauses are those of SQL:

    \b
    matched [and SQL] then delete
    matched [and SQL] then update set *
    matched [and SQL] then update set COLUMN = SQL, ...
    not matched [and SQL] then insert *
    not matched [and SQL] then insert (COLUMN, ...) values (SQL, ...)
    not matched by source [and SQL] then delete
    not matched by source [and SQL] then update set COLUMN = SQL, ...

    \b
    delvec merge /lake/orders --source changes.parquet --on "t.id = s.id" \\
      --when "matched and s.gone then delete" --when "not matched then insert *"
    """
    merge = table.merge(read_source(table, source, kind), on, merge_schema=merge_schema)
    return reduce(lambda built, clause: clause.add_to(built), clauses, merge).execute(**how)


@report_command(
    "delete",
    either("--rewrite-ratio", "--key --branch", spark=True),
    ROWS,
    option(
        "--rewrite-ratio SHARE",
        "Delta: rewrite a file when at least this share of its rows is deleted, such as 0.5.",
        type=click.FloatRange(0, 1, min_open=True),
    ),
    key("Iceberg: a column of the key, for conditions that list keys; may be repeated."),
    BRANCH,
    TXN,
    WRITES,
)
def delete(
    table: DeltaTable | IcebergTable, *, keys: tuple[str, ...], branch: str, **how: Any
) -> Rendered:
    """Delete rows of TABLE: the path or URI of a Delta table, or the name of an Iceberg table.

    `delvec delete-keys` deletes the rows of keys that a file lists.

    \b
    delvec delete /lake/orders --where "day < '2026-01-01'"
    delvec delete lake.db.orders --where "amount < 0" --dry-run
    """
    if isinstance(table, DeltaTable):
        return table.delete(**how)
    return table.delete(key=list(keys) or None, branch=branch, **how)


def _read_written(given: dict[str, Any]) -> None:
    values, path = given.pop("values"), given["source"]
    if (values is None) == (path is None):
        raise click.UsageError("which keys? give --values or --source, one of them")
    given["written"] = written_keys(values, given["keys"]) if path in (None, "-") else None


@report_command(
    "delete-keys",
    either("", "--partition --branch", spark=True),
    together(
        key("A column of the key; may be repeated.", required=True),
        option("--values VALUES", "The keys: values of one column, such as 1,2,3."),
        source(
            text="A file or folder that has the keys, or a Delta table; - for standard input: lines"
            " of CSV, the columns in the order given, without a header.",
            required=False,
        ),
        check=_read_written,
    ),
    option(
        "--partition FIELD=VALUE", "Iceberg: delete in this partition only; give all of its fields."
    ),
    BRANCH,
    TXN,
    WRITES,
    unfinished="no row was changed",
)
def delete_keys(
    table: DeltaTable | IcebergTable,
    *,
    keys: tuple[str, ...],
    written: list[list[str]] | None = None,
    source: str = "",
    kind: str | None = None,
    partition: dict[str, str],
    branch: str,
    **how: Any,
) -> Rendered:
    """Delete the rows of TABLE that have some keys.

    TABLE is the path or URI of a Delta table, whose rows are searched once; or the name of an
    Iceberg table, which is not read: the keys themselves are written down, in one commit.

    \b
    delvec delete-keys /lake/orders --key id --source gone.csv
    delvec delete-keys lake.db.orders --key id --values 17,18,19
    """
    typed: Any = delta_keys if isinstance(table, DeltaTable) else typed_keys
    given = read_source(table, source, kind) if written is None else typed(table, keys, written)
    if isinstance(table, DeltaTable):
        return table.delete(keys=given, on=list(keys), **how)
    scope = partition_values(table, partition) if partition else None
    return table.delete_keys(given, columns=list(keys), branch=branch, partition=scope, **how)


@report_command(
    "upsert",
    ICEBERG,
    source(),
    key("A column of the key; may be repeated.", required=True),
    option("--delete-where SQL", "Rows of the source that only delete, such as \"op = 'D'\"."),
    option(
        "--duplicates error|last",
        "What to do with a key that the source has twice: refuse, or keep the last row.",
        default="error",
    ),
    option("--order-by SQL", "What the last row of a key is the greatest by."),
    BRANCH,
    TXN,
    DRY_RUN,
    unfinished="no row was changed",
)
def upsert(
    table: IcebergTable, *, source: str, keys: tuple[str, ...], kind: str | None = None, **how: Any
) -> Rendered:
    """Write rows of a source to TABLE, an Iceberg table, in place of those with the same keys.

    The table is not read: the keys are deleted, and the rows added, in one commit.

    \b
    delvec upsert lake.db.orders --source new.csv --key id --delete-where gone
    """
    return table.upsert(read_source(table, source, kind), list(keys), **how)

"""Commands that define a table: `create`, `column`, `constraint` and `feature`."""

from __future__ import annotations

from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import click

from delvec.cli.main import command, group
from delvec.cli.options import DRY_RUN, PROPERTY, SPARK, STORAGE, TABLE, WRITES, option
from delvec.cli.tables import DELTA, LOG, on_spark, require_path, show_alteration, table_command
from delvec.delta.alter.operations import require_empty_location
from delvec.delta.table import DeltaTable
from delvec.delta.table.handle import open_storage
from delvec.delta.write.report import WriteReport
from delvec.errors import InvalidArgumentError

if TYPE_CHECKING:
    from delvec.cli.output import Output


@command("create")
@TABLE
@option("--schema DDL", 'As in "id long not null, day date".', required=True)
@option("--partition-by COLUMN", "May be repeated.", multiple=True)
@PROPERTY
@option("--mode error|ignore|replace", "What to do where a table is already.", default="error")
@DRY_RUN
@STORAGE
@SPARK
def create(  # noqa: PLR0913
    output: Output,
    table: str,
    *,
    schema: str,
    partition_by: tuple[str, ...],
    properties: dict[str, str],
    mode: Literal["error", "ignore", "replace"],
    dry_run: bool,
    options: dict[str, str],
    session: dict[str, Any],
) -> None:
    """Make an empty Delta table at TABLE, a path or URI, with deletion vectors enabled.

    \b
    delvec create /lake/orders --schema "id long, day date" --partition-by day
    """
    require_path(table)
    with on_spark(output, table, session=session) as spark, TemporaryDirectory() as scratch:
        exists = DeltaTable.is_delta_table(table, options, spark=spark)
        if exists and mode == "error":
            raise InvalidArgumentError(
                f"there is a table at {table}", hint="--mode replace, or --mode ignore to keep it"
            )
        # Creating a temporary table checks whether schema and properties are compatible.
        made = DeltaTable.create(
            spark,
            scratch if dry_run else table,
            schema,
            partition_by,
            properties,
            mode=mode,
            storage_options=None if dry_run else options,
        )
        if dry_run and not exists:
            place = open_storage(spark, table, options)
            require_empty_location(place, made.snapshot().metadata)
        kept = exists and mode == "ignore"
        operation = "CREATE OR REPLACE TABLE" if mode == "replace" else "CREATE TABLE"
        version = None if kept or dry_run else made.version
        report = WriteReport(operation, table, version, dry_run=dry_run)
    output.report(report)


@table_command("add", DELTA, click.argument("columns"), WRITES)
def add_column(output: Output, table: DeltaTable, columns: str, **how: Any) -> None:
    """Add COLUMNS to TABLE, the path or URI of a Delta table; they are NULL in rows of before.

    A name such as `a.b`, in backticks, adds a field to the struct a. Spark parses the types.

    \b
    delvec column add /lake/orders "tax decimal(10,2), note string"
    """
    show_alteration(output, table.add_columns(columns, **how), columns, "added")


@table_command("rename", LOG, click.argument("name"), click.argument("new_name"), WRITES)
def rename_column(output: Output, table: DeltaTable, name: str, new_name: str, **how: Any) -> None:
    """Rename a column of TABLE, a Delta table with column mapping; no file is rewritten.

    \b
    delvec column rename /lake/orders note remark
    """
    report = table.rename_column(name, new_name, **how)
    show_alteration(output, report, name, f"renamed to {new_name}")


@table_command("drop", LOG, click.argument("name"), WRITES)
def drop_column(output: Output, table: DeltaTable, name: str, **how: Any) -> None:
    """Drop a column of TABLE, a Delta table with column mapping.

    No file is rewritten: the values stay in the files that have them.

    \b
    delvec column drop /lake/orders note --dry-run
    """
    show_alteration(output, table.drop_column(name, **how), name, "dropped")


column = group(
    "column",
    "Add, rename or drop columns of a Delta table; `delvec schema` shows them.",
    {add_column: "Add columns.", rename_column: "Rename a column.", drop_column: "Drop a column."},
)


@table_command(
    "add",
    DELTA,
    click.argument("name"),
    option("--check SQL", "What has to be true of every row.", required=True),
    WRITES,
)
def add_constraint(output: Output, table: DeltaTable, name: str, check: str, **how: Any) -> None:
    """Add a constraint to TABLE, the path or URI of a Delta table; all its rows are checked first.

    \b
    delvec constraint add /lake/orders positive --check "amount > 0"
    """
    report = table.add_constraint(name, check, **how)
    show_alteration(output, report, name, f"added: {check}")


@table_command(
    "drop",
    LOG,
    click.argument("name"),
    option("--if-exists", "Do nothing if there is none of that name."),
    WRITES,
)
def drop_constraint(output: Output, table: DeltaTable, name: str, **how: Any) -> None:
    """Drop a constraint of TABLE, the path or URI of a Delta table.

    \b
    delvec constraint drop /lake/orders positive
    """
    show_alteration(output, table.drop_constraint(name, **how), name, "dropped")


constraint = group(
    "constraint",
    "Add or drop CHECK constraints of a Delta table; `delvec properties` shows them.",
    {add_constraint: "Add a constraint.", drop_constraint: "Drop a constraint."},
)


@table_command("add", LOG, click.argument("name"), WRITES)
def add_feature(output: Output, table: DeltaTable, name: str, **how: Any) -> None:
    """Add a table feature to the protocol of TABLE, the path or URI of a Delta table.

    Engines must support it to use the table. No command takes it away again, except that
    `delvec downgrade` takes away deletion vectors.

    \b
    delvec feature add /lake/orders vacuumProtocolCheck --dry-run
    """
    show_alteration(output, table.add_feature(name, **how), name, "added")


@table_command("enable-vectors", LOG, WRITES)
def enable_vectors(output: Output, table: DeltaTable, **how: Any) -> None:
    """Let the writes of TABLE, the path or URI of a Delta table, use deletion vectors.

    Engines without deletion vectors can neither read nor write the table any more.

    \b
    delvec feature enable-vectors /lake/orders
    """
    report = table.enable_deletion_vectors(**how)
    show_alteration(output, report, "deletion vectors", "enabled")


feature = group(
    "feature",
    "Add table features to a Delta table; `delvec detail` shows them.",
    {
        add_feature: "Add a feature to the protocol.",
        enable_vectors: "Let writes use deletion vectors.",
    },
)

"""`delvec convert`: a Delta table as an Iceberg table: a plan, once, or until a signal ends it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.cli.main import command
from delvec.cli.options import CATALOG, DRY_RUN, STORAGE, limit, option, present
from delvec.cli.services import Following, Service, following
from delvec.cli.tables import open_delta
from delvec.cli.terminal import Column
from delvec.cli.values import completes
from delvec.conversion.planning.options import ConversionOptions, Verify
from delvec.report.format import format_count, format_size, percent

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from delvec.cli.output import Output
    from delvec.conversion.plan import ConversionPlan
    from delvec.delta.table import DeltaTable

_SECONDS: Final = 5.0
# Changed files first, unchanged ones last.
_ORDER: Final = ("add", "remove", "vector-add", "vector-replace", "vector-drop", "keep")
_COLUMNS: Final = [
    Column("version", "version", "cyan"),
    Column("action", "action", "bold", is_unbroken=True),
    Column("file", "file", name_width=34),
    Column("rows", "rows"),
    Column("deleted_rows", "deleted"),
    Column("old_vector", "old vector", is_unbroken=True, name_width=10, omitted=2),
    Column("new_vector", "new vector", "red", is_unbroken=True, name_width=10),
    Column("size", "size", is_unbroken=True, is_right=True, omitted=1),
]


@command("convert", "the target is as it was, or holds all that was published to it")
@click.argument("source", shell_complete=completes("dir"))
@click.argument("target")
@option("--version N", "Of the source; the newest if absent.")
@option(
    "--verify counts|rows|none",
    "Compare what each file holds, all rows as well, or nothing, before it is published.",
    default="counts",
)
@option(
    "--format-version", "Iceberg's format of a new target; 3 if absent.", type=click.IntRange(2, 3)
)
@option("--vectors repack|reference", "Copy vectors into Puffin files, or point at Delta's own.")
@option(
    "--history latest|per-version",
    "One snapshot, or one with a tag for each version of the source.",
)
@option("--start-version N", "Where the history of a new target begins.")
@option("--folder NAME", "Of position deletes, below the target's location.")
@option("--location URI", "Where a new target shall be.")
@option("--overwrite-foreign", "Take back changes that others made to it.")
@option("--copy-files", "Copy the data files that Iceberg cannot read as they are.")
@DRY_RUN
@limit("Show so many files of a dry run, 0 for all. JSON holds all of them.")
@following(_SECONDS)
@CATALOG
@STORAGE
def convert(  # noqa: PLR0913 - what is not passed on to the conversion
    output: Output,
    source: str,
    target: str,
    *,
    version: int | None,
    verify: Verify,
    overwrite_foreign: bool,
    dry_run: bool,
    limit: int,
    following: Following | None,
    iceberg: dict[str, Any],
    options: dict[str, str],
    **choices: Any,
) -> None:
    """Bring TARGET, an Iceberg table, to what SOURCE, the path or URI of a Delta table, holds.

    Data files are shared, not copied. The target is named as catalog.database.table, and made if
    it is not there.

    \b
    delvec convert /lake/orders lake.db.orders --warehouse /warehouse
    """
    if following and (dry_run or version is not None):
        raise click.UsageError("--follow goes with neither --dry-run nor --version")
    choices = present(choices) | ({"foreign": "overwrite"} if overwrite_foreign else {})
    ConversionOptions(**choices)  # contradicting options are rejected before a JVM starts
    if following:
        opened = open_delta(output, source, options, iceberg=iceberg)
        _follow(output, opened, (source, target), following, {**choices, "verify": verify})
        return
    from delvec.conversion.convert import convert, plan_conversion  # noqa: PLC0415

    with open_delta(output, source, options, iceberg=iceberg) as table:
        spark: Any = table.spark
        if dry_run:
            plan = plan_conversion(spark, table, target, version=version, **choices)
            _show_plan(output, plan, limit)
            return
        report = convert(spark, table, target, verify=verify, version=version, **choices)
    output.report(report)


def _show_plan(output: Output, plan: ConversionPlan, limit: int) -> None:
    files = plan.to_arrow()
    total = {"files": len(files)}
    for name in ("rows", "deleted_rows", "bytes", "vector_bytes"):
        total[name] = pc.sum(files[name], min_count=0).as_py()
    if output.as_json:
        output.result({**plan.to_json(), "total": total, "files": files.to_pylist()})
        return
    output.draw(plan)
    ranks = pc.index_in(files["action"].combine_chunks(), value_set=pa.array(_ORDER))
    order = np.lexsort((ranks.to_numpy(), files["version"].to_numpy()))
    shown = files.take(order[:limit] if limit else order)
    rows = [_row(file) for file in shown.to_pylist()]
    columns = _COLUMNS[1:] if len(plan.planned.steps) == 1 else _COLUMNS
    output.listing(columns, rows, len(files))
    output.note(_sentence(total, "file" if len(plan.planned.steps) < 2 else "change"))


def _follow(
    output: Output,
    opened: AbstractContextManager[DeltaTable],
    names: tuple[str, str],
    given: Following,
    choices: Mapping[str, Any],
) -> None:
    from delvec.conversion.follow import Metrics, follow  # noqa: PLC0415

    service, target = Service(output, given, Metrics(*names)), names[1]

    def run(table: DeltaTable) -> None:
        spark: Any = table.spark
        follow(spark, table, target, **service.arguments(), **choices)

    service.run(opened, lambda table: f"{table.storage.root} -> {target}", run)


def _sentence(total: dict[str, int], noun: str) -> str:
    deleted = f"{total['deleted_rows']:,} of them deleted"
    if total["deleted_rows"]:
        deleted += f" ({percent(total['deleted_rows'], total['rows'])})"
    figures = [
        format_count(total["files"], noun),
        format_size(total["bytes"]),
        format_count(total["rows"], "row"),
    ]
    return f"{', '.join([*figures, deleted])}; nothing was written"


def _row(file: dict[str, Any]) -> dict[str, Any]:
    *folders, name = file["path"].split("/")
    # Of the folders, only those of partitions are shown.
    partition = "/".join(folder for folder in folders if "=" in folder)
    return {
        **file,
        "file": f"{partition}/{name}".lstrip("/"),
        "deleted_rows": file["deleted_rows"] or None,
        "size": format_size(file["bytes"]),
    }

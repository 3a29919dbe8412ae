"""Converting Delta tables with vectors to Iceberg: the two calls that users make."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from delvec.conversion.options import ConversionOptions
from delvec.conversion.plan import ConversionPlan
from delvec.conversion.planning.planner import Planner
from delvec.delta.table import DeltaTable
from delvec.errors import ConflictError
from delvec.iceberg.client.catalog import find_table, table_name
from delvec.storage.counts import RequestCounts

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from pyspark.sql import SparkSession
    from typing_extensions import Unpack

    from delvec.conversion.options import Choices, Verify
    from delvec.conversion.report import ConversionReport

__all__ = ["convert", "plan_conversion"]

_ATTEMPTS: Final = 5


def plan_conversion(
    spark: SparkSession,
    source: str | os.PathLike[str] | DeltaTable,
    target: str,
    *,
    version: int | None = None,
    storage_options: Mapping[str, object] | None = None,
    **choices: Unpack[Choices],
) -> ConversionPlan:
    """Find out what brings an Iceberg table to a version of a Delta table; nothing is written.

        plan = delvec.plan_conversion(spark, "/lake/orders", "lake.db.orders")
        print(plan)
        report = plan.apply()

    Reads the log of the source and the manifests of the target, never rows. A target that an
    earlier conversion made is compared by the commits since; memory and requests then grow with
    the files that these touch, else with all files: about 2 kB each in Python.

    Args:
        spark: The session, with the catalog of the target.
        source: The path or URI of the Delta table, or the table.
        target: The name of the Iceberg table, `catalog.database.table`; made if it is not there.
        version: The version of the source; the newest if not given.
        storage_options: Keys and endpoints of the source, see `DeltaTable.for_path`.
        **choices: `format_version`, `vectors`, `history`, `start_version`, `folder`, `location`,
            `foreign` and `copy_files`, see `delvec.conversion.options.Choices`.

    Raises:
        TableNotFoundError: There is no such Delta table, or no such catalog or database.
        PlanError: The target is no conversion of this source, or others have changed its rows.
        UnsupportedFeatureError: The source has what Iceberg would read wrongly.
    """
    start = time.perf_counter()
    options = ConversionOptions(**choices)
    name = table_name(spark, target)
    table = (
        source
        if isinstance(source, DeltaTable)
        else DeltaTable.for_path(spark, source, storage_options)
    )
    # What a table that was opened before has asked since then is not the plan's.
    asked = table.storage.requests if table is source else RequestCounts()
    planner = Planner(spark, table.snapshot(version), name, find_table(spark, name), options)
    planned = planner.plan()
    return ConversionPlan(
        spark,
        planner.snapshot,
        name,
        planner.table,
        options,
        planner.format_version,
        planned,
        time.perf_counter() - start,
        table.storage.requests - asked,
    )


def convert(
    spark: SparkSession,
    source: str | os.PathLike[str] | DeltaTable,
    target: str,
    *,
    verify: Verify | bool = "counts",
    version: int | None = None,
    storage_options: Mapping[str, object] | None = None,
    **choices: Unpack[Choices],
) -> ConversionReport:
    """Bring an Iceberg table to a version of a Delta table: plan and apply.

        report = delvec.convert(spark, "/lake/orders", "lake.db.orders")

    Run it again after the source has changed, and the target follows. A commit of somebody else's
    that comes in between makes it begin anew, five times at most.

    Args:
        spark: The session, with the catalog of the target.
        source: The path or URI of the Delta table, or the table.
        target: The name of the Iceberg table.
        verify: How the result is checked before it is published, see `ConversionPlan.apply`.
        version: The version of the source; the newest if not given.
        storage_options: Keys and endpoints of the source.
        **choices: See `plan_conversion`.
    """
    attempt = 1
    while True:
        plan = plan_conversion(
            spark, source, target, version=version, storage_options=storage_options, **choices
        )
        try:
            return plan.apply(verify)
        except ConflictError as error:
            error.attempts = attempt
            if attempt == _ATTEMPTS:
                raise
            attempt += 1

"""The public calls that convert a Delta table to an Iceberg table."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from delvec.calls import explained_call
from delvec.conversion.plan import ConversionPlan
from delvec.conversion.planning.options import Choices, ConversionOptions, Verify
from delvec.conversion.planning.planner import plan_steps
from delvec.conversion.planning.target import Target, target_format_version
from delvec.delta.table import DeltaTable
from delvec.errors import ConflictError
from delvec.iceberg.client.catalog import find_table, table_name
from delvec.storage.backend import RequestCounts

if TYPE_CHECKING:
    import os

    from pyspark.sql import SparkSession
    from typing_extensions import Unpack

    from delvec.conversion.apply import ConversionReport


_ATTEMPTS: Final = 5


@explained_call(Choices)
def plan_conversion(
    spark: SparkSession,
    source: str | os.PathLike[str] | DeltaTable,
    target: str,
    *,
    version: int | None = None,
    storage_options: Mapping[str, object] | None = None,
    allow_paths: Sequence[str] | None = None,
    **choices: Unpack[Choices],
) -> ConversionPlan:
    """Plan how to bring an Iceberg table to a version of a Delta table; nothing is written.

        plan = delvec.plan_conversion(spark, "/lake/orders", "lake.db.orders")
        print(plan)
        report = plan.apply()

    Reads the log of the source and the manifests of the target, no rows. A target of an earlier
    conversion is compared by the commits since: memory and requests grow with the files that these
    touch. Otherwise all files are compared, which takes about 2 kB of memory for each in Python.

    Args:
        spark: The session, with the catalog of the target.
        source: The path or URI of the Delta table, or the table.
        target: The name of the Iceberg table, `catalog.database.table`; created if it does not
            exist.
        version: The version of the source; the newest if not given.
        storage_options: Credentials and endpoints of the source, see `DeltaTable.for_path`.
        allow_paths: What a source that is opened here may lead to, see `DeltaTable.for_path`.
        **choices: `format_version`, `vectors`, `history`, `start_version`, `folder`, `location`,
            `foreign` and `copy_files`, see `delvec.conversion.planning.options.Choices`.

    Raises:
        TableNotFoundError: There is no such Delta table, or no such catalog or database.
        PlanError: The target was not converted from this source, or others have changed its rows.
        UnsupportedFeatureError: The source has what an Iceberg reader would read wrongly.
    """
    start = time.perf_counter()
    options = ConversionOptions(**choices)
    name = table_name(spark, target)
    table = (
        source
        if isinstance(source, DeltaTable)
        else DeltaTable.for_path(spark, source, storage_options, allow_paths=allow_paths)
    )
    # Earlier requests of a table that was opened before do not belong to the plan.
    before = table.storage.requests if table is source else RequestCounts()
    snapshot = table.snapshot(version)
    found = find_table(spark, name)
    format_version = target_format_version(name, found, options.format_version)
    planned = plan_steps(snapshot, Target(spark, name, found, format_version), options)
    return ConversionPlan(
        spark=spark,
        snapshot=snapshot,
        name=name,
        table=found,
        options=options,
        format_version=format_version,
        planned=planned,
        seconds=time.perf_counter() - start,
        requests=table.storage.requests - before,
    )


@explained_call(Choices)
def convert(
    spark: SparkSession,
    source: str | os.PathLike[str] | DeltaTable,
    target: str,
    *,
    verify: Verify | bool = "counts",
    version: int | None = None,
    storage_options: Mapping[str, object] | None = None,
    allow_paths: Sequence[str] | None = None,
    **choices: Unpack[Choices],
) -> ConversionReport:
    """Bring an Iceberg table to a version of a Delta table: plan and apply.

        report = delvec.convert(spark, "/lake/orders", "lake.db.orders")

    Run it again after the source has changed to bring the target up to date. After a conflict with
    a concurrent commit to the target it is planned again, in five attempts at most.

    Args:
        spark: The session, with the catalog of the target.
        source: The path or URI of the Delta table, or the table.
        target: The name of the Iceberg table.
        verify: How the result is verified before it is published, see `ConversionPlan.apply`.
        version: The version of the source; the newest if not given.
        storage_options: Credentials and endpoints of the source.
        allow_paths: What a source that is opened here may lead to, see `DeltaTable.for_path`.
        **choices: See `plan_conversion`.
    """

    def plan() -> ConversionPlan:
        return plan_conversion(
            spark,
            source,
            target,
            version=version,
            storage_options=storage_options,
            allow_paths=allow_paths,
            **choices,
        )

    return apply_newest(plan, verify)


def apply_newest(plan: Callable[[], ConversionPlan], verify: Verify | bool) -> ConversionReport:  # noqa: FBT001
    """Make a plan and apply it; after a conflict make it again, in five attempts at most."""
    attempt = 1
    while True:
        planned = plan()
        try:
            return planned.apply(verify)
        except ConflictError as error:
            error.attempts = attempt
            if attempt == _ATTEMPTS:
                raise
            attempt += 1

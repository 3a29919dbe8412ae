"""`delvec expire-snapshots`: expire snapshots of an Iceberg table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delvec.cli.main import command as delvec_command
from delvec.cli.options import (
    catalog_options,
    dry_run,
    expiry_options,
    location_option,
    table_argument,
)
from delvec.cli.spark_tables import opened_iceberg, show_report

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from delvec.cli.output import Output

__all__ = ["command"]


@delvec_command(
    "expire-snapshots",
    "snapshots may have expired already: files that only they had are orphan files then, which"
    " remove-orphan-files deletes",
)
@table_argument
@expiry_options
@location_option
@dry_run
@catalog_options
def command(
    output: Output,
    table: str,
    *,
    older_than: timedelta | datetime | None,
    retain_last: int | None,
    location: str | None,
    dry_run: bool,
    iceberg: dict[str, Any],
) -> None:
    """Expire snapshots of TABLE, an Iceberg table, and delete files that only they had.

    Iceberg's own expire_snapshots does it. Newest snapshots of branches and tagged ones stay, and
    staging branches stay such. Targets of conversions are cleaned by `delvec clean-target`. A dry
    run counts snapshots, not files.

    \b
    delvec expire-snapshots lake.db.orders --older-than 7d --retain-last 10
    """  # noqa: D301
    with opened_iceberg(output, table, iceberg) as (_, target):
        report = target.expire_snapshots(
            older_than, retain_last, location=location, dry_run=dry_run
        )
    show_report(output, report)

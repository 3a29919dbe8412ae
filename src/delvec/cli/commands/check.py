"""Commands that compare a table with its files: `check`, and `traces` of rows that were deleted."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from delvec.cli.exits import ExitCode
from delvec.cli.main import command
from delvec.cli.options import DRY_RUN, ICEBERG_BRANCH, SPARK, STORAGE, TABLE, option, snapshot
from delvec.cli.tables import either, open_delta, open_log, table_command
from delvec.delta.table import DeltaTable
from delvec.errors import InvalidArgumentError, StorageError

if TYPE_CHECKING:
    from delvec.cli.output import Output
    from delvec.delta.traces.report import TracesReport
    from delvec.iceberg.table import IcebergTable

_SAMPLE = 10
_COMPARISON: Final = re.compile(r"\s*(`[^`]+`|[A-Za-z_]\w*)\s*==?\s*('[^'\\]*'|-?\d{1,18})\s*")
_AND: Final = re.compile(r"\bAND\b", re.IGNORECASE)
_INTEGERS: Final = ("byte", "short", "integer", "long")


@table_command(
    "check",
    either("--repair --sample --dry-run", "--branch --snapshot-id"),
    option("--repair", "Delta: repair what loses no row for certain."),
    option(
        "--sample N",
        f"Delta: compare the rows of so many files with their statistics; {_SAMPLE} if absent.",
    ),
    DRY_RUN,
    ICEBERG_BRANCH,
    snapshot("Iceberg: instead, a snapshot by its id."),
    STORAGE,
)
def check(
    output: Output,
    table: DeltaTable | IcebergTable,
    *,
    repair: bool,
    dry_run: bool,
    sample: int = _SAMPLE,
    **which: Any,
) -> None:
    """Check that TABLE has the files, vectors and deletes that its metadata says.

    TABLE is the path or URI of a Delta table, or the name of an Iceberg table in a catalog. All
    data files are looked for and all deletes are read; of a Delta table the footers of all files
    and the rows of some as well. Ends with exit code 4 if there are errors.

    \b
    delvec check /lake/orders
    delvec check /lake/orders --repair --dry-run
    delvec check lake.db.orders --branch changes
    """
    if isinstance(table, DeltaTable):
        with output.progress() as show:
            report: Any = table.check(
                repair=repair, sample=sample, dry_run=dry_run, on_progress=show
            )
    else:
        report = table.check(**which)
    output.report(report)
    if not report.ok:
        sys.exit(ExitCode.DAMAGED)


@command("traces")
@TABLE
@option("--where SQL", "The rows: those for which this is true.", required=True)
@option("--redact", "Show digests in place of the values that the condition names.")
@STORAGE
@SPARK
def traces(
    output: Output,
    table: str,
    *,
    where: str,
    redact: bool,
    options: dict[str, str],
    session: dict[str, Any],
) -> None:
    """Tell where rows of TABLE still physically are, and when they will be gone.

    TABLE is the path or URI of a Delta table. All files below it are searched: live rows, rows that
    a deletion vector deletes, files of older versions, change files, orphan files, and the values
    in the log. Ends with exit code 0 if nothing is left, and 8 if something is, or could not be
    judged.

    \b
    delvec traces /lake/orders --where "customer = 'Anna'"
    delvec traces /lake/orders --where "customer = 'Anna'" --redact --json
    """
    report = _without_spark(output, table, where, options, redact=redact)
    if report is None:
        with open_delta(output, table, options, session) as target:
            report = target.traces(where, redact=redact)
    output.report(report)
    if report:
        sys.exit(ExitCode.TRACES)


def _without_spark(
    output: Output, table: str, where: str, options: Mapping[str, str], *, redact: bool
) -> TracesReport | None:
    """Search without Spark, which takes seconds to start; None if it has to evaluate the condition.

    That is so unless the condition only compares strings and integers with columns of these types.
    """
    comparisons = plain_comparisons(where)
    if comparisons is None:
        return None
    try:
        with open_log(output, table, options) as target:
            for name, _, value in comparisons:
                kind = str(target.schema.field(name).type)
                if kind not in (_INTEGERS if isinstance(value, int) else ("string",)):
                    return None
            report = target.traces(comparisons, redact=redact)
            return report if redact else replace(report, condition=where)
    except InvalidArgumentError:
        return None  # Spark says best what is wrong with a condition
    except StorageError:
        if "://" in table:
            return None  # the keys of a bucket may be the session's
        raise


def plain_comparisons(where: str) -> list[tuple[str, str, str | int]] | None:
    """Return a condition that is `column = literal`, or several with AND, as tuples.

    >>> plain_comparisons("name = 'Anna' and `id` = 5")
    [('name', '=', 'Anna'), ('id', '=', 5)]
    >>> plain_comparisons("id < 5") is None
    True
    """
    found: list[tuple[str, str, str | int]] = []
    position = 0
    while True:
        match = _COMPARISON.match(where, position)
        if match is None:
            return None
        name, literal = match[1].strip("`"), match[2]
        is_string = literal.startswith("'")
        found.append((name, "=", literal[1:-1] if is_string else int(literal)))
        if match.end() == len(where):
            return found
        following = _AND.match(where, match.end())
        if following is None:
            return None
        position = following.end()

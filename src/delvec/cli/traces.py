"""`delvec traces`: tell where rows still physically are, and when they will be gone."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from delvec.cli.exits import ExitCode
from delvec.cli.main import command as delvec_command
from delvec.cli.options import spark_options, storage_options, table_argument
from delvec.cli.spark_tables import delta_table, opened, show_report
from delvec.cli.table_kinds import require_path
from delvec.errors import InvalidArgumentError, StorageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delvec.cli.output import Output
    from delvec.delta.maintain.traces.report import TracesReport

__all__ = ["command", "plain_comparisons"]

_COMPARISON: Final = re.compile(r"\s*(`[^`]+`|[A-Za-z_]\w*)\s*==?\s*('[^'\\]*'|-?\d{1,18})\s*")
_AND: Final = re.compile(r"\bAND\b", re.IGNORECASE)
_INTEGERS: Final = ("byte", "short", "integer", "long")


@delvec_command("traces")
@table_argument
@click.option(
    "--where", required=True, metavar="SQL", help="The rows: those for which this is true."
)
@storage_options
@spark_options
def command(
    output: Output, table: str, *, where: str, options: dict[str, str], session: dict[str, Any]
) -> None:
    """Tell where rows of TABLE still physically are, and when they will be gone.

    TABLE is the path or URI of a Delta table. All files below it are searched: live rows, rows that
    a deletion vector deletes, files of older versions, change files, orphan files, and the values
    in the log. Ends with exit code 0 if nothing is left, and 8 if something is.

    \b
    delvec traces /lake/orders --where "customer = 'Anna'"
    """  # noqa: D301
    with output.working("searching"):
        report = _without_spark(table, where, options)
    if report is None:
        with opened(output, table, options, session=session) as (_, target):
            report = target.traces(where)
    show_report(output, report)
    if report:
        sys.exit(ExitCode.TRACES)


def _without_spark(table: str, where: str, options: Mapping[str, str]) -> TracesReport | None:
    """Search without Spark, which takes seconds to start; None if it has to evaluate the condition.

    That is so unless the condition only compares strings and integers with columns of these types.
    """
    require_path(table)
    comparisons = plain_comparisons(where)
    if comparisons is None:
        return None
    try:
        target = delta_table(table, options)
        for name, _, value in comparisons:
            kind = str(target.schema.field(name).type)
            if kind not in (_INTEGERS if isinstance(value, int) else ("string",)):
                return None
        return replace(target.traces(comparisons), condition=where)
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

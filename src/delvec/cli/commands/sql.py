"""The command that runs SQL: statements of a line or of a file, on tables by path or by name."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from delvec.cli.main import command
from delvec.cli.options import CATALOG, DRY_RUN, apply, option
from delvec.cli.tables import on_spark
from delvec.cli.terminal import Column
from delvec.errors import DelvecError
from delvec.report.format import escape_controls, format_count
from delvec.statements.clauses import split_statements

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delvec.cli.output import Output

_SHOWN: Final = 20
_HEAD: Final = 60


def _sql(
    output: Output,
    statement: str | None,
    *,
    file: Any,
    limit: int | None,
    dry_run: bool,
    iceberg: dict[str, Any],
) -> None:
    """Run SQL: STATEMENT, or the statements of a file with semicolons between them.

    Delta tables are named by their path, or by name in the session's catalog; Iceberg tables as in
    their catalog. The first statement that fails ends the run; what the statements before it have
    written stays.

    \b
    delvec sql "SELECT count(*) FROM delta.`/lake/orders`"
    delvec sql "MERGE INTO delta.`/lake/orders` t USING changes s ON t.id = s.id
                WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    delvec sql -f job.sql --json
    """
    if (statement is None) == (file is None):
        raise click.UsageError("give a statement, or --file with statements, not both")
    texts = split_statements(file.read() if statement is None else statement)
    if not texts:
        raise click.UsageError("there is no statement")
    most = _SHOWN if limit is None else limit
    results: list[dict[str, Any]] = []
    with on_spark(output, "the statement", {**iceberg, "sql": None}) as spark:
        for number, text in enumerate(texts):
            if len(texts) > 1:
                output.heading(f"{number + 1} of {len(texts)}: {_head(text)}")
            try:
                results.append(_carry_out(output, spark, text, most, dry_run=dry_run))
            except DelvecError as error:
                if number:
                    error.message += f" (statement {number + 1} of {len(texts)}: {_head(text)})"
                raise
    output.result({"statements": results})


def _carry_out(
    output: Output, spark: SparkSession, text: str, most: int, *, dry_run: bool
) -> dict[str, Any]:
    from pyspark.errors import PySparkException  # noqa: PLC0415

    from delvec.door.refusals import original  # noqa: PLC0415

    start = time.perf_counter()
    try:
        found = spark.sql(f"EXPLAIN {text}" if dry_run else text)
        rows = [row.asDict() for row in (found.limit(most + 1) if most else found).collect()]
    except PySparkException as error:
        raise original(spark, error) from error
    seconds = time.perf_counter() - start
    names, more = list(dict.fromkeys(found.columns)), bool(most) and len(rows) > most
    rows = rows[:most] if most else rows
    if dry_run:
        output.plain("".join(f"{row['plan'].rstrip()}\n" for row in rows))
    elif names:
        shown = [{name: _text(value) for name, value in row.items()} for row in rows]
        output.table([Column(name, name) for name in names], shown)
        left = ", and more; --limit 0 shows all" if more else ""
        output.note((f"{format_count(len(rows), 'row')}{left}, {seconds:.2f} s", "dim"))
    else:
        output.note((f"done, {seconds:.2f} s", "dim"))
    return {"statement": text, "columns": names, "rows": rows, "more": more}


def _text(value: object) -> str:
    return "NULL" if value is None else escape_controls(str(value))


def _head(text: str) -> str:
    first = " ".join(text.split())
    return first if len(first) <= _HEAD else f"{first[: _HEAD - 1]}…"


sql = command("sql", "statements that had ended stay")(
    apply(
        (
            click.argument("statement", required=False),
            option(
                "--file -f FILE", "A file with statements; - for standard input.", type=click.File()
            ),
            option("--limit N", f"Show at most so many rows of a result; {_SHOWN} if absent."),
            DRY_RUN,
            CATALOG,
        ),
        _sql,
    )
)
"""The command `delvec sql`."""

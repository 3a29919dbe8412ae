"""The command that reads sources of delta-spark and deltalake, and tells what runs here."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from delvec.cli.exits import ExitCode
from delvec.cli.main import command
from delvec.cli.terminal import Column
from delvec.migration.uses import find_uses

if TYPE_CHECKING:
    from delvec.cli.output import Output

_NEEDS = {"door": "enable_sql", "import": "import", "rewrite": "rewriting"}
_COLUMNS = (
    Column("place", "where", is_unbroken=True, name_width=32),
    Column("needs", "needs", is_unbroken=True),
    Column("what", "what"),
)


@command("migrate")
@click.argument("sources", nargs=-1, required=True, metavar="FILE...")
def migrate(output: Output, sources: tuple[str, ...]) -> None:
    """List what sources use of delta-spark and deltalake, and whether it runs with delvec.

    FILEs are Python (.py) and SQL (.sql), or folders with such files; - is standard input. They are
    read, and never run.
    Each use runs as it is, or needs `delvec.enable_sql(spark)`, another import, or rewriting, of
    which exit code 9 tells.

    \b
    delvec migrate jobs/ schema.sql
    delvec migrate job.py --json
    """
    found = find_uses(sources, sys.stdin.read() if "-" in sources else None)
    shown = [each for each in found.uses if each.verdict != "as is"]
    if shown:
        rows = [
            {"place": f"{each.file}:{each.line}", "needs": _NEEDS[each.verdict], "what": each.what}
            for each in shown
        ]
        output.table(_COLUMNS, rows)
    if told := dict.fromkeys((each.what, each.write) for each in shown if each.write):
        output.heading("What to write instead")
        for what, write in told:
            output.note((what, "bold"), f" → {write}")
    if found.uses:
        output.heading(found.summary())
    output.result(found.to_json())
    if any(each.verdict == "rewrite" for each in shown):
        sys.exit(ExitCode.TO_REWRITE)

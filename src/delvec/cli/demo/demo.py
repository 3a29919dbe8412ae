"""`delvec demo`: what delvec does, on small data, step by step; every number is computed."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

import click

from delvec.cli.demo.bytes import show_bytes
from delvec.cli.demo.stage import Teller
from delvec.cli.demo.story import show_story
from delvec.cli.demo.table import show_table
from delvec.cli.main import command as delvec_command
from delvec.storage import Storage

if TYPE_CHECKING:
    from delvec.cli.output import Output

__all__ = ["command"]

_NO_JAVA: Final = (
    "Spark needs Java 17 or 21, and there is none here. Get one by `apt install\n"
    "openjdk-17-jre-headless` or `brew install openjdk@17`. This needs none:"
)


@delvec_command("demo", "the demonstration has removed its tables, or left them in --folder")
@click.option("--folder", help="Keep the files that the demonstration writes, in this folder.")
@click.option("--bytes", "as_bytes", is_flag=True, help="Show a deletion vector, byte by byte.")
@click.option("--spark/--no-spark", "on_spark", default=True, help="Start Spark, which needs Java.")
@click.option("--iceberg/--no-iceberg", default=True, help="With Iceberg's jar, which it gets.")
def command(
    output: Output, folder: str | None, *, as_bytes: bool, on_spark: bool, iceberg: bool
) -> None:
    """Show what delvec does: deletes, merges, upserts, Iceberg, and rows erased for good.

    The tables are in a temporary folder, which is removed; only the page of the last step stays.
    """
    begun = time.monotonic()
    with ExitStack() as stack:
        storage = Storage.open(folder or stack.enter_context(TemporaryDirectory()))
        tell = Teller(output)
        if as_bytes:
            result = show_bytes(tell, storage)
        elif on_spark and _has_java():
            result = show_story(tell, storage, is_kept=folder is not None, iceberg=iceberg)
        else:
            if on_spark:
                output.note((_NO_JAVA, "yellow"))
            result = {"table": show_table(tell, f"{storage.root}/orders")}
    output.result(result)
    output.heading(f"Done in {time.monotonic() - begun:.0f} s.")
    output.note(f"The files are in {folder}." if folder else "--folder demo keeps the tables.")
    if as_bytes:
        output.note("delvec inspect FILE shows what is in a file of vectors.")
    else:
        output.note("--bytes shows a deletion vector, byte by byte.")


def _has_java() -> bool:
    """Return whether Spark would find a Java; whether that is one for Spark, it says itself."""
    return bool(os.environ.get("JAVA_HOME")) or shutil.which("java") is not None

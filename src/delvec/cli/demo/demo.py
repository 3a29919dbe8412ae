"""`delvec demo`: what delvec does, on small data, step by step; every number is computed."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import count
from tempfile import TemporaryDirectory
from typing import Any, Final

import click

from delvec._version import __version__
from delvec.cli.demo.bytes import show_bytes, show_table
from delvec.cli.main import command
from delvec.cli.output import Output
from delvec.cli.tables import on_spark
from delvec.cli.terminal import Column
from delvec.errors import EngineError, InvalidArgumentError, MissingDependencyError
from delvec.storage import Storage

_TABLES: Final = ("orders", "customers", "warehouse")
# For small tables and a short life: few partitions, and the JVM's quick compiler alone.
_CONF: Final = {
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
    " -XX:+UseSerialGC",
}
_NO_JAVA: Final = (
    "Spark needs Java 17 or 21, and there is none here. Get one by `apt install\n"
    "openjdk-17-jre-headless` or `brew install openjdk@17`. This needs none:"
)


class Tour:
    """Prints numbered steps, each in the same form, for 80 columns; knows where files go."""

    def __init__(self, output: Output, storage: Storage, *, is_kept: bool) -> None:
        self.output, self.storage, self.is_kept = output, storage, is_kept
        self.fact = output.note
        self._numbers: Iterator[int] = count(1)

    def path(self, name: str) -> str:
        return f"{self.storage.root}/{name}"

    def begin(self, title: str, calls: Sequence[str] = ()) -> None:
        self.output.heading(f"{next(self._numbers)}. {title}")
        for call in calls:
            self.output.note(("... " if call.startswith(" ") else ">>> ", "dim"), (call, "cyan"))

    def table(self, rows: Sequence[Mapping[str, Any]], *columns: str) -> None:
        """Print what happened; a column is a key of the rows, or `key=title`."""
        pairs = (column.partition("=") for column in columns)
        self.output.table([Column(key, title or key) for key, _, title in pairs], rows)

    def why(self, text: str) -> None:
        self.output.note(("→ ", "bold green"), (text, "italic"))


@command("demo", "the demonstration has removed its tables, or left them in --folder")
@click.option("--folder", help="Keep the files that the demonstration writes, in this folder.")
@click.option("--bytes", "as_bytes", is_flag=True, help="Show a deletion vector, byte by byte.")
@click.option("--spark/--no-spark", "on_spark", default=True, help="Start Spark, which needs Java.")
@click.option("--iceberg/--no-iceberg", default=True, help="With Iceberg's jar, which it gets.")
def demo(
    output: Output, folder: str | None, *, as_bytes: bool, on_spark: bool, iceberg: bool
) -> None:
    """Show what delvec does: deletes, merges, upserts, Iceberg, and rows erased for good.

    The tables are in a temporary folder, which is removed; only the page of the last step stays.
    """
    begun = time.monotonic()
    with ExitStack() as stack:
        storage = Storage.open(folder or stack.enter_context(TemporaryDirectory()))
        tour = Tour(output, storage, is_kept=folder is not None)
        if as_bytes:
            result = show_bytes(tour)
        # Whether Java is one for Spark, Spark says itself.
        elif on_spark and (os.environ.get("JAVA_HOME") or shutil.which("java")):
            result = show_story(tour, iceberg=iceberg)
        else:
            if on_spark:
                output.note((_NO_JAVA, "yellow"))
            result = {"table": show_table(tour)}
    output.result(result)
    output.heading(f"Done in {time.monotonic() - begun:.0f} s.")
    output.note(f"The files are in {folder}." if folder else "--folder demo keeps the tables.")
    of_vectors = "delvec inspect FILE shows what is in a file of vectors."
    output.note(of_vectors if as_bytes else "--bytes shows a deletion vector, byte by byte.")


def show_story(tour: Tour, *, iceberg: bool) -> dict[str, Any]:
    """Start Spark and show all steps; refuse a folder with tables of somebody's own."""
    import pyspark  # noqa: PLC0415

    from delvec.cli.demo.steps import show_steps  # noqa: PLC0415

    if taken := sorted(set(tour.storage.folders()) & set(_TABLES)):
        raise InvalidArgumentError(
            f"{tour.storage.root} has a folder {taken[0]} already, and the demonstration makes its"
            " own",
            hint="name a new folder by --folder, or remove that one",
        )
    version, missing = _iceberg() if iceberg else ("", "--no-iceberg")
    runtime = f", Iceberg {version}" if version else ""
    engines = f"Spark {pyspark.__version__}{runtime}, Python {platform.python_version()}"
    tour.output.note((f"delvec {__version__}", "bold"), f" on {engines}.")
    tour.output.note("Small tables, real engines; every number below is computed as you watch.")
    if missing:
        tour.output.note((f"No Iceberg steps: {missing}.", "yellow"))
    opened = {"conf": _CONF, "sql": True}
    catalog = {"warehouse": tour.path("warehouse"), **opened} if version else None
    with ExitStack() as stack:
        started = on_spark(tour.output, tour.path("orders"), catalog, opened)
        try:
            spark = stack.enter_context(started)
        except EngineError as error:
            if version:
                error.hint = f"{error.hint}; if a jar was not found: delvec demo --no-iceberg"
            raise
        return show_steps(tour, spark, iceberg=bool(version))


def _iceberg() -> tuple[str, str]:
    """Return the version of Iceberg's runtime for this Spark, or else why there is none."""
    from delvec.spark.session.iceberg_runtime import iceberg_coordinate  # noqa: PLC0415

    try:
        return iceberg_coordinate().rpartition(":")[2], ""
    except MissingDependencyError:
        return "", "no runtime for this Spark (pip install 'delvec[spark]')"

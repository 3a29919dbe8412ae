"""The demonstration on Spark: all steps in order, on tables of one folder."""

from __future__ import annotations

import os
import platform
from contextlib import ExitStack
from tempfile import mkstemp
from typing import TYPE_CHECKING, Any, Final

from delvec._version import __version__
from delvec.cli.demo.convert import show_conversion
from delvec.cli.demo.delete import show_delete
from delvec.cli.demo.erase import show_erasing
from delvec.cli.demo.keys import show_keys
from delvec.cli.demo.page import show_page
from delvec.cli.demo.stage import Stage
from delvec.cli.demo.writes import show_writes
from delvec.cli.spark_tables import on_spark
from delvec.errors import EngineError, InvalidArgumentError, MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from delvec.cli.demo.stage import Teller
    from delvec.storage import Storage

__all__ = ["show_steps", "show_story"]

_TABLES: Final = ("orders", "customers", "warehouse")
# For small tables and a short life: few partitions, and the JVM's quick compiler alone.
_CONF: Final = {
    "spark.sql.shuffle.partitions": "4",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
    " -XX:+UseSerialGC",
}
_WITH_ICEBERG: Final = ("keys", "conversion")


def show_story(tell: Teller, storage: Storage, *, is_kept: bool, iceberg: bool) -> dict[str, Any]:
    """Start Spark and show all steps.

    Args:
        tell: Prints.
        storage: Where tables are made.
        is_kept: Whether the folder is; else the page of the last step gets a place of its own.
        iceberg: Whether Iceberg is wanted.

    Raises:
        InvalidArgumentError: The folder has tables of these names already.
    """
    _require_room(storage)
    version, missing = _iceberg() if iceberg else ("", "--no-iceberg")
    _introduce(tell, version, missing)
    catalog = {"warehouse": f"{storage.root}/warehouse", "conf": _CONF} if version else None
    with ExitStack() as stack:
        path = f"{storage.root}/orders"
        try:
            spark = stack.enter_context(on_spark(tell.output, path, catalog, {"conf": _CONF}))
        except EngineError as error:
            if version:
                error.hint = f"{error.hint}; if a jar was not found: delvec demo --no-iceberg"
            raise
        stage = Stage(tell, spark, storage.root)
        result = show_steps(stage, iceberg=bool(version))
        return {**result, "page": show_page(stage, _page_file(storage, is_kept=is_kept))}


def show_steps(stage: Stage, *, iceberg: bool = True) -> dict[str, Any]:
    """Show the steps that change tables.

    Args:
        stage: Where.
        iceberg: Whether the session has Iceberg; steps that need it are left out otherwise.
    """
    from delvec.spark.progress import described  # noqa: PLC0415

    steps: dict[str, Callable[[Stage], dict[str, Any]]] = {
        "delete": show_delete,
        "writes": show_writes,
        "keys": show_keys,
        "conversion": show_conversion,
        "erasing": show_erasing,
    }
    result = {}
    for name, show in steps.items():
        if name in _WITH_ICEBERG and not iceberg:
            continue
        with described(stage.spark, f"delvec demo, {name}"):
            result[name] = show(stage)
    return result


def _require_room(storage: Storage) -> None:
    """Refuse a folder with tables of the same names: they may be somebody's own."""
    if taken := sorted(set(storage.folders()) & set(_TABLES)):
        raise InvalidArgumentError(
            f"{storage.root} has a folder {taken[0]} already, and the demonstration makes its own",
            hint="name a new folder by --folder, or remove that one",
        )


def _iceberg() -> tuple[str, str]:
    """Return the version of Iceberg's runtime for this Spark, or else why there is none."""
    from delvec.spark.session.iceberg_runtime import iceberg_coordinate  # noqa: PLC0415

    try:
        return iceberg_coordinate().rpartition(":")[2], ""
    except MissingDependencyError:
        return "", "no runtime for this Spark (pip install 'delvec[spark]')"


def _introduce(tell: Teller, iceberg: str, missing: str) -> None:
    import pyspark  # noqa: PLC0415

    stock = f", Iceberg {iceberg}" if iceberg else ""
    engines = f"Spark {pyspark.__version__}{stock}, Python {platform.python_version()}"
    tell.output.note((f"delvec {__version__}", "bold"), f" on {engines}.")
    tell.output.note("Small tables, real engines; every number below is computed as you watch.")
    if missing:
        tell.output.note((f"No Iceberg steps: {missing}.", "yellow"))


def _page_file(storage: Storage, *, is_kept: bool) -> str:
    """Return where the page goes: beside the tables, if these are kept on this machine."""
    if is_kept and "://" not in storage.root:
        return f"{storage.root}/report.html"
    handle, path = mkstemp(prefix="delvec-demo-", suffix=".html")
    os.close(handle)
    return path

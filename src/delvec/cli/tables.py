"""TABLE of a command, as it is opened: a Delta table by path or URI, an Iceberg table by name.

Also what commands share about tables: reports, and rows from files or another table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import click
from click.core import ParameterSource

from delvec.cli.exits import ended_by_sigterm
from delvec.cli.main import UNFINISHED, command
from delvec.cli.options import CATALOG, SPARK, TABLE, Decorator, apply, present
from delvec.delta.table import DeltaTable
from delvec.errors import InvalidArgumentError, TableNotFoundError
from delvec.identifiers import QUOTED
from delvec.report.format import escape_controls
from delvec.storage import Storage
from delvec.storage.fence import ALLOWED_PATHS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from delvec.cli.output import Output
    from delvec.delta.write.report import WriteReport
    from delvec.iceberg.table import IcebergTable

_NAME: Final = re.compile(rf"(?:[\w-]+|{QUOTED})(?:\.(?:[\w-]+|{QUOTED}))+")
_OF_DELTA: Final = ("--version", "--storage-option", "--max-retries", "--commit-metadata")
_REACHED: Final = ("options", "session", "iceberg")
_ABSENT: Final = (None, ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
# A failure is reported once, not also in the logs of tasks.
_SETTINGS: Final = {"spark.ui.enabled": "false", "spark.log.level": "FATAL"}
_NAMED: Final = re.compile(r"\.(parquet|csv|json|jsonl|ndjson)(\.[a-z0-9]+)?/?$", re.IGNORECASE)
# A value of the wrong type is an error, not a NULL.
_CSV: Final = {"header": True, "mode": "FAILFAST", "enforceSchema": False}
_JSON: Final = {"mode": "FAILFAST"}


def is_delta(table: str) -> bool:
    """Return whether a table is named by a path or URI.

    >>> is_delta("/lake/orders"), is_delta("s3://lake/orders"), is_delta("lake.db.orders")
    (True, True, False)
    """
    return Path(table).is_dir() or _NAME.fullmatch(table) is None


def require_path(table: str) -> None:
    if not is_delta(table):
        raise InvalidArgumentError(
            f"{table} is the name of a table in a catalog; this command takes the path or URI of a"
            " Delta table",
            hint=f"name its folder, such as /lake/orders; ./{table} if that is a folder here",
        )


def require_name(table: str) -> None:
    if is_delta(table) and ("/" in table or Path(table).is_dir()):
        raise InvalidArgumentError(
            f"{table} is a path; this command takes an Iceberg table by its name in a catalog",
            hint="name it as catalog.database.table, such as lake.db.orders; --warehouse says where"
            " the catalog lake is",
        )


def refuse_options(kind: str, names: Iterable[str]) -> None:
    """Refuse options that go with tables of the other format, with whatever value."""
    context = click.get_current_context()
    of_option = {opt: each.name for each in context.command.params for opt in each.opts}
    for name in names:
        if context.get_parameter_source(of_option.get(name) or "") not in _ABSENT:
            raise click.UsageError(
                f"{name} is for {kind}; a path or URI names a Delta table, a name such as"
                " lake.db.orders an Iceberg table"
            )


def allowed_paths() -> Sequence[str] | None:
    """Return what `delvec --allow-path PREFIX` allows; None if it is not given."""
    context = click.get_current_context(silent=True)
    given = context.find_root().params.get("allow_paths") if context is not None else ()
    return given or None


@contextmanager
def open_log(output: Output, table: str, options: Mapping[str, str]) -> Iterator[DeltaTable]:
    """Open a Delta table without Spark; that it is missing is noticed when its log is read."""
    require_path(table)
    storage = Storage.open(table, options, allow_paths=[allowed_paths()])
    try:
        with output.progress(str(click.get_current_context().info_name)):
            yield DeltaTable(storage)
    except TableNotFoundError as error:
        from delvec.delta.table.handle import explain_missing  # noqa: PLC0415

        raise explain_missing(storage, table, error) from None


@contextmanager
def on_spark(
    output: Output,
    table: str,
    iceberg: Mapping[str, Any] | None = None,
    session: Mapping[str, Any] | None = None,
) -> Iterator[SparkSession]:
    """Start Spark for the block, with its progress shown and its errors as delvec's."""
    from delvec.door.sessions import session as started  # noqa: PLC0415
    from delvec.spark.engine import SparkEngine  # noqa: PLC0415
    from delvec.spark.jobs import watch_jobs  # noqa: PLC0415

    with output.progress("starting Spark") as show:
        given = dict(session or {}) if iceberg is None else dict(iceberg)
        conf = {**_SETTINGS, **given.pop("conf", {})}
        if (allowed := allowed_paths()) is not None:
            conf[ALLOWED_PATHS] = json.dumps([allowed])  # a path may have a comma
        with ended_by_sigterm():
            spark = started(iceberg=iceberg is not None, conf=conf, **{"sql": False, **given})
        watched = nullcontext() if show is None else watch_jobs(spark, show)
        with SparkEngine(spark).translate_errors(table), watched:
            yield spark


@contextmanager
def open_delta(
    output: Output,
    table: str,
    options: Mapping[str, str],
    session: Mapping[str, Any] | None = None,
    iceberg: Mapping[str, Any] | None = None,
) -> Iterator[DeltaTable]:
    require_path(table)
    # A missing table is noticed before a JVM starts; but a bucket's keys may be the session's.
    if "://" not in Storage.open(table, options).root:
        DeltaTable.for_path(None, table, options)
    with on_spark(output, table, iceberg, session) as spark:
        yield DeltaTable.for_path(spark, table, options)


@contextmanager
def open_iceberg(output: Output, table: str, iceberg: Mapping[str, Any]) -> Iterator[IcebergTable]:
    require_name(table)
    with on_spark(output, table, iceberg) as spark:
        from delvec.iceberg.table import IcebergTable  # noqa: PLC0415

        yield IcebergTable.for_name(spark, table)


@dataclass(frozen=True)
class Opening:
    """How TABLE of a command is opened, and the options that tell how it is reached."""

    open: Callable[..., AbstractContextManager[Any]]
    options: tuple[Decorator, ...] = ()


LOG: Final = Opening(open_log)
"""A Delta table without Spark."""
DELTA: Final = Opening(open_delta, (SPARK,))
ICEBERG: Final = Opening(open_iceberg, (CATALOG,))


def either(delta: str = "", iceberg: str = "", *, spark: bool = False) -> Opening:
    """Return how a table of either format is opened, with options that go with one of them only.

    Options of the log and of its commits go with Delta tables in all commands.
    """

    def opened(
        output: Output, table: str, options: Mapping[str, str], iceberg: Mapping[str, Any]
    ) -> AbstractContextManager[DeltaTable | IcebergTable]:
        if not is_delta(table):
            refuse_options("a Delta table", of_delta)
            return open_iceberg(output, table, iceberg)
        refuse_options("an Iceberg table", of_iceberg)
        if not spark:
            return open_log(output, table, options)
        session = {name: iceberg[name] for name in ("master", "packages", "conf")}
        return open_delta(output, table, options, session)

    of_delta, of_iceberg = (*delta.split(), *_OF_DELTA), iceberg.split()
    return Opening(opened, (CATALOG,))


def table_command(
    name: str, opening: Opening, *options: Decorator, unfinished: str = UNFINISHED
) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator: a command whose function gets the output and the opened table.

    A report that it returns is shown. An option that is absent is no argument: the defaults are
    those of the function.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        @wraps(function)
        def run(output: Output, table: str, **given: Any) -> None:  # noqa: ANN401
            reached = {each: given.pop(each) for each in _REACHED if each in given}
            with opening.open(output, table, **reached) as target:
                report = function(output, target, **present(given))
            if report is not None:
                output.report(report)

        return command(name, unfinished)(apply((TABLE, *options, *opening.options), run))

    return decorate


def report_command(
    name: str, opening: Opening, *options: Decorator, unfinished: str = UNFINISHED
) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator: a command whose function gets the opened table, and returns a report."""

    def decorate(function: Callable[..., Any]) -> click.Command:
        @wraps(function)
        def run(_: Output, table: Any, **given: Any) -> Any:  # noqa: ANN401
            return function(table, **given)

        return table_command(name, opening, *options, unfinished=unfinished)(run)

    return decorate


def show_alteration(output: Output, report: WriteReport, name: str, what: str) -> None:
    """Print the report of a change without rows, which does not tell by itself what changes."""
    output.draw(report)
    if report.dry_run or report.version is not None:
        would = "would be " if report.dry_run else ""
        output.note(f"  {escape_controls(name)}: {would}{escape_controls(what)}")
    output.result(report.to_json())


def read_source(target: DeltaTable | IcebergTable, source: str, kind: str | None) -> DataFrame:
    """Return the rows of a source; columns of CSV and JSON get the target's types."""
    spark = cast("SparkSession", target.spark)
    context = click.get_current_context(silent=True)
    options = {} if context is None else context.params.get("options", {})  # `upsert` has none
    kind = kind or _kind(spark, source, options)
    if kind == "delta":
        return DeltaTable.for_path(spark, source, options).to_df()
    if kind == "parquet":
        return spark.read.parquet(source)
    return _typed(spark, target, source, kind)


def _kind(spark: SparkSession, source: str, options: Mapping[str, str]) -> str:
    if match := _NAMED.search(source):
        ending = match[1].lower()
        return ending if ending in {"parquet", "csv"} else "json"
    if DeltaTable.is_delta_table(source, options, spark=spark):
        return "delta"
    spark.read.text(source)  # fails if there is nothing
    raise InvalidArgumentError(
        f"{source} is not a Delta table, and its name does not show its format",
        hint="pass --format parquet, csv, json or delta",
    )


def _typed(
    spark: SparkSession, target: DeltaTable | IcebergTable, source: str, kind: str
) -> DataFrame:
    """Read CSV or JSON twice: for the names of the columns, then with the target's types."""
    from pyspark.sql.types import StructField, StructType  # noqa: PLC0415

    from delvec.spark.types import table_schema  # noqa: PLC0415

    if isinstance(target, DeltaTable):
        columns = table_schema(target.schema.fields)
    else:
        columns = target.schema
    known = {field.name.lower(): field.dataType for field in columns}
    reader = spark.read.format(kind).options(**(_CSV if kind == "csv" else _JSON))
    inferred = reader.option("inferSchema", True).load(source).schema
    schema = [
        StructField(field.name, known.get(field.name.lower(), field.dataType)) for field in inferred
    ]
    return reader.option("inferSchema", False).schema(StructType(schema)).load(source)

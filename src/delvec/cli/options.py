"""Options that several commands take: each has one name, one meaning and one help text.

An option, or a group of them that belong together, is a decorator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any, Final, TypeAlias

import click

from delvec.cli.values import age_or_time, completes, file_size, in_utc, pairs, seconds

Decorator: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
# What a placeholder says of a value.
_KINDS: Final[dict[str, dict[str, Any]]] = {
    "AGE": {"type": age_or_time},
    "BYTES": {"type": file_size},
    "DURATION": {"type": seconds},
    "FIELD=VALUE": {"multiple": True, "callback": pairs},
    "KEY=VALUE": {"multiple": True, "callback": pairs},
    "N": {"type": click.IntRange(min=0)},
    "TIME": {"type": in_utc},
}


def option(form: str, text: str, **how: Any) -> Decorator:  # noqa: ANN401
    """Return an option by its form and help; a default is shown there.

    The form has the names that click takes and a placeholder, as `--key keys COLUMN`: the function
    gets the value as `keys`. Choices are `--mode error|ignore`. Without a placeholder, choices,
    type and default it is a flag.
    """
    names = form.split()
    if "|" in names[-1]:
        how["type"] = click.Choice(names.pop().split("|"))
    metavar = names.pop() if names[-1].lower() != names[-1] else None
    if metavar is None and not how:
        how = {"is_flag": True}
    how = {**_KINDS.get(metavar or "", {}), **how}
    how.setdefault("show_default", how.get("default") is not None)
    return click.option(*names, metavar=metavar, help=text, **how)


def present(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def apply(options: Sequence[Decorator], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function with options, in the order of its help."""
    for each in reversed(options):
        function = each(function)
    return function


def together(
    *options: Decorator, check: Callable[[dict[str, Any]], None] | None = None
) -> Decorator:
    """Return options that belong together; a check of their values may change them."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if check is None:
            return apply(options, function)

        @wraps(function)
        def run(*args: Any, **given: Any) -> None:  # noqa: ANN401
            check(given)
            function(*args, **given)

        return apply(options, run)

    return decorate


def _gather(target: str, names: str, given: dict[str, Any]) -> None:
    given[target] = {name: given.pop(name) for name in names.split()}


def _require_both(given: dict[str, Any]) -> None:
    if (given["txn_app_id"] is None) != (given["txn_version"] is None):
        raise click.UsageError("--txn-app-id and --txn-version go together")


def _require_one_version(given: dict[str, Any]) -> None:
    if given["version"] is not None and given["timestamp"] is not None:
        raise click.UsageError("give --version or --timestamp, not both")


def _require_rows(given: dict[str, Any]) -> None:
    every = given.pop("every")
    if (given["where"] is None) != every:
        raise click.UsageError(
            "give --where or --all, not both"
            if every
            else "which rows? give --where CONDITION, or --all for every row"
        )


TABLE: Final = click.argument("table", shell_complete=completes("dir"))
STORAGE: Final = option(
    "--storage-option -o options KEY=VALUE",
    "A setting of the object store, such as region=eu-west-1; may be repeated.",
)
_SESSION: Final = (
    option(
        "--conf KEY=VALUE", "A setting of Spark, such as spark.sql.catalog.prod=…; may be repeated."
    ),
    option(
        "--package packages COORDINATE",
        "A jar that a catalog or store needs, by its Maven coordinate; may be repeated.",
        multiple=True,
    ),
    option(
        "--master URL",
        "Where Spark runs, such as local[4] or yarn; on all cores of this machine if absent.",
    ),
)
SPARK: Final = together(*_SESSION, check=partial(_gather, "session", "master packages conf"))
"""The options of a session for Delta tables, as `session`."""
CATALOG: Final = together(
    option(
        "--warehouse PATH",
        "Folder or URI of a catalog of Hadoop type; the folder `warehouse` if absent.",
    ),
    option("--catalog", "The name of that catalog.", default="lake"),
    *_SESSION,
    check=partial(_gather, "iceberg", "warehouse catalog master packages conf"),
)
"""The options of a session with an Iceberg catalog, as `iceberg`."""
DRY_RUN: Final = option("--dry-run", "Tell what would be done, and write nothing.")
WRITES: Final = together(
    STORAGE,
    DRY_RUN,
    option("--max-retries N", "How often to begin again when other commits get in the way."),
    option("--commit-metadata TEXT", "A text kept with the commit."),
)
"""The options of all commands that commit to a Delta table."""
TXN: Final = together(
    option("--txn-app-id ID", "The application that writes."),
    option(
        "--txn-version N",
        "Write nothing if that application has committed this version or a later one.",
    ),
    check=_require_both,
)
VERSION: Final = together(
    option("--version N", "As of this version."),
    option(
        "--timestamp TIME",
        "What was current at this time, such as 2026-01-31 10:00; in UTC unless it names a zone.",
    ),
    check=_require_one_version,
)
ROWS: Final = together(
    option("--where SQL", "The rows for which this is true."),
    option("--all every", "All rows of the table."),
    check=_require_rows,
)
FILES: Final = option("--where SQL", "Only files that may have rows for which it is true.")
BRANCH: Final = option("--branch NAME", "The branch.", default="main")
ICEBERG_BRANCH: Final = option("--branch NAME", "Iceberg: the branch; main if absent.")
EXPIRY: Final = together(
    option("--older-than AGE", "Expire snapshots older than this, such as 7d or 2026-01-31."),
    option(
        "--retain-last N",
        "Keep so many of the newest snapshots of each branch, whatever their age.",
        type=click.IntRange(min=1),
    ),
)
LOCATION: Final = option(
    "--location URI",
    "Delete files in this folder; by default the table's own, which has its metadata.",
)
WAIT: Final = option(
    "--wait DURATION", "How long to wait for somebody else's lock, such as 30s or 5m.", default="0s"
)
LEASE: Final = option(
    "--lease DURATION",
    "After how long others may take the lock over if this process dies.",
    default="5m",
)
FOLLOW: Final = option("--follow", "Go on until SIGINT or SIGTERM; JSON in lines.")
MERGE_SCHEMA: Final = option("--merge-schema", "Add columns that the table does not have.")
PROPERTY: Final = option(
    "--property properties KEY=VALUE",
    "A property of the table, such as delta.enableDeletionVectors=false; may be repeated.",
)


def snapshot(text: str) -> Decorator:
    return option("--snapshot-id ID", text, type=int)


def key(text: str, *, required: bool = False) -> Decorator:
    """Return `--key`, a column of the key; the function gets all of them as `keys`."""
    return option("--key keys COLUMN", text, multiple=True, required=required)


def source(
    *,
    text: str = "A file or folder of Parquet, of CSV with a header or of JSON lines, or a Delta"
    " table.",
    required: bool = True,
) -> Decorator:
    """Return `--source`, rows of files or of a table, and `--format`, which is given as `kind`."""
    return together(
        option("--source PATH", text, shell_complete=completes("file"), required=required),
        option(
            "--format kind parquet|csv|json|delta",
            "What the source is; if not given, its name tells, or its being a Delta table.",
        ),
    )


def interval(default: float) -> Decorator:
    text = f"How often to look, such as 10s or 2m; {default:g}s if absent."
    return option("--interval DURATION", text)


def limit(text: str) -> Decorator:
    """Return `--limit`; 0 means all."""
    return option("--limit N", text, default=50)

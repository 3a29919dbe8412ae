"""Whether TABLE is a Delta table, by its path or URI, or an Iceberg table, by its name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from delvec.errors import InvalidArgumentError
from delvec.identifiers import QUOTED

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["is_delta", "refuse_for_iceberg", "refuse_options", "require_name", "require_path"]

_NAME: Final = re.compile(rf"(?:[\w-]+|{QUOTED})(?:\.(?:[\w-]+|{QUOTED}))+")


def is_delta(table: str) -> bool:
    """Return whether a table is named by a path or URI.

    >>> is_delta("/lake/orders"), is_delta("s3://lake/orders"), is_delta("lake.db.orders")
    (True, True, False)
    """
    return Path(table).is_dir() or _NAME.fullmatch(table) is None


def require_path(table: str) -> None:
    """Refuse the name of a table in a catalog, where the path of a Delta table is expected.

    Raises:
        InvalidArgumentError: It is such a name.
    """
    if not is_delta(table):
        raise InvalidArgumentError(
            f"{table} is the name of a table in a catalog; this command takes the path or URI of a"
            " Delta table",
            hint=f"name its folder, such as /lake/orders; ./{table} if that is a folder here",
        )


def require_name(table: str) -> None:
    """Refuse a path, where the name of an Iceberg table is expected.

    Raises:
        InvalidArgumentError: It is a path or URI.
    """
    if is_delta(table) and ("/" in table or Path(table).is_dir()):
        raise InvalidArgumentError(
            f"{table} is a path; this command takes an Iceberg table by its name in a catalog",
            hint="name it as catalog.database.table, such as lake.db.orders; --warehouse says where"
            " the catalog lake is",
        )


def refuse_for_iceberg(
    how: Mapping[str, Any], options: Mapping[str, str], given: Mapping[str, Any]
) -> bool:
    """Refuse options of Delta tables, of those that `write_options` adds; return `dry_run`."""
    of_delta = {
        "--storage-option": options,
        "--max-retries": how.get("max_retries"),
        "--commit-metadata": how.get("commit_metadata"),
    }
    refuse_options("a Delta table", {**given, **of_delta})
    return bool(how["dry_run"])


def refuse_options(kind: str, given: Mapping[str, Any]) -> None:
    """Refuse options that go with tables of the other format."""
    wrong = [name for name, value in given.items() if value not in (None, False, {}, (), "main")]
    if wrong:
        raise click.UsageError(
            f"{wrong[0]} is for {kind}; a path or URI names a Delta table, a name such as"
            " lake.db.orders an Iceberg table"
        )

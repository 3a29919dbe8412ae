"""Whether TABLE is a Delta table, by its path or URI, or an Iceberg table, by its name."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import click
from click.core import ParameterSource

from delvec.errors import InvalidArgumentError
from delvec.identifiers import QUOTED

__all__ = ["is_delta", "refuse_delta_options", "refuse_options", "require_name", "require_path"]

_NAME: Final = re.compile(rf"(?:[\w-]+|{QUOTED})(?:\.(?:[\w-]+|{QUOTED}))+")
_ABSENT: Final = (None, ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)


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


def refuse_delta_options(*names: str) -> None:
    """Refuse options of Delta tables: these, and those of `write_options` but `--dry-run`."""
    of_writes = ("--storage-option", "--max-retries", "--commit-metadata")
    refuse_options("a Delta table", *names, *of_writes)


def refuse_options(kind: str, *names: str) -> None:
    """Refuse options that go with tables of the other format, with whatever value.

    Args:
        kind: The tables that they go with.
        names: Options of the current command.

    Raises:
        click.UsageError: One was given.
    """
    context = click.get_current_context()
    of_option = {opt: each.name for each in context.command.params for opt in each.opts}
    for name in names:
        if context.get_parameter_source(of_option[name] or "") in _ABSENT:
            continue
        raise click.UsageError(
            f"{name} is for {kind}; a path or URI names a Delta table, a name such as"
            " lake.db.orders an Iceberg table"
        )

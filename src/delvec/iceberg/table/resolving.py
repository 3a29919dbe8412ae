"""Equality deletes of an Iceberg table become deletion vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from delvec.calls import explained_calls
from delvec.errors import InvalidArgumentError
from delvec.iceberg.client.metadata import MAIN
from delvec.iceberg.resolve.resolver import Choices, resolve
from delvec.iceberg.table.handle import TableHandle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delvec.iceberg.resolve.report import ResolveReport

__all__ = ["TableResolving"]


@explained_calls()
@dataclass(frozen=True)
class TableResolving(TableHandle):
    """Resolving equality deletes."""

    def resolve(  # noqa: PLR0913
        self,
        keys: str | Sequence[str] | None = None,
        *,
        staging: str | None = None,
        target: str = MAIN,
        index: Literal["auto", "join", "index"] = "auto",
        verify: Literal["counts", "rows", "none"] = "counts",
        unique_keys: bool = False,
        max_snapshots: int | None = None,
        drop_staging: bool = False,
        wait: float = 0.0,
        dry_run: bool = False,
    ) -> ResolveReport:
        """Turn equality deletes into deletion vectors of the rows that have a deleted key."""
        names = [keys] if isinstance(keys, str) else list(keys or ())
        if unique_keys and not names:
            raise InvalidArgumentError("unique_keys needs the key columns")
        choices = Choices(
            target, staging, tuple(names), index, verify, unique_keys, max_snapshots, dry_run
        )
        return resolve(self._load(), choices)

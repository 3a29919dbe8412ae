"""The keywords of every call that changes a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypedDict

from delvec.delta.write.change import AppTransaction
from delvec.errors import InvalidArgumentError

__all__ = ["CheckedOptions", "WriteOptions"]

_MAX_RETRIES: Final = 10


class WriteOptions(TypedDict, total=False):
    """Keywords of all calls that change a table.

    Attributes:
        dry_run: Plan only: the report shows what the call would do.
        max_retries: How often to start again from the newest version after a conflict.
        commit_metadata: A string for the table's history.
        txn_app_id: The id of the writing application; with `txn_version`.
        txn_version: A number that grows with each commit of that application. If the table holds
            this one or a higher one already, nothing is written.
    """

    dry_run: bool
    max_retries: int
    commit_metadata: str | None
    txn_app_id: str | None
    txn_version: int | None


@dataclass(frozen=True)
class CheckedOptions:
    """The checked keywords of a call, with defaults for those that it omits.

    Attributes:
        dry_run: See `WriteOptions`.
        max_retries: See `WriteOptions`.
        commit_metadata: See `WriteOptions`.
        transaction: `txn_app_id` and `txn_version`, if the call has them.
    """

    dry_run: bool = False
    max_retries: int = _MAX_RETRIES
    commit_metadata: str | None = None
    transaction: AppTransaction | None = None

    @classmethod
    def of(
        cls,
        *,
        dry_run: bool = False,
        max_retries: int = _MAX_RETRIES,
        commit_metadata: str | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
    ) -> CheckedOptions:
        """Check the keywords of a call.

        Raises:
            InvalidArgumentError: A value is out of range, or one of `txn_app_id` and `txn_version`
                is missing.
        """
        if (txn_app_id is None) != (txn_version is None):
            raise InvalidArgumentError(
                "txn_app_id and txn_version go together",
                hint="the version is a number that grows with each commit of the application",
            )
        if max_retries < 0:
            raise InvalidArgumentError(f"max_retries is 0 or more, got {max_retries}")
        transaction = None
        if txn_app_id is not None and txn_version is not None:
            transaction = AppTransaction(txn_app_id, int(txn_version))
        return cls(dry_run, max_retries, commit_metadata, transaction)

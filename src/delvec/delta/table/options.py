"""What every call that changes a table can be told."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["WriteOptions"]


class WriteOptions(TypedDict, total=False):
    """Keywords of all calls that change a table.

    Attributes:
        dry_run: Plan only: the report tells what would have happened.
        max_retries: How often to begin again from a newer version after a conflict.
        commit_metadata: A text for the table's history.
        txn_app_id: The application that writes; with `txn_version`.
        txn_version: A number that rises with each commit of that application.
    """

    dry_run: bool
    max_retries: int
    commit_metadata: str | None
    txn_app_id: str | None
    txn_version: int | None

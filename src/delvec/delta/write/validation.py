"""The last check of a commit before it is put: nothing may resurrect deleted rows.

Other engines trust the log. Each of these rules was broken by some writer and corrupted tables.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from delvec.delta.log.paths import canonical
from delvec.delta.stats.entry import record_count, tight_bounds
from delvec.errors import PlanError
from delvec.vector import Descriptor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delvec.delta.write.change import Rewrite

__all__ = ["require_same_count", "require_valid"]


def require_valid(
    table: str,
    adds: Sequence[Mapping[str, Any]],
    removes: Sequence[Mapping[str, Any]],
    live: Mapping[str, Mapping[str, Any]],
    *,
    anew: Sequence[Mapping[str, Any]] = (),
    restores: bool = False,
) -> None:
    """Refuse a commit that would break the table.

    Args:
        table: The location of the table, for messages.
        adds: Bodies of the add actions.
        removes: Bodies of the remove actions.
        live: The add actions that the commit replaces or removes, by their decoded paths.
        anew: Bodies of add actions of live files that keep path and vector.
        restores: Whether files come back with vectors that they had before: these may delete fewer
            rows, and may be of any form.

    Raises:
        PlanError: A rule is broken; it names the file and the rule.
    """
    added = _by_path(table, adds, "added")
    removed = _by_path(table, removes, "removed")
    for path, body in removed.items():
        _check_remove(table, path, body, live)
    for path, body in added.items():
        _check_add(table, path, body, restores=restores)
        if path in removed:
            _check_pair(table, path, body, removed[path], restores=restores)
        elif path in live:
            raise _broken(table, path, "is added again without a remove of its old entry")
    for path in _by_path(table, anew, "entered anew"):
        if path in added or path in removed:
            raise _broken(table, path, "is entered anew, and added or removed too")


def require_same_count(table: str, rewrite: Rewrite) -> None:
    """Refuse a new file that has not as many live rows as the files that it replaces.

    Raises:
        PlanError: It names one of them.
    """
    before = 0
    for file in rewrite.files:
        if file.rows is None:
            return  # the log does not know
        before += file.rows - _cardinality(file.add)
    deleted = 0 if rewrite.deleted is None else rewrite.deleted.cardinality
    after = 0 if rewrite.added is None else rewrite.rows - deleted
    if before != after:
        raise _broken(
            table, rewrite.files[0].path, f"and others have {before} live rows, their copy {after}"
        )


def _by_path(
    table: str, bodies: Sequence[Mapping[str, Any]], what: str
) -> dict[str, Mapping[str, Any]]:
    paths = canonical(pa.array([body["path"] for body in bodies], pa.string()), table).to_pylist()
    twice = [path for path, count in Counter(paths).items() if count > 1]
    if twice:
        raise _broken(table, twice[0], f"is {what} twice in one commit")
    return dict(zip(paths, bodies, strict=True))


def _check_remove(
    table: str, path: str, body: Mapping[str, Any], live: Mapping[str, Mapping[str, Any]]
) -> None:
    if path not in live:
        raise _broken(table, path, "is removed but was not in the version that was read")
    was, now = _id_of(live[path]), _id_of(body)
    if was != now:
        raise _broken(
            table,
            path,
            f"is removed with the vector {now}, but it had {was}: both entries would stay live",
        )


def _check_add(table: str, path: str, body: Mapping[str, Any], *, restores: bool) -> None:
    vector = body.get("deletionVector")
    if vector is None or restores:
        return
    rows = record_count(body.get("stats"))
    if rows is None:
        raise _broken(table, path, "has a vector but no numRecords")
    if tight_bounds(body.get("stats")):
        raise _broken(table, path, "has a vector but tight bounds")
    descriptor = Descriptor.from_json(vector)
    if descriptor.offset is None or descriptor.storage_type == "i":
        raise _broken(table, path, "has a vector without an offset, which engines read differently")
    if not 0 < descriptor.cardinality < rows:
        raise _broken(
            table, path, f"has a vector that deletes {descriptor.cardinality} of {rows} rows"
        )


def _check_pair(
    table: str,
    path: str,
    add: Mapping[str, Any],
    remove: Mapping[str, Any],
    *,
    restores: bool,
) -> None:
    if _id_of(add) == _id_of(remove):
        raise _broken(table, path, "is added and removed with the same vector")
    before, after = _cardinality(remove), _cardinality(add)
    if after < before and not restores:
        raise _broken(table, path, f"would get rows back: {before} were deleted, now {after}")


def _id_of(body: Mapping[str, Any]) -> str | None:
    vector = body.get("deletionVector")
    return None if vector is None else Descriptor.from_json(vector).unique_id


def _cardinality(body: Mapping[str, Any]) -> int:
    vector = body.get("deletionVector")
    return 0 if vector is None else Descriptor.from_json(vector).cardinality


def _broken(table: str, path: str, what: str) -> PlanError:
    return PlanError(
        f"a commit to {table} was stopped: {path} {what}",
        hint="nothing was changed; please report this bug",
    )

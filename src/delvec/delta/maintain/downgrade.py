"""Downgrade: a table with deletion vectors becomes one that readers without them open.

    switch off   the property, so that no writer adds a vector; those who read before conflict
    purge        files with vectors are rewritten
    tombstones   files of vectors that older versions need get removes of their own: a VACUUM that
                 does not know vectors would delete them
    barrier      three checkpoints after the last version that needs vectors, as delta-spark does:
                 a reader that fails at a checkpoint tries older ones, three in all; without
                 tombstones of live files, which readers that compare paths alone would lose
    protocol     without the feature, and with checkpointProtection, so that the barrier stays

To truncate the history, the log before the barrier is deleted instead, once it is old enough, and
nothing needs protection. Each step is a commit that leaves all rows as they are; a call that finds
a step done goes on with the next, so a call that died is continued by another.

Specification: https://github.com/delta-io/delta/blob/master/protocol_rfcs/checkpoint-protection.md
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias
from urllib.parse import quote

from delvec import errors
from delvec.delta.alter.definition import unset_properties
from delvec.delta.alter.operations import alter
from delvec.delta.alter.table_state import lowest_protocol
from delvec.delta.log.actions import JsonActions, read_state_change
from delvec.delta.log.checkpoint_writer import write_checkpoint
from delvec.delta.log.replay import read_log_files
from delvec.delta.log.segment import list_commits, list_log, oldest_version
from delvec.delta.log.snapshot import Snapshot, open_snapshot
from delvec.delta.schema.metadata import Metadata, Property
from delvec.delta.schema.protocol import Protocol
from delvec.delta.skipping.predicate import Always, Never
from delvec.delta.vacuum.log_cleanup import clean_log
from delvec.delta.vacuum.references import references
from delvec.delta.vacuum.retention import property_ms, retention_of
from delvec.delta.write.change import Change, Operation, ReadSet
from delvec.delta.write.report import WriteReport
from delvec.delta.write.transaction import Attempt, CheckedOptions, Outcome, WriteOptions
from delvec.delta.write.writable import require_writable
from delvec.documents import whole_number
from delvec.inspection.figures import moment
from delvec.report.format import format_count, format_size, nonzero
from delvec.report.rendering import Line, Rendered, doc, documented, required, summary

Prepare: TypeAlias = Callable[[Attempt], Outcome]
Run: TypeAlias = Callable[[str, Prepare, WriteOptions], WriteReport]

_BARRIER: Final = 3
FEATURE: Final = "deletionVectors"
PROTECTION: Final = "checkpointProtection"
_AT_ONCE: Final = 32
_MINUTE: Final = 60_000


def drop_vectors(
    opened: Callable[[], Snapshot],
    run: Run,
    purge: Prepare | None,
    options: WriteOptions,
    *,
    truncate_history: bool,
) -> DowngradeReport:
    checked, snapshot = CheckedOptions.of(**options), opened()
    require_writable(snapshot, "alter")
    downgrade = _Downgrade(opened, run, purge, options, truncate_history=truncate_history)
    has_protection = PROTECTION in snapshot.protocol.features
    if FEATURE not in snapshot.protocol.features and not (truncate_history and has_protection):
        return downgrade.report(snapshot, snapshot.protocol)
    if checked.dry_run:
        return downgrade.plan(snapshot)
    if purge is None and snapshot.files.has_vector.any():
        files = format_count(int(snapshot.files.has_vector.sum()), "file")
        raise errors.InvalidArgumentError(
            f"{snapshot.table} has {files} with deletion vectors, which only Spark rewrites, and"
            " was opened without a session",
            hint="pass a session to for_path",
        )
    for _ in range(checked.max_retries):
        with suppress(_VectorsAgainError):
            return downgrade.execute(snapshot)
    return downgrade.execute(snapshot)


@documented()
class DowngradeReport(Rendered):
    """What a downgrade did, or would do.

    >>> print(DowngradeReport("/lake/t", 9, "reader 3, writer 7", "reader 1, writer 2"))
    DOWNGRADE of /lake/t: version 9, reader 1, writer 2
      before  reader 3, writer 7
    """

    table: str = required("Where the table is.")
    version: int | None = required("The version that has the new protocol; None if there is none.")
    before: str = required("The protocol before.")
    after: str = required("The protocol after.")
    dry_run: bool = doc("Whether it was only planned.", False)
    files_with_vectors: int = doc("Files that had a vector and were rewritten.", 0)
    bytes_rewritten: int = doc("Their size.", 0)
    vector_files: int = doc(
        "Files of vectors that older versions need; tombstones of their own keep them from the"
        " VACUUM of engines that do not know vectors.",
        0,
    )
    checkpoints: int = doc("Checkpoints that were written.", 0)
    log_files_deleted: int = doc("Files of the log that were deleted.", 0)
    commits: tuple[tuple[int, str], ...] = doc("The committed versions and their operations.", ())
    notes: tuple[str, ...] = doc("What users should know, in sentences.", ())

    def brief(self) -> str:
        """Return the commits in one line."""
        return f"versions {self._commits()}" if self.commits else "no version"

    def to_json(self) -> dict[str, Any]:
        """Return a document for programs."""
        commits = [{"version": version, "operation": name} for version, name in self.commits]
        return {**super().to_json(), "commits": commits}

    def _lines(self) -> Iterator[Line]:
        if self.dry_run:
            told = f"dry run: nothing was written, would be {self.after}"
        elif self.version is None:
            told = "nothing to do, nothing was written"
        else:
            told = f"version {self.version:,}, {self.after}"
        files = nonzero(self.files_with_vectors, "file")
        vectors = nonzero(self.vector_files, "vector file")
        rewritten = f"{files} with vectors ({format_size(self.bytes_rewritten)})"
        facts = {
            "before": self.before if self.before != self.after else "",
            "rewritten": rewritten if files else "",
            "kept": f"{vectors} for older versions" if vectors else "",
            "written": nonzero(self.checkpoints, "checkpoint"),
            "deleted": nonzero(self.log_files_deleted, "file of the log"),
            "commits": self._commits(),
        }
        return summary(f"DOWNGRADE of {self.table}: {told}", facts, notes=self.notes)

    def _commits(self) -> str:
        return ", ".join(f"{version} {name}" for version, name in self.commits)


def shown_protocol(protocol: Protocol) -> str:
    """Return a protocol in words.

    >>> from delvec.delta.schema.protocol import Protocol
    >>> shown_protocol(Protocol(1, 7, frozenset(), frozenset({"rowTracking", "appendOnly"})))
    'reader 1, writer 7 with appendOnly, rowTracking'
    """
    versions = f"reader {protocol.min_reader_version}, writer {protocol.min_writer_version}"
    features = ", ".join(sorted(protocol.features))
    return f"{versions} with {features}" if features else versions


class _VectorsAgainError(errors.ConflictError):
    """A concurrent commit has brought vectors back."""


@dataclass
class _Downgrade:
    opened: Callable[[], Snapshot]
    run: Run
    purge: Prepare | None
    options: WriteOptions
    truncate_history: bool = field(kw_only=True)
    _commits: list[tuple[int, str]] = field(default_factory=list)
    _files: int = 0
    _bytes: int = 0
    _vector_files: int = 0
    _checkpoints: int = 0
    _deleted: int = 0

    def execute(self, start: Snapshot) -> DowngradeReport:
        with errors.committed_before(
            lambda: self.report(start, start.protocol) if self._commits else None
        ):
            self._take_steps(start)
            return self.report(start, self.opened().protocol)

    def _take_steps(self, start: Snapshot) -> None:
        if FEATURE in start.protocol.features:
            self._switch_off()
            self._purge()
            self._add_tombstones()
        if self.truncate_history:
            self._truncate()
        else:
            snapshot = self.opened()
            last = last_with_vectors(snapshot)
            if last is not None:
                for _ in range(_BARRIER - len(checkpoints_after(snapshot, last))):
                    self._empty_commit()
        report = self._commit("DROP FEATURE", self._final, is_last=True)
        if report.version is not None:
            self._checkpoint(report.version)

    def report(self, start: Snapshot, after: Protocol, *, dry_run: bool = False) -> DowngradeReport:
        return DowngradeReport(
            start.table,
            self._commits[-1][0] if self._commits else None,
            shown_protocol(start.protocol),
            shown_protocol(after),
            dry_run=dry_run,
            files_with_vectors=self._files,
            bytes_rewritten=self._bytes,
            vector_files=self._vector_files,
            checkpoints=self._checkpoints,
            log_files_deleted=self._deleted,
            commits=tuple(self._commits),
        )

    def plan(self, snapshot: Snapshot) -> DowngradeReport:
        files = snapshot.files
        self._files = int(files.has_vector.sum())
        self._bytes = int(files.sizes[files.has_vector].sum())
        last = last_with_vectors(snapshot)
        report = self.report(snapshot, self._protocol(snapshot, last), dry_run=True)
        if self.truncate_history and last is not None:
            known = None if uses_vectors(snapshot) else old_enough_at(snapshot, last)
            when = "a day after the files are rewritten" if known is None else moment(known)
            note = f"the history that needs vectors can be deleted {when}, not before"
            if known is None or known > _now():
                report = replace(report, notes=(note,))
        return report

    def _switch_off(self) -> None:
        if not self.opened().metadata.is_on(Property.ENABLE_DELETION_VECTORS):
            return
        names, operation = [Property.ENABLE_DELETION_VECTORS], "UNSET TBLPROPERTIES"
        shown = {"properties": json.dumps(names), "ifExists": "true"}
        prepare = alter(
            operation, shown, lambda _, state: unset_properties(state, names, if_exists=True)
        )
        self._commit(operation, prepare)

    def _purge(self) -> None:
        """Rewrite files with vectors; those that others write meanwhile are of the next attempt."""
        if self.purge is None or not self.opened().files.has_vector.any():
            return
        report = self._commit("REORG", self.purge)
        self._files += report.vectors_removed
        self._bytes += report.bytes_removed

    def _add_tombstones(self) -> None:
        name = "Deletion Vector Tombstones"
        bodies: tuple[dict[str, Any], ...] = ()

        def prepare(attempt: Attempt) -> Outcome:
            nonlocal bodies
            now = _now()
            bodies = tuple(
                {"path": quote(key), "deletionTimestamp": now, "dataChange": False}
                for key in vector_files(attempt.snapshot)
            )
            if not bodies:
                return Outcome(None)
            operation = Operation(name, reads=ReadSet(Never()))
            return Outcome(Change(operation, tombstones=bodies, data_change=False))

        self._commit(name, prepare)
        self._vector_files += len(bodies)

    def _truncate(self) -> None:
        """Delete the versions that need vectors, or refuse."""
        snapshot = self.opened()
        last = last_to_delete(snapshot)
        if last is None:
            return
        if not checkpoints_after(snapshot, last):
            self._empty_commit()
            snapshot = self.opened()
        allowed = old_enough_at(snapshot, last)
        if allowed is not None and allowed <= _now():
            before = _now() - property_ms(snapshot, Property.TRUNCATED_HISTORY_RETENTION)
            deleted = clean_log(snapshot, before_ms=before)
            self._deleted += sum(deleted.files.values())
            last = last_to_delete(self.opened())
            if last is None:
                return
        when = "later" if allowed is None else f"after {moment(allowed)}"
        raise errors.UnsupportedFeatureError(
            f"the protocol of {snapshot.table} cannot be lowered yet: versions up to {last} in its"
            f" history need deletion vectors, and may be deleted {when}"
            f" ({Property.TRUNCATED_HISTORY_RETENTION}). The newest version has no vectors any"
            " more",
            feature=FEATURE,
            needed_by=snapshot.table,
            hint=f"run it again {when}, or without truncate_history, which keeps the history",
        )

    def _final(self, attempt: Attempt) -> Outcome:
        """Prepare the commit of the new protocol; refuse it if there are vectors again."""
        snapshot = attempt.snapshot
        last = last_with_vectors(snapshot)
        if FEATURE in snapshot.protocol.features:
            lacks_barrier = last is not None and (
                len(checkpoints_after(snapshot, last)) < _BARRIER or self.truncate_history
            )
            if uses_vectors(snapshot) or lacks_barrier:
                raise _VectorsAgainError(
                    f"other writers have brought deletion vectors back to {snapshot.table}",
                    version=snapshot.version,
                    retryable=False,
                    hint="files without vectors stay as they are; run it again, or stop the writers"
                    f" that set {Property.ENABLE_DELETION_VECTORS}",
                )
        elif not self.truncate_history:
            return Outcome(None)  # somebody else was faster
        protocol = self._protocol(snapshot, last)
        dropped = FEATURE if FEATURE in snapshot.protocol.features else PROTECTION
        parameters = {"featureName": dropped, "truncateHistory": self.truncate_history}
        # The metadata names the version; whatever others commit meanwhile is looked at again.
        reads = ReadSet(Always(), version=True)
        operation = Operation("DROP FEATURE", parameters, reads=reads)
        metadata = _metadata(snapshot, protocol, is_new=not self.truncate_history)
        return Outcome(Change(operation, protocol=protocol, metadata=metadata))

    def _protocol(self, snapshot: Snapshot, last: int | None) -> Protocol:
        features = set(snapshot.protocol.supported) - {FEATURE}
        if self.truncate_history:
            features -= set() if is_protected(snapshot) else {PROTECTION}
        elif last is not None or uses_vectors(snapshot):
            features.add(PROTECTION)
        return lowest_protocol(features)

    def _empty_commit(self) -> None:
        change = Change(Operation("Empty Commit"))
        report = self._commit("Empty Commit", lambda _: Outcome(change))
        if report.version is None:
            raise AssertionError("a change was committed")
        self._checkpoint(report.version)

    def _checkpoint(self, version: int) -> None:
        """Write a checkpoint and look whether it is there: all depends on it."""
        snapshot = open_snapshot(self.opened().storage, version)
        write_checkpoint(snapshot, one_entry_each=True)
        if version not in checkpoints_after(snapshot, version - 1):
            raise errors.FormatError(
                "a checkpoint did not arrive", path=snapshot.table, expected=version
            )
        self._checkpoints += 1

    def _commit(self, operation: str, prepare: Prepare, *, is_last: bool = False) -> WriteReport:
        """Run one step; the transaction identifier of the caller is that of the last alone."""
        options: WriteOptions = {**self.options}
        if not is_last:
            options.pop("txn_app_id", None)
            options.pop("txn_version", None)
        if operation == "Empty Commit":
            options.pop("commit_metadata", None)
        report = self.run(operation, prepare, options)
        if report.version is not None:
            self._commits.append((report.version, operation))
        return report


def _metadata(snapshot: Snapshot, protocol: Protocol, *, is_new: bool) -> Metadata:
    configuration = dict(snapshot.metadata.configuration)
    configuration.pop(Property.ENABLE_DELETION_VECTORS, None)
    if PROTECTION not in protocol.features:
        configuration.pop(Property.CHECKPOINT_PROTECTION_BEFORE, None)
    elif is_new:
        configuration[Property.CHECKPOINT_PROTECTION_BEFORE] = str(snapshot.version + 1)
    return replace(snapshot.metadata, configuration=configuration)


def _now() -> int:
    return int(time.time() * 1000)


def uses_vectors(snapshot: Snapshot) -> bool:
    """Return whether a version has vectors, or its property asks for some."""
    return snapshot.metadata.is_on(Property.ENABLE_DELETION_VECTORS) or bool(
        snapshot.files.vectors.null_count < len(snapshot.files)
    )


def last_with_vectors(snapshot: Snapshot) -> int | None:
    """Return the last version whose commit names a vector or switches them on.

    It is None if no commit in the log does, nor the oldest version that can be read. Tombstones of
    its checkpoint do not count: no reader needs them.
    """
    storage = snapshot.storage
    commits = [each for each in list_commits(storage) if each.last <= snapshot.version]
    for end in range(len(commits), 0, -_AT_ONCE):
        window = commits[max(0, end - _AT_ONCE) : end]
        read = read_log_files(storage, [each.key for each in window])
        for commit, actions in zip(reversed(window), reversed(read), strict=True):
            if _names_vectors(actions):
                return commit.last
    oldest = oldest_version(storage)
    return oldest if oldest > 0 and uses_vectors(open_snapshot(storage, oldest)) else None


def vector_files(snapshot: Snapshot) -> list[str]:
    """Return the files of vectors that only tombstones within the retention refer to.

    Without those that have a tombstone of their own already.
    """
    since = retention_of(snapshot).before_ms
    vectors: set[str] = set()
    others: set[str] = set()
    for each in references(snapshot, since):
        if each.role == "vector":
            vectors.update(each.keys.to_pylist())
        elif not each.is_live:
            others.update(each.keys.to_pylist())
    return sorted(vectors - others)


def checkpoints_after(snapshot: Snapshot, version: int) -> set[int]:
    """Return the versions after one that have a checkpoint, up to the snapshot's own."""
    found = list_log(snapshot.storage, version + 1).checkpoints
    return {each.version for each in found if version < each.version <= snapshot.version}


def last_to_delete(snapshot: Snapshot) -> int | None:
    """Return the last version that has to be deleted before the protocol is lowered."""
    if FEATURE in snapshot.protocol.features:
        return last_with_vectors(snapshot)
    # The feature is dropped, and its history protected.
    return _protected_before(snapshot) - 1 if is_protected(snapshot) else None


def is_protected(snapshot: Snapshot) -> bool:
    """Return whether the log has versions that checkpointProtection is there for."""
    if PROTECTION not in snapshot.protocol.features:
        return False
    listing = list_log(snapshot.storage)
    there = [*listing.commits, *(each.version for each in listing.checkpoints)]
    return min(there) < _protected_before(snapshot)


def old_enough_at(snapshot: Snapshot, last: int) -> int | None:
    """Return when the log up to a version may be deleted, in milliseconds; None if unknown."""
    listing = list_log(snapshot.storage, last + 1)
    times = [
        listing.commits[each].modified_ms
        for each in sorted(checkpoints_after(snapshot, last))
        if each in listing.commits
    ]
    if not times:
        return None
    retention = property_ms(snapshot, Property.TRUNCATED_HISTORY_RETENTION)
    return -(-(times[0] + retention) // _MINUTE) * _MINUTE


def _names_vectors(actions: JsonActions) -> bool:
    if b"deletionVector" in actions.data and any(
        isinstance(body, dict) and body.get("deletionVector")
        for action in actions.all_actions()
        for body in action.values()
    ):
        return True
    _, metadata = read_state_change(actions)
    return metadata is not None and metadata.is_on(Property.ENABLE_DELETION_VECTORS)


def _protected_before(snapshot: Snapshot) -> int:
    properties = snapshot.metadata.configuration
    before = whole_number(properties.get(Property.CHECKPOINT_PROTECTION_BEFORE, "0"))
    return snapshot.version if before is None else before

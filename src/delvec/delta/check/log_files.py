"""The files of a log: whether all are there and can be read, and agree with the commits.

Lists the log, and reads what opening the newest version reads. To compare the checkpoint and the
checksum file, the commits since the checkpoint before the newest are read too, up to 256 MiB.
Memory grows with the names in the log, with these commits, and by some hundred bytes a live file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.check.report import LOG_DAMAGE, log_damage
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.paths import LAST_CHECKPOINT, canonicalize_paths, checksum_key, commit_key
from delvec.delta.log.replay import read_log_file, vector_ids
from delvec.delta.log.segment import (
    Checkpoint,
    LogListing,
    Segment,
    covering_files,
    read_optional,
    segment_of,
)
from delvec.delta.log.snapshot import Snapshot, open_snapshot
from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.protocol import Protocol
from delvec.documents import parse_json
from delvec.errors import FormatError, ObjectNotFoundError
from delvec.report.findings import Finding, Findings
from delvec.report.format import format_count
from delvec.report.hints import call, format_hint
from delvec.storage import Storage
from delvec.vector import Descriptor

_INCOMPLETE: Final = format_hint(
    "delete it, unless a writer is at it; {} writes a new one", call("checkpoint")
)
_WRONG_CHECKPOINT: Final = format_hint(
    "move the checkpoint elsewhere, while all commits are there, and run {}", call("checkpoint")
)
_UNNEEDED: Final = format_hint(
    "all commits that it covers are there: {} sets it aside", call("check", repair=True)
)
_MOST_BYTES: Final = 256 << 20


def open_newest(storage: Storage, listing: LogListing, findings: Findings) -> Snapshot | None:
    """Open the newest version; if it is damaged, find the damaged files and return None."""
    try:
        snapshot = open_snapshot(storage)
        _ = snapshot.metadata.schema, snapshot.metadata.partition_fields
    except LOG_DAMAGE as error:
        first = log_damage(error)
        findings.add(first)
        findings.extend(each for each in _damaged(storage, listing) if each.path != first.path)
        return None
    return snapshot


@dataclass(frozen=True)
class Reopened:
    """A version opened by its commits, and the damaged checkpoints that it does not need."""

    snapshot: Snapshot
    damaged: Mapping[Checkpoint, Finding]


def open_by_commits(storage: Storage, listing: LogListing) -> Reopened | None:
    """Open the newest version without the checkpoints that are damaged.

    None if none is, or if the commits that they cover are not all there, or are damaged too. Reads
    the checkpoints, newest first, up to one that is whole.
    """
    damaged: dict[Checkpoint, Finding] = {}
    newest = max((each.version for each in listing.checkpoints), default=-1)
    if listing.beyond or newest > max(listing.commits, default=-1):
        return None  # a version that a checkpoint alone has would be lost without it
    try:
        while True:
            left = [each for each in listing.checkpoints if each not in damaged]
            segment = segment_of(storage, replace(listing, checkpoints=left))
            if segment.checkpoint is None:
                break
            found = _checkpoint_damage(storage, segment.checkpoint)
            if found is None:
                break
            damaged[segment.checkpoint] = found
        snapshot = open_snapshot(storage, segment=segment)
        snapshot.all_entries()
        for _ in snapshot.tombstones():  # which the new checkpoint holds too
            pass
    except LOG_DAMAGE:
        return None  # which opening the table has found
    return Reopened(snapshot, damaged) if damaged else None


def _checkpoint_damage(storage: Storage, checkpoint: Checkpoint) -> Finding | None:
    try:
        alone = Segment(checkpoint.version, checkpoint, (), 0)
        open_snapshot(storage, segment=alone).all_entries()
    except LOG_DAMAGE as error:
        found = log_damage(error)
        return replace(found, kind="damaged-checkpoint", path=checkpoint.keys[0], hint=_UNNEEDED)
    return None


def check_log_files(storage: Storage, listing: LogListing, findings: Findings) -> None:
    """Find holes in the history, checkpoints that are not whole, and a wrong hint at the newest."""
    findings.extend(_holes(listing))
    for key in listing.incomplete:
        message = "the checkpoint is not whole: readers ignore it"
        findings.add(Finding("warning", "incomplete-checkpoint", key, message, _INCOMPLETE))
    wrong = wrong_hint(storage, listing)
    if wrong is not None:
        findings.add(wrong)


def check_checkpoint(snapshot: Snapshot, listing: LogListing, findings: Findings) -> int:
    """Compare the checkpoint in use with the replay of what led to it; return how many were.

    That is the checkpoint before it, or none, and the commits up to it; where they are not all
    there any more, or too large, nothing is compared.
    """
    checkpoint = snapshot.segment.checkpoint
    if checkpoint is None:
        return 0
    older = [each for each in listing.checkpoints if each.version < checkpoint.version]
    base = max(older, key=lambda each: each.version, default=None)
    start = 0 if base is None else base.version + 1
    commits, end = covering_files(listing, start, checkpoint.version)
    too_large = sum(each.size for each in commits) > _MOST_BYTES
    if end <= checkpoint.version or too_large:
        return 0
    storage = snapshot.storage
    before = Segment(checkpoint.version, base, tuple(commits), 0)
    try:
        replayed = open_snapshot(storage, segment=before)
        expected = replayed.all_entries()
    except LOG_DAMAGE as error:
        named = error.path if isinstance(error, FormatError) else getattr(error, "uri", "")
        message = f"versions before {checkpoint.version:,} cannot be read ({error})"
        hint = "restore the file from a copy; newer versions do not need it"
        findings.add(Finding("warning", "damaged-history", named or "", message, hint))
        return 0
    written = open_snapshot(storage, segment=Segment(checkpoint.version, checkpoint, (), 0))
    for each in _differences(written, written.all_entries(), replayed, expected):
        path, message = checkpoint.keys[0], f"the checkpoint is not what the commits say: {each}"
        findings.add(Finding("error", "wrong-checkpoint", path, message, _WRONG_CHECKPOINT))
    return 1


def check_checksum(snapshot: Snapshot, files: FileSet, findings: Findings) -> None:
    """Compare the checksum file of the version with its entries; delta-spark trusts it."""
    key = checksum_key(snapshot.version)
    value = read_optional(snapshot.storage, key)
    expected = {
        "numFiles": len(files),
        "tableSizeBytes": int(files.sizes.sum()),
        "numDeletedRecordsOpt": pc.sum(pc.struct_field(files.vectors, "cardinality")).as_py() or 0,
        "numDeletionVectorsOpt": len(files.vectors) - files.vectors.null_count,
    }
    wrong = [
        f"{name} is {value[name]}, expected {count}"
        for name, count in expected.items()
        if value.get(name) is not None and value[name] != count
    ]
    wrong += _other_state(snapshot, files, value)
    if wrong:
        message = f"the checksum file is not that of the version: {'; '.join(wrong)}"
        hint = "delete it: it is optional, and engines that trust it read other rows"
        findings.add(Finding("error", "wrong-checksum", key, message, hint))


def wrong_hint(storage: Storage, listing: LogListing) -> Finding | None:
    """Return what is wrong with `_last_checkpoint`; None if nothing is."""
    versions = {each.version for each in listing.checkpoints}
    hint = format_hint("{} writes it", call("check", repair=True))
    try:
        text = storage.read(LAST_CHECKPOINT)
    except ObjectNotFoundError:
        if not versions:
            return None
        message = (
            f"nothing points to the checkpoint of version {max(versions):,}: readers list the"
            " whole log"
        )
        return Finding("info", "missing-hint", LAST_CHECKPOINT, message, hint)
    try:
        value = parse_json(text, "the hint")
    except FormatError:
        value = None
    version = value.get("version") if isinstance(value, dict) else None
    if type(version) is int and version in versions:
        return None
    found = f"version {version}"[:60] if type(version) is int else repr(text[:60])
    expected = f"version {max(versions)}" if versions else "no such file"
    message = f"it does not point to a checkpoint: expected {expected}, found {found}"
    if not versions:
        hint = format_hint("delete it; {} writes a new one", call("checkpoint"))
    return Finding("warning", "wrong-hint", LAST_CHECKPOINT, message, hint)


def _damaged(storage: Storage, listing: LogListing) -> Iterator[Finding]:
    """Yield the commits since the newest checkpoint that cannot be read."""
    start = max((each.version for each in listing.checkpoints), default=-1)
    for version in sorted(each for each in listing.commits if each > start):
        try:
            for _ in read_log_file(storage, commit_key(version)).all_actions():
                pass
        except LOG_DAMAGE as error:  # noqa: PERF203 - each is a read
            yield log_damage(error)


def _holes(listing: LogListing) -> Iterator[Finding]:
    """Yield the first of each row of commits that are missing between others."""
    versions = sorted(listing.commits)
    for before, after in pairwise(versions):
        if after - before > 1:
            many = format_count(after - before - 1, "commit")
            message = (
                f"{many} missing in the history, from version {before + 1:,} on: versions there"
                " cannot be read, and the changes between them are not known"
            )
            path, hint = commit_key(before + 1), "restore the file from a copy"
            yield Finding("warning", "missing-commit", path, message, hint)


def _differences(
    written: Snapshot, found: FileSet, replayed: Snapshot, expected: FileSet
) -> Iterator[str]:
    theirs, ours = _facts(found), _facts(expected)
    lost = ours.filter(pc.invert(pc.is_in(ours, value_set=theirs)))
    more = theirs.filter(pc.invert(pc.is_in(theirs, value_set=ours)))
    for entries, what in (
        (lost, "lacks {}, such as {!r}: rows are lost, or deleted ones are back"),
        (more, "has {} that it should not have, such as {!r}: rows are twice there, or are back"),
    ):
        if len(entries):
            many = format_count(len(entries), "live entry").replace("entrys", "entries")
            yield f"it {what.format(many, entries[0].as_py().partition(chr(0))[0])}"
    if written.protocol != replayed.protocol:
        yield f"expected {replayed.protocol}, found {written.protocol}"
    if _definition(written.metadata) != _definition(replayed.metadata):
        yield "its schema, partition columns or properties differ"


def _definition(metadata: Metadata) -> tuple[object, ...]:
    return metadata.schema, metadata.partition_columns, dict(metadata.configuration)


def _facts(files: FileSet) -> pa.Array:
    """Return each entry as one string: its path, vector and size."""
    vector = [
        pc.coalesce(pc.struct_field(files.vectors, [name]).cast(pa.string()), "")
        for name in ("cardinality", "sizeInBytes")
    ]
    ids = pc.coalesce(vector_ids(files.vectors), "")
    return pc.binary_join_element_wise(
        files.paths, ids, *vector, pa.array(files.sizes).cast(pa.string()), "\0"
    )


def _other_state(snapshot: Snapshot, files: FileSet, value: dict[str, Any]) -> Iterator[str]:
    try:
        if value.get("protocol") and Protocol.from_json(value["protocol"]) != snapshot.protocol:
            yield "it has another protocol"
        if value.get("metadata"):
            metadata = Metadata.from_json(value["metadata"])
            if _definition(metadata) != _definition(snapshot.metadata):
                yield "it has another schema or other properties"
        live = zip(files.paths.to_pylist(), vector_ids(files.vectors).to_pylist(), strict=True)
        if isinstance(value.get("allFiles"), list) and _listed(snapshot, value) != set(live):
            yield "it lists other files"
    except (FormatError, AttributeError, KeyError, TypeError, pa.ArrowException) as error:
        yield f"its protocol, metadata or files cannot be read ({error})"


def _listed(snapshot: Snapshot, value: dict[str, Any]) -> set[tuple[str, str | None]]:
    bodies = value["allFiles"]
    paths = pa.array([body["path"] for body in bodies], pa.string())
    paths = canonicalize_paths(paths, snapshot.table)
    vectors = [body.get("deletionVector") for body in bodies]
    ids = [each and Descriptor.from_json(each).unique_id for each in vectors]
    return set(zip(paths.to_pylist(), ids, strict=True))

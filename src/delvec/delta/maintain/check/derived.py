"""What is derived from commits: whether the checkpoint and the checksum file agree with them.

Reads the commits since the checkpoint before the newest, up to 256 MiB of them, and holds some
hundred bytes for each live file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.log.checksums import read_checksum
from delvec.delta.log.names import checksum_key
from delvec.delta.log.paths import canonical
from delvec.delta.log.replay import vector_ids
from delvec.delta.log.segment import Segment, covering_files
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.maintain.check.report import LOG_DAMAGE
from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.protocol import Protocol
from delvec.errors import FormatError
from delvec.report.figures import counted
from delvec.report.findings import Finding
from delvec.report.wordings import call, worded
from delvec.vector import Descriptor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.delta.log.file_set import FileSet
    from delvec.delta.log.snapshot import Snapshot
    from delvec.delta.maintain.check.log_files import LogFiles
    from delvec.report.findings import Findings

__all__ = ["check_checkpoint", "check_checksum"]

_MOST_BYTES: Final = 256 << 20


def check_checkpoint(snapshot: Snapshot, log: LogFiles, findings: Findings) -> int:
    """Compare the checkpoint in use with the replay of what led to it; return how many were.

    That is the checkpoint before it, or none, and the commits up to it; where they are not all
    there any more, or too large, nothing is compared.
    """
    checkpoint, listing = snapshot.segment.checkpoint, log.listing
    if checkpoint is None:
        return 0
    older = [each for each in listing.checkpoints if each.version < checkpoint.version]
    base = max(older, key=lambda each: each.version, default=None)
    start = 0 if base is None else base.version + 1
    commits, end = covering_files(listing, start, checkpoint.version)
    too_large = sum(log.sizes.get(each.key, 0) for each in commits) > _MOST_BYTES
    if end <= checkpoint.version or too_large:
        return 0
    storage = snapshot.storage
    try:
        replayed = open_snapshot(
            storage, segment=Segment(checkpoint.version, base, tuple(commits), 0)
        )
        expected = replayed.all_entries()
    except LOG_DAMAGE as error:
        named = error.path if isinstance(error, FormatError) else getattr(error, "uri", "")
        findings.add(
            Finding(
                "warning",
                "damaged-history",
                named or "",
                f"versions before {checkpoint.version:,} cannot be read ({error})",
                "restore the file from a copy; newer versions do not need it",
            )
        )
        return 0
    written = open_snapshot(storage, segment=Segment(checkpoint.version, checkpoint, (), 0))
    findings.extend(
        Finding(
            "error",
            "wrong-checkpoint",
            checkpoint.keys[0],
            f"the checkpoint is not what the commits say: {each}",
            worded(
                "move the checkpoint elsewhere, while all commits are there, and run {}",
                call("checkpoint"),
            ),
        )
        for each in _differences(written, written.all_entries(), replayed, expected)
    )
    return 1


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
            many = counted(len(entries), "live entry").replace("entrys", "entries")
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


def check_checksum(snapshot: Snapshot, files: FileSet, findings: Findings) -> None:
    """Compare the checksum file of the version with its entries; delta-spark trusts it."""
    value = read_checksum(snapshot.storage, snapshot.version)
    if value is None:
        return
    vectors = files.vectors.is_valid().to_numpy(zero_copy_only=False)
    expected = {
        "numFiles": len(files),
        "tableSizeBytes": int(files.sizes.sum()),
        "numDeletedRecordsOpt": pc.sum(pc.struct_field(files.vectors, "cardinality")).as_py() or 0,
        "numDeletionVectorsOpt": int(vectors.sum()),
    }
    wrong = [
        f"{name} is {value[name]}, expected {count}"
        for name, count in expected.items()
        if value.get(name) is not None and value[name] != count
    ]
    wrong += _other_state(snapshot, files, value)
    if wrong:
        findings.add(
            Finding(
                "error",
                "wrong-checksum",
                checksum_key(snapshot.version),
                f"the checksum file is not that of the version: {'; '.join(wrong)}",
                "delete it: it is optional, and engines that trust it read other rows",
            )
        )


def _other_state(snapshot: Snapshot, files: FileSet, value: dict[str, Any]) -> Iterator[str]:
    try:
        if value.get("protocol") and Protocol.from_json(value["protocol"]) != snapshot.protocol:
            yield "it has another protocol"
        if value.get("metadata"):
            metadata = Metadata.from_json(value["metadata"])
            if _definition(metadata) != _definition(snapshot.metadata):
                yield "it has another schema or other properties"
        if isinstance(value.get("allFiles"), list) and _listed(snapshot, value) != _live(files):
            yield "it lists other files"
    except (FormatError, AttributeError, KeyError, TypeError, pa.ArrowException) as error:
        yield f"its protocol, metadata or files cannot be read ({error})"


def _listed(snapshot: Snapshot, value: dict[str, Any]) -> set[tuple[str, str | None]]:
    bodies = value["allFiles"]
    paths = canonical(pa.array([body["path"] for body in bodies], pa.string()), snapshot.table)
    vectors = [body.get("deletionVector") for body in bodies]
    ids = [each and Descriptor.from_json(each).unique_id for each in vectors]
    return set(zip(paths.to_pylist(), ids, strict=True))


def _live(files: FileSet) -> set[tuple[str, str | None]]:
    ids = vector_ids(files.vectors).to_pylist()
    return set(zip(files.paths.to_pylist(), ids, strict=True))

"""The entries of a log: each data file is there once, and readers must know what the files need.

All on Arrow columns: some hundred bytes for each live file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.delta.alter.table_state import needed_features
from delvec.delta.check.report import LOG_DAMAGE, finding_of, log_damage
from delvec.delta.log.file_set import FileSet
from delvec.delta.log.paths import among, canonicalize_paths, inside_names, parse_name
from delvec.delta.log.replay import Batch, JsonAdds, batch_of, keys_of, repeated
from delvec.delta.log.snapshot import Snapshot
from delvec.delta.schema.column_metadata import TYPE_CHANGES
from delvec.delta.schema.metadata import Property
from delvec.delta.schema.protocol import (
    FEATURES,
    READERS_WITH_FEATURES,
    WRITERS_WITH_FEATURES,
    Protocol,
)
from delvec.delta.schema.traversal import all_fields
from delvec.delta.write.change import ROW_TRACKING_DOMAIN, high_water_mark
from delvec.documents import whole_number
from delvec.errors import FormatError
from delvec.report.findings import Finding, Findings, Severity
from delvec.report.hints import call, format_hint

_OLDER: Final = (
    "every version before that commit reads rightly: restore the table to one, and repeat what was"
    " done since"
)
_VECTORS: Final = "deletionVectors"
_NO_VECTORS: Final = ("icebergCompatV1", "icebergCompatV2", "icebergWriterCompatV1")
# Features that change what readers see by the schema alone.
_BY_SCHEMA: Final = ("columnMapping", "timestampNtz", "variantType", "typeWidening")


def check_entries(snapshot: Snapshot, findings: Findings) -> FileSet | None:
    """Return the live entries, also files that are live twice; None if they cannot be told."""
    try:
        both = list(_added_and_removed(snapshot))
        if both:
            findings.extend(both)
            return None
        files = snapshot.all_entries()
        _ = files.row_counts  # so that damaged statistics are noticed here
    except LOG_DAMAGE as error:
        findings.add(log_damage(error))
        return None
    twice = find_duplicates(files)
    for path, indexes in twice.items():
        findings.add(_live_twice(files, path, indexes))
    findings.extend(each for each in _unmatched(snapshot, files) if each.path not in twice)
    return files


def _added_and_removed(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield files that one commit adds and removes with the same vector."""
    names = snapshot.partition_names
    for file, actions in snapshot.commits:
        batch = _batch(JsonAdds(actions, names), names)
        if batch.remove_paths is None:
            continue
        added = _keys(snapshot, batch.add_paths, batch.add_vectors)
        removed = _keys(snapshot, batch.remove_paths, batch.remove_vectors)
        for key in added.filter(pc.is_in(added, value_set=removed)).unique().to_pylist():
            message = (
                f"{file.key} adds and removes the file with the same vector, and the order inside"
                " a commit has no meaning: nobody can tell whether its rows are live"
            )
            path = key.partition("\0")[0]
            yield Finding("error", "added-and-removed", path, message, _OLDER)


def _keys(snapshot: Snapshot, paths: pa.Array, vectors: pa.Array) -> pa.Array:
    return keys_of(canonicalize_paths(paths, snapshot.table), vectors)


def find_duplicates(files: FileSet) -> dict[str, list[int]]:
    paths = inside_names(files.paths, files.root)
    found: dict[str, list[int]] = {}
    for index in where_repeated(paths):
        found.setdefault(paths[index].as_py(), []).append(index)
    return found


def where_repeated(values: pa.Array) -> list[int]:
    """Return the places of values that stand more than once; nulls are none."""
    return np.flatnonzero(among(values, repeated(values.drop_null()))).tolist()


def _live_twice(files: FileSet, path: str, indexes: list[int]) -> Finding:
    entries = []
    for index in indexes:
        value = files.vectors[index].as_py()
        vector = "no vector" if value is None else f"a vector of {value['cardinality']} rows"
        uri = files.sources[int(files.source[index])].uri  # type: ignore[attr-defined]
        entries.append(f"with {vector} by {uri.rpartition('/')[2]}")
    message = (
        f"the data file is live {len(indexes)} times, so its rows are read as often:"
        f" {', '.join(entries)}"
    )
    hint = f"a writer removed it without naming its vector; {_OLDER}"
    return Finding("error", "live-twice", path, message, hint)


def _unmatched(snapshot: Snapshot, files: FileSet) -> Iterator[Finding]:
    """Yield live files that a later commit removes with a vector that they did not have.

    Sources of live files are numbered newest first: those of the commits, then the checkpoint's.
    """
    names = snapshot.partition_names
    for number, (file, _) in enumerate(snapshot.commits):
        batch = _batch(files.sources[number], names)
        if batch.remove_paths is None or not len(files):
            continue
        removed = canonicalize_paths(batch.remove_paths, snapshot.table)
        places = pc.fill_null(pc.index_in(removed, value_set=files.paths), -1).to_numpy()
        later = np.flatnonzero((places >= 0) & (files.source[places] > number))
        if not len(later):
            continue
        keys = _keys(snapshot, batch.remove_paths, batch.remove_vectors)
        before = files.sources[number + 1 :]
        for at in later.tolist():
            if not _was_live(snapshot, before, keys[at]):
                path = files.paths[int(places[at])].as_py()
                message = (
                    f"{file.key} removes the data file, but does not name the vector that it had:"
                    " it is still live"
                )
                yield Finding("error", "remove-without-vector", path, message, _OLDER)


def _was_live(snapshot: Snapshot, sources: Sequence[Any], key: pa.Scalar) -> bool:
    """Return whether an entry was live after some files of the log, newest first."""
    for source in sources:
        batch = _batch(source, snapshot.partition_names)
        if _has(snapshot, batch.add_paths, batch.add_vectors, key):
            return True
        if _has(snapshot, batch.remove_paths, batch.remove_vectors, key):
            return False
    return False


def _has(
    snapshot: Snapshot, paths: pa.Array | None, vectors: pa.Array | None, key: pa.Scalar
) -> bool:
    if paths is None or not len(paths):
        return False
    return bool(pc.any(pc.equal(_keys(snapshot, paths, vectors), key)).as_py())


def _batch(source: Any, partition_names: Sequence[str]) -> Batch:  # noqa: ANN401
    return batch_of(source, source.adds(partition_names))


def hides_vectors(protocol: Protocol) -> bool:
    """Return whether readers may ignore the vectors of a table: they would see deleted rows."""
    return _VECTORS not in _demanded_of_readers(protocol)


def check_protocol(snapshot: Snapshot, files: FileSet, findings: Findings) -> None:
    """Find features in use that the protocol does not demand, and lists that nobody reads."""
    protocol, metadata = snapshot.protocol, snapshot.metadata
    has_vectors = files.vectors.null_count < len(files.vectors)
    findings.extend(_lists(protocol))
    if has_vectors and hides_vectors(protocol):
        message = (
            "files have deletion vectors, but the protocol does not demand that readers know"
            " the feature deletionVectors: others show deleted rows"
        )
        hint = format_hint("{} adds the feature", call("check", repair=True))
        findings.add(Finding("error", "vectors-without-feature", "", message, hint))
    in_use = set(needed_features(metadata))
    if any(TYPE_CHANGES in field.metadata for field in all_fields(metadata.schema)):
        in_use.add("typeWidening")
    if snapshot.domains:
        in_use.add("domainMetadata")
    checkpoint = snapshot.segment.checkpoint
    parsed = checkpoint and parse_name(checkpoint.keys[0].rpartition("/")[2])
    is_v2 = bool(parsed and parsed.is_v2)
    in_use |= {"v2Checkpoint"} if is_v2 else set()
    for name in sorted(in_use):
        finding = _missing(protocol, name, is_read=name in _BY_SCHEMA or (is_v2 and "v2" in name))
        if finding is not None and not (has_vectors and name == _VECTORS):
            findings.add(finding)
    if has_vectors:
        findings.extend(_forbidden(snapshot))
    findings.extend(_mapping(snapshot))


def check_row_ids(snapshot: Snapshot, files: FileSet, findings: Findings) -> None:
    """Find files without row ids, ids that two files share, and ids above the high-water mark."""
    if not snapshot.metadata.is_on(Property.ENABLE_ROW_TRACKING) or not len(files):
        return
    try:
        mark = high_water_mark(snapshot.domains.get(ROW_TRACKING_DOMAIN))
    except FormatError as error:
        findings.add(finding_of(error, "row-ids"))
        return
    first = np.full(len(files), -1, dtype=np.int64)  # as is that of a file without one
    for number, source in enumerate(files.sources):
        mine = np.flatnonzero(files.source == number)
        if len(mine):
            pieces = source.pieces("add", snapshot.partition_names)
            columns = [pc.struct_field(piece, "baseRowId") for piece in pieces]
            ids = pa.concat_arrays(columns).take(pa.array(files.row[mine]))
            first[mine] = ids.fill_null(-1).to_numpy()
    without = np.flatnonzero(first < 0)
    if len(without):
        path = files.paths[int(without[0])].as_py()
        message = f"row tracking is on, and {len(without):,} files have no base row id"
        findings.add(Finding("error", "row-ids", path, message))
    known = first >= 0
    rows = files.row_counts.fill_null(0).to_numpy()[known]
    numbers = np.flatnonzero(known)
    order = np.argsort(first[known], kind="stable")
    starts, ends = first[known][order], (first[known] + rows)[order]
    for at in np.flatnonzero(ends[:-1] > starts[1:]).tolist():
        one, other = (files.paths[int(numbers[order[each]])].as_py() for each in (at, at + 1))
        message = f"rows have the same row ids as rows of {other}"
        findings.add(Finding("error", "row-ids", one, message))
    if len(ends) and int(ends.max()) - 1 > mark:
        path = files.paths[int(numbers[int(np.argmax(first[known] + rows))])].as_py()
        message = f"a row has the id {int(ends.max()) - 1}, and the high-water mark is {mark}"
        findings.add(Finding("error", "row-ids", path, f"{message}: new rows could get its id"))


def _demanded_of_readers(protocol: Protocol) -> frozenset[str]:
    if protocol.min_reader_version >= READERS_WITH_FEATURES:
        return protocol.reader_features
    return frozenset({"columnMapping"} if protocol.min_reader_version > 1 else ())


def _lists(protocol: Protocol) -> Iterator[Finding]:
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    wrong = []
    if protocol.reader_features and reader < READERS_WITH_FEATURES:
        wrong.append(f"it lists reader features, and minReaderVersion is {reader}, not 3")
    if protocol.writer_features and writer < WRITERS_WITH_FEATURES:
        wrong.append(f"it lists writer features, and minWriterVersion is {writer}, not 7")
    if reader >= READERS_WITH_FEATURES and writer < WRITERS_WITH_FEATURES:
        wrong.append(f"minReaderVersion {reader} needs minWriterVersion 7, not {writer}")
    if writer >= WRITERS_WITH_FEATURES and (
        alone := sorted(protocol.reader_features - protocol.writer_features)
    ):
        wrong.append(f"{', '.join(alone)} is listed for readers and not for writers")
    template = "other engines may refuse the table; {} writes a protocol that is whole"
    hint = format_hint(template, call("add_feature"))
    for each in wrong:
        message = f"the protocol contradicts itself: {each}"
        yield Finding("warning", "protocol-lists", "", message, hint)


def _missing(protocol: Protocol, name: str, *, is_read: bool) -> Finding | None:
    """Return a finding if a feature in use is not demanded of readers, or of writers."""
    names = {name, f"{name}-preview"}
    severity: Severity = "warning"
    if FEATURES[name].for_readers and not names & _demanded_of_readers(protocol):
        who, severity = "readers", "error" if is_read else "warning"
    elif not names & protocol.supported:
        who = "writers"
    else:
        return None
    message = f"the table uses {name}, but the protocol does not demand that {who} know it"
    hint = format_hint("{} adds it", call("add_feature", name))
    return Finding(severity, "missing-feature", "", message, hint)


def _forbidden(snapshot: Snapshot) -> Iterator[Finding]:
    metadata = snapshot.metadata
    on = [name for name in _NO_VECTORS if metadata.is_on(FEATURES[name].switch)]
    on += [Property.SYMLINK_MANIFEST] if metadata.is_on(Property.SYMLINK_MANIFEST) else []
    hint = format_hint("{} rewrites the files without vectors", call("purge"))
    for name in on:
        message = (
            f"files have deletion vectors, and {name} is on: those who read its metadata see"
            " deleted rows"
        )
        yield Finding("warning", "vectors-not-allowed", "", message, hint)


def _mapping(snapshot: Snapshot) -> Iterator[Finding]:
    """Yield mistakes of column mapping: one id for two columns, ids above the highest.

    A schema with two columns of one name or id beside each other cannot be read at all.
    """
    metadata = snapshot.metadata
    if metadata.mapping_mode == "none":
        return
    fields = all_fields(metadata.schema)
    ids = [field.field_id for field in fields if field.field_id is not None]
    if twice := sorted(each for each, count in Counter(ids).items() if count > 1):
        message = f"two columns have the id {twice[0]}: other engines may read one for the other"
        yield Finding("warning", "column-mapping", "", message, "copy the rows to a new table")
    highest = whole_number(metadata.configuration.get(Property.MAX_COLUMN_ID))
    if ids and highest is not None and highest < max(ids):
        message = (
            f"{Property.MAX_COLUMN_ID} is {highest}, and a column has the id {max(ids)}: a new"
            " column could get an id that is in use"
        )
        hint = f'set {Property.MAX_COLUMN_ID} to "{max(ids)}"'
        yield Finding("warning", "column-mapping", "", message, hint)

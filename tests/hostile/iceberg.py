"""Attacks by the metadata of Iceberg tables: what they delete, and what never ends or crashes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Final

from tests.hostile.attack import Ground, harmless, refused
from tests.hostile.iceberg_tables import (
    Metadata,
    aged,
    damaged,
    forged,
    had,
    made,
    metadata_of,
    registered,
    with_vector,
)

_VICTIM: Final = "sqlite.hostile.victim"
_ORPHANS: Final = "iceberg: remove_orphan_files"
_EXPIRE: Final = "iceberg: expire_snapshots"
_MANY_DIGITS: Final = "9" * 5000
_DEEP: Final = "[" * 100_000


# What is deleted: a table beside the hostile one, and a file that is none of a table.


def _victim(ground: Ground) -> None:
    made(ground, _VICTIM, ground.outside / "victim")
    aged(ground.outside)


def _located(where: str) -> Callable[[Ground], None]:
    """Put a table beside the victim whose location is another folder of the ground."""

    def put(ground: Ground) -> None:
        _victim(ground)
        forged(lambda metadata, _: metadata.update(location=f"file:{ground.folder}{where}"))(ground)

    return put


def _right_in(folder: str) -> Callable[[Ground], None]:
    """Put a table whose location is that of others, with its own metadata in a folder there."""

    def put(ground: Ground) -> None:
        _victim(ground)
        (ground.outside / "delta/_delta_log").mkdir(parents=True)
        (ground.outside / f"delta/_delta_log/{0:020}.json").write_text("{}")
        at = ground.folder / folder
        metadata, _ = metadata_of(ground, _VICTIM)
        metadata |= {"location": str(at), "table-uuid": "0a0a0a0a-0000-4000-8000-000000000000"}
        registered(ground, metadata, at / "metadata")
        aged(ground.outside)

    return put


def _earlier_entry(ground: Ground) -> None:
    """Put another entry of the victim's own table, from before its last commit."""
    _victim(ground)
    first = next((ground.outside / "victim/metadata").glob("00001-*.json"))
    metadata = json.loads(first.read_text())
    registered(ground, metadata, first.parent).unlink()
    registered(ground, metadata, first.parent)


def _with_snapshot_of_victim(metadata: Metadata, ground: Ground) -> None:
    """Add an old snapshot of the victim, whose manifests and data files would expire with it."""
    _victim(ground)
    theirs, _ = metadata_of(ground, _VICTIM)
    old = theirs["snapshots"][0] | {"sequence-number": 1}
    metadata["snapshots"].insert(0, old)


def _with_statistics(metadata: Metadata, ground: Ground) -> None:
    first = metadata["snapshots"][0]["snapshot-id"]
    path = f"file:{ground.outside}/secret.txt"
    file = {"snapshot-id": first, "statistics-path": path, "file-size-in-bytes": 23}
    metadata["statistics"] = [{**file, "file-footer-size-in-bytes": 1, "blob-metadata": []}]


def _had(where: str) -> Callable[[Ground], None]:
    def put(ground: Ground) -> None:
        (ground.folder / "table2").mkdir()
        (ground.table / "data").mkdir(parents=True)
        (ground.table / "data/link").symlink_to(ground.outside)
        had(ground, where.format(ground=ground.folder))

    return put


def _linked(ground: Ground) -> None:
    made(ground)
    (ground.table / "data/link").symlink_to(ground.outside)
    aged(ground.outside)


def _logged(metadata: Metadata, ground: Ground) -> None:
    """Let a commit forget a metadata file that is not the table's."""
    metadata["properties"]["write.metadata.delete-after-commit.enabled"] = "true"
    metadata["properties"]["write.metadata.previous-versions-max"] = "1"
    for each in metadata["metadata-log"]:
        each["metadata-file"] = f"file:{ground.outside}/secret.txt"


def _converted(ground: Ground) -> None:
    """Put a target of a conversion whose location, and whose names of files, are the victim's."""
    _victim(ground)
    metadata, _ = metadata_of(ground, _VICTIM)
    metadata["table-uuid"] = "0a0a0a0a-0000-4000-8000-000000000000"
    metadata["properties"] |= {"delvec.source-table-id": "x", "gc.enabled": "false"}
    registered(ground, metadata)


def _index_of_others(ground: Ground) -> None:
    """Put an index with the files of the victim: a PURGE would delete them."""
    _victim(ground)
    forged(lambda metadata, _: metadata)(ground)
    metadata, _ = metadata_of(ground, _VICTIM)
    metadata["location"] = str(ground.table / "index")
    metadata["table-uuid"] = "0a0a0a0a-0000-4000-8000-000000000000"
    metadata["properties"]["delvec.index-of"] = "x"
    at = ground.table / "index/metadata"
    registered(ground, metadata, at, "sqlite.hostile.t__delvec_index")


def _names_what_stays(_: Ground, report: Any) -> None:  # noqa: ANN401
    assert report.refused
    assert all(path in str(report) for path in report.refused[:5])


_OTHERS: Final = "may be that of others"
_NOT_ALONE: Final = "not sqlite.hostile.t's alone"
_LOG_OUTSIDE: Final = "a metadata log that names a file outside"
_FOREIGN_INDEX: Final = "an index with another table's files"
_COMMITS: Final = ("iceberg: append", "iceberg: compact", "iceberg: create_tag", _EXPIRE)
_OF_OUTSIDE: Final = "iceberg: remove_orphan_files of outside"
_BY_DOTS: Final = _located("/table/../outside/victim")
_BOTH: Final = (_ORPHANS, _EXPIRE)
DELETES: Final = [
    *refused(
        "deletes",
        ("a location of another table", _BOTH, _located("/outside/victim"), _OTHERS),
        ("a location of all tables", _BOTH, _located(""), _OTHERS),
        ("a location of no table", _BOTH, _located("/outside"), _OTHERS),
        ("a location of another table by ..", _BOTH, _BY_DOTS, "leads somewhere else"),
        slow=lambda place, _: place != "a location of another table",
    ),
    *refused(
        "deletes",
        ("metadata right in another table's folder", _BOTH, _right_in("outside/victim")),
        ("metadata right in a Delta table's folder", _BOTH, _right_in("outside/delta")),
        says=_NOT_ALONE,
        slow=lambda place, operation: operation == _EXPIRE or "Delta" in place,
    ),
    *refused(
        "deletes",
        ("metadata right in a folder with tables", _ORPHANS, _right_in(""), "other tables inside"),
        ("another entry of the same table", _ORPHANS, _earlier_entry, "another entry"),
        ("the folder of another table's data, given", _OF_OUTSIDE, _located("/table"), _NOT_ALONE),
        slow=lambda place, _: "entry" in place,
    ),
    *harmless(
        "deletes",
        *(
            (f"a file outside that was added and removed, {how}", _EXPIRE, _had(path))
            for how, path in (
                ("by its path", "{ground}/outside/secret.txt"),
                ("by its URI", "file://{ground}/outside/secret.txt"),
                ("by ..", "{ground}/table/../outside/secret.txt"),
                ("behind a link", "{ground}/table/data/link/secret.txt"),
                ("in a folder whose name begins alike", "{ground}/table2/x.parquet"),
            )
        ),
        ("a snapshot of another table", _EXPIRE, forged(_with_snapshot_of_victim)),
        ("a statistics file outside", _EXPIRE, forged(_with_statistics)),
        ("a link out of the folder", _ORPHANS, _linked),
        then=_names_what_stays,
        slow=lambda place, _: (
            place == "a statistics file outside"
            or ("removed, " in place and "by its path" not in place)
        ),
    ),
    *refused(
        "deletes",
        (_LOG_OUTSIDE, _COMMITS, forged(_logged), "would delete .*secret.txt"),
        ("a target at another table's location", "iceberg: clean_target", _converted, _OTHERS),
        (_FOREIGN_INDEX, "iceberg: drop_index", _index_of_others, "files that are not in"),
        slow=lambda place, operation: operation == _EXPIRE or "an index" in place,
    ),
]

# What never ends.


def _cycle(length: int) -> Callable[[Metadata, Ground], None]:
    def change(metadata: Metadata, _: Ground) -> None:
        ids = [each["snapshot-id"] for each in metadata["snapshots"]]
        for at, each in enumerate(metadata["snapshots"]):
            each["parent-snapshot-id"] = ids[at - (length - 1)]

    return change


def _cycle_elsewhere(metadata: Metadata, _: Ground) -> None:
    """Add two snapshots that no branch has, each the parent of the other."""
    first = metadata["snapshots"][0]
    pair = {7: 8, 8: 7}
    metadata["snapshots"] += [
        {**first, "snapshot-id": own, "parent-snapshot-id": other} for own, other in pair.items()
    ]


CYCLES: Final = refused(
    "takes the machine",
    *(
        (f"snapshots whose parents are {what}", f"iceberg: {operation}", forged(change))
        for what, change, operations in (
            ("each other", _cycle(2), ("history", "inspect", "expire_snapshots", "compact")),
            ("each other", _cycle(2), ("append", "rollback")),
            ("themselves", _cycle(1), ("history", "check", "delete")),
            ("each other, on no branch", _cycle_elsewhere, ("history", "expire_snapshots")),
        )
        for operation in operations
    ),
    says="of sqlite.hostile.t .* is among its own ancestors",
)

# Values that are not what they should be.


def _locked(value: str | None = None, tag: str = "delvec-lock-7", **given: object) -> Any:  # noqa: ANN401
    def change(metadata: Metadata, _: Ground) -> None:
        lock = {"generation": 7, "owner": "me", "operation": "X", "token": "t"}
        lock |= {"expires_ms": int(time.time() * 1000) + 10**6, "lease_ms": 300_000, **given}
        metadata["properties"]["delvec.lock"] = json.dumps(lock) if value is None else value
        head = metadata["current-snapshot-id"]
        metadata["refs"][tag] = {"snapshot-id": head, "type": "tag"}

    return forged(change)


_COMPACT: Final = "iceberg: compact"
_LOCKS: Final = {
    "that is too deep": _locked("[" * 1900),
    "whose end is infinite": _locked(expires_ms=float("inf")),
    "whose end has 400 digits": _locked(expires_ms=10**400),
    "of a generation of 400 digits": _locked(generation=10**400),
    "for ever": _locked(lease_ms=10**17, expires_ms=10**14),
    "with a tag of 5000 digits": _locked(tag=f"delvec-lock-{_MANY_DIGITS}"),
    "that is no JSON": _locked("{"),
    "that is a list": _locked("[7]"),
    "that is a number": _locked("7"),
    "of a generation that is text": _locked(generation="٤"),
    "of a generation below 0": _locked(generation=-7, tag="delvec-lock--7"),
    "with a tag in Arabic digits": _locked(tag="delvec-lock-٤"),
    "whose lease is below 0": _locked(lease_ms=-1),
    "of an owner that is a list": _locked(owner=[1]),
    "of an owner with escapes": _locked(owner="\x1b[31m"),
    "of the last generation": _locked(generation=10**15 - 1),
}
_QUICK_LOCKS: Final = ("deep", "infinite", "end has 400 digits", "last generation")
LOCKS: Final = [
    *harmless(
        "foreign error",
        *((f"a lock {what}", _COMPACT, put) for what, put in _LOCKS.items()),
        slow=lambda place, _: not place.endswith(_QUICK_LOCKS),
    ),
    *refused(
        "foreign error",
        ("a lock until the year 9999", _COMPACT, _locked(expires_ms=253_402_300_799_999)),
        says=r"locked by me .*after 300 seconds.*unlock\(force=True\)",
    ),
]


def _in_summary(branch: str = "other", **entries: str) -> Callable[[Ground], None]:
    """Put a table with a branch, whose newest snapshot says other things of itself."""

    def change(metadata: Metadata, _: Ground) -> None:
        first = metadata["snapshots"][0]["snapshot-id"]
        metadata["refs"][branch] = {"snapshot-id": first, "type": "branch"}
        names = {name.replace("_", "-").replace("..", "."): each for name, each in entries.items()}
        metadata["snapshots"][-1]["summary"].update(names)

    return forged(change)


def _totals(value: str) -> Callable[[Ground], None]:
    names = ("records", "data_files", "delete_files", "position_deletes", "equality_deletes")
    added = dict.fromkeys(("added_data_files", "added_records", "deleted_records"), value)
    return _in_summary(**{f"total_{name}": value for name in names}, **added)


def _at(moment: int) -> Callable[[Ground], None]:
    return forged(lambda metadata, _: metadata["snapshots"][0].update({"timestamp-ms": moment}))


def _properties(**entries: str) -> Callable[[Ground], None]:
    return forged(lambda metadata, _: metadata["properties"].update(entries))


def _transaction(value: str) -> Callable[[Ground], None]:
    return _properties(**{"delvec.txn.main.app": value})


def _two_files(_: Ground, report: Any) -> None:  # noqa: ANN401
    assert (report.files, report.rows) == (2, 4)


def _two_snapshots(_: Ground, rows: Any) -> None:  # noqa: ANN401
    assert len(rows) == 2


_INSPECT: Final = "iceberg: inspect"
_HISTORY: Final = "iceberg: history"
_LOOKS: Final = ((_INSPECT, _two_files), (_HISTORY, _two_snapshots))
_SIZE: Final = {"write.target-file-size-bytes": _MANY_DIGITS}
_AGE: Final = {"history.expire.max-snapshot-age-ms": _MANY_DIGITS}
_APPLICATION: Final = {"delvec.txn_app_id": "app"}
_WORDS: Final = {"delvec.txn_version": "one"}
_NO_VERSION: Final = "without a version"
_UNTOLD: Final = "does not tell what was committed"
_RESOLVED: Final = {"delvec.resolved_branch": "stage"}
_MANY_RESOLVED: Final = dict.fromkeys(
    (f"delvec.resolved_{each}" for each in ("snapshot", "sequence", "files")), _MANY_DIGITS
)
VALUES: Final = [
    *harmless(
        "foreign error",
        *(
            (f"totals of {what}", operation, _totals(value), then)
            for what, value in (
                ("5000 digits", _MANY_DIGITS),
                ("20 digits", "9" * 20),
                ("Arabic digits", "٤"),
                ("words", "many"),
            )
            for operation, then in _LOOKS
        ),
        ("totals below 0", "iceberg: show", _totals("-5")),
        ("totals of 5000 digits", "iceberg: show", _totals(_MANY_DIGITS)),
        slow=lambda place, operation: operation == _INSPECT and "5000" not in place,
    ),
    *harmless(
        "foreign error",
        *(
            (f"a snapshot {what}", operation, _at(moment), then)
            for what, moment in (("of the end of time", 2**63 - 1), ("of its beginning", -(2**63)))
            for operation, then in (*_LOOKS, (_COMPACT, None))
        ),
        ("properties of 5000 digits", _INSPECT, _properties(**_SIZE, **_AGE), _two_files),
        slow=lambda _, operation: operation != _HISTORY,
    ),
    *refused(
        "foreign error",
        ("a snapshot of the end of time", "iceberg: read of 1970", _at(2**63 - 1), "goes back to"),
        *(
            (f"a transaction {what}", "iceberg: append in a transaction", put, says)
            for what, put, says in (
                ("in a property that is words", _transaction("two@three"), _UNTOLD),
                ("of 5000 digits in a property", _transaction(f"{_MANY_DIGITS}@1"), _UNTOLD),
                ("without a version in a summary", _in_summary(**_APPLICATION), _NO_VERSION),
                ("of words in a summary", _in_summary(**_APPLICATION, **_WORDS), _NO_VERSION),
            )
        ),
        *(
            (
                f"progress of a resolve {what}",
                "iceberg: resolve",
                _in_summary(branch="stage", **_RESOLVED, **given),
                "does not say what was taken over",
            )
            for what, given in (("without a snapshot", {}), ("of 5000 digits", _MANY_RESOLVED))
        ),
    ),
]

# Metadata that Iceberg's own parser, or its planner, does not take.


def _replaced(old: str, new: str) -> Callable[[Ground], None]:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return damaged(change)


def _listed_in(path: str) -> Callable[[Ground], None]:
    def change(metadata: Metadata, ground: Ground) -> None:
        metadata["snapshots"][-1]["manifest-list"] = path.format(outside=ground.outside)

    return forged(change)


def _without_schema(metadata: Metadata, _: Ground) -> None:
    old = metadata["snapshots"][0]
    old["schema-id"] = 9
    metadata["refs"]["old"] = {"snapshot-id": old["snapshot-id"], "type": "tag"}


_NO_SPEC: Final = forged(lambda metadata, _: metadata.update({"default-spec-id": 9}))
_SPEC_9: Final = "metadata of sqlite.hostile.t .*no partition spec 9"
_NO_SCHEMA: Final = "a snapshot whose schema is not there"
_FOLDER: Final = "iceberg: open in a catalog of folders"
_LISTED: Final = (_INSPECT, "iceberg: read", "iceberg: delete")
_PARSED: Final = {
    "that are too deep": damaged(lambda text: f'{text[:-1]}, "x": {_DEEP}}}'),
    "that end early": damaged(lambda text: text[:1000]),
    "that are empty": damaged(lambda _: ""),
    "that are no JSON": damaged(lambda _: "\x00\x1b[31m" * 100),
    "of a format to come": _replaced('"format-version": 3', '"format-version": 99'),
    "without a current schema": _replaced('"current-schema-id": 0', '"current-schema-id": 9'),
    "with a ref that leads nowhere": _replaced(
        '"refs": {', '"refs": {"x": {"snapshot-id": 5, "type": "tag"}, '
    ),
    "with a number of 5000 digits": _replaced(
        '"last-column-id": 2', f'"last-column-id": {_MANY_DIGITS}'
    ),
    "with a text of a megabyte": _replaced(
        '"format-version": 3', f'"format-version": "{"x" * 10**6}"'
    ),
}
DAMAGED: Final = [
    *refused(
        "foreign error",
        *((f"metadata {what}", _FOLDER, put, "lake.hostile.t") for what, put in _PARSED.items()),
        ("metadata whose partition spec is not there", "iceberg: open", _NO_SPEC, _SPEC_9),
        (_NO_SCHEMA, "iceberg: read of a tag", forged(_without_schema), "there is no schema 9"),
    ),
    *refused(
        "leaks",
        *(
            (f"a manifest list that is {what}", _LISTED, _listed_in(path))
            for what, path in (
                ("a private file", "file:{outside}/secret.txt"),
                ("a folder", "file:{outside}"),
                ("on another host", "http://127.0.0.1:1/list.avro"),
            )
        ),
        says="table sqlite.hostile.t",
        slow=lambda place, operation: "a private file" not in place or operation == _INSPECT,
    ),
]

# Vectors about which the manifests lie.


def _vector(change: Callable[[Any, Any, Ground], object]) -> Callable[[Ground], object]:
    return lambda ground: with_vector(ground, lambda made, entry: change(made, entry, ground))


def _something_is_wrong(_: Ground, report: Any) -> None:  # noqa: ANN401
    assert not report.ok


_LIES: Final[dict[str, Callable[[Any, Any, Ground], object]]] = {
    "of more rows than it has": lambda made, _, __: made.withRecordCount(2),
    "beyond the end of its file": lambda made, _, __: made.withContentOffset(10**12),
    "of a terabyte": lambda made, _, __: made.withContentSizeInBytes(10**12),
    "at the beginning of its file": lambda made, _, __: made.withContentOffset(0),
    "in a private file": lambda made, _, ground: made.withPath(f"{ground.outside}/secret.txt"),
}
_LIED: Final = {f"a vector {what}": _vector(lie) for what, lie in _LIES.items()}
VECTORS: Final = [
    *refused(
        "comes back",
        *((place, "iceberg: delete of 2", put) for place, put in _LIED.items()),
        slow=lambda place, _: "more rows" not in place,
    ),
    *harmless(
        "comes back",
        *((place, "iceberg: check", put) for place, put in _LIED.items()),
        then=_something_is_wrong,
        slow=True,
    ),
]

ATTACKS: Final = [*DELETES, *CYCLES, *LOCKS, *VALUES, *DAMAGED, *VECTORS]

"""Ways in which a table is damaged, forged or from the future, and what must come of each."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from delvec import errors
from tests.delta.builder import Action, TableBuilder, removed, small_table


class Damage(NamedTuple):
    """What must come of a damaged table: an error of this kind, whose text holds these words."""

    error: type[errors.DelvecError]
    words: tuple[str, ...]


Damaging = Callable[[Path], Damage]
CASES: dict[str, Damaging] = {}


def case(make: Damaging) -> Damaging:
    """Register a case by its name; it makes a table at a path and says what must come of it."""
    CASES[make.__name__] = make
    return make


def rewritten(path: Path, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
    """Change the actions of a commit one by one; None leaves one out."""
    actions = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(action) + "\n" for action in actions if action is not None))


def with_vector(name: str, **fields: object) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Change the descriptor of one file."""

    def change(action: dict[str, Any]) -> dict[str, Any]:
        add = action.get("add")
        if add and add["path"] == name:
            add["deletionVector"] |= fields
        return action

    return change


def _with_vector_file(
    change: Callable[[bytes], bytes], error: type[errors.DelvecError], root: Path
) -> Damage:
    path = small_table(root)[0].vector_path()
    path.write_bytes(change(path.read_bytes()))
    return Damage(error, ("part-1.parquet", path.name, str(root)))


def _flipped(data: bytes) -> bytes:
    """Change the last position of the second vector."""
    return data[:-6] + bytes([data[-6] ^ 0x10]) + data[-5:]


@case
def a_vector_file_that_is_gone(root: Path) -> Damage:
    path = small_table(root)[0].vector_path()
    path.unlink()
    return Damage(errors.ObjectNotFoundError, (".parquet", path.name, str(root)))


CASES["a_flipped_byte_in_a_vector"] = partial(_with_vector_file, _flipped, errors.ChecksumError)
CASES["a_vector_file_that_is_cut_short"] = partial(
    _with_vector_file, lambda data: data[:-3], errors.TruncatedError
)


@case
def a_position_that_the_file_does_not_have(root: Path) -> Damage:
    table = TableBuilder.made(root)
    table.delete_rows(table.append("part-0.parquet", {"id": list(range(10))}), [3, 10])
    return Damage(errors.FormatError, ("part-0.parquet", table.vector_path().name, "row 10", "10"))


DESCRIPTORS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "a_wrong_cardinality_in_the_log": ("part-1", {"cardinality": 3}, ("{file}", "{bin}", "3", "2")),
    "a_cardinality_of_nothing_for_a_vector_that_is_there": (
        *("part-1", {"cardinality": 0}, ("{file}", "{bin}", "2")),
    ),
    "a_vector_whose_cardinality_is_missing": (
        *("part-1", {"cardinality": None}, ("{file}", "cardinality", "{root}")),
    ),
    "a_vector_whose_path_is_missing": ("part-1", {"pathOrInlineDv": None}, ("{file}", "{root}")),
    "a_vector_whose_kind_is_missing": ("part-1", {"storageType": None}, ("{file}", "{root}")),
    "a_wrong_size_of_a_vector_in_the_log": ("part-0", {"sizeInBytes": 34}, ("{file}", "{bin}")),
    # Both vectors are of one size and cardinality, so that only the position tells.
    "the_offset_of_another_vector": ("part-0", {"offset": 46}, ("{file}", "{bin}")),
    "a_vector_of_an_unknown_kind": ("part-0", {"storageType": "r"}, ("{file}", "'r'")),
    "a_vector_that_climbs_out_of_the_table": (
        *("part-0", {"pathOrInlineDv": ".." + "0" * 20}, ("{file}", "'..'", "{root}")),
    ),
    "an_absolute_vector_on_another_kind_of_store": (
        *("part-0", {"storageType": "p", "pathOrInlineDv": "s3://elsewhere/dv.bin"}),
        ("s3://elsewhere/dv.bin", "{root}"),
    ),
    "a_field_of_the_wrong_type": ("part-0", {"cardinality": "two"}, (f"{2:020}.json",)),
}


def _with_descriptor(name: str, root: Path) -> Damage:
    stem, fields, words = DESCRIPTORS[name]
    table, _ = small_table(root)
    file, vectors = f"{stem}.parquet", table.vector_path().name
    rewritten(table.commit_path(2), with_vector(file, **fields))
    return Damage(
        errors.FormatError, tuple(w.format(file=file, bin=vectors, root=root) for w in words)
    )


CASES |= {name: partial(_with_descriptor, name) for name in DESCRIPTORS}


def _with_commit(
    version: int, change: Callable[[bytes], bytes], words: tuple[str, ...], root: Path
) -> Damage:
    path = small_table(root)[0].commit_path(version)
    path.write_bytes(change(path.read_bytes()))
    return Damage(errors.FormatError, (path.name, *words))


def _with_a_hole(data: bytes) -> bytes:
    return data[:300] + bytes(60) + data[360:]


CASES |= {
    "a_commit_that_is_cut_short": partial(_with_commit, 2, lambda data: data[:-40], ("line",)),
    "a_commit_with_a_hole_of_zeros": partial(_with_commit, 2, _with_a_hole, ()),
    "a_commit_that_is_not_text": partial(
        _with_commit, 1, lambda data: data.replace(b"part-0", b"part\xff0"), ("UTF-8",)
    ),
    # What a writer leaves that died: without its actions nobody knows which rows are deleted.
    "a_commit_without_a_byte": partial(_with_commit, 2, lambda _: b"", ()),
}


@case
def an_add_without_a_path(root: Path) -> Damage:
    table, adds = small_table(root)
    table.add(_without(adds[0], "path"))
    return Damage(errors.FormatError, ("path", str(root)))


def _without(action: Action, name: str) -> Action:
    return {key: value for key, value in action.items() if key != name}


def _without_commit(version: int, root: Path) -> Damage:
    table, _ = small_table(root)
    table.drop_commits(version)
    return Damage(errors.FormatError, (str(root), table.commit_path(version).name))


CASES |= {
    "a_commit_that_is_missing_in_the_middle": partial(_without_commit, 1),
    "a_first_commit_that_is_missing": partial(_without_commit, 0),
}


def _without_action(kind: str, root: Path) -> Damage:
    table, _ = small_table(root)
    rewritten(table.commit_path(0), lambda action: None if kind in action else action)
    return Damage(errors.FormatError, (str(root), kind))


CASES["a_log_without_a_protocol"] = partial(_without_action, "protocol")
CASES["a_log_without_metadata"] = partial(_without_action, "metaData")


@case
def a_file_that_was_removed_without_its_vector(root: Path) -> Damage:
    table, adds = small_table(root)
    [again] = table.write_vectors([0, 1, 9], prefix="ab")
    plain = _without(adds[0], "deletionVector")
    table.commit({"remove": removed(plain)}, {"add": adds[0] | {"deletionVector": again}})
    return Damage(errors.FormatError, ("part-0.parquet", str(root), "more than once"))


def _spelled(spelling: str, root: Path) -> Damage:
    table, adds = small_table(root)
    plain = _without(adds[0], "deletionVector")
    table.add(plain | {"path": spelling.format(root=root.as_uri())})
    return Damage(errors.FormatError, ("part-0.parquet", str(root), "more than once"))


CASES["a_file_under_two_spellings"] = partial(_spelled, "part%2D0.parquet")
CASES["an_absolute_spelling_of_a_file_of_the_table"] = partial(_spelled, "{root}/part-0.parquet")


@case
def a_file_added_and_removed_by_one_commit(root: Path) -> Damage:
    table, adds = small_table(root)
    table.commit({"add": adds[0]}, {"remove": removed(adds[0])})
    return Damage(errors.FormatError, ("part-0.parquet", table.commit_path(3).name))


@case
def a_data_file_that_is_gone(root: Path) -> Damage:
    small_table(root)
    (root / "part-1.parquet").unlink()
    return Damage(errors.ObjectNotFoundError, ("part-1.parquet",))


def _forged(path: str, shown: str, root: Path) -> Damage:
    """Add a file beside the table, by a path that leads there."""
    table, _ = small_table(root)
    outside = TableBuilder(root.parent).write_file("outside.parquet", {"id": [99]})
    table.add(outside | {"path": path.format(root=root)})
    return Damage(errors.FormatError, (str(root), shown))


PATHS = {
    "a_path_that_climbs": ("../outside.parquet", "../outside.parquet"),
    "an_encoded_path_that_climbs": ("..%2Foutside.parquet", "../outside.parquet"),
    "an_encoded_path_with_encoded_dots": (
        *("inside/%2e%2E/../outside.parquet", "../outside.parquet"),
    ),
    "an_absolute_path_that_climbs": ("file://{root}/../outside.parquet", "../outside.parquet"),
    "a_path_on_another_kind_of_store": ("s3://elsewhere/x.parquet", "s3://elsewhere/x.parquet"),
    "a_path_that_is_badly_encoded": ("outside%2.parquet", "outside%2.parquet"),
}
CASES |= {name: partial(_forged, *paths) for name, paths in PATHS.items()}


def _with_protocol(protocol: dict[str, Any], word: str, root: Path) -> Damage:
    table, _ = small_table(root)
    table.commit({"protocol": table.protocol | protocol})
    return Damage(errors.UnsupportedFeatureError, (str(root), word))


def _with_feature(name: str) -> Damaging:
    features = ["deletionVectors", name]
    protocol = {"readerFeatures": features, "writerFeatures": features}
    return partial(_with_protocol, protocol, name)


CASES |= {
    "a_reader_version_from_the_future": partial(_with_protocol, {"minReaderVersion": 4}, "4"),
    "a_feature_from_the_future": _with_feature("futureFeature"),
    "a_table_that_a_catalog_manages": _with_feature("catalogManaged"),
    "a_table_with_adaptive_metadata": _with_feature("adaptiveMetadata-preview"),
}


@case
def files_of_another_format(root: Path) -> Damage:
    table, _ = small_table(root)
    table.provider = "orc"
    table.redefine()
    return Damage(errors.UnsupportedFeatureError, (str(root), "orc"))


def _with_checkpoint(change: Callable[[bytes], bytes], root: Path) -> Damage:
    """Make the small table live in a checkpoint alone, and damage that."""
    table, adds = small_table(root)
    [path] = table.checkpoint(adds)
    table.write_hint()
    table.drop_commits(0, 1, 2)
    path.write_bytes(change(path.read_bytes()))
    return Damage(errors.FormatError, (path.name, "checkpoint"))


CASES |= {
    "a_checkpoint_that_is_damaged": partial(_with_checkpoint, lambda data: data[: len(data) // 2]),
    "a_checkpoint_with_damaged_pages": partial(
        _with_checkpoint, lambda data: data[:4] + bytes(1196) + data[1200:]
    ),
}


def _checkpointed_without(name: str, words: tuple[str, ...], root: Path) -> Damage:
    table, adds = small_table(root)
    (adds[0] if name in adds[0] else adds[0]["deletionVector"])[name] = None
    [path] = table.checkpoint(adds)
    table.drop_commits(0, 1, 2)
    return Damage(errors.FormatError, (str(root), *(word.format(file=path.name) for word in words)))


CASES |= {
    "a_vector_in_a_checkpoint_whose_kind_is_missing": partial(
        _checkpointed_without, "storageType", ("part-0.parquet",)
    ),
    "a_file_in_a_checkpoint_without_a_path": partial(
        _checkpointed_without, "path", ("{file}", "path")
    ),
}


@case
def a_part_of_a_checkpoint_that_is_missing(root: Path) -> Damage:
    table, adds = small_table(root)
    table.checkpoint(adds, parts=2)[1].unlink()
    table.write_hint()
    table.drop_commits(0, 1, 2)
    table.commit()
    return Damage(errors.FormatError, (str(root), table.commit_path(0).name))


@case
def a_sidecar_that_is_missing(root: Path) -> Damage:
    table, adds = small_table(root)
    paths = table.checkpoint_with_sidecars(adds, as_json=True)
    paths[-1].unlink()
    return Damage(errors.ObjectNotFoundError, (paths[-1].name,))


@case
def a_sidecar_that_is_damaged(root: Path) -> Damage:
    table, adds = small_table(root)
    paths = table.checkpoint_with_sidecars(adds, as_json=False)
    paths[-1].write_bytes(b"PAR1, and then no more")
    return Damage(errors.FormatError, (paths[-1].name,))

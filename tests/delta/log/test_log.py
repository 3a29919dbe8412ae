from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delvec.delta.log.actions import JsonActions
from delvec.delta.log.paths import canonicalize_paths, decoded, inside_names
from delvec.delta.log.replay import require_one_vector_each
from delvec.delta.log.segment import find_segment
from delvec.delta.log.snapshot import open_snapshot
from delvec.delta.schema.protocol import FEATURES, Protocol
from delvec.errors import (
    FormatError,
    InvalidArgumentError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from delvec.storage import Storage
from tests.delta.builder import INLINE, TableBuilder


def live(root: Path, version: int | None = None) -> dict[str, str | None]:
    """The live files with the ids of their vectors."""
    files = open_snapshot(Storage.open(root), version).files
    descriptors = [files.descriptor(index) for index in range(len(files))]
    ids = [None if each is None else each.unique_id for each in descriptors]
    return dict(zip(files.paths.to_pylist(), ids, strict=True))


def add(path: str, vector: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    entry = {"path": path, "partitionValues": {}, "size": 10, "modificationTime": 1}
    entry |= {"dataChange": True, "stats": json.dumps({"numRecords": 100}), **more}
    return {"add": entry if vector is None else entry | {"deletionVector": vector}}


def remove(path: str, vector: dict[str, Any] | None = None) -> dict[str, Any]:
    entry = {"path": path, "deletionTimestamp": 1, "dataChange": True}
    return {"remove": entry if vector is None else entry | {"deletionVector": vector}}


def commit_each(table: TableBuilder, names: str) -> None:
    for name in names:
        table.commit(add(name))


@pytest.fixture
def table(tmp_path: Path) -> TableBuilder:
    return TableBuilder.made(tmp_path / "table")


class TestSegments:
    def test_versions_that_are_not_there(self, table: TableBuilder) -> None:
        with pytest.raises(TableNotFoundError, match="is not a Delta table") as caught:
            find_segment(Storage.open(table.log))
        assert caught.value.table == str(table.log)
        storage = Storage.open(table.root)
        with pytest.raises(InvalidArgumentError, match="no version 7; the newest is 0"):
            find_segment(storage, 7)
        with pytest.raises(InvalidArgumentError, match="0 or more"):
            find_segment(storage, -1)
        beyond = table.log / f"{2**63:020d}.json"
        beyond.write_text("{}")
        with pytest.raises(FormatError, match=rf"{beyond.name}: expected at most {2**63 - 1}"):
            find_segment(storage)

    def test_a_compacted_file_stands_for_its_commits(self, table: TableBuilder) -> None:
        commit_each(table, "abc")
        lines = [json.dumps(action) for action in (add("a"), add("b"))]
        (table.log / f"{1:020d}.{2:020d}.compacted.json").write_text("\n".join(lines))
        table.commit_path(2).write_text("damaged")  # it is read instead
        segment = find_segment(Storage.open(table.root))
        assert [(file.first, file.last) for file in segment.files] == [(0, 0), (1, 2), (3, 3)]
        assert live(table.root) == {"a": None, "b": None, "c": None}
        assert set(live(table.root, 1)) == {"a"}, "not beyond the version that is read"

    def test_the_newest_complete_checkpoint_is_used(self, table: TableBuilder) -> None:
        a, b = add("a")["add"], add("b")["add"]
        table.add(a)
        table.checkpoint([a])
        table.add(b)
        table.checkpoint([a, b], parts=2)[0].unlink()
        segment = find_segment(Storage.open(table.root))
        assert segment.checkpoint is not None
        assert (segment.checkpoint.version, live(table.root)) == (1, {"a": None, "b": None})

    def test_with_a_hint_the_log_is_listed_from_there(self, table: TableBuilder) -> None:
        commit_each(table, "abc")
        table.checkpoint([add(name)["add"] for name in "abc"])
        (table.log / "_last_checkpoint").write_text('{"version": 2, "size": 5}')
        assert set(live(table.root, 2)) == {"a", "b"}, "a stale hint"
        (table.log / "_last_checkpoint").write_text('{"version": 3, "size": 5}')
        for version in range(3):
            table.commit_path(version).unlink()
        assert set(live(table.root)) == {"a", "b", "c"}
        with pytest.raises(InvalidArgumentError, match=r"version 1 .* cannot be read any more"):
            live(table.root, 1)

    def test_empty_files_that_a_dead_writer_left(self, table: TableBuilder) -> None:
        table.commit(add("a"), add("b"))
        table.commit(remove("a"))
        (table.log / f"{1:020d}.{2:020d}.compacted.json").touch()
        [first, _] = table.checkpoint([add("b")["add"]], parts=2)
        first.write_bytes(b"")
        assert set(live(table.root)) == {"b"}
        (table.log / f"{2:020d}.checkpoint.parquet").touch()
        assert set(live(table.root)) == {"b"}

    def test_a_gap_is_an_error_that_names_the_commit(self, table: TableBuilder) -> None:
        commit_each(table, "abc")
        table.commit_path(2).unlink()
        with pytest.raises(FormatError, match="lacks the commit of version 2") as caught:
            live(table.root)
        assert str(caught.value.path).endswith("_delta_log/00000000000000000002.json")
        assert set(live(table.root, 1)) == {"a"}


class TestReplay:
    def test_the_order_inside_a_commit_means_nothing(self, table: TableBuilder) -> None:
        old, new = INLINE, INLINE | {"pathOrInlineDv": INLINE["pathOrInlineDv"][:-1] + "4"}
        table.commit(add("a"), add("b"))
        table.commit(remove("a"), add("a", old), add("b", old), remove("b"))
        assert set(live(table.root).values()) == {f"i{old['pathOrInlineDv']}"}
        table.commit(add("a", new), remove("a", old))
        table.commit(remove("b", old), add("b", new))
        assert live(table.root) == dict.fromkeys("ab", f"i{new['pathOrInlineDv']}")

    def test_the_offset_belongs_to_the_identity(self, table: TableBuilder) -> None:
        stored = INLINE | {"storageType": "u", "pathOrInlineDv": "vBn[lx{q8@P<9BNH/isA"}
        first, second = ({**stored, "offset": offset} for offset in (1, 45))
        table.commit(add("a", first))
        table.commit(remove("a", first), add("a", second))
        assert live(table.root) == {"a": "uvBn[lx{q8@P<9BNH/isA@45"}

    def test_a_file_that_comes_back_is_live_once(self, table: TableBuilder) -> None:
        table.commit(add("a"))
        table.commit(remove("a"))
        assert live(table.root) == {}
        table.commit(add("a"))
        table.commit(add("a", stats=json.dumps({"numRecords": 5})))
        assert open_snapshot(Storage.open(table.root)).files.row_counts.to_pylist() == [5]

    def test_removes_after_a_checkpoint_reach_into_it(self, table: TableBuilder) -> None:
        adds = add("a"), add("b", INLINE), add("c", INLINE)
        table.commit(*adds)
        table.checkpoint([each["add"] for each in adds])
        table.commit(remove("a"), remove("b", INLINE))
        assert set(live(table.root)) == {"c"}

    def test_paths_are_compared_decoded(self, table: TableBuilder) -> None:
        table.commit(add("p=a%20b/x"), add("q"))
        table.commit(remove("p=a b/x"))
        assert set(live(table.root)) == {"q"}


class TestActions:
    def test_spaces_and_unknown_actions(self) -> None:
        data = (
            b' { "add" : {"path":"a"} }\n\n{"future":{"x":1}}\n'
            b'{"add":null,"remove":null,"txn":{"appId":"q","version":1}}'
        )
        actions = JsonActions("x.json", data)
        future, txn = actions.others()
        assert "future" in future
        assert txn["txn"] == {"appId": "q", "version": 1}
        assert actions.table([]).column("add").drop_null().to_pylist()[0]["path"] == "a"
        assert actions.action(0) == {"add": {"path": "a"}}
        assert JsonActions("x.json", b"\n").table(["p"]).num_rows == 0

    @pytest.mark.parametrize(
        ("data", "offset"),
        [
            (b'{"add":{"path":"a"}}\n{"add":{"pa', 21),
            (b"\xff", 0),
            (b'{"txn":1}\n[1]\n{"a":1}', 10),
        ],
    )
    def test_damage_is_named_with_its_place(self, data: bytes, offset: int) -> None:
        with pytest.raises(FormatError, match=r"a line of the log is damaged in x\.json") as caught:
            JsonActions("x.json", data).table([])
        assert caught.value.offset == offset

    def test_strings_that_look_like_a_second_document_change_nothing(self) -> None:
        deep = b'{"a":' * 100_000 + b"1" + b"}" * 100_000  # which Python's parser refuses
        data = b'{"add":{"path":"}{ \\"}n","tags":' + deep + b"}}\n"
        assert JsonActions("x.json", data).table([])["add"][0]["path"].as_py() == '}{ "}n'

    @pytest.mark.parametrize(
        "action",
        [
            {"txn": 5},
            {"txn": {}},
            {"protocol": 5},
            {"metaData": 5},
            {"metaData": {"schemaString": "{}", "format": "x"}},
            {"metaData": {"schemaString": "{}", "partitionColumns": [1]}},
            {"metaData": {"schemaString": "{}", "configuration": [1]}},
            {"domainMetadata": {}},
            {"sidecar": {}},
            '{"future":' + "[" * 100_000 + "]" * 100_000 + "}",
        ],
        ids=lambda action: str(action)[:60],
    )
    def test_damaged_small_actions(self, table: TableBuilder, action: dict[str, Any] | str) -> None:
        path = table.commit(*([] if isinstance(action, str) else [action]))
        if isinstance(action, str):
            path.write_text(action)
        with pytest.raises(FormatError, match=r"in .*00000000000000000001\.json"):
            live(table.root)


class TestPaths:
    @given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1)))
    def test_decoding_is_that_of_the_standard_library(self, names: list[str]) -> None:
        from urllib.parse import quote  # noqa: PLC0415

        encoded = pa.array([quote(name, safe="/=") for name in names], pa.string())
        assert decoded(encoded, "t").to_pylist() == names
        assert decoded(encoded.slice(1), "t").to_pylist() == names[1:]

    @pytest.mark.parametrize("path", ["a%", "a%2", "%zz", "%%20"])
    def test_bad_escapes(self, path: str) -> None:
        with pytest.raises(FormatError, match="percent-encoded correctly"):
            decoded(pa.array(["fine%20", path, "20"]), "t")
        with pytest.raises(FormatError, match="UTF-8"):
            decoded(pa.array(["%ff"]), "t")

    @pytest.mark.parametrize(
        ("path", "root", "expected"),
        [
            ("a/b", "/t", "a/b"),
            ("file:/x/a%20b", "/t", "/x/a b"),
            ("file:///x/y", "/t", "/x/y"),
            ("/x/y", "/t", "/x/y"),
            ("/x/y", "s3://lake/t", "s3://lake/x/y"),
            ("s3://other/x", "s3://lake/t", "s3://other/x"),
            ("dbfs:/x", "s3://lake/t", "dbfs:///x"),
            ("file:/etc/passwd", "s3://lake/t", "/etc/passwd"),
            ("a%3Ab/c", "/t", "a:b/c"),
            ("a..b/c.parquet", "/t", "a..b/c.parquet"),
            ("x./.../.hidden/e.", "/t", "x./.../.hidden/e."),
        ],
    )
    def test_one_spelling_each(self, path: str, root: str, expected: str) -> None:
        assert canonicalize_paths(pa.array([path]), root).to_pylist() == [expected]

    @pytest.mark.parametrize(
        "path", ["../a", "a/../b", "..", "a/..", "%2e%2e/a", "./a", "file:/a/../b"]
    )
    def test_climbing_paths_are_refused(self, path: str) -> None:
        with pytest.raises(FormatError, match="leads out of the table"):
            canonicalize_paths(pa.array(["fine", path]), "/t")


class TestProtocol:
    @pytest.mark.parametrize("name", [n for n, f in FEATURES.items() if not f.is_read])
    def test_what_cannot_be_read_is_refused_by_name(self, name: str) -> None:
        readers = [name] if FEATURES[name].for_readers else []
        protocol = Protocol(3, 7, frozenset(readers), frozenset([name]))
        with pytest.raises(UnsupportedFeatureError, match=name) as caught:
            protocol.require_readable("t")
        assert (caught.value.feature, caught.value.needed_by) == (name, "t")
        assert caught.value.hint

    def test_what_can_be_read(self) -> None:
        known = {name for name, feature in FEATURES.items() if feature.is_read}
        readers = frozenset(name for name in known if FEATURES[name].for_readers)
        Protocol(3, 7, readers, frozenset(known)).require_readable("t")
        Protocol(2, 7, frozenset(), frozenset({"unknownToUs"})).require_readable("t")

    @pytest.mark.parametrize(
        "value",
        [
            {},
            {"minReaderVersion": "1", "minWriterVersion": 2},
            {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": "deletionVectors"},
        ],
    )
    def test_a_damaged_protocol(self, value: dict[str, Any]) -> None:
        with pytest.raises(FormatError):
            Protocol.from_json(value)


def test_a_file_is_live_twice_also_by_its_full_name_in_another_scheme_of_its_store() -> None:
    paths = pa.array(["x.parquet", "s3a://lake/t/x.parquet"])
    with pytest.raises(FormatError, match="live more than once"):
        require_one_vector_each(paths, "s3://lake/t")
    others = pa.array(["x", "s3a://lake/t2/x", "gs://lake/t/x", "s3a://b/s3://lake/t/x"])
    assert inside_names(others, "s3://lake/t").equals(others)
    assert inside_names(pa.array(["/t/x", "/t2/x"]), "/t/").to_pylist() == ["x", "/t2/x"]

"""Which files of a clustered table are ordered again, by the log alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from delvec.delta.maintain.clustered_files import clustering_sums, files_to_cluster, new_cube
from delvec.delta.maintain.compaction import CompactionRule
from tests.delta.builder import Action, TableBuilder


def of_cube(name: str, columns: str = '["id"]', provider: str = "liquid") -> Action:
    tags = {"ZCUBE_ID": name, "ZCUBE_ZORDER_BY": columns}
    return {"tags": tags, "clusteringProvider": provider}


@pytest.mark.parametrize(
    ("files", "full", "expected"),
    [
        ([(9, {}), (1, of_cube("a"))], False, "01"),
        ([(1, {}), (9, of_cube("a"))], False, "0"),
        ([(2, {}), (9, of_cube("a")), (2, of_cube("b")), (3, of_cube("c"))], False, "023"),
        ([(2, {}), (2, of_cube("a")), (2, of_cube("a")), (2, of_cube("b"))], False, "0123"),
        ([(2, {}), (2, of_cube("a")), (3, of_cube("a"))], False, "0"),
        ([(1, of_cube("a")), (1, of_cube("b"))], False, ""),
        ([(5, of_cube("a")), (9, of_cube("b", '["v"]'))], False, ""),
        ([(5, of_cube("a")), (9, of_cube("b", '["v"]'))], True, "01"),
        ([(5, of_cube("a"))], True, ""),
        ([(1, of_cube("a", provider="other")), (1, {"tags": {"x": "y"}})], False, "01"),
        ([(1, {**of_cube("a"), "deleted": True}), (1, of_cube("b"))], False, "0"),
    ],
)
def test_files_are_chosen_by_their_cubes(
    tmp_path: Path, files: list[tuple[int, Action]], *, full: bool, expected: str
) -> None:
    made = TableBuilder.made(tmp_path / "t")
    adds = []
    for number, (size, more) in enumerate(files):
        add = {**made.write_file(f"{number}.parquet", {"id": range(10)}), **more}
        if add.pop("deleted", False):
            [add["deletionVector"]] = made.write_vectors([1, 2, 3])
        adds.append({**add, "size": size * 1000})
    made.commit(*({"add": add} for add in adds))
    found = made.handle.snapshot().files
    rule = CompactionRule.of(found.metadata)
    chosen = files_to_cluster(found, ["id"], rule, full=full)
    names = found.select(chosen).paths.to_pylist()
    assert "".join(sorted(name[0] for name in names)) == expected
    if not full:
        assert clustering_sums(found, rule, ["id"])[0].files == len(expected)
    assert new_cube(["id", "s.b"])["tags"]["ZCUBE_ZORDER_BY"] == '["id","s.b"]'

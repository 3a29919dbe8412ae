"""Which files become one: by size, by the share of deleted rows, by partition; no JVM."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from delvec.delta.log.file_set import FileSet
from delvec.delta.maintain.compaction import CompactionRule, compaction_bins, live_bytes, purge_bins
from delvec.delta.schema.metadata import Metadata
from delvec.errors import InvalidArgumentError
from tests.delta.builder import INLINE, TableBuilder

File = tuple[int, int, int]  # bytes, rows, deleted rows


def files_of(path: Path, files: list[File], parts: str = "") -> FileSet:
    """Make the log of files that do not exist, each a millisecond younger than the last."""
    fields = {"id": "long", "part": "string"} if parts else {"id": "long"}
    columns = ["part"] if parts else []
    builder = TableBuilder.made(path, fields=fields, partition_columns=columns)
    for at, (size, rows, deleted) in enumerate(files):
        add: dict[str, Any] = {"path": f"part-{at}", "size": size, "modificationTime": at}
        add |= {"partitionValues": {"part": parts[at]} if parts else {}, "dataChange": True}
        if rows:
            add["stats"] = f'{{"numRecords":{rows}}}'
        if deleted:
            add["deletionVector"] = INLINE | {"cardinality": deleted}
        builder.add(add)
    return builder.handle.snapshot().files


def chosen(files: FileSet, target: int, ratio: float = 0.05, least: int | None = None) -> Any:  # noqa: ANN401
    rule = CompactionRule(target, target if least is None else least, ratio)
    every = np.ones(len(files), dtype=np.bool_)
    return [
        sorted(int(files.modification_times[n]) for n in each)
        for each in compaction_bins(files, every, rule)
    ]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        # Small files go together up to the target, the oldest first.
        ([(40, 10, 0)] * 5, [[0, 1], [2, 3]]),
        # A lone file is left alone, unless many of its rows are deleted.
        ([(40, 10, 0)], []),
        ([(40, 10, 5)], [[0]]),
        ([(400, 1000, 500)], [[0]]),
        ([(400, 1000, 40)], []),
        # Sizes are those of live rows.
        ([(90, 10, 5), (90, 10, 5), (90, 10, 5)], [[0, 1], [2]]),
        ([(150, 10, 5), (20, 10, 0)], [[0, 1]]),
        # Nobody knows how many rows are left: found out by reading.
        ([(400, 0, 5)], [[0]]),
        # Large ones stay, and do not part others.
        ([(20, 1, 0), (500, 1, 0), (20, 1, 0)], [[0, 2]]),
        # All rows are deleted: nothing is left to write.
        ([(400, 10, 10)], [[0]]),
        ([], []),
    ],
)
def test_live_bytes_choose(tmp_path: Path, files: list[File], expected: list[list[int]]) -> None:
    assert chosen(files_of(tmp_path / "t", files), 100) == expected


def test_partitions_are_not_mixed_and_a_purge_takes_exactly_the_wanted(tmp_path: Path) -> None:
    files = files_of(tmp_path / "parts", [(10, 1, 0)] * 5, "abaab")
    assert sorted(chosen(files, 100)) == [[0, 2, 3], [1, 4]]
    files = files_of(tmp_path / "t", [(10, 10, 0), (10, 10, 1), (900, 10, 1), (10, 10, 9)])
    bins = purge_bins(files, files.has_vector, CompactionRule(100, 50, 0.5))
    found = [sorted(int(files.modification_times[n]) for n in each) for each in bins]
    assert sorted(n for each in found for n in each) == [1, 2, 3]
    assert [2] in found
    assert live_bytes(files).sum() == 10 + 9 + 810 + 1


def test_a_rule_has_defaults_and_limits() -> None:
    def table(size: str | None = None) -> Metadata:
        properties = {} if size is None else {"delta.targetFileSize": size}
        text = '{"type":"struct","fields":[]}'
        return Metadata.from_json({"schemaString": text, "configuration": properties})

    assert CompactionRule.of(table()) == CompactionRule(256 << 20, 128 << 20, 0.05)
    sizes = {"100": 100, "64mb": 64 << 20, "1 GiB": 1 << 30, "nonsense": 256 << 20, "0": 1}
    for text, size in sizes.items():
        assert CompactionRule.of(table(text)).target_size == size
    assert CompactionRule.of(table("64mb"), 1000, 10).target_size == 1000
    wrong: list[dict[str, Any]] = [
        {"target_size": 0},
        {"target_size": -1},
        {"min_size": -1},
        {"target_size": 10, "min_size": 11},
        {"target_size": 1.5},
        {"max_deleted_ratio": -0.1},
        {"max_deleted_ratio": 1.1},
        {"max_deleted_ratio": float("nan")},
    ]
    for each in wrong:
        with pytest.raises(InvalidArgumentError):
            CompactionRule.of(table(), **each)

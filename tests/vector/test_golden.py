"""Vectors of tables that Delta's own projects keep for their tests."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from delvec.vector import Descriptor, encode_frame


def descriptors(log: Path) -> dict[str, Descriptor]:
    """Every descriptor that commits and checkpoints of a table mention, by its unique id."""
    entries = [
        action[kind]["deletionVector"]
        for commit in log.glob("*.json")
        for line in commit.read_text().splitlines()
        for action in [json.loads(line)]
        for kind in ("add", "remove")
        if kind in action and action[kind].get("deletionVector")
    ]
    for checkpoint in log.glob("*.checkpoint*.parquet"):
        table = pq.read_table(checkpoint)
        for kind in ("add", "remove"):
            rows = table.column(kind).to_pylist() if kind in table.column_names else []
            entries += [row["deletionVector"] for row in rows if row and row.get("deletionVector")]
    found = [Descriptor.from_json(entry) for entry in entries]
    return {descriptor.unique_id: descriptor for descriptor in found}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("basic-dv-no-checkpoint", 1),
        ("table-with-dv-small", 1),
        ("with-short-dv", 1),
        ("dv-partitioned-with-checkpoint", 10),
        ("dv-with-columnmapping", 10),
    ],
)
def test_every_vector_of_a_real_table_decodes_and_encodes_to_its_bytes(
    golden: Path, name: str, expected: int
) -> None:
    table = golden / name / "delta"
    found = descriptors(table / "_delta_log")
    assert len(found) == expected
    for descriptor in found.values():
        assert descriptor.file_path is not None
        start, length = descriptor.file_range
        frame = (table / descriptor.file_path).read_bytes()[start : start + length]
        assert encode_frame(descriptor.decode(frame)) == frame

"""The equality-delete files of a snapshot, as plain data."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from delvec.documents import parse_json
from delvec.iceberg.client.chosen_files import SEPARATOR, key_scans
from delvec.iceberg.client.failures import explained

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delvec.iceberg.client.catalog import LoadedTable

__all__ = ["VECTOR_SUFFIX", "EqualityDeleteFile", "equality_deletes", "from_content_file"]

VECTOR_SUFFIX: Final = "-edv.puffin"
"""How the names of files with an equality delete vector end; no other writer's files do."""


@dataclass(frozen=True)
class EqualityDeleteFile:
    """A file of deleted keys, as its manifest describes it.

    Attributes:
        file_format: As the manifest says; equality delete vectors are labelled `parquet`.
        partition_json: The JSON array of its partition values.
        sequence_number: Its data sequence number; it applies to data files of lower ones.
        null_counts: By field id.
        lower: Lower bounds in Iceberg's binary form, by field id.
        upper: Upper bounds.
    """

    path: str
    file_format: str
    spec_id: int
    partition_json: str
    equality_ids: tuple[int, ...]
    record_count: int
    size: int
    sequence_number: int
    null_counts: Mapping[int, int] = field(default_factory=dict)
    lower: Mapping[int, bytes] = field(default_factory=dict)
    upper: Mapping[int, bytes] = field(default_factory=dict)

    @property
    def is_vector(self) -> bool:
        """Whether it holds an equality delete vector instead of rows of keys."""
        return self.path.endswith(VECTOR_SUFFIX)


def equality_deletes(table: LoadedTable, snapshot_id: int) -> tuple[EqualityDeleteFile, ...]:
    """Return the live equality-delete files of a snapshot.

    The driver reads its delete manifests, and holds about 1 kB for each file.
    """
    with explained(str(table.name)):
        found = key_scans(table.spark).equalityDeletes(table.handle, snapshot_id)
    parts = found.split(SEPARATOR)
    return tuple(
        from_content_file(text, int(number))
        for number, text in zip(parts[0:-1:2], parts[1:-1:2], strict=True)
    )


def from_content_file(text: str, sequence_number: int) -> EqualityDeleteFile:
    """Parse the JSON object of Iceberg's `ContentFileParser`."""
    value = parse_json(text, "the entry of a delete file")
    return EqualityDeleteFile(
        value["file-path"],
        value["file-format"].lower(),
        value["spec-id"],
        json.dumps(value.get("partition", [])),
        tuple(value.get("equality-ids", ())),
        value["record-count"],
        value["file-size-in-bytes"],
        sequence_number,
        _by_id(value, "null-value-counts"),
        {key: bytes.fromhex(each) for key, each in _by_id(value, "lower-bounds").items()},
        {key: bytes.fromhex(each) for key, each in _by_id(value, "upper-bounds").items()},
    )


def _by_id(value: Mapping[str, Any], name: str) -> dict[int, Any]:
    found = value.get(name)
    return {} if not found else dict(zip(found["keys"], found["values"], strict=True))

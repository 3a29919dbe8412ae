"""Every string and number of the log's actions that may hold a value of a row, whatever its key.

Left out is only what the protocol defines and engines fill in: sizes, times, versions, identifiers.
Partition values and bounds of the condition's own columns are searched as columns, see `log`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from delvec.delta.log.paths import UUID
from delvec.delta.read.conform import FIELD_ID
from delvec.delta.schema.expressions import CONSTRAINT
from delvec.documents import parse_json
from delvec.errors import FormatError

FILES: Final = ("add", "remove", "cdc")
STATISTICS: Final = "statistics"
_OPERATION, _METADATA = "the text of an operation", "table metadata"
_WHAT: Final = {
    "commitInfo": _OPERATION,
    "metaData": _METADATA,
    "domainMetadata": _METADATA,
    "txn": _METADATA,
    "protocol": _METADATA,
}
# Fields of actions that hold no value of a row.
_OWN_OF_FILES: Final = (
    "size modificationTime deletionTimestamp dataChange extendedFileMetadata deletionVector"
    " baseRowId defaultRowCommitVersion partitionValues partitionValues_parsed stats_parsed"
)
OWN: Final[Mapping[str, frozenset[str]]] = {
    kind: frozenset(names.split())
    for kind, names in {
        **dict.fromkeys(FILES, _OWN_OF_FILES),
        "commitInfo": "timestamp inCommitTimestamp version readVersion txnId isBlindAppend",
        "metaData": "id createdTime",
        "txn": "version lastUpdated",
        "protocol": "minReaderVersion minWriterVersion readerFeatures writerFeatures",
        "sidecar": "path sizeInBytes modificationTime",
        "checkpointMetadata": "version",
        # Of checksum files, and of the hint to the last checkpoint.
        "checksum": "txnId tableSizeBytes numFiles numDeletedRecordsOpt numDeletionVectorsOpt"
        " numMetadata numProtocol inCommitTimestampOpt fileSizeHistogram protocol"
        " deletedRecordCountsHistogramOpt allFiles metadata setTransactions domainMetadata",
        "hint": "version size sizeInBytes numOfAddFiles parts checksum v2Checkpoint",
    }.items()
}
# Fields of known names: these are no texts. People write those of the second set, and there a value
# of any length counts; elsewhere a short one counts next to the name of its column.
_KNOWN: Final[Mapping[str, frozenset[str]]] = {
    kind: frozenset(names.split())
    for kind, names in {
        **dict.fromkeys(FILES, "path stats tags clusteringProvider"),
        "commitInfo": "operation operationParameters operationMetrics isolationLevel engineInfo"
        " clientVersion clusterId userId userName userMetadata tags job notebook",
        "metaData": "name description format schemaString partitionColumns configuration",
        "domainMetadata": "domain configuration removed",
        "txn": "appId",
        "sidecar": "tags",
        "checkpointMetadata": "tags",
        "hint": "checkpointSchema tags",
    }.items()
}
_WRITTEN: Final = frozenset({"userMetadata", "tags", "name", "description", "comment"})
BOUNDS: Final = ("minValues", "maxValues")
_COUNTS: Final = ("numRecords", "nullCount", "tightBounds")
_ROW_TRACKING: Final = "delta.rowTracking"  # whose configuration is a number of rows
# Names that engines make up.
_MADE_UP: Final = re.compile(rf"(?:part|cdc)-\d{{5}}-{UUID}[-.]c\d{{3}}(?:\.\w+)*\.parquet$")


_IN_CHECKSUM: Final = {
    "allFiles": "add",
    "metadata": "metaData",
    "setTransactions": "txn",
    "domainMetadata": "domainMetadata",
}


class Text(NamedTuple):
    """A text of an action: what it is, and whether people write it."""

    what: str
    text: str
    is_written: bool = False


def texts_of(action: Mapping[str, Any], own: Collection[str] = ()) -> Iterator[Text]:
    """Yield the texts of one action, without the bounds of some columns."""
    for kind, body in action.items():
        if not isinstance(body, Mapping):
            yield from (Text("an unknown action", each, True) for each in _leaves({kind: body}))
            continue
        what = _WHAT.get(kind, "an action")
        for name, value in body.items():
            if name == "stats" and kind in FILES:
                yield from (Text(STATISTICS, each) for each in _statistics(value, own))
            elif value is not None and name not in OWN.get(kind, ()):
                yield from _field(kind, what, name, value, body)


def _field(
    kind: str, what: str, name: str, value: object, body: Mapping[str, Any]
) -> Iterator[Text]:
    if name not in _KNOWN.get(kind, ()):
        yield from (Text(what, each, True) for each in _leaves({name: value}))
    elif name == "path":
        yield Text("the name of a file", _own_name(str(value), body.get("partitionValues") or {}))
    elif name in ("schemaString", "checkpointSchema"):
        yield from _schema_texts(value)
    elif name == "configuration" and kind == "metaData":
        yield from (Text(what, each) for each in _properties(value))
    elif body.get("domain") != _ROW_TRACKING:
        yield from (Text(what, each, name in _WRITTEN) for each in _leaves(value))


def checksum_actions(value: object) -> Iterator[dict[str, Any]]:
    """Yield what a checksum file holds as actions."""
    if not isinstance(value, Mapping):
        return
    for name, kind in _IN_CHECKSUM.items():
        yield from ({kind: each} for each in _listed(value.get(name)))
    yield {"checksum": value}


def footer_texts(schema: pa.Schema) -> Iterator[Text]:
    """Yield what writers note in the footer of a Parquet file: Spark has comments and defaults."""
    for key, value in (schema.metadata or {}).items():
        text = value.decode(errors="replace")
        if key == b"org.apache.spark.sql.parquet.row.metadata":
            yield from _schema_texts(text)
        else:
            yield Text(_METADATA, f"{key.decode(errors='replace')}: {text}")
    # Arrow keeps what each field has.
    fields = list(schema)
    while fields:
        field = fields.pop()
        fields += [field.type.field(at) for at in range(field.type.num_fields)]
        own = {key: text for key, text in (field.metadata or {}).items() if key != FIELD_ID}
        yield from (Text(_METADATA, each.decode(errors="replace")) for each in own.values())


def hint_actions(value: object) -> Iterator[dict[str, Any]]:
    """Yield what the hint to the last checkpoint holds as actions."""
    if not isinstance(value, Mapping):
        return
    yield {"hint": value}
    inside = value.get("v2Checkpoint")
    actions = _listed(inside.get("nonFileActions") if isinstance(inside, Mapping) else inside)
    yield from (each if isinstance(each, dict) else {"hint": {"text": each}} for each in actions)


def _listed(value: object) -> list[Any]:
    """Return a list, or one of a single value, whatever a damaged file has in its place."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _leaves(value: object) -> Iterator[str]:
    """Yield strings and numbers, each behind its key, which may be the name of a column."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if isinstance(item, Mapping | list):
                yield str(key)
                yield from _leaves(item)
            else:
                yield f"{key}: {item}"
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _properties(value: object) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield from _leaves(value)
        return
    for key, item in value.items():
        is_known = key.startswith("delta.") and not key.startswith(CONSTRAINT)
        yield from _leaves(item if is_known else {key: item})


def _own_name(path: str, partitions: object) -> str:
    """Return a path without folders of partition values, and names that engines make up."""
    names = set(partitions) if isinstance(partitions, Mapping) else set()
    folders = unquote(path).split("/")
    kept = [each for each in folders if each.partition("=")[0] not in names or "=" not in each]
    return _MADE_UP.sub("", "/".join(kept))


def _statistics(value: object, own: Collection[str]) -> Iterator[str]:
    """Yield what statistics hold beside counts and the bounds of some columns."""
    try:
        parsed = parse_json(value, "a statistic", parse_float=str) if value else None
    except FormatError:
        yield str(value)
        return
    for name, section in parsed.items() if isinstance(parsed, Mapping) else ():
        if name in BOUNDS and isinstance(section, Mapping):
            yield from _leaves({key: each for key, each in section.items() if key not in own})
        elif name not in _COUNTS:
            yield from _leaves({name: section})


def _schema_texts(value: object) -> Iterator[Text]:
    """Yield names, comments, defaults and whatever else columns have."""
    try:
        schema = parse_json(value, "a schema", parse_float=str) if isinstance(value, str) else value
    except FormatError:
        yield Text(_METADATA, str(value))
        return
    yield from _type_texts(schema)


def _type_texts(kind: object) -> Iterator[Text]:
    if not isinstance(kind, Mapping):
        return
    fields: Iterable[Any] = kind.get("fields") or ()
    for field in (each for each in fields if isinstance(each, Mapping)):
        name = str(field.get("name"))
        yield Text(_METADATA, name)
        metadata = field.get("metadata")
        for key, item in metadata.items() if isinstance(metadata, Mapping) else ():
            if key == "delta.columnMapping.id":
                continue
            for each in _leaves(item):
                is_comment = key in _WRITTEN
                yield Text(_METADATA, each if is_comment else f"{name} {each}", is_comment)
        yield from _type_texts(field.get("type"))
    for inner in ("elementType", "keyType", "valueType"):
        yield from _type_texts(kind.get(inner))

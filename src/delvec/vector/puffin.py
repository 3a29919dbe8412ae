"""Puffin, Iceberg's file format for blobs of any type, read and written.

    "PFA1"
    blobs     concatenated, the first at byte 4
    footer:
      "PFA1"
      payload   JSON that lists the blobs, UTF-8, maybe compressed
      4 bytes   size of the payload, little-endian
      4 bytes   flags: bit 0 of the first byte = payload is compressed; all others 0
      "PFA1"

No I/O: functions that read take a function `read(start, length)`, so that one blob of a large file
costs one small read. What is compressed is one frame of LZ4 or Zstandard with its content size,
which is rejected above `MAX_EXPANSION` times the input: few bytes cannot allocate gigabytes.

Specification: https://iceberg.apache.org/puffin-spec/
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from delvec._version import __version__
from delvec.documents import parse_json
from delvec.errors import (
    FormatError,
    InvalidArgumentError,
    MagicError,
    TruncatedError,
    add_location,
    require_bytes,
)

ReadRange = Callable[[int, int], "bytes | memoryview"]
CREATED_BY: Final = f"delvec {__version__}"
HEADER_SIZE: Final = 4
_MAGIC: Final = b"PFA1"
_TRAILER: Final = 12  # payload size, flags, magic
_COMPRESSED: Final = 1
_MAX_FOOTER: Final = 2**31 - 1
_FIRST_READ: Final = 8 * 1024  # enough for the footer of most files
_INHERITED: Final = -1  # snapshot and sequence number come from the manifest
MAX_EXPANSION: Final = 64
"""Higher ratios are rejected as decompression bombs; footers of many paths reach about 20."""
_MAGICS: Final = {b"\x04\x22\x4d\x18": "lz4", b"\x28\xb5\x2f\xfd": "zstd"}


@dataclass(frozen=True)
class Blob:
    """A blob to be written."""

    type: str
    data: bytes
    fields: tuple[int, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    snapshot_id: int = _INHERITED
    sequence_number: int = _INHERITED


@dataclass(frozen=True)
class BlobMetadata:
    """The entry of one blob in the footer."""

    type: str
    fields: tuple[int, ...]
    snapshot_id: int
    sequence_number: int
    offset: int
    length: int
    compression_codec: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Footer:
    """The contents of a Puffin file, and the size of its footer."""

    blobs: tuple[BlobMetadata, ...]
    properties: Mapping[str, str]
    size: int


@dataclass(frozen=True)
class PuffinFile:
    """A file ready to be written, and the entries of its blobs."""

    data: bytes
    blobs: tuple[BlobMetadata, ...]


def encode(blobs: Iterable[Blob], properties: Mapping[str, str] | None = None) -> PuffinFile:
    """Return a file of blobs, uncompressed.

    >>> file = encode([Blob("greeting", b"hello")])
    >>> footer = read_footer(reader_of(file.data), len(file.data))
    >>> bytes(read_blob(reader_of(file.data), footer.blobs[0]))
    b'hello'
    """
    parts, entries, offset = [], [], HEADER_SIZE
    for blob in blobs:
        parts.append(blob.data)
        numbers = (blob.snapshot_id, blob.sequence_number, offset, len(blob.data))
        entry = BlobMetadata(blob.type, tuple(blob.fields), *numbers, None, dict(blob.properties))
        entries.append(entry)
        offset += len(blob.data)
    listed = ",".join(json.dumps(_entry_to_json(entry)) for entry in entries)
    return PuffinFile(assemble(parts, listed.encode(), properties), tuple(entries))


def assemble(
    parts: Iterable[bytes], entries: bytes | memoryview, properties: Mapping[str, str] | None = None
) -> bytes:
    """Return the file of blobs and their footer entries, given as comma-separated JSON."""
    described = json.dumps({"created-by": CREATED_BY, **(properties or {})})
    # Kept in parts: the entries of a large file are tens of megabytes, copied once.
    payload = (b'{"blobs":[', entries, f'],"properties":{described}}}'.encode())
    size = sum(map(len, payload))
    if size > _MAX_FOOTER:
        raise InvalidArgumentError(f"a footer of {size} bytes is too long for one Puffin file")
    trailer = size.to_bytes(4, "little") + bytes(4) + _MAGIC
    return b"".join((_MAGIC, *parts, _MAGIC, *payload, trailer))


def reader_of(data: bytes | memoryview) -> ReadRange:
    """Return the read function of a file that is in memory."""
    view = memoryview(data)
    return lambda start, length: view[start : start + length]


def read_footer(read: ReadRange, file_size: int) -> Footer:
    """Return the footer: one read of the tail, a second one if the footer is long.

    The magic at the beginning of the file is checked only if that read includes it.
    """
    smallest = HEADER_SIZE + HEADER_SIZE + _TRAILER
    require_bytes(file_size, smallest, "too short for a Puffin file")
    start = max(0, file_size - _FIRST_READ)
    tail = _read_exactly(read, start, file_size - start)
    begin = _footer_start(tail[-_TRAILER:], file_size)
    if begin < start:
        tail, start = _read_exactly(read, begin, file_size - begin), begin
    if start == 0:
        _require_magic(tail[:HEADER_SIZE], 0)
    return _parse_footer(tail[begin - start :], begin, file_size)


def read_blob(read: ReadRange, blob: BlobMetadata) -> bytes | memoryview:
    """Return the bytes of one blob, decompressed if necessary."""
    data = _read_exactly(read, blob.offset, blob.length)
    if blob.compression_codec is None:
        return data
    with add_location(offset=blob.offset):
        return decompress(data, blob.compression_codec)


def detect(data: bytes | memoryview) -> str | None:
    """Return the codec, by the magic number of the frame."""
    return _MAGICS.get(bytes(data[:4]))


def decompress(data: bytes | memoryview, codec: str) -> bytes:
    """Return the content of one `lz4` or `zstd` frame."""
    import pyarrow as pa  # noqa: PLC0415  (slow to import and rarely needed)

    if codec not in _MAGICS.values():
        raise FormatError("unknown compression", offset=0, expected="lz4 or zstd", found=codec)
    if detect(data) != codec:
        found = bytes(data[:4]).hex() or "nothing"
        raise FormatError(f"not a frame of {codec}", offset=0, found=found)
    head = bytes(data[:18])
    size = _lz4_content_size(head) if codec == "lz4" else _zstd_content_size(head)
    limit = MAX_EXPANSION * len(data)
    if size is None or size > limit:
        raise FormatError(
            f"{codec} frame without a credible content size",
            offset=4,
            expected=f"at most {limit} bytes",
            found="none" if size is None else size,
        )
    try:
        # Not streamed: Arrow's streams leak memory when a frame is damaged.
        expanded: bytes = pa.decompress(data, decompressed_size=size, codec=codec, asbytes=True)
    except (OSError, pa.ArrowException) as error:
        raise FormatError(f"damaged {codec} frame ({error})", offset=0) from error
    return expanded


def _lz4_content_size(head: bytes) -> int | None:
    """Return the content size; see https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md#frame-descriptor."""
    has_size = len(head) >= 14 and head[4] >> 3 & 1
    return int.from_bytes(head[6:14], "little") if has_size else None


def _zstd_content_size(head: bytes) -> int | None:
    """Return the content size; see https://www.rfc-editor.org/rfc/rfc8878#name-frame-header."""
    if len(head) < 18:
        head += bytes(18 - len(head))  # a frame this short fails later in any case
    descriptor = head[4]
    single_segment = descriptor >> 5 & 1
    width = (single_segment, 2, 4, 8)[descriptor >> 6]
    start = 5 + (1 - single_segment) + (0, 1, 2, 4)[descriptor & 3]
    size = int.from_bytes(head[start : start + width], "little")
    return None if width == 0 else size + (256 if width == 2 else 0)


def _entry_to_json(entry: BlobMetadata) -> dict[str, Any]:
    return {
        "type": entry.type,
        "fields": list(entry.fields),
        "snapshot-id": entry.snapshot_id,
        "sequence-number": entry.sequence_number,
        "offset": entry.offset,
        "length": entry.length,
        "properties": dict(entry.properties),
    }


def _read_exactly(read: ReadRange, start: int, length: int) -> memoryview:
    data = memoryview(read(start, length))
    if len(data) != length:
        raise TruncatedError(
            "Puffin file is truncated",
            offset=start,
            expected=f"{length} bytes",
            found=f"{len(data)} bytes",
        )
    return data


def _require_magic(view: memoryview, offset: int) -> None:
    found = bytes(view)
    if found != _MAGIC:
        raise MagicError(
            "not a Puffin file", offset=offset, expected=_MAGIC.decode(), found=found.hex()
        )


def _footer_start(trailer: memoryview, file_size: int) -> int:
    _require_magic(trailer[8:], file_size - HEADER_SIZE)
    size = int.from_bytes(trailer[:4], "little")
    begin = file_size - _TRAILER - size - HEADER_SIZE
    if begin < HEADER_SIZE:
        raise FormatError(
            "impossible size of a Puffin footer",
            offset=file_size - _TRAILER,
            expected=f"at most {file_size - _TRAILER - 2 * HEADER_SIZE}",
            found=size,
        )
    return begin


def _parse_footer(data: memoryview, begin: int, file_size: int) -> Footer:
    _require_magic(data[:HEADER_SIZE], begin)
    flags = int.from_bytes(data[-8:-4], "little")
    if flags & ~_COMPRESSED:
        raise FormatError(
            "unknown flags in a Puffin footer", offset=file_size - 8, expected="0 or 1", found=flags
        )
    payload: bytes | memoryview = data[HEADER_SIZE:-_TRAILER]
    with add_location(offset=begin + HEADER_SIZE):
        if flags & _COMPRESSED:
            codec = detect(payload)
            if codec is None:
                raise FormatError("footer of a Puffin file is said to be compressed but is not")
            payload = decompress(payload, codec)
        content = parse_json(bytes(payload), "the footer of a Puffin file")
        if not isinstance(content, dict) or not isinstance(content.get("blobs"), list):
            raise FormatError("footer of a Puffin file lists no blobs")
    properties = _strings(content.get("properties"), begin)
    blobs = tuple(_parse_entry(entry, begin) for entry in content["blobs"])
    return Footer(blobs, properties, file_size - begin)


def _parse_entry(entry: Any, begin: int) -> BlobMetadata:  # noqa: ANN401
    if not isinstance(entry, dict):
        raise _bad_entry(begin, "an object", entry)
    kind, fields, codec = entry.get("type"), entry.get("fields"), entry.get("compression-codec")
    if not isinstance(kind, str) or not (codec is None or isinstance(codec, str)):
        raise _bad_entry(begin, "type and compression-codec as strings", entry)
    if not isinstance(fields, list) or not all(type(number) is int for number in fields):
        raise _bad_entry(begin, "fields as a list of integers", entry)
    names = ("snapshot-id", "sequence-number", "offset", "length")
    snapshot_id, sequence_number, offset, length = (_integer(entry, name, begin) for name in names)
    if offset < HEADER_SIZE or length < 0 or offset + length > begin:
        raise FormatError(
            "Puffin blob lies outside the file",
            offset=begin,
            expected=f"within bytes {HEADER_SIZE} to {begin}",
            found=f"{length} bytes from {offset}",
        )
    properties = _strings(entry.get("properties"), begin)
    return BlobMetadata(
        kind, tuple(fields), snapshot_id, sequence_number, offset, length, codec, properties
    )


def _integer(entry: Mapping[str, Any], name: str, begin: int) -> int:
    number = entry.get(name)
    if type(number) is int:
        return number
    raise _bad_entry(begin, f"{name} as an integer", entry)


def _bad_entry(begin: int, expected: str, entry: object) -> FormatError:
    return FormatError(
        "bad entry of a Puffin footer", offset=begin, expected=expected, found=repr(entry)[:200]
    )


def _strings(value: Any, begin: int) -> Mapping[str, str]:  # noqa: ANN401
    if value is None:
        return {}
    if isinstance(value, dict) and all(isinstance(text, str) for text in value.values()):
        return value
    raise FormatError("properties in a Puffin footer are not strings", offset=begin)

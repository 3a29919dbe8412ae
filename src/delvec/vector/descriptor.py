"""The descriptor: where the deletion vector of a file is stored, by its Delta log entry.

    {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
     "offset": 4, "sizeInBytes": 40, "cardinality": 6}

    storageType   where                                     pathOrInlineDv
    u             a file of the table, named by a UUID      [folder] + 20 characters of Z85
    p             a file anywhere, as in shallow clones     an absolute, percent-encoded path
    i             in the log itself                         the payload as Z85

Z85 (https://rfc.zeromq.org/spec/32/) is Python's base 85 with another alphabet: 4 bytes, in
big-endian order, as 5 characters. It defines no padding, so two exist: Delta pads with zero bytes
at the end and trims to the known size; delta-rs encodes k missing bytes as k leading `#` in the
last block. No valid block begins with `#`, since 84 * 85**4 is over 2**32 - 1.

https://github.com/delta-io/delta/blob/master/PROTOCOL.md#deletion-vector-descriptor-schema
"""

from __future__ import annotations

import re
from base64 import b85decode, b85encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast
from urllib.parse import unquote
from uuid import UUID

import numpy as np

from delvec.errors import FormatError, InvalidArgumentError, add_location
from delvec.vector import frame as vector_frame
from delvec.vector.bitmap import Bitmap

StorageType = Literal["u", "p", "i"]
_UUID_CHARACTERS: Final = 20
_FIRST_OFFSET: Final = 1  # of a container file, after its version byte
_INT_LIMIT: Final = 2**31
_LONG_LIMIT: Final = 2**63
_INLINE: Final = "an inline deletion vector"
# Engines write a few letters and digits, or nothing.
_PREFIX: Final = re.compile(r"([A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*)?")
_URI: Final = re.compile(
    r"((?P<scheme>[a-z][a-z0-9+.-]*):)?(//(?P<authority>[^/?#]*))?(?P<path>/[^?#\s]*)"
)
_AUTHORITY: Final = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._-]*(@[A-Za-z0-9][A-Za-z0-9._-]*)?")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_HINTS: Final = {
    "r": "relative-path vectors belong to the table feature adaptiveMetadata, which delvec does"
    " not read"
}
_DIGITS: Final = b"0123456789"
_LOWER: Final = b"abcdefghijklmnopqrstuvwxyz"
_UPPER: Final = _LOWER.upper()
_Z85: Final = _DIGITS + _LOWER + _UPPER + b".-:+=^!/*?&<>()[]{}@%$#"
_B85: Final = _DIGITS + _UPPER + _LOWER + b"!#$%&()*+-;<=>?@^_`{|}~"
_TO_Z85: Final = bytes.maketrans(_B85, _Z85)
_ILLEGAL: Final = 0  # in both alphabets
_TO_B85: Final = bytes(_B85[_Z85.index(c)] if c in _Z85 else _ILLEGAL for c in range(256))
_MARK: Final = "#"
_SHORT: Final = 1 << 10
_AT_ONCE: Final = 5 << 16
_VALUES: Final = np.array([_Z85.index(c) if c in _Z85 else 255 for c in range(256)], np.uint8)
_POWERS: Final = np.array([85**4, 85**3, 85**2, 85, 1], np.uint64)


@dataclass(frozen=True, slots=True)
class Descriptor:
    """Where a deletion vector is stored, its size, and the number of rows that it deletes.

    >>> d = Descriptor.relative(UUID(int=1), offset=1, size_in_bytes=36, cardinality=2)
    >>> d.unique_id, d.file_path
    ('u00000000000000000001@1', 'deletion_vector_00000000-0000-0000-0000-000000000001.bin')
    """

    storage_type: StorageType
    path_or_inline: str
    offset: int | None
    size_in_bytes: int
    cardinality: int

    @classmethod
    def relative(
        cls, uuid: UUID, *, prefix: str = "", offset: int, size_in_bytes: int, cardinality: int
    ) -> Descriptor:
        """Return the descriptor of a vector in a file of the table, the form all engines read."""
        if not _PREFIX.fullmatch(prefix):
            raise InvalidArgumentError(f"a prefix is made of letters and digits, got {prefix!r}")
        return cls("u", prefix + encode(uuid.bytes), offset, size_in_bytes, cardinality)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Descriptor:
        """Parse the `deletionVector` object of a log entry.

        Raises:
            FormatError: A field is missing, of the wrong type or out of bounds.
        """
        if not isinstance(value, Mapping):
            raise FormatError("a deletion vector is not an object", found=repr(value)[:40])
        kind = value.get("storageType")
        if kind not in ("u", "p", "i"):
            raise FormatError(
                "unknown storage type of a deletion vector",
                expected="u, p or i",
                found=repr(kind),
                hint=_HINTS.get(kind) if isinstance(kind, str) else None,
            )
        text = value.get("pathOrInlineDv")
        if not isinstance(text, str):
            raise FormatError("pathOrInlineDv is not a string", found=repr(text))
        offset = value.get("offset")
        return cls(
            cast("StorageType", kind),
            text,
            None if offset is None else _integer(value, "offset", _INT_LIMIT),
            _integer(value, "sizeInBytes", _INT_LIMIT),
            _integer(value, "cardinality", _LONG_LIMIT),
        )

    def to_json(self) -> dict[str, str | int]:
        """Return the `deletionVector` object of a log entry; without an offset if there is none."""
        fields = {
            "storageType": self.storage_type,
            "pathOrInlineDv": self.path_or_inline,
            "offset": self.offset,
            "sizeInBytes": self.size_in_bytes,
            "cardinality": self.cardinality,
        }
        return {name: value for name, value in fields.items() if value is not None}

    @property
    def unique_id(self) -> str:
        """Delta's unique id of a vector: with the path of the data file, the key of log replay."""
        suffix = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline}{suffix}"

    @property
    def file_path(self) -> str | None:
        """The file that holds the vector; None if it is inline.

        Relative to the root of the table for `u`. For `p` absolute and percent-decoded, as
        `Storage` takes names: a plain path on local disk, else scheme, bucket and literal key.
        Paths with `..` are rejected; whether an absolute path may be followed is decided by the
        reader of the table.
        """
        if self.storage_type == "i":
            return None
        if self.storage_type == "p":
            return _absolute_path(self.path_or_inline)
        stored = self.path_or_inline
        prefix, text = stored[:-_UUID_CHARACTERS], stored[-_UUID_CHARACTERS:]
        if len(text) < _UUID_CHARACTERS:
            raise FormatError(
                "path of a deletion vector is too short for a UUID",
                expected=f"{_UUID_CHARACTERS} characters",
                found=f"{len(text)} characters",
            )
        if not _PREFIX.fullmatch(prefix):
            raise FormatError(
                "folder of a deletion vector may lead out of the table",
                expected="letters and digits",
                found=repr(prefix)[:80],
            )
        name = f"deletion_vector_{UUID(bytes=decode(text, 16))}.bin"
        return f"{prefix}/{name}" if prefix else name

    @property
    def file_range(self) -> tuple[int, int]:
        """Offset and length of the whole frame in the file: one range read.

        By the specification an absent offset is 0, where the version byte is. The first vector of a
        file is at 1, which delta-rs assumes, and which must be meant.
        """
        start = _FIRST_OFFSET if self.offset is None else self.offset
        return start, self.size_in_bytes + vector_frame.FRAME_OVERHEAD

    def decode(self, frame: bytes | memoryview | None = None) -> Bitmap:
        """Return the decoded vector, checked against the descriptor.

        Args:
            frame: The bytes of `file_range`; None for an inline vector.

        Raises:
            FormatError: With the path and the offset in the file.
        """
        if self._is_empty:
            return Bitmap()
        if self.storage_type == "i":
            with add_location(_INLINE):
                payload = self.inline_payload()
                return vector_frame.decode_payload(
                    payload, cardinality=self.cardinality, allow_native=True
                )
        start, length = self.file_range
        if frame is None:
            raise InvalidArgumentError(
                f"the vector is in {self.file_path}: pass the {length} bytes from {start} on"
            )
        if len(frame) != length:
            raise FormatError(
                "vector cut short" if len(frame) < length else "too many bytes for a vector",
                path=self.file_path,
                offset=start,
                expected=f"{length} bytes",
                found=f"{len(frame)} bytes",
            )
        try:
            return vector_frame.decode_frame(frame, cardinality=self.cardinality, allow_native=True)
        except FormatError:
            # Only now: computing the path costs as much as decoding.
            with add_location(self.file_path, start):
                raise

    def inline_payload(self) -> bytes:
        """Return the payload of an inline vector, in either Z85 padding."""
        return decode(self.path_or_inline, self.size_in_bytes)

    def inline_frame(self) -> bytes:
        """Return the frame of an inline vector, as a Puffin file stores it."""
        if self._is_empty:
            return vector_frame.encode_frame(Bitmap())
        with add_location(_INLINE):
            return vector_frame.frame_payload(self.inline_payload())

    @property
    def _is_empty(self) -> bool:
        """Whether this is delta-spark's empty descriptor, which has no bytes at all."""
        return self.cardinality == 0 and self.size_in_bytes == 0


def encode(data: bytes) -> str:
    """Return bytes as a string, padded with zero bytes to a multiple of 4.

    >>> encode(bytes.fromhex("864fd26fb559f75b"))
    'HelloWorld'
    """
    return b85encode(data, pad=True).translate(_TO_Z85).decode("ascii")


def decode(text: str, size: int) -> bytes:
    """Return the `size` bytes that a string encodes, in either padding.

    >>> decode("HelloWorld", 8).hex()
    '864fd26fb559f75b'
    >>> decode("HelloWorld", 7)
    Traceback (most recent call last):
    ...
    delvec.errors.FormatError: Z85 padding is not zero: expected 7 bytes, found 8 bytes
    """
    if size < 0:
        raise InvalidArgumentError(f"a size cannot be negative, got {size}")
    if -(-size // 4) * 5 != len(text):
        raise FormatError(
            "Z85 string has the wrong length",
            expected=f"{-(-size // 4) * 5} characters for {size} bytes",
            found=f"{len(text)} characters",
        )
    if text[-5:].startswith(_MARK):
        return _decode_blocks(text[:-5]) + _decode_marked(text[-5:], len(text) - 5, size)
    data = _decode_blocks(text)
    if any(data[size:]):
        raise FormatError(
            "Z85 padding is not zero", expected=f"{size} bytes", found=f"{len(data)} bytes"
        )
    return data[:size]


def _decode_marked(block: str, offset: int, size: int) -> bytes:
    missing = len(block) - len(block.lstrip(_MARK))
    present = 4 - missing
    if missing != -size % 4:
        raise FormatError(
            "Z85 padding does not match the size",
            offset=offset,
            expected=f"{-size % 4} missing bytes",
            found=f"{missing}",
        )
    value = int.from_bytes(_decode_blocks("0" * missing + block[missing:], offset), "big")
    if value >> 8 * present:
        raise FormatError("Z85 block is too large", offset=offset, found=repr(block))
    return value.to_bytes(present, "big")


def _decode_blocks(text: str, offset: int = 0) -> bytes:
    if len(text) <= _SHORT:
        try:
            return b85decode(text.encode("ascii").translate(_TO_B85))
        except ValueError as error:
            raise _fault(text, offset) from error
    # Python's decoder makes an object of each five characters, and takes ten times as long.
    pieces = []
    for at in range(0, len(text), _AT_ONCE):
        piece = text[at : at + _AT_ONCE]
        digits = _VALUES[np.frombuffer(piece.encode("ascii", "replace"), np.uint8)]
        values = digits.reshape(-1, 5).astype(np.uint64) @ _POWERS
        if (digits > 84).any() or (values >> np.uint64(32)).any() or not piece.isascii():
            raise _fault(piece, offset + at)
        pieces.append(values.astype(">u4").tobytes())
    return b"".join(pieces)


def _fault(text: str, offset: int) -> FormatError:
    """Return the error of a string that cannot be decoded."""
    for at, character in enumerate(text):
        if ord(character) > 127 or _TO_B85[ord(character)] == _ILLEGAL:
            return FormatError("not a Z85 character", offset=offset + at, found=repr(character))
    blocks = [text[at : at + 5] for at in range(0, len(text), 5)]
    values = [sum(_Z85.index(ord(c)) * 85 ** (4 - i) for i, c in enumerate(b)) for b in blocks]
    first = next(index for index, value in enumerate(values) if value >> 32)
    return FormatError(
        "Z85 block is too large", offset=offset + 5 * first, found=repr(blocks[first])
    )


def _integer(value: Mapping[str, Any], name: str, limit: int) -> int:
    number = value.get(name)
    if type(number) is int and 0 <= number < limit:
        return number
    raise FormatError(
        f"{name} of a deletion vector is out of bounds",
        expected=f"an integer from 0 to {limit - 1}",
        found=repr(number)[:40],
    )


def _absolute_path(encoded: str) -> str:
    """Return the decoded path of type `p`; reject one that readers could interpret differently."""
    parts = _URI.fullmatch(encoded)
    path = _percent_decoded(parts["path"]) if parts else None
    if not parts or path is None or not {"", ".", ".."}.isdisjoint(path[1:].split("/")):
        raise FormatError(
            "path of a deletion vector is not absolute and plain",
            expected="a percent-encoded absolute path without `.`, `..` and empty parts",
            found=repr(encoded)[:200],
        )
    scheme, authority = parts["scheme"], parts["authority"] or ""
    if scheme in (None, "file"):
        if authority not in ("", "localhost"):
            raise FormatError("path of a deletion vector is on another host", found=authority)
        return path
    if not _AUTHORITY.fullmatch(authority):
        raise FormatError("path of a deletion vector names no bucket", found=repr(encoded)[:200])
    return f"{scheme}://{authority}{path}"


def _percent_decoded(path: str) -> str | None:
    if _BAD_ESCAPE.search(path):
        return None
    try:
        decoded = unquote(path, errors="strict")
    except UnicodeDecodeError:
        return None
    return decoded if decoded.isprintable() and "\\" not in decoded else None

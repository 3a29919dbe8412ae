r"""Z85, Delta's encoding of bytes as a string: 4 bytes, big-endian, as 5 characters in base 85.

Specification: https://rfc.zeromq.org/spec/32/. It is Python's base 85 with another alphabet. It
defines no padding, so two exist: Delta pads with zero bytes at the end and trims to the known size;
the Rust crate of delta-rs encodes k missing bytes as k leading `#` in the last block. No valid
block begins with `#` (84 * 85**4 is over 2**32 - 1), so `decode` can distinguish them.
"""

from __future__ import annotations

from base64 import b85decode, b85encode
from typing import Final

import numpy as np

from delvec.errors import FormatError, InvalidArgumentError

__all__ = ["decode", "encode"]

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

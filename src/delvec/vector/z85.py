r"""Z85, the text form of bytes that Delta uses: 4 bytes, big-endian, as 5 characters in base 85.

Specification: https://rfc.zeromq.org/spec/32/. It defines no padding, so two exist: Delta pads with
zero bytes at the end and trims by the known size; the Rust crate behind delta-rs marks k missing
bytes by k leading `#` in the last block. No legal block begins with `#` (84 * 85**4 is over
2**32 - 1), so `decode` tells them apart.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from delvec.errors import FormatError, InvalidArgumentError

__all__ = ["decode", "encode"]

_ALPHABET: Final = (
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)
_CHARACTERS: Final = np.frombuffer(_ALPHABET, dtype=np.uint8)
_ILLEGAL: Final = 255
_DIGITS: Final = np.full(256, _ILLEGAL, dtype=np.uint8)
_DIGITS[_CHARACTERS] = np.arange(85, dtype=np.uint8)
_POWERS: Final = 85 ** np.arange(4, -1, -1, dtype=np.uint64)
_MARK: Final = "#"


def encode(data: bytes) -> str:
    """Encode bytes, padded with zero bytes to a multiple of 4.

    >>> encode(bytes.fromhex("864fd26fb559f75b"))
    'HelloWorld'
    """
    padded = data + bytes(-len(data) % 4)
    blocks = np.frombuffer(padded, dtype=">u4").astype(np.uint64)
    digits = blocks[:, None] // _POWERS % np.uint64(85)
    return _CHARACTERS[digits.astype(np.intp)].tobytes().decode("ascii")


def decode(text: str, size: int) -> bytes:
    """Decode text that stands for `size` bytes, in either padding.

    >>> decode("HelloWorld", 8).hex()
    '864fd26fb559f75b'
    >>> decode("HelloWorld", 7) == decode("HelloWorld", 8)[:7]
    Traceback (most recent call last):
    ...
    delvec.errors.FormatError: Z85 padding is not zero: expected 7 bytes, found 8 bytes
    """
    if size < 0:
        raise InvalidArgumentError(f"a size cannot be negative, got {size}")
    if len(text) % 5:
        raise FormatError(
            "Z85 text must be a multiple of 5 characters long", found=f"{len(text)} characters"
        )
    if -(-size // 4) * 5 != len(text):
        raise FormatError(
            "Z85 text has the wrong length",
            expected=f"{-(-size // 4) * 5} characters for {size} bytes",
            found=f"{len(text)} characters",
        )
    tail = text[-5:]
    if tail.startswith(_MARK):
        return _decode_blocks(text[:-5]) + _decode_marked(tail, len(text) - 5, size)
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
    octets = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    digits = np.where(octets < 128, _DIGITS[octets & 0x7F], _ILLEGAL)
    illegal = np.flatnonzero(digits == _ILLEGAL)
    if len(illegal):
        at = int(illegal[0])
        raise FormatError("not a Z85 character", offset=offset + at, found=repr(text[at]))
    blocks = digits.reshape(-1, 5).astype(np.uint64) @ _POWERS
    too_large = np.flatnonzero(blocks >> np.uint64(32))
    if len(too_large):
        at = int(too_large[0]) * 5
        raise FormatError(
            "Z85 block is too large", offset=offset + at, found=repr(text[at : at + 5])
        )
    return blocks.astype(">u4").tobytes()

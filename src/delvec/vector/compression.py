"""LZ4 and Zstandard frames of Puffin files, read without trusting what they claim.

Output is taken piece by piece and stops at `MAX_EXPANSION` times the input, so that a few bytes
cannot ask for gigabytes; the codecs themselves are Arrow's.
"""

from __future__ import annotations

from typing import Final

from delvec.errors import FormatError

__all__ = ["MAX_EXPANSION", "decompress", "detect"]

MAX_EXPANSION: Final = 255
"""The most that LZ4 can compress; a Zstandard frame beyond it is refused as a bomb."""

_MAGICS: Final = {b"\x04\x22\x4d\x18": "lz4", b"\x28\xb5\x2f\xfd": "zstd"}
_CHUNK: Final = 1 << 16
_WINDOW_ALWAYS_ALLOWED: Final = 8 << 20  # what every Zstandard decoder should support


def detect(data: bytes | memoryview) -> str | None:
    """Tell the codec by the frame's magic number."""
    return _MAGICS.get(bytes(data[:4]))


def decompress(data: bytes | memoryview, codec: str) -> bytes:
    """Expand one frame of `lz4` or `zstd`.

    Raises:
        FormatError: It is not such a frame, is damaged, or expands beyond all reason.
    """
    import pyarrow as pa  # noqa: PLC0415  (slow to import and rarely needed)

    if codec not in _MAGICS.values():
        raise FormatError("unknown compression", offset=0, expected="lz4 or zstd", found=codec)
    if detect(data) != codec:
        raise FormatError(
            f"not a frame of {codec}", offset=0, found=bytes(data[:4]).hex() or "nothing"
        )
    limit = MAX_EXPANSION * len(data)
    if codec == "zstd":
        _check_window(memoryview(data), max(limit, _WINDOW_ALWAYS_ALLOWED))
    pieces, size = [], 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
            while piece := stream.read(_CHUNK):
                pieces.append(piece)
                size += len(piece)
                if size > limit:
                    raise FormatError(
                        f"{codec} frame expands beyond all reason",
                        offset=0,
                        expected=f"at most {limit} bytes",
                    )
    except (OSError, pa.ArrowException) as error:
        raise FormatError(f"damaged {codec} frame ({error})", offset=0) from error
    return b"".join(pieces)


def _check_window(data: memoryview, limit: int) -> None:
    """Refuse a frame whose header asks for more memory than its data could need.

    The decoder allocates the window before it sees any data. Header:
    https://www.rfc-editor.org/rfc/rfc8878#name-frame-header
    """
    if len(data) < 6:
        return  # too short to be valid: the decoder says so
    descriptor = data[4]
    if descriptor >> 5 & 1:  # single segment: the window is the content
        start = 5 + (0, 1, 2, 4)[descriptor & 3]
        size = (1, 2, 4, 8)[descriptor >> 6]
        window = int.from_bytes(data[start : start + size], "little")
    else:
        base = 1 << (10 + (data[5] >> 3))
        window = base + base // 8 * (data[5] & 7)
    if window > limit:
        raise FormatError(
            "zstd frame asks for too much memory",
            offset=4,
            expected=f"at most {limit} bytes",
            found=window,
        )

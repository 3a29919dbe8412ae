"""LZ4 and Zstandard frames of Puffin files, decompressed without trusting their claims.

Puffin requires one frame with its content size. That size is read first and rejected above
`MAX_EXPANSION` times the input, so that a few bytes cannot allocate gigabytes; the codecs (Arrow's)
then fail if the content does not have exactly that size.
"""

from __future__ import annotations

from typing import Final

from delvec.errors import FormatError

__all__ = ["MAX_EXPANSION", "decompress", "detect"]

MAX_EXPANSION: Final = 64
"""Higher ratios are rejected as decompression bombs; footers of many paths reach about 20."""

_MAGICS: Final = {b"\x04\x22\x4d\x18": "lz4", b"\x28\xb5\x2f\xfd": "zstd"}


def detect(data: bytes | memoryview) -> str | None:
    """Return the codec, by the magic number of the frame."""
    return _MAGICS.get(bytes(data[:4]))


def decompress(data: bytes | memoryview, codec: str) -> bytes:
    """Return the content of one `lz4` or `zstd` frame.

    Raises:
        FormatError: It is not such a frame, is damaged, or expands too much.
    """
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

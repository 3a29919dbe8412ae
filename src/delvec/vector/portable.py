"""The portable 64-bit Roaring form, decoded with all checks that hostile input requires.

    8 bytes   number of buckets, little-endian
    per bucket, keys ascending:
      4 bytes   key: the upper 32 bits of its values, little-endian, top bit 0
      n bytes   a 32-bit Roaring bitmap in the portable form

Both table formats store this form after a magic number. Buckets have no length: the end of one is
found by parsing it. Writers differ in one respect: Java writes an empty bucket for every key below
the largest, others omit these. Specification:
https://github.com/RoaringBitmap/RoaringFormatSpec

CRoaring decodes with bounds checks and validates; `decode` adds the checks that it lacks: trailing
bytes, impossible counts, keys of 2**31 and more, empty buckets. No count in the input sizes an
allocation: memory grows with the length of the input only.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, cast

from pyroaring import BitMap64

from delvec.errors import FormatError, MagicError, TruncatedError, require_bytes, require_equal

MIN_BUCKET_SIZE: Final = 12  # key, cookie and container count of an empty bitmap

# The 32-bit form: its first number (cookie), and the sizes of its containers.
COOKIE_WITHOUT_RUNS: Final = 12346
COOKIE_WITH_RUNS: Final = 12347
OFFSETS_FROM: Final = 4  # with runs, an offset table exists from this many containers up
MAX_ARRAY: Final = 4096  # a container with more values is a bitset
BITSET_SIZE: Final = 8192

_COUNT = Struct("<Q")
_U32 = Struct("<I")
_U16 = Struct("<H")
_KEY_AND_CARDINALITY = Struct("<HH")

_MAX_BUCKETS = 2**31 - 1
_MAX_CONTAINERS = 1 << 16


def decode(data: memoryview) -> BitMap64:
    """Return the bitmap in `data`, which must contain nothing else."""
    count: int = _unpack(_COUNT, data, 0, "bucket count")[0]
    if count > _MAX_BUCKETS:
        raise FormatError(
            "impossible bucket count", offset=0, expected=f"at most {_MAX_BUCKETS}", found=count
        )
    require_buckets(data, _COUNT.size, count)
    try:
        bits = BitMap64.deserialize(cast("bytes", data))  # any buffer will do
    except ValueError as error:
        # Raises an error with the cause, which CRoaring does not report.
        _end_of_buckets(data, count)
        raise FormatError(f"invalid Roaring container ({error})", offset=0) from error
    if not _is_all_of(bits, data, count):
        end = _end_of_buckets(data, count)
        message = "bytes after the last bucket of the bitmap"
        require_equal(message, f"{end} bytes", f"{len(data)} bytes", end)
    if bits and bits.max() >> 63:
        raise _negative_key(bits.max() >> 32, offset=_COUNT.size)
    return bits


def roaring_end(data: memoryview, start: int) -> int:
    """Return the end of the 32-bit Roaring bitmap that begins at `start`."""
    cookie: int = _unpack(_U32, data, start, "Roaring cookie")[0]
    if cookie == COOKIE_WITHOUT_RUNS:
        count: int = _unpack(_U32, data, start + 4, "Roaring container count")[0]
        flags, header = b"", start + 8
        offsets = 4 * count
    elif cookie & 0xFFFF == COOKIE_WITH_RUNS:
        count = (cookie >> 16) + 1
        header = start + 4 + (count + 7) // 8
        _require(data, header, "Roaring run flags")
        flags = bytes(data[start + 4 : header])
        offsets = 4 * count if count >= OFFSETS_FROM else 0
    else:
        raise MagicError(
            "not a Roaring bitmap",
            offset=start,
            expected=f"cookie {COOKIE_WITHOUT_RUNS} or {COOKIE_WITH_RUNS}",
            found=cookie,
        )
    if count > _MAX_CONTAINERS:
        raise FormatError(
            "too many Roaring containers",
            offset=start + 4,
            expected=f"at most {_MAX_CONTAINERS}",
            found=count,
        )
    end = header + 4 * count + offsets
    _require(data, end, "Roaring header")
    for index in range(count):
        if flags and flags[index >> 3] >> (index & 7) & 1:
            runs: int = _unpack(_U16, data, end, "Roaring run count")[0]
            end += 2 + 4 * runs
        else:
            cardinality = _KEY_AND_CARDINALITY.unpack_from(data, header + 4 * index)[1] + 1
            end += 2 * cardinality if cardinality <= MAX_ARRAY else BITSET_SIZE
        _require(data, end, "Roaring container")
    return end


def _is_all_of(bits: BitMap64, data: memoryview, count: int) -> bool:
    """Return quickly whether CRoaring has read all of `data`; False if a closer look is needed.

    CRoaring ignores bytes after the last bucket, and empty buckets. If the re-encoded size equals
    the input's there are neither, provided that the input is one bucket without runs: a bucket with
    the cookie for runs but without any would be re-encoded longer and could hide them. In all other
    cases the bytes are compared, which takes about a third of the time of decoding.
    """
    if bits.__sizeof__() != len(data):
        return False
    cookie_at = _COUNT.size + _U32.size
    without_runs = count == 1 and _U32.unpack_from(data, cookie_at)[0] == COOKIE_WITHOUT_RUNS
    return without_runs or bits.serialize() == data


def require_buckets(data: memoryview, start: int, count: int) -> None:
    """Refuse bytes in which so many buckets cannot be, whatever is in them."""
    least = start + count * MIN_BUCKET_SIZE
    require_bytes(len(data), least, f"bitmap too short for its {count} buckets")


def _end_of_buckets(data: memoryview, count: int) -> int:
    """Return the end of the last bucket; raise at the first invalid one."""
    position, last = _COUNT.size, -1
    for _ in range(count):
        key: int = _unpack(_U32, data, position, "bucket key")[0]
        if key >> 31:
            raise _negative_key(key, offset=position)
        if key <= last:
            raise FormatError(
                "bucket keys not ascending", offset=position, expected=f"over {last}", found=key
            )
        position, last = roaring_end(data, position + _U32.size), key
    return position


def _negative_key(key: int, *, offset: int) -> FormatError:
    return FormatError(
        "bucket key out of bounds", offset=offset, expected=f"at most {2**31 - 1}", found=key
    )


def _unpack(layout: Struct, data: memoryview, offset: int, what: str) -> tuple[int, ...]:
    _require(data, offset + layout.size, what)
    return layout.unpack_from(data, offset)


def _require(data: memoryview, end: int, what: str) -> None:
    if end > len(data):
        raise TruncatedError(
            f"input ends inside the {what}",
            offset=len(data),
            expected=f"at least {end} bytes",
            found=f"{len(data)} bytes",
        )

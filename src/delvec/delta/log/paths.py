"""Paths in the log: percent-encoded URIs, decoded to compare them, never leading out of the table.

All functions work on whole Arrow columns; a million paths take a fraction of a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delvec.errors import FormatError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["canonical", "decoded", "one_array"]

_HEX: Final = np.full(256, 255, dtype=np.uint8)
_HEX[np.frombuffer(b"0123456789", dtype=np.uint8)] = np.arange(10)
_HEX[np.frombuffer(b"abcdef", dtype=np.uint8)] = np.arange(10, 16)
_HEX[np.frombuffer(b"ABCDEF", dtype=np.uint8)] = np.arange(10, 16)
_CLIMBS: Final = r"(^|/)\.\.?(/|$)"
_HAS_SCHEME: Final = r"^[A-Za-z][A-Za-z0-9+.-]*:"
_IN_CAPITALS: Final = r"^[a-z0-9+.-]*[A-Z][A-Za-z0-9+.-]*:/"


def canonical(paths: pa.Array, root: str) -> pa.Array:
    """Return decoded paths, one spelling for each file: relative ones as they are, others in full.

    Raises:
        FormatError: A path is badly encoded, or climbs by `.` or `..`.
    """
    if isinstance(paths, pa.ChunkedArray):
        paths = paths.combine_chunks()
    if paths.null_count:
        raise FormatError("a file of the log has no path", path=root)
    plain = _with_one_spelling(decoded(paths, root), paths, root)
    _refuse_nul(plain, root)
    suspicious = pc.match_substring(plain, "./")
    suspicious = pc.or_(suspicious, pc.ends_with(plain, "."))
    if pc.any(suspicious).as_py():
        climbing = plain.filter(pc.match_substring_regex(plain, _CLIMBS))
        if len(climbing):
            raise FormatError(
                "a path in the log leads out of the table",
                path=root,
                expected="a path below the table, or an absolute one, without `.` and `..`",
                found=repr(climbing[0].as_py()),
            )
    if pc.any(pc.equal(pc.binary_length(plain), 0)).as_py():
        raise FormatError("a file of the log has an empty path", path=root)
    return plain


def decoded(paths: pa.Array, root: str) -> pa.Array:
    """Decode `%xx` in every path; all in one pass over the bytes."""
    start, stop, data = _string_buffer(paths)
    octets = data[start:stop]
    escapes = np.flatnonzero(octets == ord("%"))
    if not len(escapes):
        return paths
    ends = np.frombuffer(paths.buffers()[1], dtype=np.int32)[paths.offset :][: len(paths) + 1]
    bounds = ends.astype(np.int64) - start
    end_of = bounds[np.searchsorted(bounds, escapes, side="right")]
    inside = escapes + 2 < end_of
    padded = np.append(octets, np.zeros(2, dtype=np.uint8))
    high, low = _HEX[padded[escapes + 1]], _HEX[padded[escapes + 2]]
    wrong = np.flatnonzero(~inside | (high == 255) | (low == 255))
    if len(wrong):
        index = int(np.searchsorted(bounds, escapes[wrong[0]], side="right")) - 1
        raise FormatError(
            "a path in the log is not percent-encoded correctly",
            path=root,
            expected="two hexadecimal digits after each %",
            found=repr(paths[index].as_py()),
        )
    out = octets.copy()
    out[escapes] = (high << 4) | low
    keep = np.ones(len(out), dtype=np.bool_)
    keep[escapes + 1] = keep[escapes + 2] = False
    kept_before = np.concatenate(([0], np.cumsum(keep)))
    result = pa.Array.from_buffers(
        pa.binary(),
        len(paths),
        [None, pa.py_buffer(kept_before[bounds].astype(np.int32)), pa.py_buffer(out[keep])],
    )
    try:
        return result.cast(pa.string())
    except pa.ArrowInvalid as error:
        raise FormatError("a path in the log is not UTF-8 when decoded", path=root) from error


def _refuse_nul(plain: pa.Array, root: str) -> None:
    """Refuse NUL, which no store has in names, and which parts paths from vectors in keys."""
    start, stop, data = _string_buffer(plain)
    if not data[start:stop].all():
        wrong = plain.filter(pc.match_substring(plain, "\0"))
        raise FormatError(
            "a path in the log contains NUL",
            path=root,
            expected="the name of a file",
            found=repr(wrong[0].as_py())[:200],
        )


def one_array(pieces: Sequence[pa.Array], table: str) -> pa.Array:
    """Return arrays of strings, or of structs that hold some, as one.

    Raises:
        UnsupportedFeatureError: They are longer than an array of Arrow can be, which holds 2 GiB of
            strings: the paths of some 20 million files.
    """
    try:
        return pa.concat_arrays(pieces)
    except pa.ArrowInvalid as error:
        raise UnsupportedFeatureError(
            f"{table} has too many files: their paths, or other strings of their entries, take more"
            f" than 2 GiB together ({error})",
            feature="more than 2 GiB of paths",
            hint="compact the table with an engine that can read it, so that it has fewer files",
        ) from error


def _string_buffer(texts: pa.Array) -> tuple[int, int, NDArray[np.uint8]]:
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets or bytes(4), dtype=np.int32)[texts.offset :][: len(texts) + 1]
    octets = np.frombuffer(data or b"", dtype=np.uint8)
    return int(bounds[0]), int(bounds[-1]), octets


def _with_one_spelling(plain: pa.Array, encoded: pa.Array, root: str) -> pa.Array:
    """Write `file:/x`, `file:///x` and `/x` alike; a bare `/x` belongs to the table's own store.

    The encoded form decides what is a scheme: `a%3Ab` is a name with a colon.
    """
    absolute = pc.or_(pc.starts_with(encoded, "/"), pc.match_substring_regex(encoded, _HAS_SCHEME))
    if not pc.any(absolute).as_py():
        return plain
    odd = encoded.filter(pc.match_substring_regex(encoded, _IN_CAPITALS))
    if len(odd):  # no engine writes one, and `FILE:` would be decoded once more
        raise FormatError(
            "a path in the log has a scheme in capitals",
            path=root,
            expected="file, s3a and the like",
            found=repr(odd[0].as_py())[:200],
        )
    # Another host is no folder: `file://host/x` stays what it is, and is refused.
    full = pc.replace_substring_regex(plain, r"^file:(//localhost/+|///+|/([^/]))", r"/\2")
    full = pc.replace_substring_regex(full, r"^([A-Za-z][A-Za-z0-9+.-]*):/([^/])", r"\1:///\2")
    place = urlsplit(root)
    if place.scheme not in ("", "file"):
        on_this_store = pc.binary_join_element_wise(f"{place.scheme}://{place.netloc}", full, "")
        full = pc.if_else(pc.starts_with(encoded, "/"), on_this_store, full)
    return pc.if_else(absolute, full, plain)

"""Names of files below a table: paths in its log, hidden names, and the files of `_delta_log`.

Paths are percent-encoded URIs, and never lead out of the table. They are handled as whole Arrow
columns; a million take a fraction of a second. VACUUM never touches a name that begins with `_` or
`.`, with all below it, as in delta-spark; but folders of partitions such as `_day=1` and that of
change files are not hidden. `metadata` is, where Iceberg metadata is kept there (UniForm).

Names in `_delta_log` are made and parsed here, and nowhere else:

<20 digits>.json                            a commit
<20 digits>.<20 digits>.compacted.json      the commits from one version to another in one file
<20 digits>.checkpoint.parquet              a checkpoint: the whole state up to a version
<20 digits>.checkpoint.<n>.<of>.parquet     a part of a multi-part checkpoint (10 digits each)
<20 digits>.checkpoint.<uuid>.json|parquet  a v2 checkpoint, with sidecars
<20 digits>.crc                             a version checksum
_last_checkpoint                            where to begin; a hint that may be missing or wrong

Digits are those of ASCII, as in Java's patterns. Python's take any script's, and a file that is
named in Arabic digits would stand for another version.
"""

from __future__ import annotations

import re
import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from delvec.delta.schema.metadata import Metadata, Property, property_number
from delvec.errors import FormatError, UnsupportedFeatureError
from delvec.storage.backend import kind_of

LOG: Final = "_delta_log"
LAST_CHECKPOINT: Final = f"{LOG}/_last_checkpoint"
SIDECARS: Final = f"{LOG}/_sidecars"
UUID: Final = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_NAME: Final = re.compile(
    r"([0-9]{20})\.(?:(?P<commit>json)|(?P<checksum>crc)|(?P<compacted>([0-9]{20})\.compacted\.json)"
    rf"|(?P<checkpoint>checkpoint(?:\.([0-9]{{10}})\.([0-9]{{10}})|\.({UUID})|\..+)?"
    r"\.(?:json|parquet)))",
    re.DOTALL,
)
# Staged commits have more after the version, and Hadoop's checksums a dot before it.
_VERSIONED: Final = re.compile(r"\.?([0-9]{20})(?:\.([0-9]{20})\.compacted)?")
Kind: TypeAlias = Literal["commit", "checksum", "compacted", "checkpoint"]
_HEX: Final = np.full(256, 255, dtype=np.uint8)
_HEX[np.frombuffer(b"0123456789", dtype=np.uint8)] = np.arange(10)
_HEX[np.frombuffer(b"abcdef", dtype=np.uint8)] = np.arange(10, 16)
_HEX[np.frombuffer(b"ABCDEF", dtype=np.uint8)] = np.arange(10, 16)
_CLIMBS: Final = r"(^|/)\.\.?(/|$)"
_HAS_SCHEME: Final = r"^[A-Za-z][A-Za-z0-9+.-]*:"
_IN_CAPITALS: Final = r"^[a-z0-9+.-]*[A-Z][A-Za-z0-9+.-]*:/"
CHANGES: Final = "_change_data"
"""The folder of the change files."""
_LONGEST_PREFIX: Final = 255  # as long as the name of a folder may be
_LETTERS: Final = string.ascii_letters + string.digits


class LogName(NamedTuple):
    """What the name of a file in the log says."""

    kind: Kind
    version: int  # the version that it is about; the first one if commits were compacted
    last: int  # the last version that it is about; beyond `LONG_MAX` it is none
    # The number of a part of a multi-part checkpoint, and of how many.
    part: tuple[int, int] | None = None
    is_v2: bool = False  # whether it is a v2 checkpoint
    is_whole: bool = False  # whether it is a checkpoint in one file that readers know


def parse_name(name: str) -> LogName | None:
    r"""Return what a name in the log says; None for all others.

    >>> parse_name("00000000000000000007.json")
    LogName(kind='commit', version=7, last=7, part=None, is_v2=False, is_whole=False)
    >>> parse_name("0000000000000000000\N{ARABIC-INDIC DIGIT SEVEN}.json") is None
    True
    """
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    kind: Kind = found.lastgroup  # type: ignore[assignment]
    version = int(found[1])
    last = int(found[5]) if found[5] else version
    if kind != "checkpoint":
        return LogName(kind, version, last)
    is_part = found[7] and name.endswith(".parquet")
    part = (int(found[7]), int(found[8])) if is_part else None
    is_v2 = found[9] is not None
    is_plain = found["checkpoint"] == "checkpoint.parquet"
    return LogName(kind, version, last, part, is_v2, is_v2 or is_plain)


def latest_version(name: str) -> int | None:
    """Return the last version that a file is about by the digits that it begins with.

    >>> latest_version(".00000000000000000003.00000000000000000007.compacted.json.crc")
    7
    """
    found = _VERSIONED.match(name)
    return int(found[2] or found[1]) if found else None


def version_prefix(version: int) -> str:
    """Return what the names of all files about a version begin with."""
    return f"{version:020d}"


def commit_key(version: int) -> str:
    return f"{LOG}/{version_prefix(version)}.json"


def checksum_key(version: int) -> str:
    return f"{LOG}/{version_prefix(version)}.crc"


def checkpoint_key(version: int, unique: str = "") -> str:
    """Return the key of a checkpoint in one file; of a v2 checkpoint if it gets a UUID."""
    return f"{LOG}/{version_prefix(version)}.checkpoint.{unique and unique + '.'}parquet"


def canonicalize_paths(paths: pa.Array, root: str) -> pa.Array:
    """Return decoded paths, one spelling for each file: relative ones stay, others in full."""
    if isinstance(paths, pa.ChunkedArray):
        paths = paths.combine_chunks()
    if paths.null_count:
        raise FormatError("a file of the log has no path", path=root)
    plain = _with_one_spelling(decoded(paths, root), paths, root)
    # No store has it in names, and it parts paths from vectors in keys.
    start, stop, data = _string_buffer(plain)
    if not data[start:stop].all():
        wrong = plain.filter(pc.match_substring(plain, "\0"))
        raise FormatError(
            "a path in the log contains NUL",
            path=root,
            expected="the name of a file",
            found=repr(wrong[0].as_py())[:200],
        )
    suspicious = pc.or_(pc.match_substring(plain, "./"), pc.ends_with(plain, "."))
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


def inside_names(paths: pa.Array, root: str) -> pa.Array:
    """Return decoded paths, relative where they lead below the table's folder.

    A log may name its own files by their full names too, in any scheme of the same store.
    """
    scheme, sign, rest = root.partition("://")
    home = f"{(rest if sign else root).rstrip('/')}/"
    near = pc.match_substring(paths, sign + home) if sign else pc.starts_with(paths, home)
    if not pc.any(near).as_py():
        return paths
    if not sign:
        return pc.if_else(near, pc.utf8_slice_codeunits(paths, len(home)), paths)

    def relative(path: str) -> str:
        other, _, name = path.partition("://")
        is_inside = name.startswith(home) and kind_of(other) == kind_of(scheme)
        return name[len(home) :] if is_inside else path

    own = pa.array(map(relative, paths.filter(near).to_pylist()), pa.string())
    return pc.replace_with_mask(paths, near, own)


def among(values: pa.Array, others: pa.Array) -> NDArray[np.bool_]:
    """Return which values are some of others; null is none."""
    found = pc.is_in(values, value_set=others.drop_null())
    mask: NDArray[np.bool_] = found.to_numpy(zero_copy_only=False)
    return mask


def one_array(pieces: Sequence[pa.Array], table: str) -> pa.Array:
    """Return arrays of strings, or of structs that hold some, as one."""
    try:
        return pa.concat_arrays(pieces)
    except pa.ArrowInvalid as error:
        raise UnsupportedFeatureError(
            f"{table} has too many files: their paths, or other strings of their entries, take more"
            f" than 2 GiB together ({error})",
            feature="more than 2 GiB of paths",
            hint="compact the table with an engine that can read it, so that it has fewer files",
        ) from error


@dataclass(frozen=True)
class NameRules:
    """Which names below a table are hidden.

    >>> rules = NameRules(("_day=",))
    >>> [rules.is_hidden(key) for key in ("a/_tmp/x", "_day=1/x", "_change_data/x", "a/.x.crc")]
    [True, False, False, True]
    """

    shown: tuple[str, ...] = ()
    hides_metadata: bool = False

    @classmethod
    def of(cls, metadata: Metadata) -> NameRules:
        """Return the rules of a table; partition folders have logical names or physical ones."""
        fields = metadata.partition_fields
        names = {name for each in fields for name in (each.name, each.physical_name)}
        formats = metadata.configuration.get("delta.universalFormat.enabledFormats", "").lower()
        return cls(tuple(sorted(f"{name}=" for name in names)), "iceberg" in formats)

    def is_hidden(self, key: str) -> bool:
        """Return whether a file or folder is hidden, or is below a hidden folder."""
        plain = key[0] not in "_." and "/_" not in key and "/." not in key
        if plain and not self.hides_metadata:
            return False  # by far the most
        return any(self._is_hidden_name(name) for name in key.split("/"))

    def _is_hidden_name(self, name: str) -> bool:
        if name == "metadata":
            return self.hides_metadata
        return name.startswith(("_", ".")) and name != CHANGES and not name.startswith(self.shown)


def random_prefix(metadata: Metadata) -> str:
    """Return a random folder name if the table uses them to spread its files, else nothing."""
    if not metadata.is_on(Property.RANDOMIZE_FILE_PREFIXES):
        return ""
    length = property_number(
        metadata.configuration, Property.RANDOM_PREFIX_LENGTH, 2, _LONGEST_PREFIX
    )
    return "".join(secrets.choice(_LETTERS) for _ in range(length))


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

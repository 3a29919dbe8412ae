"""Locations of roots, and the keys that are allowed below them."""

from __future__ import annotations

import os
import re
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from delvec.errors import FormatError, InvalidArgumentError, UnsupportedFeatureError

__all__ = [
    "ABSOLUTE",
    "S3_SCHEMES",
    "Location",
    "checked_key",
    "is_absolute",
    "kind_of",
    "locate",
    "locate_decoded",
]

S3_SCHEMES = ("s3", "s3a", "s3n")

ABSOLUTE = r"^(/|[A-Za-z][A-Za-z0-9+.-]*://)"
"""What absolute paths begin with: a pattern of Python, and of Arrow."""

_AZURE_SCHEMES = ("abfss", "abfs", "az")
_KINDS = {"s3a": "s3", "s3n": "s3", "abfs": "abfss", "wasb": "abfss", "wasbs": "abfss"}


class Location(NamedTuple):
    """A parsed root: `place` is the bucket or container@host, `path` has no outer slashes."""

    scheme: str
    place: str
    path: str

    @property
    def root(self) -> str:
        """The root as a path or URI, in one spelling."""
        if self.scheme == "file":
            return self.path
        return f"{self.scheme}://{self.place}/{self.path}".rstrip("/")

    @property
    def kind(self) -> str:
        """The kind of store, whatever its scheme: `s3` for `s3a` and `s3n` too."""
        return kind_of(self.scheme)

    @property
    def home(self) -> str:
        """What credentials are given for: the bucket, or the container of an account.

        >>> locate("s3a://lake/orders").home, locate("/lake").home
        ('s3://lake', 'file://')
        >>> locate("abfs://c@Acme.blob.core.windows.net/x").home
        'abfss://c@acme.dfs.core.windows.net'
        """
        container, sign, host = self.place.partition("@")
        return f"{self.kind}://{container}{sign}{host.lower().replace('.blob.', '.dfs.', 1)}"

    @property
    def name(self) -> str:
        """The whole name in one spelling, to compare locations."""
        return f"{self.home}/{self.path.lstrip('/')}".rstrip("/")


def kind_of(scheme: str) -> str:
    """Return one scheme for each kind of store."""
    return _KINDS.get(scheme.lower(), scheme.lower())


def is_absolute(path: str) -> bool:
    """Return whether a decoded path is absolute: a path from the root, or a URI."""
    return re.match(ABSOLUTE, path) is not None


def locate(uri: str) -> Location:
    """Parse a path or URI; see `Storage.open`."""
    match = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)?", uri, re.DOTALL)
    if match is None or (match[2] is None and match[3] is None):
        return _local_location(uri)
    scheme, place, path = match[1].lower(), match[2] or "", match[3] or ""
    if scheme == "file":
        if place not in ("", "localhost"):
            raise InvalidArgumentError(f"{uri!r} names another host: {place!r}")
        return _local_location(os.fsdecode(unquote_to_bytes(os.fsencode(path))))
    if scheme not in (*S3_SCHEMES, *_AZURE_SCHEMES, "gs"):
        raise UnsupportedFeatureError(
            f"delvec does not support the scheme {scheme!r} of {uri!r}",
            feature=scheme,
            hint="use a path, or a URI with file, s3, s3a, s3n, gs, abfss, abfs or az",
        )
    name = r"[A-Za-z0-9$][A-Za-z0-9._-]*"
    account = rf"(@{name})?" if scheme in _AZURE_SCHEMES else ""
    if not re.fullmatch(name + account, place):
        # Without the URI, which may contain a secret key by mistake.
        raise InvalidArgumentError(
            f"a {scheme} URI must name a bucket or container after its //",
            hint="write s3://bucket/path or abfss://container@account.dfs.core.windows.net/path; "
            "credentials go into storage_options",
        )
    parts = [part for part in path.split("/") if part]
    return Location(scheme, place, checked_key("/".join(parts)) if parts else "")


def locate_decoded(path: str) -> Location:
    """Parse an absolute path or URI of a table's metadata, of which nothing is left to decode.

    Raises:
        FormatError: It is on another host, or has a `.` or `..`.
    """
    scheme, sign, rest = path.partition("://")
    if sign and not scheme.startswith("/"):
        if scheme.lower() != "file":
            return locate(path)
        host, _, path = rest.partition("/")
        if host not in ("", "localhost"):
            raise FormatError("the table names a file on another host", found=repr(host)[:200])
    if not {".", ".."}.isdisjoint(path.split("/")):
        raise FormatError("the table names a file by `.` or `..`", found=repr(path)[:200])
    return _local_location("/" + path.lstrip("/"))


def _local_location(path: str) -> Location:
    if not path or "\0" in path:
        raise InvalidArgumentError(f"{path!r} is not a path")
    return Location("file", "", os.path.abspath(path))  # noqa: PTH100 - Path keeps the `..`


def checked_key(key: str) -> str:
    """Return a key; reject it if it could leave the root or is ambiguous between stores."""
    if {"", ".", ".."}.isdisjoint(key.split("/")) and not {"\0", "\\"} & set(key):
        return key
    raise InvalidArgumentError(
        f"{key!r} cannot be a key: it must be a relative path without empty, '.' and '..' parts, "
        "backslashes and NULs",
        hint="if it comes from a table's metadata, that metadata is damaged or hostile",
    )

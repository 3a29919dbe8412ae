"""What all stores share: locations and keys, facts about files, counts of requests, errors."""

from __future__ import annotations

import errno
import operator
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from threading import Lock
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from delvec import errors
from delvec.report.hints import argument, format_hint

_DENIED_HINT = format_hint(
    "check the bucket's name, and the credentials in {} or Spark's settings",
    argument(storage_options=None),
)
_CODE = re.compile(r"<Code>(\w{1,64})</Code>", re.ASCII)
_ANSWER = re.compile(r"(status code: \d{3}[^:\n]*|invalid \w+ response):.*", re.DOTALL | re.ASCII)
_ERRNO_HINTS = {
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room, or ask for a larger quota",
    errno.EROFS: "the disk is mounted read-only",
}
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


def locate(uri: str) -> Location:
    """Parse a path or URI; see `Storage.open`."""
    match = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]*):(?://([^/]*))?(/.*)?", uri, re.DOTALL)
    if match is None or (match[2] is None and match[3] is None):
        return _local_location(uri)
    scheme, place, path = match[1].lower(), match[2] or "", match[3] or ""
    if scheme == "file":
        if place not in ("", "localhost"):
            raise errors.InvalidArgumentError(f"{uri!r} names another host: {place!r}")
        return _local_location(os.fsdecode(unquote_to_bytes(os.fsencode(path))))
    if scheme not in (*S3_SCHEMES, *_AZURE_SCHEMES, "gs"):
        raise errors.UnsupportedFeatureError(
            f"delvec does not support the scheme {scheme!r} of {uri!r}",
            feature=scheme,
            hint="use a path, or a URI with file, s3, s3a, s3n, gs, abfss, abfs or az",
        )
    name = r"[A-Za-z0-9$][A-Za-z0-9._-]*"
    account = rf"(@{name})?" if scheme in _AZURE_SCHEMES else ""
    if not re.fullmatch(name + account, place):
        # Without the URI, which may contain a secret key by mistake.
        raise errors.InvalidArgumentError(
            f"a {scheme} URI must name a bucket or container after its //",
            hint=format_hint(
                "write s3://bucket/path or abfss://container@account.dfs.core.windows.net/path;"
                " credentials go into {}",
                argument(storage_options=None),
            ),
        )
    parts = [part for part in path.split("/") if part]
    return Location(scheme, place, checked_key("/".join(parts)) if parts else "")


def locate_decoded(path: str) -> Location:
    """Parse an absolute path or URI of a table's metadata, of which nothing is left to decode."""
    scheme, sign, rest = path.partition("://")
    if sign and not scheme.startswith("/"):
        if scheme.lower() != "file":
            return locate(path)
        host, _, path = rest.partition("/")
        if host not in ("", "localhost"):
            raise errors.FormatError(
                "the table names a file on another host", found=repr(host)[:200]
            )
    if not {".", ".."}.isdisjoint(path.split("/")):
        raise errors.FormatError("the table names a file by `.` or `..`", found=repr(path)[:200])
    return _local_location("/" + path.lstrip("/"))


def kind_of(scheme: str) -> str:
    """Return one scheme for each kind of store."""
    return _KINDS.get(scheme.lower(), scheme.lower())


def is_absolute(path: str) -> bool:
    """Return whether a decoded path is absolute: a path from the root, or a URI."""
    return re.match(ABSOLUTE, path) is not None


def checked_key(key: str) -> str:
    """Return a key; reject it if it could leave the root or is ambiguous between stores."""
    if {"", ".", ".."}.isdisjoint(key.split("/")) and not {"\0", "\\"} & set(key):
        return key
    raise errors.InvalidArgumentError(
        f"{key!r} cannot be a key: it must be a relative path without empty, '.' and '..' parts, "
        "backslashes and NULs",
        hint="if it comes from a table's metadata, that metadata is damaged or hostile",
    )


class FileInfo(NamedTuple):
    """The facts about an object that a listing or a HEAD returns."""

    key: str
    size: int
    modified_ms: int
    etag: str | None


@dataclass(frozen=True)
class RequestCounts:
    """The number of requests that a `Storage` has made, and the bytes they transferred.

    On local disk an opened file counts as a GET, a scanned folder as a LIST, a removed file as a
    DELETE. Retries inside obstore are not counted.

    >>> RequestCounts(gets=3, bytes_read=10) - RequestCounts(gets=1, bytes_read=4)
    RequestCounts(gets=2, heads=0, puts=0, lists=0, deletes=0, bytes_read=6, bytes_written=0)
    """

    gets: int = 0
    heads: int = 0
    puts: int = 0
    lists: int = 0
    deletes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    def __add__(self, other: RequestCounts) -> RequestCounts:
        return RequestCounts(*map(operator.add, astuple(self), astuple(other)))

    def __sub__(self, earlier: RequestCounts) -> RequestCounts:
        return RequestCounts(*map(operator.sub, astuple(self), astuple(earlier)))


class Counter:
    """A `RequestCounts` that threads can add to."""

    def __init__(self) -> None:
        self.counts = RequestCounts()
        self._lock = Lock()

    def add(self, **more: int) -> None:
        """Add to the counts, by the names of `RequestCounts`."""
        with self._lock:
            self.counts += RequestCounts(**more)


@contextmanager
def translate_errors(uri: str) -> Iterator[None]:
    """Turn errors of the operating system and of obstore into errors of delvec."""
    try:
        yield
    except errors.DelvecError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        code = _CODE.search(str(error))
        absence: errors.StorageError = errors.ObjectNotFoundError(f"{uri} does not exist", uri=uri)
        if code is not None and code[1] not in ("NoSuchKey", "BlobNotFound", "PathNotFound"):
            # A 404 may also mean the bucket or, with versitygw, the user: then it is not "absent".
            absence = errors.StorageError(f"{uri}: {cause_of(error)}", uri=uri, hint=_DENIED_HINT)
        raise absence from _of_the_system(error)
    except (FileExistsError, AlreadyExistsError) as error:
        raise errors.ObjectExistsError(f"{uri} exists already", uri=uri) from _of_the_system(error)
    except ValueError as error:
        raise errors.InvalidArgumentError(
            f"{uri!r} is not a valid name of an object: {cause_of(error)}"
        ) from error
    except (OSError, BaseError) as error:
        cause = cause_of(error)
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            raise errors.ObjectNotFoundError(f"{uri} leads to no file: {cause}", uri=uri) from error
        told = errors.StorageError(f"{uri}: {cause}", uri=uri, hint=_hint(error, cause))
        raise told from _of_the_system(error)


def cause_of(error: Exception) -> str:
    """Reduce an error to one line without what a store answered, except for the name of the error.

    Anybody may have written that, and it repeats what was asked: signatures, names of keys.
    """
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = str(error).partition("\n\nDebug source")[0]
    code = _CODE.search(text)
    text = " ".join(_ANSWER.sub(r"\1", text).split())
    return f"{text} ({code[1]})" if code else text


def truncated(uri: str, span: tuple[int, int], size: int) -> errors.TruncatedError:
    """Return the error for a (start, end) span that ends beyond a file of that size."""
    return errors.TruncatedError(
        "the file ends before the requested bytes",
        path=uri,
        offset=span[0],
        expected=f"{span[1] - span[0]} bytes",
        found=f"{max(0, size - span[0])}, the file has {size}",
    )


def _of_the_system(error: Exception) -> Exception | None:
    """Return an error of the operating system; that of a store holds the body of its answer."""
    return error if isinstance(error, OSError) and error.strerror else None


def _hint(error: Exception, cause: str) -> str | None:
    if isinstance(error, OSError) and error.errno in _ERRNO_HINTS:
        return _ERRNO_HINTS[error.errno]
    if isinstance(error, PermissionError):
        return "check the owner and the mode of the file and its folder"
    if isinstance(error, (PermissionDeniedError, UnauthenticatedError)):
        return _DENIED_HINT
    # Listings and the lookup of credentials fail with a generic error.
    if re.search(r"\bcode: 40[134]\b|169\.254\.169\.254", cause):
        return _DENIED_HINT
    if "builder error" in cause:
        return format_hint(
            "for an endpoint without TLS set allow_http to true in {}",
            argument(storage_options=None),
        )
    return None


def _local_location(path: str) -> Location:
    if not path or "\0" in path:
        raise errors.InvalidArgumentError(f"{path!r} is not a path")
    return Location("file", "", os.path.abspath(path))  # noqa: PTH100 - Path keeps the `..`

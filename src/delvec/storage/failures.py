"""Errors of the operating system and of obstore, as errors of delvec."""

from __future__ import annotations

import errno
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
)

from delvec.errors import (
    DelvecError,
    InvalidArgumentError,
    ObjectExistsError,
    ObjectNotFoundError,
    StorageError,
    TruncatedError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["cause_of", "explained", "truncated"]

_DENIED_HINT = "check the bucket's name, and the credentials in storage_options or Spark's settings"
_CODE = re.compile(r"<Code>(\w{1,64})</Code>", re.ASCII)
_ANSWER = re.compile(r"(status code: \d{3}[^:\n]*|invalid \w+ response):.*", re.DOTALL | re.ASCII)
_ERRNO_HINTS = {
    errno.ENOSPC: "make room on the disk",
    errno.EDQUOT: "make room, or ask for a larger quota",
    errno.EROFS: "the disk is mounted read-only",
}


@contextmanager
def explained(uri: str) -> Iterator[None]:
    """Turn errors of the operating system and of obstore into errors of delvec."""
    try:
        yield
    except DelvecError:
        raise
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _absence(uri, error) from _of_the_system(error)
    except (FileExistsError, AlreadyExistsError) as error:
        raise ObjectExistsError(f"{uri} exists already", uri=uri) from _of_the_system(error)
    except ValueError as error:
        raise InvalidArgumentError(
            f"{uri!r} is not a valid name of an object: {cause_of(error)}"
        ) from error
    except (OSError, BaseError) as error:
        cause = cause_of(error)
        if isinstance(error, OSError) and error.errno == errno.ELOOP:
            raise ObjectNotFoundError(f"{uri} leads to no file: {cause}", uri=uri) from error
        told = StorageError(f"{uri}: {cause}", uri=uri, hint=_hint(error, cause))
        raise told from _of_the_system(error)


def _of_the_system(error: Exception) -> Exception | None:
    """Return an error of the operating system; that of a store holds the body of its answer."""
    return error if isinstance(error, OSError) and error.strerror else None


def _absence(uri: str, error: OSError) -> StorageError:
    code = _CODE.search(str(error))
    if code is None or code[1] in ("NoSuchKey", "BlobNotFound", "PathNotFound"):
        return ObjectNotFoundError(f"{uri} does not exist", uri=uri)
    # A 404 may also mean the bucket or, with versitygw, the user: an object is not "absent" then.
    return StorageError(f"{uri}: {cause_of(error)}", uri=uri, hint=_DENIED_HINT)


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
        return "for an endpoint without TLS set allow_http to true"
    return None


def truncated(uri: str, span: tuple[int, int], size: int) -> TruncatedError:
    """Return the error for a (start, end) span that ends beyond a file of that size."""
    return TruncatedError(
        "the file ends before the requested bytes",
        path=uri,
        offset=span[0],
        expected=f"{span[1] - span[0]} bytes",
        found=f"{max(0, size - span[0])}, the file has {size}",
    )

"""Deletion vectors one by one: their forms, and what their bytes say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from delvec.delta.maintain.check.report import finding_of
from delvec.errors import FormatError, located
from delvec.report.findings import Finding
from delvec.report.wordings import call, worded
from delvec.storage.listed_files import store_of
from delvec.vector.frame import decode_frame, decode_payload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delvec.vector import Bitmap, Descriptor

__all__ = ["VECTOR_GONE", "form_finding", "odd_form", "vector_findings"]

_NATIVE: Final = bytes.fromhex("d0d33964")
VECTOR_GONE: Final = (
    "without it nobody can tell which rows are deleted, so it is never dropped: restore it from a"
    " copy, or restore the table to a version that does not need it"
)
_REWRITE: Final = worded("{} stores it anew, with the same rows", call("check", repair=True))
_ODD: Final = {
    "inline-vector": "the vector is in the log itself: VACUUM of delta-spark fails",
    "hash-padded-vector": "the vector is in the log, padded by `#`: delta-spark reads other rows as"
    " deleted",
    "absolute-vector": "the vector is in the table's folder and has an absolute path: VACUUM of"
    " delta-spark deletes it",
    "vector-without-offset": "the entry of the vector has no offset: delta-spark cannot read it",
}


def odd_form(descriptor: Descriptor, root: str) -> str | None:
    """Return the kind of finding if other engines trip over the form of a vector."""
    if descriptor.storage_type == "i":
        padded = descriptor.path_or_inline[-5:].startswith("#")
        return "hash-padded-vector" if padded else "inline-vector"
    if descriptor.storage_type == "p":
        inside = store_of(str(descriptor.file_path)).startswith(f"{store_of(root)}/")
        if inside:
            return "absolute-vector"
    return "vector-without-offset" if descriptor.offset is None else None


def form_finding(path: str, descriptor: Descriptor, root: str) -> Finding | None:
    """Return a finding if other engines trip over the form of a file's vector."""
    kind = odd_form(descriptor, root)
    return None if kind is None else Finding("warning", kind, path, _ODD[kind], _REWRITE)


def vector_findings(
    path: str, rows: int, descriptor: Descriptor, frame: bytes | None
) -> Iterator[Finding]:
    """Decode a vector, and compare it with its descriptor and its data file.

    Args:
        path: The data file.
        rows: Its physical rows; -1 if they are not known.
        descriptor: What the log says of the vector.
        frame: Its bytes; None if it is in the log.
    """
    if descriptor.cardinality == 0 and descriptor.size_in_bytes == 0:
        message = "the deletion vector is empty: no engine expects that in a log"
        yield Finding("warning", "empty-vector", path, message)
        return
    try:
        vector = _decoded(descriptor, frame)
    except FormatError as error:
        yield finding_of(error, "damaged-vector", path, hint=VECTOR_GONE)
        return
    if vector.cardinality != descriptor.cardinality:
        yield Finding(
            "error",
            "wrong-cardinality",
            path,
            f"the log has a wrong cardinality of its vector: expected {vector.cardinality}, by the"
            f" vector in {descriptor.file_path or 'the log'}, found {descriptor.cardinality}",
            "delta-spark refuses it, and counts by the log are wrong: restore the table to a"
            " version before",
        )
    elif rows >= 0 and vector.max is not None and vector.max >= rows:
        yield Finding(
            "error",
            "row-out-of-range",
            path,
            f"its deletion vector in {descriptor.file_path or 'the log'} marks a row that it does"
            f" not have: expected rows below {rows}, found row {vector.max}",
            "is it the vector of another file? Restore the table to a version before",
        )
    elif vector.cardinality == rows:
        message = f"its deletion vector deletes all {rows} rows: the file could be removed"
        yield Finding(
            "warning",
            "all-rows-deleted",
            path,
            message,
            worded("{} removes the file", call("purge")),
        )
    if _is_native(descriptor, frame):
        message = "its vector has Delta's old native layout, which delta-rs cannot read"
        yield Finding(
            "warning", "native-vector", path, message, worded("{} rewrites the file", call("purge"))
        )


def _decoded(descriptor: Descriptor, frame: bytes | None) -> Bitmap:
    """Decode a vector; its cardinality is compared by the caller."""
    if frame is None:
        with located("the log"):
            return decode_payload(descriptor.inline_payload(), allow_native=True)
    try:
        return decode_frame(frame, allow_native=True)
    except FormatError:
        with located(descriptor.file_path, descriptor.file_range[0]):
            raise


def _is_native(descriptor: Descriptor, frame: bytes | None) -> bool:
    magic = descriptor.inline_payload()[:4] if frame is None else frame[4:8]
    return magic == _NATIVE

"""The log of Spark's file sink: which files of a folder a streaming query has committed.

`_spark_metadata/` has a file for each batch, named by its number. Every tenth, by default, is
`9.compact`, which has the entries of all batches up to its own. The first line is a version, each
other one a file: `{"path": "file:///lake/t/part-0.parquet", "size": 9, ..., "action": "add"}`.
Files that no batch names are those of attempts that failed. Spark reads none of them; their rows
would be there twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote

from delvec.documents import parse_json, whole_number
from delvec.errors import FormatError
from delvec.storage import Storage
from delvec.storage.backend import locate, locate_decoded
from delvec.storage.parallel import gather

SINK_LOG: Final = "_spark_metadata"
_COMPACT: Final = ".compact"
_VERSION: Final = "v1"
_HINT: Final = (
    "read the folder with Spark and append the rows to a new table; without a whole log nobody can"
    " tell which files are part of it"
)


def committed_keys(storage: Storage) -> frozenset[str] | None:
    """Return the keys of the files that a stream has committed; None if it is no stream's target.

    Lists the log, and reads the newest compacted batch and those after it.
    """
    listed = {info.key.rpartition("/")[2] for info in storage.list(SINK_LOG)}
    batches = {whole_number(name.removesuffix(_COMPACT)): name for name in sorted(listed)}
    numbers = [number for number in batches if number is not None]
    if not listed:
        return None
    whole = [number for number in numbers if batches[number].endswith(_COMPACT)]
    needed = range(max(whole, default=0), max(numbers, default=-1) + 1)
    missing = next((number for number in needed if number not in batches), None)
    if missing is not None:
        raise FormatError(
            "a batch of the stream's log is missing",
            path=storage.uri_of(f"{SINK_LOG}/{missing}"),
            expected=f"batches {needed[0]} to {needed[-1]}",
            found="no file",
            hint=_HINT,
        )
    read = gather(lambda number: list(_keys(storage, f"{SINK_LOG}/{batches[number]}")), needed)
    return frozenset(key for keys in read for key in keys)


def _keys(storage: Storage, batch: str) -> Iterator[str]:
    """Yield the keys of the files of a batch."""
    uri, home = storage.uri_of(batch), f"{locate(storage.root).name}/"
    version, *lines = storage.read(batch).decode("utf-8", "replace").rstrip("\n").split("\n")
    if version != _VERSION:
        raise FormatError(
            "a batch of the stream's log has another form",
            path=uri,
            expected=f"{_VERSION} in the first line",
            found=repr(version[:60]),
            hint=_HINT,
        )
    for line in lines:
        entry = parse_json(line, "an entry of the stream's log", path=uri)
        named = entry.get("path") if isinstance(entry, dict) else None
        if not isinstance(named, str) or entry.get("action") != "add":
            raise FormatError(
                "an entry of the stream's log adds no file",
                path=uri,
                found=repr(line[:100]),
                hint=_HINT,
            )
        name = locate_decoded(unquote(named)).name
        if not name.startswith(home):
            raise FormatError(
                "the stream's log names a file outside of the folder, as after it was moved",
                path=uri,
                expected=f"a file below {storage.root}",
                found=named,
                hint=_HINT,
            )
        yield name[len(home) :]

"""`delvec inspect`: a table at a glance with what to run next, or a file of deletion vectors."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource

from delvec.cli.exits import ExitCode
from delvec.cli.main import command
from delvec.cli.options import CATALOG, ICEBERG_BRANCH, STORAGE, VERSION, option, present
from delvec.cli.output import Output
from delvec.cli.tables import either, is_delta
from delvec.cli.terminal import Column
from delvec.errors import FormatError, InvalidArgumentError, add_location
from delvec.inspection.report import InspectReport
from delvec.report.format import escape_controls
from delvec.report.hints import shell_word
from delvec.storage import Storage
from delvec.vector import Bitmap, blobs, delta_file, puffin
from delvec.vector.frame import decode_frame

_VECTOR_FILES = (".bin", ".puffin", ".stats")  # how the names of files of vectors end
_COLUMNS = [
    Column("offset", "offset", "dim"),
    Column("bytes", "bytes"),
    Column("type", "type"),
    Column("cardinality", "values", "bold"),
    Column("min", "first"),
    Column("max", "last"),
    Column("of", "of"),
    Column("error", "error", "red"),
]
_SECRET: Final = "***"  # noqa: S105 - what stands in its place: reports are sent around and kept
_REACHING: Final = ("options", "warehouse", "catalog", "master", "packages", "conf")
# All other settings may be secret: there are too many names of keys to know them all.
_HARMLESS: Final = re.compile(
    r"(.*[._-])?(region|endpoint(_url)?|warehouse|type|uri|catalog-impl|io-impl|allow_http"
    r"|account_name|bucket|timeout|memory|cores|timezone|extensions)|spark\.sql\.catalog\.[^.]+",
    re.IGNORECASE,
)
_IN_URI: Final = re.compile(r"(?<=//)[^/@]*(?=@)|(?<=[?;]).*", re.DOTALL)  # users, parameters
_HISTORY: Final = 100
_OPENING: Final = either("", "--branch --snapshot-id")


@command("inspect")
@click.argument("table", metavar="TABLE|FILE")
@option("--html PATH", "Write a page with charts to this file too.", type=click.Path())
@VERSION
@ICEBERG_BRANCH
@option("--snapshot-id ID", "Iceberg: instead, a snapshot.", type=int)
@option("--history N", f"Look at so many of the newest commits; {_HISTORY} if absent.")
@option(
    "--listing/--no-listing",
    "Look for what a vacuum, or expired snapshots, would free. By default where that takes little:"
    " up to 100,000 live files, or 100 snapshots.",
    default=None,
)
@STORAGE
@CATALOG
def inspect(
    output: Output,
    table: str,
    *,
    html: str | None,
    history: int | None,
    listing: bool | None,
    options: dict[str, str],
    iceberg: dict[str, Any],
    **which: Any,
) -> None:
    """Show TABLE at a glance, and what to run next and why; or what is in FILE.

    TABLE is the path or URI of a Delta table, or the name of an Iceberg table in a catalog. Rows
    live and deleted, deletion vectors and their ages, equality deletes that wait, the files with
    the most deleted rows, and the bytes that maintenance would free. Metadata alone is read.

    FILE is a Delta `.bin` or an Iceberg Puffin file. Every vector is decoded and held against its
    checksum and what the file says of it. Exit code 4 if one is damaged.

    \b
    delvec inspect /lake/orders --html report.html
    delvec inspect lake.db.orders --warehouse /warehouse --branch changes
    delvec inspect /lake/orders/deletion_vector_4c….bin
    """
    if _is_file(table, options):
        for name, value in {"html": html, **which, "history": history}.items():
            if value is not None:
                wrong = name.replace("_", "-")
                raise click.UsageError(f"--{wrong} is for a table, and this is a file")
        _show_file(output, table, options)
        return
    how: dict[str, Any] = {"history": _HISTORY if history is None else history, "listing": listing}
    with _OPENING.open(output, table, options, iceberg) as target, output.progress() as show:
        if is_delta(table):
            how |= {"on_progress": show}
        report = target.inspect(**present(which), **how)
    report = _with_commands(report, table)
    output.lines(report.lines)
    document = report.to_json()
    if html is not None:
        document["html"] = str(report.write_html(html))
        output.note(("Page: ", "bold"), document["html"])
    output.result(document)


def _show_file(output: Output, file: str, options: Mapping[str, str]) -> None:
    storage, key = Storage.open_file(file, options)
    size = storage.size(key)
    head = storage.read_range(key, 0, min(4, size))
    with add_location(file):
        kind, entries = _read(storage, key, size, head)
    count = "1 entry" if len(entries) == 1 else f"{len(entries):,} entries"
    output.note((escape_controls(file), "bold"), f": {kind}, {size:,} bytes, {count}")
    rows = [asdict(entry) for entry in entries]
    output.listing(_COLUMNS, rows)
    damaged = sum(entry.error is not None for entry in entries)
    total = sum(entry.cardinality or 0 for entry in entries)
    state = (f"{damaged} damaged", "bold red") if damaged else ("all sound", "green")
    output.note(f"{total:,} values; ", state)
    facts = {"file": file, "kind": kind, "bytes": size, "damaged": damaged}
    output.result({**facts, "entries": list(map(present, rows))})
    if damaged:
        sys.exit(ExitCode.DAMAGED)


def _with_commands(report: InspectReport, table: str) -> InspectReport:
    """Return the report with a command line for each advice.

    It has the table as it was given, and the options of the current command that say how it is
    reached, such as `--warehouse`, as far as the advised command takes them.
    """
    context = click.get_current_context()
    advice = []
    hidden = False
    for each in report.advice:
        name, _, *more = each.arguments
        words = [*more, *_reaching(context, name)]
        hidden = hidden or any("=" in word and _SECRET in word for word in words)
        line = ["delvec", name, shell_word(table, is_path=True), *map(shell_word, words)]
        advice.append(replace(each, command=" ".join(line)))
    notes = report.notes
    if hidden:
        notes = (*notes, f"what may be secret is not repeated: put yours in place of {_SECRET}")
    return replace(report, advice=tuple(advice), notes=notes)


def _is_file(name: str, options: Mapping[str, str]) -> bool:
    """Return whether a file is named: one that is there, or whose name says that it is one."""
    is_named = name.endswith(_VECTOR_FILES)
    try:
        storage, key = Storage.open_file(name, options)
    except InvalidArgumentError:  # a folder, with a slash at its end
        return False
    if "://" in storage.root:
        return is_named
    path = Path(storage.root, key)
    return path.is_file() or (is_named and not path.is_dir())


@dataclass(frozen=True)
class _Entry:  # a vector, or another blob
    offset: int
    bytes: int
    type: str
    of: str | None = None
    cardinality: int | None = None
    min: int | None = None
    max: int | None = None
    error: str | None = None


def _read(storage: Storage, key: str, size: int, head: bytes) -> tuple[str, list[_Entry]]:
    """Return kind and entries of a file; a file of another kind is not read beyond its magic."""
    if head == b"PFA1":
        return "Puffin file", list(_puffin(storage, key, size))
    if head[:1] == b"\x01" and size <= delta_file.MAX_FILE_SIZE:
        return "Delta deletion vector file", list(_delta(storage.read(key)))
    known = {b"PAR1": "a Parquet file", b"": "an empty file"}.get(head)
    hint = "name a .bin file that a Delta log points to, or a Puffin file of Iceberg"
    if not key.endswith(_VECTOR_FILES):  # then it is another file, not a damaged one
        raise InvalidArgumentError(
            f"{storage.uri_of(key)} is neither a table nor a file of deletion vectors"
            + (f", but {known}" if known else ""),
            hint=hint,
        )
    raise FormatError(
        "not a file of deletion vectors",
        offset=0,
        expected="version 1 of Delta's, or PFA1",
        found=known or head.hex(" "),
        hint=hint,
    )


def _delta(data: bytes) -> Iterator[_Entry]:
    for offset, length in delta_file.frame_ranges(data):
        try:
            with add_location(offset=offset):
                bitmap = decode_frame(data[offset : offset + length], allow_native=True)
        except FormatError as error:  # noqa: PERF203  (the next vector may be valid)
            yield _Entry(offset, length, "vector", error=error.describe())
        else:
            yield _entry(offset, length, "vector", None, bitmap)


def _puffin(storage: Storage, key: str, size: int) -> Iterator[_Entry]:
    read = partial(storage.read_range, key)
    for blob in puffin.read_footer(read, size).blobs:
        try:
            if blob.type == blobs.DELETION_VECTOR:
                vector = blobs.DeletionVector.from_blob(blob, puffin.read_blob(read, blob))
                of, bitmap = vector.data_file, vector.positions
            elif blob.type == blobs.EQUALITY_DELETE_VECTOR:
                keys = blobs.EqualityDeleteVector.from_blob(blob, puffin.read_blob(read, blob))
                of, bitmap = f"field {keys.field_id}", keys.keys
            else:
                yield _Entry(blob.offset, blob.length, blob.type)
                continue
        except FormatError as error:
            yield _Entry(blob.offset, blob.length, blob.type, error=error.describe())
        else:
            yield _entry(blob.offset, blob.length, blob.type, of, bitmap)


def _entry(offset: int, length: int, kind: str, of: str | None, bitmap: Bitmap) -> _Entry:
    return _Entry(offset, length, kind, of, bitmap.cardinality, bitmap.min, bitmap.max)


def _reaching(context: click.Context, name: str) -> Iterator[str]:
    """Yield the options that were given and that another command takes too."""
    group = None if context.parent is None else context.parent.command
    other = group.get_command(context, name) if isinstance(group, click.Group) else None
    taken = {opt for each in ([] if other is None else other.params) for opt in each.opts}
    for param in context.command.params:
        if param.name not in _REACHING or taken.isdisjoint(param.opts):
            continue
        if context.get_parameter_source(param.name) is ParameterSource.COMMANDLINE:
            for value in _values(context.params[param.name]):
                yield from (param.opts[0], value)


def _values(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, text in value.items():
            yield f"{key}={_shown(key, str(text))}"
    elif isinstance(value, list | tuple):
        yield from map(str, value)
    else:
        yield str(value)


def _shown(name: str, value: str) -> str:
    """Return the value of a setting without what may be secret.

    >>> _shown("region", "eu-west-1"), _shown("api_key", "k"), _shown("uri", "jdbc:x://u:p@h/db?p=w")
    ('eu-west-1', '***', 'jdbc:x://***@h/db?***')
    """
    return _IN_URI.sub(_SECRET, value) if _HARMLESS.fullmatch(name) else _SECRET

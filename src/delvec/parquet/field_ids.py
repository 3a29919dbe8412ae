"""Field ids in a Parquet footer: read, and added where they are missing.

delta-spark writes ids of struct fields, but none of the elements of lists and the keys and values
of maps. Iceberg ignores the table's name mapping if a file has any id, and cannot read these.

A footer is a struct in Thrift's compact protocol:

    field 1  version
    field 2  list of schema elements, the tree depth first
               1 type   2 length   3 repetition   4 name   5 number of children
               6 converted type   7 scale   8 precision   9 field id   10 logical type
    fields after it: rows, row groups with their offsets and statistics, key-value metadata, ...

Only the schema elements are decoded; ids are inserted between their bytes. The rest of the footer
is copied unchanged, so nothing in it is lost, and it stays valid for a file with the same bytes
before the footer.

Specification: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from delvec.errors import FormatError, UnsupportedFeatureError
from delvec.parquet.thrift import BINARY, I32, LIST, STRUCT, Compact, field_header, number_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = [
    "FileSchema",
    "add_ids",
    "encrypted",
    "missing_ids",
    "read_footer",
    "read_schema",
]

_TAIL: Final = 64 << 10
_MAGIC: Final = b"PAR1"
_ENCRYPTED: Final = b"PARE"
_SCHEMA: Final = 2
_REPETITION, _NAME, _CHILDREN, _CONVERTED, _FIELD_ID, _LOGICAL = 3, 4, 5, 6, 9, 10
_REPEATED: Final = 2
# Converted and logical types have different numbers; old writers set the former only.
_BY_CONVERTED: Final = {1: "map", 2: "map", 3: "list"}
_BY_LOGICAL: Final = {2: "map", 3: "list", 16: "variant"}


class _Gap(NamedTuple):
    """Where the id of an element is to be inserted: after which field, before which.

    Attributes:
        start: The offset in the footer.
        before: The number of the field before it.
        after: The number of the next field, 0 if there is none.
        kind: The type of the next field.
        end: Where the header of the next field ends.
    """

    start: int
    before: int
    after: int
    kind: int
    end: int


@dataclass(frozen=True, slots=True)
class _Element:
    """A node of the schema.

    Attributes:
        kind: "list", "map" or "variant", else empty.
        children: The nodes below it.
        gap: Where its id is to be inserted if it has none.
    """

    name: str
    kind: str
    repeated: bool
    field_id: int | None
    children: tuple[_Element, ...]
    gap: _Gap

    def members(self) -> Iterator[tuple[str, _Element]]:
        """Yield the children by their names in a table, without the groups that only files have."""
        inner = self.children[0] if len(self.children) == 1 else None
        if self.kind == "list" and inner is not None and inner.repeated:
            yield "element", _list_element(self.name, inner)
        elif self.kind == "map" and inner is not None and len(inner.children) == 2:
            yield from zip(("key", "value"), inner.children, strict=True)
        elif self.kind != "variant":  # its fields have no ids and need none
            yield from ((child.name, child) for child in self.children)

    @property
    def holds_values(self) -> bool:
        """Whether this is a list or a map."""
        return self.kind in ("list", "map")


def _list_element(name: str, repeated: _Element) -> _Element:
    """Return the node of the element, by the backward-compatibility rules of the format."""
    old = repeated.name in ("array", f"{name}_tuple")
    return repeated if len(repeated.children) != 1 or old else repeated.children[0]


@dataclass(frozen=True, slots=True)
class FileSchema:
    """The schema of a file.

    Attributes:
        root: The tree.
        end: The end of the schema in the footer: footers that begin with the same bytes have the
            same schema.
    """

    root: _Element
    end: int

    @property
    def has_ids(self) -> bool:
        """Whether any field has an id: then Iceberg resolves columns by id only."""
        return any(each.field_id is not None for _, each in _below(self.root))

    @property
    def lacks_child_ids(self) -> bool:
        """Whether fields have ids, but some list element, map key or map value has none."""
        return self.has_ids and any(
            parent.holds_values and each.field_id is None for parent, each in _below(self.root)
        )


def _below(node: _Element) -> Iterator[tuple[_Element, _Element]]:
    for _, child in node.members():
        yield node, child
        yield from _below(child)


def read_footer(read: Callable[[int, int], bytes], size: int, path: str) -> bytes:
    """Return the footer of a file without length and magic: one read up to 64 KiB, else two.

    Args:
        read: Returns `length` bytes from `start`.
        size: The size of the file.
        path: The file, for errors to name.

    Raises:
        FormatError: It is not a Parquet file.
        UnsupportedFeatureError: It is encrypted.
    """
    tail = read(max(0, size - _TAIL), min(size, _TAIL))
    if tail[-4:] == _ENCRYPTED:
        raise encrypted(path)
    length = int.from_bytes(tail[-8:-4], "little")
    if tail[-4:] != _MAGIC or not 0 < length <= size - 12:
        raise FormatError(
            "a data file is not a Parquet file",
            path=path,
            expected="a footer and the bytes PAR1 at its end",
            found=repr(tail[-8:]),
        )
    if length + 8 > len(tail):
        return read(size - 8 - length, length)
    return tail[-8 - length : -8]


def encrypted(path: str) -> UnsupportedFeatureError:
    """Return the error for an encrypted file."""
    return UnsupportedFeatureError(
        f"{path} is an encrypted Parquet file, whose footer cannot be changed",
        feature="Parquet encryption",
        hint="rewrite the table without encryption first",
    )


def read_schema(footer: bytes, path: str) -> FileSchema:
    """Return the schema at the beginning of a footer.

    Raises:
        FormatError: The bytes are not a footer.
    """
    with _decoding(path):
        thrift = Compact(footer)
        for number, kind in thrift.fields():
            if number != _SCHEMA:
                thrift.skip(kind)
                continue
            element_kind, count = thrift.list_header()
            if element_kind != STRUCT or kind != LIST:
                break
            elements = [_read_element(thrift) for _ in range(count)]
            remaining = iter(elements)
            root = _tree(remaining)
            if next(remaining, None) is None:
                return FileSchema(root, thrift.at)
            break
    raise _broken(path)


def missing_ids(
    schema: FileSchema, ids: Mapping[tuple[str, ...], int], path: str
) -> dict[int, int]:
    """Return the ids to insert, by offset, for `add_ids`; none for a file without any id.

    A field is found by its name or, if the table has no field of that name, by its id. Fields that
    the table does not have, such as dropped columns, stay unchanged.

    Args:
        schema: The schema of the file.
        ids: The id of every field of the table by its path: the physical names of struct fields,
            and "element", "key" and "value" as the steps into lists and maps.
        path: The file, for errors to name.

    Raises:
        FormatError: The ids in the file are not those of the table.
    """
    if not schema.has_ids:
        return {}
    paths = {number: name for name, number in ids.items()}
    found: dict[tuple[str, ...], _Element] = {}
    _match(schema.root, (), ids, paths, found, path)
    return {each.gap.start: ids[name] for name, each in found.items() if each.field_id is None}


def _match(
    parent: _Element,
    above: tuple[str, ...],
    ids: Mapping[tuple[str, ...], int],
    paths: Mapping[int, tuple[str, ...]],
    found: dict[tuple[str, ...], _Element],
    path: str,
) -> None:
    for step, child in parent.members():
        name = (*above, step)
        if name not in ids and not parent.holds_values:
            name = paths.get(child.field_id or 0, name)
        if name not in ids or name[:-1] != above:
            continue
        if name in found or child.field_id not in (None, ids[name]):
            raise FormatError(
                f"the column {'.'.join(name)} has another field id than the table gives it",
                path=path,
                expected=ids[name],
                found=child.field_id,
                hint="Iceberg finds columns by these ids: rewrite the file with the table's own",
            )
        found[name] = child
        _match(child, name, ids, paths, found, path)


def add_ids(footer: bytes, schema: FileSchema, missing: Mapping[int, int]) -> bytes:
    """Return the footer with ids inserted.

    Args:
        footer: The footer that the schema was read from.
        schema: Its schema.
        missing: See `missing_ids`.
    """
    gaps = {each.gap.start: each.gap for _, each in _below(schema.root)}
    parts, done = [], 0
    for start in sorted(missing):
        gap = gaps[start]
        parts += [footer[done:start], field_header(_FIELD_ID - gap.before, _FIELD_ID, I32)]
        parts.append(number_bytes(missing[start]))
        done = start
        if gap.after:
            parts.append(field_header(gap.after - _FIELD_ID, gap.after, gap.kind))
            done = gap.end
    return b"".join([*parts, footer[done:]])


def _read_element(thrift: Compact) -> tuple[_Element, int]:
    """Return an element, and the number of its children that follow."""
    numbers: dict[int, int] = {}
    name, logical, before, gap = "", 0, 0, None
    start = thrift.at
    for number, kind in thrift.fields():
        if number > _FIELD_ID and gap is None:
            gap = _Gap(start, before, number, kind, thrift.at)
        if kind == I32:
            numbers[number] = thrift.number()
        elif number == _NAME and kind == BINARY:
            name = thrift.binary().decode()
        elif number == _LOGICAL and kind == STRUCT:
            for inner, value in thrift.fields():
                logical = inner
                thrift.skip(value)
        else:
            thrift.skip(kind)
        start, before = thrift.at, number
    made = _Element(
        name,
        _BY_LOGICAL.get(logical) or _BY_CONVERTED.get(numbers.get(_CONVERTED, -1)) or "",
        numbers.get(_REPETITION) == _REPEATED,
        numbers.get(_FIELD_ID),
        (),
        gap or _Gap(start, before, 0, 0, start),
    )
    return made, numbers.get(_CHILDREN, 0)


def _tree(elements: Iterator[tuple[_Element, int]]) -> _Element:
    taken = next(elements, None)
    if taken is None:
        raise IndexError
    node, count = taken
    children = tuple(_tree(elements) for _ in range(count))
    return _Element(node.name, node.kind, node.repeated, node.field_id, children, node.gap)


@contextmanager
def _decoding(path: str) -> Iterator[None]:
    try:
        yield
    except (IndexError, UnicodeDecodeError, RecursionError) as error:
        raise _broken(path) from error


def _broken(path: str) -> FormatError:
    return FormatError(
        "a data file has a damaged footer", path=path, expected="a Parquet schema in it"
    )

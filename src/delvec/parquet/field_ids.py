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

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from delvec.errors import FormatError, UnsupportedFeatureError
from delvec.parquet.thrift import BINARY, I32, LIST, STRUCT, Compact, field_header, number_bytes

_TAIL: Final = 64 << 10
_MAGIC: Final = b"PAR1"
_ENCRYPTED: Final = b"PARE"
_SCHEMA: Final = 2
_REPETITION, _NAME, _CHILDREN, _CONVERTED, _FIELD_ID, _LOGICAL = 3, 4, 5, 6, 9, 10
_REPEATED: Final = 2
# Converted and logical types have different numbers; old writers set the former only.
_BY_CONVERTED: Final = {1: "map", 2: "map", 3: "list"}
_BY_LOGICAL: Final = {2: "map", 3: "list", 16: "variant"}


@dataclass(frozen=True, slots=True)
class FileSchema:
    """The schema of a file, and its end: footers that are equal up to there have the same one."""

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


def read_footer(read: Callable[[int, int], bytes], size: int, path: str) -> bytes:
    """Return the footer of a file without length and magic: one read up to 64 KiB, else two."""
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
    return UnsupportedFeatureError(
        f"{path} is an encrypted Parquet file, whose footer cannot be changed",
        feature="Parquet encryption",
        hint="rewrite the table without encryption first",
    )


def read_schema(footer: bytes, path: str) -> FileSchema:
    broken = FormatError(
        "a data file has a damaged footer", path=path, expected="a Parquet schema in it"
    )
    try:
        thrift = Compact(footer)
        for number, kind in thrift.fields():
            if number != _SCHEMA:
                thrift.skip(kind)
                continue
            element_kind, count = thrift.list_header()
            if element_kind != STRUCT or kind != LIST:
                break
            remaining = iter([_read_element(thrift) for _ in range(count)])
            root = _tree(remaining)
            if next(remaining, None) is None:
                return FileSchema(root, thrift.at)
            break
    except (IndexError, UnicodeDecodeError, RecursionError) as error:
        raise broken from error
    raise broken


def missing_ids(
    schema: FileSchema, ids: Mapping[tuple[str, ...], int], path: str
) -> dict[int, int]:
    """Return the ids to insert, by offset, for `add_ids`; none for a file without any id.

    A field is found by its name or, if the table has no field of that name, by its id. Fields that
    the table does not have, such as dropped columns, stay unchanged.
    """
    if not schema.has_ids:
        return {}
    paths = {number: name for name, number in ids.items()}
    found: dict[tuple[str, ...], _Element] = {}
    _match(schema.root, (), ids, paths, found, path)
    return {each.gap.start: ids[name] for name, each in found.items() if each.field_id is None}


def add_ids(footer: bytes, schema: FileSchema, missing: Mapping[int, int]) -> bytes:
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


class _Gap(NamedTuple):
    """Where the id of an element is to be inserted: after which field, before which."""

    start: int
    before: int
    after: int  # 0 if there is none, as `kind`
    kind: int
    end: int  # of the header of the next field


@dataclass(frozen=True, slots=True)
class _Element:
    """A node of the schema; the gap is of use if it has no id."""

    name: str
    kind: str  # "list", "map" or "variant", else empty
    repeated: bool
    field_id: int | None
    children: tuple[_Element, ...]
    gap: _Gap

    def members(self) -> Iterator[tuple[str, _Element]]:
        """Yield the children by their names in a table, without the groups that only files have."""
        inner = self.children[0] if len(self.children) == 1 else None
        if self.kind == "list" and inner is not None and inner.repeated:
            # By the backward-compatibility rules of the format.
            old = inner.name in ("array", f"{self.name}_tuple")
            yield "element", inner if len(inner.children) != 1 or old else inner.children[0]
        elif self.kind == "map" and inner is not None and len(inner.children) == 2:
            yield from zip(("key", "value"), inner.children, strict=True)
        elif self.kind != "variant":  # its fields have no ids and need none
            yield from ((child.name, child) for child in self.children)

    @property
    def holds_values(self) -> bool:
        """Whether this is a list or a map."""
        return self.kind in ("list", "map")


def _below(node: _Element) -> Iterator[tuple[_Element, _Element]]:
    for _, child in node.members():
        yield node, child
        yield from _below(child)


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
    type_ = _BY_LOGICAL.get(logical) or _BY_CONVERTED.get(numbers.get(_CONVERTED, -1)) or ""
    is_repeated, field_id = numbers.get(_REPETITION) == _REPEATED, numbers.get(_FIELD_ID)
    gap = gap or _Gap(start, before, 0, 0, start)
    return _Element(name, type_, is_repeated, field_id, (), gap), numbers.get(_CHILDREN, 0)


def _tree(elements: Iterator[tuple[_Element, int]]) -> _Element:
    taken = next(elements, None)
    if taken is None:
        raise IndexError
    node, count = taken
    return replace(node, children=tuple(_tree(elements) for _ in range(count)))

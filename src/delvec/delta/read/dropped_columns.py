"""Columns that a data file has and its table does not: those that were dropped.

With column mapping a drop changes the metadata alone, and files keep the values until they are
rewritten. Only footers tell which files: one request for each, 16 at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from delvec.delta.log.file_set import FileSet
from delvec.delta.read.change_feed import CHANGE_TYPE
from delvec.delta.read.conform import FIELD_ID
from delvec.delta.schema.metadata import Metadata, Property
from delvec.delta.schema.traversal import all_fields
from delvec.delta.schema.types import DataType, Field, StructType, children
from delvec.documents import whole_number
from delvec.errors import DelvecError, ObjectNotFoundError
from delvec.parquet.readable import open_parquet, readable
from delvec.storage import Storage
from delvec.storage.listed_files import open_listed_file
from delvec.storage.parallel import gather

_AT_ONCE: Final = 16
_MATERIALIZED: Final = (Property.ROW_ID_COLUMN, Property.ROW_COMMIT_VERSION_COLUMN)


def read_schemas(
    storage: Storage, files: Sequence[tuple[str, int]]
) -> list[pa.Schema | DelvecError | None]:
    """Read the columns of files, by path and size, from their footers.

    Why not for a file that cannot be read, and None for one that is gone.
    """

    def schema_of(file: tuple[str, int]) -> pa.Schema | DelvecError | None:
        path, size = file
        try:
            place, key = open_listed_file(storage, path)
            with place.open_input(key, size or None) as source, readable(path):
                return open_parquet(source).schema_arrow
        except ObjectNotFoundError:
            return None
        except DelvecError as error:
            return error

    return gather(schema_of, files, _AT_ONCE)


def may_have_dropped(metadata: Metadata) -> bool:
    """Return whether columns may have been dropped and still be in files, by the ids ever given."""
    if metadata.mapping_mode == "none":
        return False
    highest = whole_number(metadata.configuration.get(Property.MAX_COLUMN_ID, ""))
    ids = {field.field_id for field in all_fields(metadata.schema)}
    return highest is None or highest > len(ids)


def have_dropped(storage: Storage, files: FileSet) -> NDArray[np.bool_]:
    """Return which live files have columns that their table does not have any more."""
    if not may_have_dropped(files.metadata):
        return np.zeros(len(files), dtype=np.bool_)
    places = zip(files.paths.to_pylist(), files.sizes.tolist(), strict=True)
    found = read_schemas(storage, list(places))
    for each in found:
        if isinstance(each, DelvecError):
            raise each
    # A file that is gone is an error of whatever reads it.
    known = [files.metadata]
    return np.array(
        [isinstance(each, pa.Schema) and bool(foreign_columns(each, known)) for each in found],
        dtype=np.bool_,
    )


def foreign_columns(stored: pa.Schema, known: Sequence[Metadata]) -> list[str]:
    """Return the columns of a file that no definition of its table has, nested ones by path."""
    own = {each.configuration.get(name, "").lower() for each in known for name in _MATERIALIZED}
    schemas = [each.schema for each in known]
    return [
        name
        for name in _foreign(list(stored), schemas)
        if name.lower() not in own and name != CHANGE_TYPE
    ]


def _foreign(stored: Sequence[pa.Field], known: Sequence[StructType]) -> list[str]:
    found = []
    for field in stored:
        same = [each for kind in known for each in kind.fields if _is_same(field, each)]
        inner = _foreign_inside(field.type, [each.type for each in same])
        found += [f"{field.name}.{name}" for name in inner] if same else [field.name]
    return found


def _foreign_inside(stored: pa.DataType, known: Sequence[DataType]) -> list[str]:
    structs = [each for each in known if isinstance(each, StructType)]
    if pa.types.is_struct(stored):  # which a variant is to Parquet as well
        return _foreign(list(stored), structs) if structs else []
    parts: list[tuple[str, pa.DataType]] = []
    if pa.types.is_map(stored):
        parts = [("key", stored.key_type), ("value", stored.item_type)]
    elif pa.types.is_list(stored) or pa.types.is_large_list(stored):
        parts = [("element", stored.value_type)]
    found = []
    for name, kind in parts:
        same = [each.type for outer in known for each in children(outer) if each.name == name]
        found += [f"{name}.{inner}" for inner in _foreign_inside(kind, same)]
    return found


def _is_same(stored: pa.Field, field: Field) -> bool:
    number = (stored.metadata or {}).get(FIELD_ID)
    is_id = field.field_id is not None and number == str(field.field_id).encode()
    return is_id or stored.name.lower() == field.physical_name.lower()

"""Liquid clustering: the columns by which OPTIMIZE orders the rows of a table.

The metadata domain `delta.clustering` names them by paths of physical names, so that a column that
is renamed stays one of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from delvec.delta.schema.metadata import Metadata
from delvec.delta.schema.traversal import find, resolve
from delvec.delta.skipping.statistics import has_statistics, is_ordered
from delvec.documents import parse_json
from delvec.errors import FormatError, InvalidArgumentError
from delvec.identifiers import quote_if_needed, split_path

Paths: TypeAlias = tuple[tuple[str, ...], ...]

DOMAIN: Final = "delta.clustering"
"""The metadata domain that names the columns by which a table is clustered."""
_MOST: Final = 4


def clustering_domain(paths: Paths) -> dict[str, str]:
    """Return the domain that names columns, by its name.

    >>> clustering_domain((("a",), ("s", "b")))["delta.clustering"]
    '{"clusteringColumns":[["a"],["s","b"]],"domainName":"delta.clustering"}'
    """
    value = {"clusteringColumns": paths, "domainName": DOMAIN}
    return {DOMAIN: json.dumps(value, separators=(",", ":"), ensure_ascii=False)}


def clustered_by(domains: Mapping[str, str]) -> Paths:
    """Return the columns by which a table is clustered, as paths of physical names."""
    empty = clustering_domain(())[DOMAIN]
    value = parse_json(domains.get(DOMAIN, empty), f"the domain {DOMAIN}")
    found = value.get("clusteringColumns", []) if isinstance(value, dict) else None
    if not isinstance(found, list) or not all(_is_path(each) for each in found):
        raise FormatError(f"the domain {DOMAIN} names no columns", expected=empty)
    return tuple(map(tuple, found))


def _is_path(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(name, str) for name in value)


def logical_paths(metadata: Metadata, paths: Paths) -> Paths:
    """Return the names that columns have now."""
    found = []
    for path in paths:
        fields = find(metadata.schema, path, physical=True)
        if fields is None:
            raise FormatError(
                f"the table is clustered by {'.'.join(path)}, and has no such column",
                found=", ".join(metadata.schema.names)[:200],
                hint="ALTER TABLE ... CLUSTER BY names others",
            )
        found.append(tuple(field.name for field in fields))
    return tuple(found)


def column_names(metadata: Metadata, paths: Paths) -> list[str]:
    """Return the columns as SQL has them, such as `s.b`."""
    return [".".join(map(quote_if_needed, path)) for path in logical_paths(metadata, paths)]


def clustering_paths(metadata: Metadata, columns: Sequence[str]) -> Paths:
    """Return the physical paths of columns; refuse those by which no file could be skipped."""
    if columns and metadata.partition_columns:
        raise InvalidArgumentError(
            f"a table cannot be clustered by {', '.join(columns)} and partitioned by"
            f" {', '.join(metadata.partition_columns)}",
            hint="leave one of them out",
        )
    if len(columns) > _MOST:
        raise InvalidArgumentError(
            f"a table is clustered by {_MOST} columns at most, not by {len(columns)}",
            hint="name the few columns that filters use",
        )
    paths: list[tuple[str, ...]] = []
    for column in columns:
        fields = resolve(metadata.schema, split_path(column), structs_only=True)
        if not is_ordered(fields[-1].type):
            raise InvalidArgumentError(
                f"a table cannot be clustered by {column}, which is {fields[-1].type}",
                hint="name columns of numbers, strings, dates or timestamps",
            )
        if not has_statistics(metadata, [field.name for field in fields]):
            raise InvalidArgumentError(
                f"a table cannot be clustered by {column}, which has no statistics",
                hint="let delta.dataSkippingStatsColumns or delta.dataSkippingNumIndexedCols"
                " include it",
            )
        path = tuple(field.physical_name for field in fields)
        if path in paths:
            raise InvalidArgumentError(f"a table cannot be clustered by {column} twice")
        paths.append(path)
    return tuple(paths)

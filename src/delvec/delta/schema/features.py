"""The table features: what each means for readers and for writers.

The one place that decides. A feature for writers alone does not change what a reader sees, except
for collations, which change which rows are equal.

Specification: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#table-features
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal, TypeAlias

from delvec.delta.schema.properties import (
    APPEND_ONLY,
    ENABLE_CHANGE_DATA_FEED,
    ENABLE_DELETION_VECTORS,
    ENABLE_ICEBERG_COMPAT_V1,
    ENABLE_ICEBERG_COMPAT_V2,
    ENABLE_ICEBERG_COMPAT_V3,
    ENABLE_ICEBERG_WRITER_COMPAT_V1,
    ENABLE_ICEBERG_WRITER_COMPAT_V3,
    ENABLE_IN_COMMIT_TIMESTAMPS,
    ENABLE_ROW_TRACKING,
    ENABLE_TYPE_WIDENING,
    ENABLE_VARIANT_SHREDDING,
)
from delvec.errors import InvalidArgumentError

__all__ = ["FEATURES", "Feature", "Writing", "feature_name", "implied_by"]

# What delvec does when a table has the feature and has it switched on:
#   handled      delvec writes as the feature demands
#   append_only  rows are added, and never changed or removed
#   identity     values of identity columns are generated, and never updated
#   no_vectors   neither data files nor vectors are written
#   no_files     no data files are written; vectors are
#   moved        nothing is written at all
Writing: TypeAlias = Literal[
    "handled", "append_only", "identity", "no_vectors", "no_files", "moved"
]


@dataclass(frozen=True, slots=True)
class Feature:
    """One table feature.

    Attributes:
        for_readers: Whether readers must support it.
        is_read: Whether delvec supports reading it.
        advice: The hint of errors where it is not read or not written.
        writing: What delvec does on writing.
        switch: The property that is true where the feature is in use; empty if there is none.
        versions: The lowest (reader, writer) versions that have the feature without naming it.
        needs: Other features that must be there as well.
    """

    name: str
    for_readers: bool
    is_read: bool = True
    advice: str = ""
    writing: Writing = "handled"
    switch: str = ""
    versions: tuple[int, int] | None = None
    needs: tuple[str, ...] = ()


_CATALOG: Final = "its commits are in a catalog: read it through the catalog that owns it"
_PLAIN: Final = "copy the table to one without the feature, with the engine that wrote it"
_MOVED: Final = "the table has moved: write it at its new place"
_ICEBERG: Final = "write it with the engine that keeps its Iceberg metadata"
_MAPPED: Final = ("columnMapping",)

FEATURES: Final = {
    feature.name: feature
    for feature in (
        Feature("deletionVectors", for_readers=True, switch=ENABLE_DELETION_VECTORS),
        Feature("columnMapping", for_readers=True, versions=(2, 5)),
        Feature("v2Checkpoint", for_readers=True),
        Feature("timestampNtz", for_readers=True),
        Feature("typeWidening", for_readers=True, switch=ENABLE_TYPE_WIDENING),
        Feature("typeWidening-preview", for_readers=True),
        Feature("variantType", for_readers=True),
        Feature("variantType-preview", for_readers=True),
        Feature("variantShredding", for_readers=True, switch=ENABLE_VARIANT_SHREDDING),
        Feature("variantShredding-preview", for_readers=True),
        Feature("vacuumProtocolCheck", for_readers=True),
        Feature("catalogManaged", for_readers=True, is_read=False, advice=_CATALOG),
        Feature("catalogOwned-preview", for_readers=True, is_read=False, advice=_CATALOG),
        Feature("adaptiveMetadata-preview", for_readers=True, is_read=False, advice=_PLAIN),
        Feature("adaptiveMetadata", for_readers=True, is_read=False, advice=_PLAIN),
        Feature("geospatial", for_readers=True, is_read=False, advice=_PLAIN),
        Feature(
            "redirectReaderWriter-preview",
            for_readers=True,
            is_read=False,
            advice="the table has moved: read it at its new place",
        ),
        Feature("collations", for_readers=False, is_read=False, advice=_PLAIN),
        Feature("collations-preview", for_readers=False, is_read=False, advice=_PLAIN),
        Feature("redirectWriterOnly-preview", for_readers=False, advice=_MOVED, writing="moved"),
        Feature(
            "appendOnly",
            for_readers=False,
            advice=f"set {APPEND_ONLY} to false",
            writing="append_only",
            switch=APPEND_ONLY,
            versions=(1, 2),
        ),
        Feature("invariants", for_readers=False, versions=(1, 2)),
        Feature("checkConstraints", for_readers=False, versions=(1, 3)),
        Feature("generatedColumns", for_readers=False, versions=(1, 4)),
        Feature("allowColumnDefaults", for_readers=False),
        Feature(
            "identityColumns",
            for_readers=False,
            advice="update other columns only, or delete the rows and insert new ones",
            writing="identity",
            versions=(1, 6),
        ),
        Feature(
            "changeDataFeed",
            for_readers=False,
            switch=ENABLE_CHANGE_DATA_FEED,
            versions=(1, 4),
        ),
        Feature(
            "rowTracking",
            for_readers=False,
            switch=ENABLE_ROW_TRACKING,
            needs=("domainMetadata",),
        ),
        Feature("domainMetadata", for_readers=False),
        Feature("inCommitTimestamp", for_readers=False, switch=ENABLE_IN_COMMIT_TIMESTAMPS),
        Feature("clustering", for_readers=False, needs=("domainMetadata",)),
        Feature(
            "icebergCompatV1",
            for_readers=False,
            advice=_ICEBERG,
            writing="no_vectors",
            switch=ENABLE_ICEBERG_COMPAT_V1,
            needs=_MAPPED,
        ),
        Feature(
            "icebergCompatV2",
            for_readers=False,
            advice=_ICEBERG,
            writing="no_vectors",
            switch=ENABLE_ICEBERG_COMPAT_V2,
            needs=_MAPPED,
        ),
        Feature(
            "icebergCompatV3",
            for_readers=False,
            advice=_ICEBERG,
            writing="no_files",
            switch=ENABLE_ICEBERG_COMPAT_V3,
            needs=(*_MAPPED, "rowTracking"),
        ),
        Feature(
            "icebergWriterCompatV1",
            for_readers=False,
            advice=_ICEBERG,
            writing="no_vectors",
            switch=ENABLE_ICEBERG_WRITER_COMPAT_V1,
            needs=("icebergCompatV2",),
        ),
        Feature(
            "icebergWriterCompatV3",
            for_readers=False,
            advice=_ICEBERG,
            writing="no_files",
            switch=ENABLE_ICEBERG_WRITER_COMPAT_V3,
            needs=("icebergCompatV3",),
        ),
        Feature(
            "materializePartitionColumns",
            for_readers=False,
            advice=_ICEBERG,
            writing="no_files",
        ),
        Feature("checkpointProtection", for_readers=False),
    )
}


def implied_by(reader: int, writer: int) -> frozenset[str]:
    """Return the features that a protocol without lists has by its versions.

    >>> sorted(implied_by(1, 3))
    ['appendOnly', 'checkConstraints', 'invariants']
    """
    return frozenset(
        feature.name
        for feature in FEATURES.values()
        if feature.versions and feature.versions[0] <= reader and feature.versions[1] <= writer
    )


def feature_name(name: str) -> str:
    """Return the name of a feature as the protocol spells it.

    Raises:
        InvalidArgumentError: There is none of that name.
    """
    names = {each.lower(): each for each in FEATURES}
    if name.lower() in names:
        return names[name.lower()]
    near = get_close_matches(name.lower(), names, 3)
    raise InvalidArgumentError(
        f"there is no table feature {name!r}",
        hint=f"did you mean {' or '.join(names[each] for each in near)}?"
        if near
        else "PROTOCOL.md of Delta lists them",
    )

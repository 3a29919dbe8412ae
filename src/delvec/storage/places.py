"""Other places that a table leads to, and by whose credentials they are read.

Credentials belong to the place that they were given for: a bucket, or a container of an account.
The log of a table may name any other, and somebody else may own that.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from delvec.errors import FormatError, InvalidArgumentError
from delvec.storage.location import Location, locate
from delvec.storage.options import bare, hadoop_names, is_shared, merge_options, options_from_hadoop

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Places", "require_own_host", "split_by_place"]

Options = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Places:
    """The places that `storage_options` or a Hadoop configuration name, besides the table's own.

    Attributes:
        given: Options of the table's own place, as `storage_options` has them. Those of the HTTP
            client, such as timeouts, hold for all places.
        named: Options of others by place, as `storage_options` has them.
        hadoop: Returns values of a Hadoop configuration; not pickled.
        found: Options of places that were asked for, with those of Hadoop.
    """

    given: Options = ()
    named: tuple[tuple[str, Options], ...] = ()
    hadoop: Callable[[str], str | None] | None = field(default=None, compare=False)
    found: dict[str, dict[str, str]] = field(default_factory=dict, compare=False)

    def options_of(self, location: Location, table: Location) -> dict[str, str]:
        """Return the options of a place that is not the table's.

        Raises:
            FormatError: Nobody has named it.
        """
        if location.home not in self.found:
            self.found[location.home] = self._options_of(location, table)
        return self.found[location.home]

    def _options_of(self, location: Location, table: Location) -> dict[str, str]:
        named = dict(self.named).get(location.home)
        by_hadoop = {}
        is_named = named is not None
        if self.hadoop is not None and hadoop_names(location, table, self.hadoop):
            is_named = True
            general = location.place.rpartition("@")[2] == table.place.rpartition("@")[2]
            by_hadoop = options_from_hadoop(location.root, self.hadoop, general=general)
        if not is_named:
            raise FormatError(
                "the table names a file in another place, for which no credentials were given",
                path=table.root,
                expected=f"a path in {table.home}",
                found=f"{location.root!r:.200}, in {location.home}",
                hint=_hint(location),
            )
        options = merge_options(by_hadoop, {**self._shared, **dict(named or ())})
        require_own_host(location, options)
        return options

    @property
    def _shared(self) -> dict[str, str]:
        return {key: value for key, value in self.given if is_shared(key)}

    def flat(self, *, found: bool = True) -> dict[str, str]:
        """Return the options of other places as `storage_options`: those given, or all known."""
        known = {home: dict(options) for home, options in self.named}
        if found:
            known |= self.found
        return {
            f"{home}/{name}": value
            for home, options in known.items()
            for name, value in (options or {"": ""}).items()
        }

    def __reduce__(self) -> tuple[object, ...]:
        return Places, (self.given, self.named, None, self.found)


def split_by_place(
    given: Mapping[str, object], own: Location
) -> tuple[dict[str, str], tuple[tuple[str, Options], ...]]:
    """Return the options of a table's own place, and those of others by place.

    Others have the place before their name, or are in a dictionary of their own.

    >>> split_by_place({"region": "eu", "s3://b/region": "us", "s3://c": {}}, locate("s3://a/t"))
    ({'region': 'eu'}, (('s3://b', (('region', 'us'),)), ('s3://c', ())))
    """
    options: dict[str, str] = {}
    by_place: dict[str, dict[str, str]] = {}
    for key, value in given.items():
        if "://" not in key:
            options[key] = _string(value)
            continue
        scheme, _, rest = key.partition("://")
        bucket, _, name = rest.partition("/")
        home = locate(f"{scheme}://{bucket}").home
        if isinstance(value, Mapping):
            more = {str(each): _string(found) for each, found in value.items()}
        else:
            more = {name: _string(value)} if name else {}
        if isinstance(value, Mapping) == bool(name) and (name or value):
            raise InvalidArgumentError(
                f"the storage option {key!r} names a place, and no option of it",
                hint='write {"s3://other": {"aws_region": "..."}}, or "s3://other/aws_region"',
            )
        by_place.setdefault(home, {}).update(more)
    options |= by_place.pop(own.home, {})
    return options, tuple(
        (home, tuple(sorted(of.items()))) for home, of in sorted(by_place.items())
    )


def require_own_host(location: Location, options: Mapping[str, str]) -> None:
    """Refuse an endpoint that has another bucket in its name: obstore would ask that bucket."""
    if location.kind != "s3":
        return
    known = {bare(key): value for key, value in os.environ.items() if key.startswith("AWS_")}
    known |= {bare(key): value for key, value in options.items()}
    if known.get("virtual_hosted_style_request", "").lower() != "true":
        return
    names = ("endpoint_url_s3", "endpoint_url", "endpoint")
    endpoint = next((known[name] for name in names if name in known), None)
    host = urlsplit(endpoint or "").hostname or ""
    if endpoint is not None and not host.startswith(f"{location.place}."):
        raise FormatError(
            "the endpoint for another bucket that a table names is not one of that bucket",
            expected=f"{location.place}.<host>",
            found=host,
            hint=f"set {location.home}/aws_endpoint in storage_options",
        )


def _hint(location: Location) -> str:
    scheme, host = location.kind, location.place.rpartition("@")[2]
    setting = {
        "s3": f"fs.s3a.bucket.{location.place}.access.key",
        "abfss": f"fs.azure.account.key.{host}",
    }.get(scheme, f"fs.{scheme}.auth.type")
    return (
        f"if the table may lead there, name it: storage_options={{{location.home!r}: {{...}}}} with"
        f" its keys, or with nothing for those of the environment; or set {setting} in the session"
    )


def _string(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

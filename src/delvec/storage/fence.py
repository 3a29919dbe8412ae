"""Where a table may lead outside of its own folder, and by whose credentials that is read.

Credentials belong to the place that they were given for: a bucket, or a container of an account.
The log of a table may name any other, and somebody else may own that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final
from urllib.parse import urlsplit

from delvec.errors import FormatError, InvalidArgumentError
from delvec.report.hints import Wording, argument, format_hint
from delvec.storage.backend import Location, locate
from delvec.storage.options import bare, hadoop_names, is_shared, merge_options, options_from_hadoop

ALLOWED_PATHS: Final = "spark.delvec.allowedPaths"
"""The setting of a session: prefixes, with commas between them."""
_SHOWN: Final = 200
Options = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Fence:
    """What a table may lead to: its own folder, and what all of the lists allow."""

    home: Location
    # Prefixes: the session's, and those of an argument, which can only narrow it.
    lists: tuple[tuple[Location, ...], ...]

    @classmethod
    def around(cls, home: Location, *given: Sequence[str] | str | None) -> Fence | None:
        """Return the fence of lists of prefixes, each a path or URI; None if none is given."""
        lists = [[each] if isinstance(each, str) else each for each in given if each is not None]
        return cls(home, tuple(tuple(map(_prefix, each)) for each in lists)) if lists else None

    @property
    def text(self) -> str:
        """The fence as text, for processes that get options of Spark; see `lists_of`."""
        return json.dumps([[each.root for each in prefixes] for prefixes in self.lists])

    @cached_property
    def _folders(self) -> tuple[tuple[str, ...], ...]:
        """The table's folder, and the prefixes of each list, where links of theirs lead."""
        return tuple(
            tuple(f"{_real(each)}/" for each in folders) for folders in ((self.home,), *self.lists)
        )

    def require(self, location: Location) -> None:
        """Refuse a place outside; links on local disks are followed, as its readers will."""
        # With the slash, so that whole segments are compared: `/lake/ab` is not below `/lake/a`.
        name = f"{_real(location)}/"
        own, *lists = self._folders
        if name.startswith(own):
            return
        for prefixes, folders in zip(self.lists, lists, strict=True):
            if not name.startswith(folders):
                listed = ", ".join(each.root for each in prefixes) or "none"
                link = "" if name == f"{location.name}/" else f", a link to {name[:-1]!r:.{_SHOWN}}"
                raise FormatError(
                    "the table leads out of its folder, to a path that is not allowed",
                    path=self.home.root,
                    expected=f"a path below it, or below one that is allowed ({listed:.{_SHOWN}})",
                    found=f"{location.root!r:.{_SHOWN}}{link}",
                    hint=format_hint(
                        "if it may be read, add its folder to {} of the session, or to {}",
                        ALLOWED_PATHS,
                        Wording("allow_paths=[...]", "delvec --allow-path PREFIX"),
                    ),
                )


def lists_of(text: str | None) -> list[list[str]]:
    """Return lists of prefixes of an option of Spark: what `Fence.text` returns, or prefixes.

    >>> lists_of("/lake/shared, s3://bucket/x"), lists_of('[["/lake"], []]'), lists_of(None)
    ([['/lake/shared', 's3://bucket/x']], [['/lake'], []], [])
    """
    if text is None:
        return []
    if not text.startswith("["):
        return [[each.strip() for each in text.split(",") if each.strip()]]
    try:
        found: list[list[str]] = json.loads(text)
    except (ValueError, RecursionError):
        found = [[text]]  # no absolute path either, which the fence tells
    return found


@dataclass(frozen=True)
class Places:
    """The places that `storage_options` or a Hadoop configuration name, besides the table's own."""

    # As `storage_options` has them: options of the table's own place, of which those of the HTTP
    # client, such as timeouts, hold for all places; and options of others by place.
    given: Options = ()
    named: tuple[tuple[str, Options], ...] = ()
    # Returns values of a Hadoop configuration; not pickled.
    hadoop: Callable[[str], str | None] | None = field(default=None, compare=False)
    # Options of places that were asked for, with those of Hadoop.
    found: dict[str, dict[str, str]] = field(default_factory=dict, compare=False)

    def options_of(self, location: Location, table: Location) -> dict[str, str]:
        """Return the options of a place that is not the table's."""
        if location.home in self.found:
            return self.found[location.home]
        named = dict(self.named).get(location.home)
        by_hadoop = {}
        if self.hadoop is not None and hadoop_names(location, table, self.hadoop):
            general = location.place.rpartition("@")[2] == table.place.rpartition("@")[2]
            by_hadoop = options_from_hadoop(location.root, self.hadoop, general=general)
        elif named is None:
            raise FormatError(
                "the table names a file in another place, for which no credentials were given",
                path=table.root,
                expected=f"a path in {table.home}",
                found=f"{location.root!r:.200}, in {location.home}",
                hint=_hint(location),
            )
        shared = {key: value for key, value in self.given if is_shared(key)}
        options = merge_options(by_hadoop, shared | dict(named or ()))
        require_own_host(location, options)
        self.found[location.home] = options
        return options

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
                hint=Wording(
                    'write {"s3://other": {"aws_region": "..."}}, or "s3://other/aws_region"',
                    "write --storage-option s3://other/aws_region=...",
                ),
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
            hint=format_hint(
                "set {}/aws_endpoint in {}", location.home, argument(storage_options=None)
            ),
        )


def _prefix(given: str) -> Location:
    text = given.strip()
    if not text.startswith("/") and ":/" not in text:
        raise InvalidArgumentError(
            f"{given!r} cannot be allowed: it is not an absolute path",
            hint=format_hint(
                "write {} and {} as /lake/shared, or s3://bucket/folder",
                ALLOWED_PATHS,
                argument(allow_paths=None),
            ),
        )
    return locate(text)


def _real(location: Location) -> str:
    """Return the name of a location; of a local one, where its links lead."""
    if location.scheme != "file":
        return location.name
    return location._replace(path=os.path.realpath(location.path)).name


def _hint(location: Location) -> str:
    scheme, host = location.kind, location.place.rpartition("@")[2]
    setting = {
        "s3": f"fs.s3a.bucket.{location.place}.access.key",
        "abfss": f"fs.azure.account.key.{host}",
    }.get(scheme, f"fs.{scheme}.auth.type")
    return format_hint(
        "if the table may lead there, name it: {} with its keys, or with nothing for those of the"
        " environment; or set {} in the session",
        Wording(
            f"storage_options={{{location.home!r}: {{...}}}}",
            f"--storage-option {location.home}/...=...",
        ),
        setting,
    )


def _string(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

"""Options of object stores, translated from the names of other tools to those of obstore.

There are three dialects: the Hadoop configuration (`fs.s3a.access.key`), by which a Spark session
reaches its tables; the `storage_options` of deltalake (`AWS_ACCESS_KEY_ID`); and the three
dictionaries that obstore takes (store, HTTP client, retries).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from delvec.documents import duration_seconds
from delvec.errors import InvalidArgumentError, UnsupportedFeatureError

if TYPE_CHECKING:
    from delvec.storage.backend import Location

    Getter = Callable[[str], str | None]

_CLIENT = re.compile(
    "allow_(http|invalid_certificates)|default_content_type|http[12]_.*|pool_.*|proxy_.*"
    "|randomize_addresses|root_certificate|(connect_|read_)?timeout|user_agent"
)
# They allow deltalake to commit by a rename that overwrites. delvec commits by conditional put
# only, so they have no effect here.
_IGNORED_KEYS = frozenset({"s3_allow_unsafe_rename", "mount_allow_unsafe_rename"})

_PREFIXES = ("aws_", "google_", "azure_storage_", "azure_")
# Options that belong together: if the user sets one of a group, none of the others is taken from
# Hadoop. Otherwise the user's key would be sent with somebody else's session token.
_GROUPS = (
    re.compile(
        "access_key.*|secret_access_key|(session_|bearer_)?token|skip_signature|service_account.*"
        "|application_credentials|(account|master)_key|sas_(key|token)|client_(id|secret)"
        "|(tenant|authority)_id|authority_host|federated_token_file|use_azure_cli"
    ),
    re.compile("endpoint.*|allow_http|virtual_hosted_style_request"),
    re.compile("(default_)?region"),
)

# By the type of authentication.
_AZURE_KEYS = {
    "sharedkey": {"azure_storage_account_key": "fs.azure.account.key"},
    "sas": {"azure_storage_sas_token": "fs.azure.sas.fixed.token"},
    "oauth": {
        "azure_client_id": "fs.azure.account.oauth2.client.id",
        "azure_client_secret": "fs.azure.account.oauth2.client.secret",
    },
}
_AWS_HOST = re.compile(r"s3(?:[.-](?P<region>[a-z0-9-]+))?\.amazonaws\.com")


def split_options(
    scheme: str, options: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str], dict[str, object]]:
    """Sort user options into those of the store, of its HTTP client and of its retries.

    >>> split_options("s3", {"AWS_REGION": "eu-west-1", "aws_allow_http": "true"})[:2]
    ({'conditional_put': 'etag', 'aws_region': 'eu-west-1'}, {'allow_http': 'true'})
    """
    # Set explicitly: AWS_CONDITIONAL_PUT in the environment can change the default.
    config = {"conditional_put": "etag"} if scheme.startswith("s3") else {}
    client: dict[str, str] = {}
    retry: dict[str, object] = {}
    backoff: dict[str, object] = {}
    for raw, value in options.items():
        key, name = raw.lower(), bare(raw)
        _refuse_unsafe(name, value)
        if name in _IGNORED_KEYS or name in ("conditional_put", "s3_locking_provider"):
            continue
        if _CLIENT.fullmatch(name):
            client[name] = value
        elif name in _RETRIES:
            prefix, _, setting = name.rpartition(".")
            (backoff if prefix else retry)[setting] = _RETRIES[name](raw, value)
        else:
            config[key] = value
    if backoff:
        retry["backoff"] = backoff
    return config, client, retry


def merge_options(hadoop: Mapping[str, str], explicit: Mapping[str, str]) -> dict[str, str]:
    """Add options of Hadoop to the user's own; the user's win, in any spelling.

    >>> merge_options(
    ...     {"aws_access_key_id": "h", "aws_session_token": "h", "aws_region": "eu-west-1"},
    ...     {"AWS_ACCESS_KEY_ID": "mine", "AWS_SECRET_ACCESS_KEY": "mine"},
    ... )
    {'aws_region': 'eu-west-1', 'AWS_ACCESS_KEY_ID': 'mine', 'AWS_SECRET_ACCESS_KEY': 'mine'}
    """
    stated = {bare(key) for key in explicit}
    taken = [group for group in _GROUPS if any(map(group.fullmatch, stated))]

    def is_stated(name: str) -> bool:
        return name in stated or any(group.fullmatch(name) for group in taken)

    kept = {key: value for key, value in hadoop.items() if not is_stated(bare(key))}
    return {**kept, **explicit}


def is_shared(option: str) -> bool:
    """Return whether an option holds for every place: timeouts, proxies, retries."""
    name = bare(option)
    if name in ("allow_http", "allow_invalid_certificates"):
        return False
    return bool(_CLIENT.fullmatch(name)) or name in _RETRIES


def hadoop_names(place: Location, table: Location, get: Getter) -> bool:
    """Return whether a Hadoop configuration has settings for another place than a table's.

    Settings for all buckets count, as they do for Spark. Keys and tokens of Azure for all accounts
    do not: they would go to whoever owns the account that a log names.
    """
    bucket, _, host = place.place.partition("@")
    general = host == table.place.partition("@")[2]
    if options_from_hadoop(place.root, get, general=general):
        return True
    keys = {
        "s3": (f"fs.s3a.bucket.{bucket}.aws.credentials.provider",),
        "gs": ("fs.gs.auth.type", "google.cloud.auth.type"),
        "abfss": (f"fs.azure.account.auth.type.{host}", f"fs.azure.sas.token.provider.type.{host}"),
    }
    return any(map(get, keys.get(place.kind, ())))


def options_from_hadoop(uri: str, get: Getter, *, general: bool = True) -> dict[str, str]:
    """Translate a Hadoop configuration into the options of the store that `uri` is in.

    Its bucket or account decides which settings apply; with `general`, keys of Azure for all
    accounts do too. `get` returns the value of a key or None, like `dict.get`.

    >>> conf = {"fs.s3a.access.key": "k", "fs.s3a.bucket.lake.access.key": "for lake"}
    >>> options_from_hadoop("s3a://lake/orders", conf.get)
    {'aws_access_key_id': 'for lake'}
    """

    def trimmed(key: str) -> str | None:
        return (get(key) or "").strip() or None

    scheme, separator, rest = uri.partition("://")
    place = rest.partition("/")[0]
    if separator and scheme in ("s3", "s3a", "s3n"):
        return _s3_options(
            place, lambda key: trimmed(f"fs.s3a.bucket.{place}.{key}") or trimmed(f"fs.s3a.{key}")
        )
    if separator and scheme == "gs":
        return _gcs_options(trimmed)
    if separator and scheme in ("abfs", "abfss", "az"):
        return _azure_options(place, trimmed, general=general)
    return {}


def _s3_options(bucket: str, get: Getter) -> dict[str, str]:
    names = {
        "aws_access_key_id": "access.key",
        "aws_secret_access_key": "secret.key",
        "aws_session_token": "session.token",
    }
    options = {name: value for name, key in names.items() if (value := get(key))}
    # Hadoop tries the providers in order: anonymous access first, or after those without a key.
    providers = [name.strip() for name in (get("aws.credentials.provider") or "").split(",")]
    anonymous = [
        name.endswith(("AnonymousAWSCredentialsProvider", "AnonymousCredentialsProvider"))
        for name in providers
    ]
    if anonymous[0] or (any(anonymous) and "aws_access_key_id" not in options):
        options = {"aws_skip_signature": "true"}
    if endpoint := get("endpoint"):
        options |= _s3_endpoint_options(bucket, endpoint, get)
    if region := get("endpoint.region"):
        options["aws_region"] = region
    return options


def _s3_endpoint_options(bucket: str, endpoint: str, get: Getter) -> dict[str, str]:
    if "://" not in endpoint:
        secure = (get("connection.ssl.enabled") or "true").lower() != "false"
        endpoint = f"{'https' if secure else 'http'}://{endpoint}"
    url = urlsplit(endpoint)
    if aws := _AWS_HOST.fullmatch(url.netloc):
        # Amazon's own hosts follow from the region.
        return {"aws_region": aws["region"]} if aws["region"] else {}
    options = {"allow_http": "true"} if url.scheme == "http" else {}
    path_style = (get("path.style.access") or "false").lower() == "true"
    if not (path_style or "." in bucket or _is_machine(url.hostname or "")):
        # obstore uses the endpoint unchanged, even where the bucket is part of the host name.
        endpoint = f"{url.scheme}://{bucket}.{url.netloc}{url.path}"
        options["aws_virtual_hosted_style_request"] = "true"
    return {"aws_endpoint": endpoint.rstrip("/")} | options


def _is_machine(host: str) -> bool:
    """Return whether a bucket's name cannot be put before a host, as Amazon's SDK decides it."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


def _gcs_options(get: Getter) -> dict[str, str]:
    if (get("fs.gs.auth.type") or "").upper() == "UNAUTHENTICATED":
        return {"google_skip_signature": "true"}
    tail = "auth.service.account.json.keyfile"
    keyfile = get(f"fs.gs.{tail}") or get(f"google.cloud.{tail}")
    return {"google_service_account": keyfile} if keyfile else {}


def _azure_options(place: str, get: Getter, *, general: bool) -> dict[str, str]:
    container, _, host = place.rpartition("@")

    def scoped(key: str) -> str | None:
        narrow = (f"{key}.{container}.{host}", f"{key}.{host}") if container else ()
        names = (*narrow, key) if general else narrow
        return next((value for name in names if (value := get(name))), None)

    wanted = (scoped("fs.azure.account.auth.type") or "").lower()
    chosen = [wanted] if wanted in _AZURE_KEYS else list(_AZURE_KEYS)
    options = {name: scoped(key) for kind in chosen for name, key in _AZURE_KEYS[kind].items()}
    if "oauth" in chosen:
        # https://login.microsoftonline.com/<tenant>/oauth2/token
        url = urlsplit(scoped("fs.azure.account.oauth2.client.endpoint") or "")
        options["azure_tenant_id"] = url.path.strip("/").partition("/")[0]
        options["azure_authority_host"] = url.netloc and f"{url.scheme}://{url.netloc}"
    return {name: value for name, value in options.items() if value}


def bare(key: str) -> str:
    """Return one spelling for all of an option (AWS_REGION, aws_region, region)."""
    name = key.lower()
    return next((name[len(start) :] for start in _PREFIXES if name.startswith(start)), name)


def _refuse_unsafe(name: str, value: str) -> None:
    if name == "conditional_put" and value.lower() != "etag":
        raise UnsupportedFeatureError(
            f"conditional_put={value!r} would let two commits overwrite each other",
            feature="conditional_put",
            hint="omit the option: delvec puts if absent by etag, as S3 itself does",
        )
    if name == "s3_locking_provider" and value:
        raise UnsupportedFeatureError(
            f"a table whose writers lock through {value!r} cannot be written safely by conditional "
            "puts: neither side would see the other's commits",
            feature="aws_s3_locking_provider",
            hint="let all writers of the table use conditional puts, then omit the option",
        )


def _number(key: str, value: str) -> float:
    try:
        return float(value)
    except ValueError as error:
        raise InvalidArgumentError(f"option {key} must be a number, not {value!r}") from error


def _duration(key: str, value: str) -> timedelta:
    found = duration_seconds(value)
    if found is None:
        raise InvalidArgumentError(
            f"option {key} must be a duration, not {value!r}", hint="write it as 500ms, 10s or 3m"
        )
    return timedelta(seconds=found)


# deltalake's names of the retry settings: those of object_store, the backoff ones with a prefix.
_RETRIES: dict[str, Callable[[str, str], object]] = {
    "max_retries": lambda key, value: int(_number(key, value)),
    "retry_timeout": _duration,
    "backoff_config.init_backoff": _duration,
    "backoff_config.max_backoff": _duration,
    "backoff_config.base": _number,
}

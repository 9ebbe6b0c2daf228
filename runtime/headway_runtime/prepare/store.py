"""Which object store a URI names, and how it is reached: obstore is the one client for S3, GCS, Azure, HTTP and files.

Credentials are a directory with one file per setting (a mounted Secret); the names are obstore's own
(``AWS_ACCESS_KEY_ID``, …). Their values are handed to the client and appear nowhere else.
"""

import stat
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from obstore.store import AzureStore, GCSStore, HTTPStore, LocalStore, S3Store

from headway_runtime.prepare import log
from headway_runtime.prepare.errors import FetchError

SCHEMES = ("s3", "gs", "az", "http", "https", "file")
CREDENTIALS_FIELD = "spec.artifact.credentials"
_FORM = f"the URI must be like s3://bucket/key.pt2, with one of the schemes {', '.join(SCHEMES)}, and no user or query"
_PREFIX = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}
_MAX_SETTING = 64 << 10


@dataclass(frozen=True, slots=True)
class Location:
    """A store and the key of one object in it."""

    store: Any
    key: str

    @property
    def local(self) -> bool:
        """A file of this machine: what fails once fails again."""
        return isinstance(self.store, LocalStore)


def locate(uri: str, credentials: Path) -> Location:
    """Raises FetchError ``InvalidURI`` for what no store can hold, ``InvalidCredentials`` for settings no store takes.

    Nothing of the URI is repeated in a message: it may hold a password by mistake.
    """
    try:
        parts = urlsplit(uri)
        key = unquote(parts.path, errors="strict").lstrip("/")
    except ValueError:
        raise FetchError("InvalidURI", _FORM) from None
    if parts.scheme not in SCHEMES or not key or parts.fragment or parts.username or parts.password:
        raise FetchError("InvalidURI", _FORM)
    if parts.query:
        raise FetchError(
            "InvalidURI", "a URI with a query cannot be fetched; use s3://, gs:// or az:// with credentials"
        )
    if any(part in {"", ".", ".."} for part in key.split("/")) or not key.isprintable():
        raise FetchError("InvalidURI", "the key has an empty part, a . or .., or characters that cannot be printed")
    if parts.scheme == "file":
        return _file(parts.netloc, key)
    settings = _settings(credentials, _PREFIX.get(parts.scheme, "-"))
    http = parts.scheme == "http" or any(
        v.startswith("http://") for k, v in settings.items() if "ENDPOINT" in k.upper()
    )
    options: dict[str, Any] = {"timeout": "2h", "connect_timeout": "10s", "read_timeout": "60s", "allow_http": http}
    common = {"client_options": options, "retry_config": {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}}
    try:
        match parts.scheme:
            case "http" | "https":
                return Location(HTTPStore.from_url(f"{parts.scheme}://{parts.netloc}", **common), key)
            case "s3":
                return Location(S3Store(parts.netloc, config=settings, **common), key)
            case "gs":
                return Location(GCSStore(parts.netloc, config=settings, **common), key)
        container, _, blob = key.partition("/")
        if not blob:
            raise FetchError("InvalidURI", "an Azure URI is like az://account/container/key.pt2")
        return Location(
            AzureStore(container, config={"AZURE_STORAGE_ACCOUNT_NAME": parts.netloc, **settings}, **common), blob
        )
    except FetchError:
        raise
    except Exception as e:  # obstore raises its own types for settings it does not know; a value may be in the text
        if not settings:
            raise FetchError("InvalidURI", f"no {parts.scheme} client can be made of it; {_FORM}") from None
        raise FetchError(
            "InvalidCredentials",
            f"no {parts.scheme} client can be made with the keys {', '.join(settings)}: {type(e).__name__}",
            field=CREDENTIALS_FIELD,
        ) from None


def _file(host: str, key: str) -> Location:
    """A regular file of this machine. Others (a pipe, a device) would block, or never end."""
    if host not in ("", "localhost"):
        raise FetchError("InvalidURI", "a file URI has three slashes: file:///path/model.pt2")
    try:
        regular = stat.S_ISREG(Path("/", key).stat().st_mode)
    except OSError:
        regular = True  # the store says what is wrong with it
    if not regular:
        raise FetchError("InvalidURI", "the URI names a directory, a pipe or a device, not a file")
    return Location(LocalStore("/"), key)


def _settings(directory: Path, prefix: str) -> dict[str, str]:
    """Settings of this kind of store. Kubernetes' own bookkeeping (names with a leading dot) is skipped.

    Which keys are used, and which are not, is logged: a key that nobody reads looks like a wrong password otherwise.
    """
    if not directory.is_dir():
        return {}
    found = {p.name: p for p in sorted(directory.iterdir()) if not p.name.startswith(".") and p.is_file()}
    used = {name: path for name, path in found.items() if name.startswith(prefix)}
    if found:
        log.event("credentials.found", used=sorted(used), ignored=sorted(found.keys() - used))
    return {name: _setting(name, path) for name, path in used.items()}


def _setting(name: str, path: Path) -> str:
    value = path.read_bytes()
    try:
        if len(value) <= _MAX_SETTING and "\0" not in (text := value.decode().strip()):
            return text
    except UnicodeDecodeError:
        pass
    raise FetchError(
        "InvalidCredentials",
        f"the value of {name} is not UTF-8 text of at most {_MAX_SETTING} bytes",
        field=CREDENTIALS_FIELD,
    )

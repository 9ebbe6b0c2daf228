"""Which object store a URI names, and how it is reached: obstore is the one client for S3, GCS, Azure, HTTP and files.

Credentials are a directory with one file per setting (a mounted Secret); the names are obstore's own
(``AWS_ACCESS_KEY_ID``, …). Their values are handed to the client and appear nowhere else.
"""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from obstore.store import AzureStore, GCSStore, HTTPStore, LocalStore, S3Store

from headway_runtime.prepare.errors import FetchError

SCHEMES = ("s3", "gs", "az", "http", "https", "file")
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
    """Raises FetchError ``InvalidURI`` for what no store can hold."""
    parts = urlsplit(uri)
    key = unquote(parts.path).lstrip("/")
    if parts.scheme not in SCHEMES or not key or parts.fragment or parts.username or parts.password:
        raise FetchError(
            "InvalidURI", f"the URI must be like s3://bucket/key.pt2, with one of the schemes {', '.join(SCHEMES)}"
        )
    if parts.query:
        raise FetchError(
            "InvalidURI", "a URI with a query cannot be fetched; use s3://, gs:// or az:// with credentials"
        )
    settings = _settings(credentials, _PREFIX.get(parts.scheme, "-"))
    http = parts.scheme == "http" or any(
        v.startswith("http://") for k, v in settings.items() if "ENDPOINT" in k.upper()
    )
    options: dict[str, Any] = {"timeout": "2h", "connect_timeout": "10s", "read_timeout": "60s", "allow_http": http}
    common = {"client_options": options, "retry_config": {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}}
    try:
        match parts.scheme:
            case "file":
                if parts.netloc not in ("", "localhost"):
                    raise FetchError("InvalidURI", "a file URI has three slashes: file:///path/model.pt2")
                return Location(LocalStore("/"), key)
            case "http" | "https":
                return Location(HTTPStore.from_url(f"{parts.scheme}://{parts.netloc}", **common), key)
            case "s3":
                return Location(S3Store(parts.netloc, config=settings, **common), key)
            case "gs":
                return Location(GCSStore(parts.netloc, config=settings, **common), key)
        container, _, blob = key.partition("/")
        return Location(
            AzureStore(container, config={"AZURE_STORAGE_ACCOUNT_NAME": parts.netloc, **settings}, **common), blob
        )
    except FetchError:
        raise
    except Exception as e:  # obstore raises its own types for settings it does not know; a value may be in the text
        raise FetchError(
            "InvalidURI", f"no {parts.scheme} client can be made from these settings: {type(e).__name__}"
        ) from None


def _settings(directory: Path, prefix: str) -> dict[str, str]:
    """Settings of this kind of store. Kubernetes' own bookkeeping (names with a leading dot) is skipped."""
    if not directory.is_dir():
        return {}
    files = sorted(
        p for p in directory.iterdir() if p.name.startswith(prefix) and p.is_file() and p.stat().st_size <= _MAX_SETTING
    )
    return {p.name: p.read_text(encoding="utf-8").strip() for p in files}

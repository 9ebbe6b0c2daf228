"""The API server, as the operator uses it: a small client over `kubernetes.aio`, which does TLS and tokens.

    get, list               read
    apply(desired, live)    make an object be as desired: create it if it is absent, else server-side apply
    delete(live)            only this very object (UID precondition)
    write_status(md, …)     server-side apply on the status subresource
    annotate(live, …)       for pods: the nudge that makes the kubelet look at its volumes

Server-side apply with `force` would silently take over a user's object of the same name, so that `apply` touches
only objects which have our controller or, without one, our labels (`ownership`), and creates with POST, which fails
where something already is. An object created by POST is recorded as an `Update` of our field manager; fields so owned
would outlive their removal from what we apply, so the entry is renamed to `Apply` before the first apply (as
client-go's csaupgrade does).
"""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import aiohttp
from headway_api import names
from kubernetes.aio.client.api_client import ApiClient

from headway_operator import errors
from headway_operator.debug import Debug
from headway_operator.kinds import CONTROLLER_REVISION, MODEL_DEPLOYMENT, Kind, kind_of
from headway_operator.metrics import Metrics
from headway_operator.observed import Object
from headway_operator.ownership import Ownership, created_by_post, ownership, upgraded_managers

REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=20)  # seconds
PAGE = 500  # objects per list call

_JSON = "application/json"
_APPLY = "application/apply-patch+yaml; charset=utf-8"  # without a parameter the client would encode the text again
_YAML = "application/yaml"
_MERGE = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_NOT_PRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")  # what YAML takes only escaped
_VERBS = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}


def as_yaml(obj: Object) -> str:
    """JSON that is YAML, too: without pairs of surrogates, which YAML refuses, and what it takes only escaped."""
    text = json.dumps(obj, ensure_ascii=False)
    return _NOT_PRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class Cluster:
    """A connection to the API server. Every method raises `errors.ClusterError` subclasses, and nothing else."""

    def __init__(self, client: ApiClient, *, metrics: Metrics, debug: Debug | None = None) -> None:
        self._client = client
        self._metrics = metrics
        self._debug = debug or Debug()

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """The object, or None where there is none."""
        try:
            return await self._call("GET", kind, kind.path(namespace, name))
        except errors.GoneError:
            return None

    async def list(
        self, kind: Kind, namespace: str | None = None, *, labels: str = "", fields: str = ""
    ) -> tuple[list[Object], int]:
        """All objects (of a namespace) and the resource version they were read at, in pages."""
        items: list[Object] = []
        query = {"limit": str(PAGE), "labelSelector": labels, "fieldSelector": fields}
        while True:
            page = await self._call("GET", kind, kind.path(namespace), query=query, verb="list")
            items += ({"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in page["items"])
            metadata = page["metadata"]
            if not metadata.get("continue"):
                return items, int(metadata.get("resourceVersion") or 0)
            query["continue"] = metadata["continue"]

    async def apply(self, desired: Object, live: Object | None) -> Object:
        """Make the object be as desired and return it as it is now. `live` is what the store has, None for absent.

        Raises ForeignObjectError when an object of this name is there and not ours, ConflictError when it is one of an
        owner that is gone, which garbage collection is about to remove.
        """
        kind, metadata = kind_of(desired), desired["metadata"]
        if live is None:
            try:
                return await self.create(desired)
            except errors.AlreadyExistsError:
                if kind is CONTROLLER_REVISION:  # immutable: another operator was faster, and its record counts
                    raise
                live = await self.get(kind, metadata["namespace"], metadata["name"])
            if live is None:
                raise errors.ConflictError(f"{kind.kind}/{metadata['name']} was there and is not any more")
        match ownership(desired, live):
            case Ownership.FOREIGN:
                raise errors.ForeignObjectError(f"{kind.kind}/{metadata['name']}")
            case Ownership.STALE:
                raise errors.PredecessorError(f"{kind.kind}/{metadata['name']}")
            case Ownership.OURS:
                pass
        if created_by_post(live):
            await self._upgrade_managers(kind, live)
        guarded = {**desired, "metadata": {**metadata, "uid": live["metadata"]["uid"]}}
        path = kind.path(metadata["namespace"], metadata["name"])
        return await self._call("PATCH", kind, path, body=guarded, content=_APPLY, query={"force": "true"})

    async def create(self, obj: Object) -> Object:
        """Create an object. Raises AlreadyExistsError."""
        kind = kind_of(obj)
        path = kind.path(obj["metadata"]["namespace"])
        # The `data` of a ControllerRevision is immutable byte by byte, and every patch spells it as Go does. Were it
        # made from JSON, our own spelling would be stored, and no patch accepted any more, not even of a label. From
        # YAML the server makes its own spelling at once.
        return await self._call("POST", kind, path, body=obj, content=_YAML if kind is CONTROLLER_REVISION else _JSON)

    async def delete(self, live: Object) -> None:
        """Delete this very object, and its dependents in the background; nothing happens if it is gone already."""
        kind, metadata = kind_of(live), live["metadata"]
        options = {"preconditions": {"uid": metadata["uid"]}, "propagationPolicy": "Background"}
        path = kind.path(metadata["namespace"], metadata["name"])
        try:
            await self._call("DELETE", kind, path, body=options)
        except (errors.GoneError, errors.ConflictError):  # gone, or another object has its name now
            return

    async def write_status(self, md: Object, status: Object) -> Object:
        """Server-side apply the status of this very ModelDeployment (UID precondition) and return it as it is now."""
        metadata = md["metadata"]
        body = {
            "apiVersion": MODEL_DEPLOYMENT.api_version,
            "kind": MODEL_DEPLOYMENT.kind,
            "metadata": {key: metadata[key] for key in ("name", "namespace", "uid")},
            "status": status,
        }
        path = MODEL_DEPLOYMENT.path(metadata["namespace"], metadata["name"], subresource="status")
        return await self._call(
            "PATCH", MODEL_DEPLOYMENT, path, body=body, content=_APPLY, query={"force": "true"}, subresource="status"
        )

    async def annotate(self, live: Object, annotations: Mapping[str, str]) -> Object:
        """Set annotations of this very object (UID precondition) and return it as it is now."""
        kind, metadata = kind_of(live), live["metadata"]
        body = {"metadata": {"uid": metadata["uid"], "annotations": dict(annotations)}}
        path = kind.path(metadata["namespace"], metadata["name"])
        return await self._call("PATCH", kind, path, body=body, content=_MERGE)

    async def _upgrade_managers(self, kind: Kind, live: Object) -> None:
        """Turn our `Update` entry of the managed fields into an `Apply` entry."""
        namespace, name = live["metadata"]["namespace"], live["metadata"]["name"]
        whole = await self.get(kind, namespace, name)
        if whole is None or whole["metadata"]["uid"] != live["metadata"]["uid"]:
            raise errors.ConflictError(f"{kind.kind}/{name} is not the object that was seen")
        if (managers := upgraded_managers(whole)) is None:
            return
        patch = [
            {"op": "replace", "path": "/metadata/managedFields", "value": managers},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": whole["metadata"]["resourceVersion"]},
        ]
        await self._call("PATCH", kind, kind.path(namespace, name), body=patch, content=_JSON_PATCH)

    async def _call(
        self,
        method: str,
        kind: Kind,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content: str = _JSON,
        verb: str | None = None,
        subresource: str | None = None,
    ) -> Object:
        """One request; its answer as JSON."""
        verb = verb or _VERBS[method]
        parameters = {key: value for key, value in (query or {}).items() if value}
        if method in ("POST", "PATCH"):
            # Strict: a field that the server does not know is an error, not dropped behind the user's back.
            parameters |= {"fieldManager": names.FIELD_MANAGER, "fieldValidation": "Strict"}
        url = f"{path}?{urlencode(parameters)}" if parameters else path
        self._debug.asked(kind, verb, subresource)
        status, answer, headers = await self._send(method, url, body, content)
        self._metrics.api_request(kind.plural, verb, status)
        if not 200 <= status <= 299:
            call = f"{verb} {path}"
            raise errors.from_response(status, answer, call=call, retry_after=headers.get("Retry-After"))
        if method != "GET":
            self._debug.wrote()
        try:
            result = json.loads(answer)
        except ValueError as error:
            raise errors.TransientError(f"{verb} {path}: the answer is no JSON: {answer[:200]!r}") from error
        assert isinstance(result, dict)
        return result

    async def _send(self, method: str, url: str, body: Any, content: str) -> tuple[int, bytes, Mapping[str, str]]:
        """Status, body and headers of the answer."""
        headers = {"Accept": _JSON, "Content-Type": content}
        if content in (_APPLY, _YAML):
            body = as_yaml(body)
        try:
            request = await self._client.param_serialize(
                method, url, header_params=headers, query_params=[], body=body, auth_settings=["BearerToken"]
            )
            response = await self._client.call_api(*request, _request_timeout=REQUEST_TIMEOUT)
            return response.status, await response.read(), response.headers
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise errors.TransientError(f"{method} {url}: no answer: {error!r}") from error

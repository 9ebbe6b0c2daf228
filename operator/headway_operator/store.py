"""What the operator knows of the cluster: the objects that the watches, the resyncs and our own writes have shown.

The newest resource version wins, whoever brings it: an answer to our own write may arrive before or after the watch
event of the same change. Objects are kept `trimmed`, and found by reference or by owner: the ModelDeployment or the
router that they belong to. Values that come out are shared: read them, never change them.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headway_operator.kinds import Kind, kind_of
from headway_operator.observed import Object
from headway_operator.trim import owner_of, trimmed


class Owner(NamedTuple):
    """Whom an object belongs to, and so which pass cares: `("md", namespace, name)` or `("router", namespace, "")`."""

    reconciler: str
    namespace: str
    name: str = ""


class Reference(NamedTuple):
    """Where an object is."""

    kind: Kind
    namespace: str
    name: str


class Store:
    """Objects by reference and by owner. Not thread-safe: for one event loop."""

    def __init__(self) -> None:
        self._objects: dict[Reference, Object] = {}
        self._owned: dict[Owner, dict[Reference, None]] = {}
        self._placed: dict[tuple[Kind, str], dict[Reference, None]] = {}
        self._tombstones: dict[Reference, int] = {}  # resource version of the deletion; cleared by the next `replace`

    def get(self, kind: Kind, namespace: str, name: str) -> Object | None:
        """The object, or None."""
        return self._objects.get(Reference(kind, namespace, name))

    def owned(self, owner: Owner, kind: Kind) -> list[Object]:
        """The objects of a kind that belong to an owner, by name."""
        found = (reference for reference in self._owned.get(owner, ()) if reference.kind is kind)
        return [self._objects[reference] for reference in sorted(found, key=lambda reference: reference.name)]

    def all(self, kind: Kind, namespace: str) -> list[Object]:
        """All objects of a kind in a namespace."""
        return [self._objects[reference] for reference in self._placed.get((kind, namespace), ())]

    def everything(self, kind: Kind) -> list[Object]:
        """All objects of a kind."""
        return [obj for reference, obj in self._objects.items() if reference.kind is kind]

    def put(self, obj: Object) -> set[Owner]:
        """Take in an object as it is (now or some time ago). Returns the owners to whom this is news."""
        reference, version = _reference(obj), _version(obj)
        known = self._objects.get(reference)
        if version <= self._tombstones.get(reference, 0) or (known is not None and version <= _version(known)):
            return set()
        self._tombstones.pop(reference, None)
        return self._forget(reference) | self._insert(reference, trimmed(obj))

    def remove(self, obj: Object) -> set[Owner]:
        """Take in that an object was deleted, in its last state. Returns the owners to whom this is news."""
        reference, version = _reference(obj), _version(obj)
        known = self._objects.get(reference)
        if known is not None and _version(known) > version:
            return set()  # an object of the same name has been created since
        self._tombstones[reference] = max(version, self._tombstones.get(reference, 0))
        return self._forget(reference)

    def replace(self, kind: Kind, objects: Iterable[Object], version: int, namespace: str | None = None) -> set[Owner]:
        """A complete list, read at `version`, of a kind (in a namespace); returns the owners to whom it is news.

        What is not in the list is gone, unless it was seen at a later version than the list.
        """
        listed = {_reference(obj): obj for obj in objects}
        news: set[Owner] = set()
        for reference, known in list(self._objects.items()):
            within = reference.kind is kind and namespace in (None, reference.namespace)
            if within and reference not in listed and _version(known) <= version:
                news |= self._forget(reference)
        for obj in listed.values():
            news |= self.put(obj)
        for reference, deleted in list(self._tombstones.items()):
            if reference.kind is kind and deleted <= version:
                del self._tombstones[reference]
        return news

    def __len__(self) -> int:
        return len(self._objects)

    def _insert(self, reference: Reference, obj: Object) -> set[Owner]:
        self._objects[reference] = obj
        self._placed.setdefault((reference.kind, reference.namespace), {})[reference] = None
        owner = _owner(obj)
        if owner is None:
            return set()
        self._owned.setdefault(owner, {})[reference] = None
        return {owner}

    def _forget(self, reference: Reference) -> set[Owner]:
        if (known := self._objects.pop(reference, None)) is None:
            return set()
        del self._placed[reference.kind, reference.namespace][reference]
        if (owner := _owner(known)) is None:
            return set()
        del self._owned[owner][reference]
        if not self._owned[owner]:
            del self._owned[owner]
        return {owner}


def _reference(obj: Object) -> Reference:
    metadata = obj["metadata"]
    return Reference(kind_of(obj), metadata["namespace"], metadata["name"])


def _owner(obj: Object) -> Owner | None:
    owner = owner_of(obj)
    return None if owner is None else Owner(*owner)


def _version(obj: Object) -> int:
    """Resource versions are comparable as integers (KEP-5504)."""
    return int(obj["metadata"]["resourceVersion"])

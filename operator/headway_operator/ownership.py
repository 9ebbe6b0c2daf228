"""Whose an object is, and what the API server recorded of our writes to it. Pure."""

from enum import Enum, auto

from headway_api import names

from headway_operator.observed import Object


class Ownership(Enum):
    """What an object that is there is to the one that we want to have under its name."""

    OURS = auto()
    STALE = auto()  # ours, of an owner of the same name that is gone: garbage collection is about to remove it
    FOREIGN = auto()


def ownership(desired: Object, live: Object) -> Ownership:
    """Whether `live` may be written to: it has our very controller, or, where no controller is wanted, our labels.

    The controller decides alone where there is one, so that a label that somebody removed by hand is put back.
    """
    ours, wanted = _controller(live), _controller(desired)
    labelled = _carries(live, desired["metadata"].get("labels") or {})
    if wanted is None:
        return Ownership.OURS if labelled and ours is None else Ownership.FOREIGN
    if ours is None:
        return Ownership.FOREIGN
    if ours["uid"] == wanted["uid"]:
        return Ownership.OURS
    stale = labelled and (ours["kind"], ours["name"]) == (wanted["kind"], wanted["name"])
    return Ownership.STALE if stale else Ownership.FOREIGN


def is_controlled_by(obj: Object, controller: Object) -> bool:
    """Whether the object's controller is this very object."""
    found = _controller(obj)
    return found is not None and found["uid"] == controller["metadata"]["uid"]


def created_by_post(live: Object) -> bool:
    """Whether the managed fields still hold the entry of the POST by which we created the object."""
    return any(_is_ours_by_update(entry) for entry in live["metadata"].get("managedFields") or [])


def upgraded_managers(live: Object) -> list[Object] | None:
    """The managed fields with the entry of our POST as one of server-side apply; None when there is nothing to do."""
    entries = live["metadata"].get("managedFields") or []
    if not created_by_post(live):
        return None
    if any(entry["manager"] == names.FIELD_MANAGER and entry["operation"] == "Apply" for entry in entries):
        return [entry for entry in entries if not _is_ours_by_update(entry)]
    return [{**entry, "operation": "Apply"} if _is_ours_by_update(entry) else entry for entry in entries]


def marked_managers(live: Object) -> list[Object]:
    """What the store keeps of the managed fields: that there is an entry of our POST, without its fields."""
    return [{"manager": names.FIELD_MANAGER, "operation": "Update"}] if created_by_post(live) else []


def _is_ours_by_update(entry: Object) -> bool:
    ours = entry["manager"] == names.FIELD_MANAGER and entry["operation"] == "Update"
    return ours and not entry.get("subresource")


def _controller(obj: Object) -> Object | None:
    owners: list[Object] = obj["metadata"].get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)


def _carries(live: Object, wanted: Object) -> bool:
    """Whether the labels that say who made an object, and for whom, are there as wanted."""
    labels = live["metadata"].get("labels") or {}
    identity = (names.LABEL_MANAGED_BY, names.LABEL_COMPONENT, names.LABEL_MODEL)
    same = all(labels.get(label) == wanted[label] for label in identity if label in wanted)
    return same and labels.get(names.LABEL_MANAGED_BY) == names.MANAGED_BY

"""Which revisions the spec asks for: found among the records, or recorded now.

The digest is not part of a revision's hash, so that pinning a discovered one changes nothing. A digest that the user
writes is an assertion: equal to the pin it is the same revision, otherwise another content and a revision of its own,
with the digest in its name. So a name never comes to mean other bytes, even where its record is lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from headway_api import names
from headway_api.conditions import Reason
from headway_api.revision import Cold, canary_cold_fields, cold_fields, revision_name

from headway_operator.desired.record import new_record
from headway_operator.observed import Record
from headway_operator.plan.facts import Facts


@dataclass(frozen=True, slots=True)
class Wanted:
    """The revisions that the spec asks for, and what has to be recorded for them."""

    stable: str
    canary: str | None
    records: Mapping[str, Record]  # all that there are, new ones included
    new: tuple[Record, ...]


def identify(facts: Facts, stable_now: str | None, canary_now: str | None) -> Wanted:
    """Find or record the revisions of the spec."""
    assert facts.spec is facts.observed.resource.spec
    refresh = facts.observed.resource.annotations.get(names.ANNOTATION_REFRESH)
    known = dict(facts.records)
    stable = _resolve(facts, known, cold_fields(facts.spec, refresh), facts.spec.artifact.digest, (stable_now,))
    known[stable.name] = stable
    canary = None
    cold = canary_cold_fields(facts.spec, refresh)
    if facts.spec.canary and cold:
        canary = _resolve(facts, known, cold, facts.spec.canary.artifact.digest, (canary_now, stable.name))
        known[canary.name] = canary
    return Wanted(
        stable=stable.name,
        canary=canary.name if canary and canary.name != stable.name else None,
        records=known,
        new=tuple(record for name, record in known.items() if name not in facts.records),
    )


def _resolve(
    facts: Facts, known: Mapping[str, Record], cold: Cold, digest: str | None, prefer: tuple[str | None, ...]
) -> Record:
    base = revision_name(cold)
    family = [record for record in known.values() if record.base == base]
    family.sort(key=lambda record: (_is_proven(facts, record), record.number), reverse=True)
    if digest is None:
        sound = {record.name: record for record in family if not is_refuted(facts, record)}
        present = next((sound[name] for name in (*prefer, *sound) if name in sound), None)
        fresh = revision_name(cold, salt=str(_next_number(known))) if base in known else base
        return present or _record(facts, known, cold, base, fresh, None)
    if asserted := next((record for record in family if record.pin == digest), None):
        return asserted
    found = base not in known and _content(facts, base) == digest
    return _record(facts, known, cold, base, base if found else revision_name(cold, salt=digest), digest)


def _is_proven(facts: Facts, record: Record) -> bool:
    """Whether a revision serves, could, or did. A share alone proves nothing: it may have had no pod to answer it."""
    return bool(record.role or facts.ready_of(record.name))


def is_refuted(facts: Facts, record: Record) -> bool:
    """Whether a pin that only a user asserted is wrong: nobody was ever served by it, and its pods found other bytes.

    A revision that served keeps its pin: other bytes behind its URI are for `headway.dev/refresh` to take. Only
    `prepare` is asked: a model that said so itself would get a new revision, and another one after that, without end.
    """
    if _is_proven(facts, record):
        return False
    pods = (pod for pod in facts.observed.pods if pod.revision == record.name and pod.termination)
    told = (pod.termination for pod in pods if pod.terminated == names.PREPARE_CONTAINER)
    return any(termination and termination.reason == Reason.DIGEST_MISMATCH for termination in told)


def _next_number(known: Mapping[str, Record]) -> int:
    return max((record.number for record in known.values()), default=0) + 1


def _record(facts: Facts, known: Mapping[str, Record], cold: Cold, base: str, name: str, digest: str | None) -> Record:
    # A record that was deleted by hand is written again, with what is known of the content of its pods.
    pin = digest or _content(facts, name)
    return new_record(facts.observed, cold, name=name, base=base, number=_next_number(known), pin=pin)


def _content(facts: Facts, revision: str) -> str | None:
    """The digest that the pods of a revision found, by their own word or by what status remembers; None: not known."""
    before: str | None = facts.before.get(revision, {}).get("artifactDigest")
    return facts.told.get(revision) or before

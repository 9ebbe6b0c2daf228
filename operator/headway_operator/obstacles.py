"""What stands in the way of a pass and no watch tells: others under our names, refusals, a namespace that ends.

Kept in memory only: an operator that starts runs into the same obstacles again.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from headway_operator.cluster import Cluster
from headway_operator.kinds import kind_of
from headway_operator.observed import Object
from headway_operator.ownership import Ownership, ownership
from headway_operator.store import Owner

LOOK_AGAIN = 30.0  # seconds between two looks at an object that is in the way
TRY_AGAIN = 300.0  # seconds after which a refusal of what the spec asks for is put to the test again


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the API server did not take, and why."""

    message: str
    by_spec: bool  # for what the spec asks for; otherwise for a quota, a policy or a right of the operator
    again: float  # seconds until it is put to the test again


class Obstacles:
    """The obstacles of every ModelDeployment."""

    def __init__(self, cluster: Cluster, clock: Callable[[], float]) -> None:
        self._cluster = cluster
        self._clock = clock
        self._foreign: dict[Owner, tuple[float, tuple[Object, ...]]] = {}  # when looked; what we wanted to be there
        self._refused: dict[Owner, tuple[str, int, Refusal, float]] = {}  # UID, generation, what, when
        self._terminating: dict[Owner, str] = {}  # UID
        self._waiting: dict[Owner, tuple[str, float]] = {}  # UID, since when

    async def conflicts(self, owner: Owner) -> tuple[tuple[str, ...], float | None]:
        """`Kind/name` of objects that are not ours, and the seconds until they should be looked at again."""
        if owner not in self._foreign:
            return (), None
        looked, wanted = self._foreign[owner]
        if self._clock() - looked >= LOOK_AGAIN:
            wanted = tuple([desired for desired in wanted if await self._is_foreign(desired)])
            looked = self._clock()
            self._foreign.pop(owner)
            self.met_foreign(owner, wanted)
        again = looked + LOOK_AGAIN - self._clock() if wanted else None
        return tuple(sorted(_reference(desired) for desired in wanted)), again

    def met_foreign(self, owner: Owner, wanted: Iterable[Object]) -> None:
        """These objects could not be made because others have their names."""
        found = tuple(wanted)
        looked, known = self._foreign.pop(owner, (0.0, ()))
        if found:
            same = set(map(_reference, found)) == set(map(_reference, known))
            self._foreign[owner] = (looked if same else self._clock(), found)

    def is_in_the_way(self, owner: Owner, desired: Object) -> bool:
        """Whether somebody else's object has this name, as far as we know."""
        _, wanted = self._foreign.get(owner, (0.0, ()))
        return any(_reference(known) == _reference(desired) for known in wanted)

    def met_refusal(self, owner: Owner, md: Object, message: str, *, by_spec: bool) -> None:
        """The API server refuses what follows from this generation of the spec."""
        refusal = Refusal(message, by_spec, TRY_AGAIN if by_spec else LOOK_AGAIN)
        self._refused[owner] = (md["metadata"]["uid"], md["metadata"]["generation"], refusal, self._clock())

    def met_predecessor(self, owner: Owner, md: Object, reference: str) -> None:
        """An object is still that of a deleted ModelDeployment of this name; usually for seconds."""
        uid, since = self._waiting.get(owner, ("", 0.0))
        if uid != md["metadata"]["uid"]:
            self._waiting[owner] = (md["metadata"]["uid"], self._clock())
        elif self._clock() - since >= LOOK_AGAIN:
            message = (
                f"{reference} is still there, of a ModelDeployment of this name that was deleted; its end is waited "
                "for. If it has finalizers, see who should remove them; or delete it"
            )
            self.met_refusal(owner, md, message, by_spec=False)

    def refusal(self, owner: Owner, md: Object) -> Refusal | None:
        """The refusal that stands for this generation of the spec."""
        if (known := self._refused.get(owner)) is None:
            return None
        uid, generation, refusal, time = known
        same = (uid, generation) == (md["metadata"]["uid"], md["metadata"]["generation"])
        left = time + refusal.again - self._clock()
        return replace(refusal, again=left) if same and left > 0 else None

    def met_end_of_namespace(self, owner: Owner, md: Object) -> None:
        """Nothing can be created in the namespace of this ModelDeployment any more."""
        self._terminating[owner] = md["metadata"]["uid"]

    def namespace_ends(self, owner: Owner, md: Object) -> bool:
        """Whether the namespace is being deleted, as far as we know. There is no way back from it."""
        return bool(self._terminating.get(owner) == md["metadata"]["uid"])

    def forget(self, owner: Owner) -> None:
        """The ModelDeployment is gone."""
        for known in (self._foreign, self._refused, self._terminating, self._waiting):
            known.pop(owner, None)

    async def _is_foreign(self, desired: Object) -> bool:
        metadata = desired["metadata"]
        live = await self._cluster.get(kind_of(desired), metadata["namespace"], metadata["name"])
        return live is not None and ownership(desired, live) is Ownership.FOREIGN


def _reference(desired: Object) -> str:
    return f"{desired['kind']}/{desired['metadata']['name']}"

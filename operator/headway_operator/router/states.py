"""What the passes of the ModelDeployments learn from a router pass. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from headway_operator.observed import RouteState
from headway_operator.router.intent import Intent
from headway_operator.router.render import Published, Step
from headway_operator.router.render.published import plain


def route_states(
    before: Mapping[str, RouteState],
    wanted: Mapping[str, Intent],
    *,
    published: Published,
    outcome: Step,
    routers: int,
    known: bool,
    rejected: str | None,
    now: float,
) -> dict[str, RouteState]:
    """One state per model. `published` is what the acknowledgements in `outcome` speak of."""
    return {
        model: replace(
            _route_state(before.get(model, RouteState()), intent, published=published, outcome=outcome, now=now),
            routers=routers,
            known=known,
            rejected=rejected,
        )
        for model, intent in wanted.items()
    }


def _route_state(before: RouteState, intent: Intent, *, published: Published, outcome: Step, now: float) -> RouteState:
    model = intent.model
    route = published.routes.get(model)
    confirmed = outcome.routes_acknowledged and route is not None
    weights = route.weights if confirmed and route is not None else before.weights
    settled = confirmed and outcome.published.routes.get(model) == route and weights == intent.carrying
    at = before.acknowledged_at if weights == before.weights else None
    return RouteState(
        weights=weights,
        clusters=frozenset(b.revision for b in intent.backends if plain(model, b.revision) in outcome.healthy),
        acknowledged_at=now if at is None and confirmed else at,
        pending=not settled,
    )

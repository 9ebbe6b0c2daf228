"""What a router says it obeys: Envoy's statistics, as its read-only listener gives them, read into an `Ack`."""

import json

from headway_operator.router.render import Ack
from headway_operator.router.render.listeners import STAT_PREFIX
from headway_operator.router.render.routes import ROUTE_CONFIGURATION

_ROUTES = f"http.{STAT_PREFIX}.rds.{ROUTE_CONFIGURATION}"
_CLUSTERS = "cluster_manager.cds"
_LISTENERS = "listener_manager.lds"
_HEALTHY = ".membership_healthy"


def parse(text: str | bytes, router: str) -> Ack:
    """Read the answer to GET `/readout` of the router pod `router`. Raises ValueError when it is no such answer."""
    try:
        values = {stat["name"]: stat["value"] for stat in json.loads(text)["stats"] if "name" in stat}
        return Ack(
            router=router,
            clusters=str(values.get(f"{_CLUSTERS}.version_text", "")),
            routes=str(values.get(f"{_ROUTES}.version_text", "")),
            listeners=str(values.get(f"{_LISTENERS}.version_text", "")),
            warming=int(values.get("cluster_manager.warming_clusters", 0)),
            healthy={
                name.removeprefix("cluster.").removesuffix(_HEALTHY): int(value)
                for name, value in values.items()
                if name.startswith("cluster.") and name.endswith(_HEALTHY)
            },
            rejections=sum(
                int(values.get(f"{source}.{count}", 0))
                for source in (_CLUSTERS, _ROUTES, _LISTENERS)
                for count in ("update_rejected", "update_failure")  # understood and refused, or not understood
            ),
        )
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValueError(f"router {router}: the answer to /readout is not Envoy's statistics: {error!r}") from error

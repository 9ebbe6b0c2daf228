"""The pure part of the router: what is published next, and Envoy's files for it. No I/O, no clock.

What enters: the intents of a namespace, what is published now, what every serving router acknowledged, and the time.
What leaves: what to publish next. Read `published.py` (the values), then `step.py` (make before break: the order in
which they may change), then `clusters.py`, `routes.py` and `listeners.py`, which write them as Envoy resources.
"""

from headway_operator.router.render.published import Published, Route
from headway_operator.router.render.site import Site
from headway_operator.router.render.step import Ack, Step, step
from headway_operator.router.render.xds import File, Files, render

__all__ = ["Ack", "File", "Files", "Published", "Route", "Site", "Step", "render", "step"]

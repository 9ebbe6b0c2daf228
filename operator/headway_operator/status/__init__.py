"""What the user reads: the whole `status` of a ModelDeployment, and the events of its transitions.

What enters: `Observed`, `Plan`, the time. What leaves: the same bytes for the same inputs, so that it is written only
when something is different. Nothing is copied from `spec`: a weight is what the routers confirmed, a knob what the pods
obey. A fact that is not known yet (after a restart of the operator) leaves its condition as it was.

Read `build` first, then `serving`, `program`, `knobs` and `rollback`, where each condition is a chain of explanations:
`View -> Verdict or None`, the first that matches speaks.
"""

from headway_operator.status.build import status
from headway_operator.status.readable import readable
from headway_operator.status.transitions import Event, events

__all__ = ["Event", "events", "readable", "status"]

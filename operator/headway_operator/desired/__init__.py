"""The Kubernetes objects that follow from a plan: complete, canonical, and in the order to apply.

What enters: `Observed` and `Plan`. What leaves: objects with `apiVersion`, `kind`, labels and an owner reference to the
ModelDeployment, so that deleting it ends by itself. Deployments are rendered from the recorded pod template of their
revision (`record`), never from the code of the day. Read `build` first; `podtemplate` is what a new revision records.
"""

from headway_operator.desired.build import desired_objects, prunable
from headway_operator.desired.knobs import knobs_text
from headway_operator.desired.record import controller_revision, new_record, record_of

__all__ = ["controller_revision", "desired_objects", "knobs_text", "new_record", "prunable", "record_of"]

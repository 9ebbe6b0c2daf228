"""The control plane: it watches ModelDeployments and makes the cluster be what they say.

One pass, for one ModelDeployment (`reconcile`):

    observe (I/O) -> plan (pure) -> desired (pure) -> apply + prune (I/O) -> status (pure) -> write status (I/O) -> look again after

Read in this order: `observed` (the values that flow through a pass), `plan/` (deciding: roles, replicas, weights), `desired/`
(the objects that follow), `status` (what the user reads), then the edges: `cluster` (the API server), `observe`, `reconcile`,
`workqueue`, `store`, `app` (kopf wiring). `router/` is the second reconciler, keyed by namespace: it renders Envoy's files from
the weights that the passes decided and tells the passes what the routers acknowledged.
"""

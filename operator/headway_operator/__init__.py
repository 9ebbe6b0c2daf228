"""The control plane: it watches ModelDeployments and makes the cluster be what they say.

One pass, for one ModelDeployment (`reconcile`):

    observe (I/O) -> plan (pure) -> desired (pure) -> apply + prune (I/O) -> status (pure) -> write status (I/O)

Read in this order: `observed` (the values that flow through a pass), `plan/` (deciding: roles, replicas, weights),
`desired/` (the objects that follow), `status/` (what the user reads). Then the edges of a pass: `observe` (with `pods`,
`reports`, `heard`, `mounts`, `obstacles`), `apply` (with `compare`, `ownership`), `nudges`, `events`. Then what drives
it: `cluster` (the API server), `store`, `workqueue`, `runner`, `watch` (kopf), `app`. `router/` is the second
reconciler, keyed by namespace: it renders Envoy's files from the weights that the passes decided, and tells the passes
what the routers acknowledged.
"""

"""The contract between users, the operator and the pods: what every other part imports and that imports none of them.

Read in this order: `names` (group, labels, ports, object names), `types` (the `spec` a user writes; `fields` and
`podtemplate` hold its pieces), `units` (durations, sizes), `revision` (which fields make a new version), `podconfig`
(what the operator hands to a pod and what the pod answers), `conditions` and `statustypes` (what `status` may say),
`crd` (the CustomResourceDefinition: the types through `schema`, the `rules`, the printer columns; `reference` makes its
page).
No Kubernetes client, no kopf, no torch.
"""

"""The pod: one revision of one model in one process.

`prepare` (its own container, no torch) turns an artifact into a checked program; `serve` loads that program, warms it,
and answers requests until it is told to end. Read in this order: `serve` (the entry), `sandbox` (its first act), `life`
(from ports to drain), `loading`, `buckets` and `warmup` (what happens before the pod is ready), `protocols.http` (an
HTTP request), `batching` (which requests run together), `knobs` (what can change while it runs), `pod` (the state that
all of them share) and `admin` (what the pod says of itself). A program that generates text goes another way from
`loading` on: `loading_generator`, `generation`, `generator`; `served` is what both have in common.
"""

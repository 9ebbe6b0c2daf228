"""What a pod does to a request before its program runs, and to the answer afterwards: declared in the artifact's record
(`prepare.beside.steps`), run in the same process, each part batched by itself.

    text ─► crew: tokenize ─┐
    image ─► crew: decode ──┴► preprocess (engine) ─► the program (engine) ─► postprocess (engine) ─► labels

Enters: a `Given` with BYTES in it, on the event loop. Leaves: a reply, by the same one call of `Call.done`. Nothing
here waits: what takes time is done by a `crew` of threads or by an engine, and goes on when its answer comes back.

Read `pipeline` first (the order, and what a request may name), then by step: `text` (with `tokens` and `pieces`),
`image` (with `pixels`), `stage` (another program of the archive), `labels`. `opening` makes all of it while the pod
loads.
"""

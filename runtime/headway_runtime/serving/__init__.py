"""A request between its protocol and the batcher: what every protocol shares.

    protocols ──Given──► service ──► intake (names, types, shapes) ──Request──► batching
        ◄──────Reply or RequestError, by one call of Call.done──────┘

Read `values` first, then `intake` (what a program accepts; pure) and `service` (admission, and the way there and back).
`splitting` has requests of more rows than a run may have, `cache` those that were answered before, `steps` what stands
around a program.
"""

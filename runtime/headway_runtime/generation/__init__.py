"""Continuous batching: text from a decoder that was exported to the contract `headway.generate/v1`.

A request (tokens, sampling, where to stop) goes in; pieces of text come out as they are made. One step is one run of
the program: sequences join and leave between two steps.

Read `values` for what goes in and out, then `scheduler`, which says what the next step holds and states the rule; it
stands on `sequence`, `blocks` and `prefix` (whose keys and values are where), `line`, `admission` and `shares` (who
begins, and how much of a prompt runs), and `speculation`, all without tensor, thread or clock. Then `engine`, the
thread that runs it: `stepper` makes one step (`assembly`, `forward`, `drafting`, `sampling`, `text`), `settling` tells
the scheduler and the streams what came of it. `opened` puts an engine together; `gate` tries it before it serves;
`sizing` is the arithmetic of what fits.
"""

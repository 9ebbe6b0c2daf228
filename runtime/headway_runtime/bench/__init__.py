"""Measure a served model, and say what to set: what `headway bench` does.

A target (`target.py`: a URL, or a `.pt2` that is served for the purpose) says what the model takes (`model.py`).
`inputs.py` makes arrays of it, with sizes drawn by `sizes.py`, and `encode.py` makes whole HTTP requests of these,
once. `load.py` sends them over the connections of `connection.py`: in a closed loop (each client waits for its answer)
or an open one (requests come when they come). What comes back are `Samples`; `statistics.py` reads percentiles from
them, `search.py` looks for the highest rate at a latency. `costs.py` fits the pod's own cost curve; `advise.py` says
what follows for `maxBatch`, `maxWait` and (with `buckets.py`) the shape buckets. `report.py` and `plot.py` show the
`results.py`. Start at `session.py`: it is the whole story in order.

A model that generates text has a story of its own, `text_session.py`: `prompts.py` makes requests, `streams.py` sends
them and `streamed.py` reads the answers piece by piece; `text_results.py` and `text_report.py` are what comes of it.

Nothing here imports torch: a client should start at once and need little memory beside the pod.
"""

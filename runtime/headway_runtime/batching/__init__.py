"""Dynamic batching: requests of one kind that wait together run together.

In come decoded requests (`engine.Work`) from the event loop; out go answers, once per run. Read `policy` first: it
decides which requests share a run and when, knows no tensor and no clock, and states the rule. Then `layout` (which
axis holds the rows, joining and parting them) and `engine` (the thread, the lock, failures).
"""

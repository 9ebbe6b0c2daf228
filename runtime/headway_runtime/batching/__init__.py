"""Dynamic batching: requests of one kind that wait together run together.

In come decoded requests (`work.Work`) from the event loop; out go answers, once per run. Read `policy` first: it
decides which requests share a run and when, knows no tensor and no clock, and states the rule; `grouping` chooses the
company, by `costs`. Then `engine`, which puts together `line` (what waits, and the lock), `assembly` and `layout` (the
shapes of a run; joining and parting), `runner` (a run, and its failures) and `turns` (quick programs, on the event
loop). `static` and `cuda` are for GPUs.
"""

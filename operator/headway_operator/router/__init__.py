"""The built-in router: one Envoy Deployment per namespace, driven by files.

What enters: an `Intent` per ModelDeployment, from its pass. What leaves: the router's objects, and a `RouteState` per
ModelDeployment that says what every serving router acknowledged. Read `intent.py` first, then `render/`: the pure part,
which decides in which order clusters and routes are published (make before break) and writes Envoy's files.
`readout.py` reads what a router says about itself, `objects.py` builds the Deployment around it, and `reconcile.py`
does the I/O.
"""

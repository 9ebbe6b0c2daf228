"""The built-in router: one Envoy Deployment per namespace, driven by files.

What enters: an `Intent` per ModelDeployment, from its pass. What leaves: the router's objects, and a `RouteState` per
ModelDeployment that says what every serving router acknowledged. Read `intent.py` first, then `step.py`: the order in which
clusters and routes are published (make before break). `xds.py` and its neighbours turn a published state into Envoy's files, `readout.py`
reads what a router says about itself, `objects.py` builds the Deployment around it, and `reconcile.py` does the I/O.
"""

"""A real Envoy on loopback, with real pods' stand-ins behind real DNS: what the router's tests run against.

`envoy.py` runs Envoy on the files that the renderer writes, swapped as the kubelet swaps a ConfigMap volume. `pods.py`
runs small HTTP servers, one process each, on addresses of their own in 127.0.0.0/8; `dns.py` gives them the names of
headless Services. `stage.py` puts these together and plays the router pass: publish, read acknowledgements, publish.
"""

"""HTTP: the Open Inference Protocol over REST, answered on the event loop without a task for each request.

    bytes ─► connection ─► inference ─► oip.decode ─► Service.call
    bytes ◄─ connection ◄─ inference ◄─ oip.encode ◄─ Reply, by a callback

`connection` is uvicorn's own protocol with one change: a request to a hot route (inference, health) becomes an
turn (`inference`) before uvicorn makes a scope, a cycle and a task of it. Everything else goes on to the ASGI
application, which is FastAPI (`documents`, `openapi`, `triton`): metadata, `/docs`, and what clients of Triton ask for.

Read in this order: `heads` (what a head says; pure), `routes` (which are hot; pure), `answers` (the bytes of an answer;
pure), `turns` and `inference` (one request), `connection` (their order on one connection), `patience` (its bounds),
`front` (what all connections share), `server` (uvicorn, as this pod uses it).
"""

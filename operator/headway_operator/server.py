"""GET /healthz and /metrics of the operator itself.

`/healthz` answers 503 with the complaints when the loop is stuck, so that the kubelet starts the operator anew. A loop
that does not even get to answer is stuck, too.
"""

from collections.abc import Callable

from aiohttp import web

from headway_operator.metrics import Metrics
from headway_operator.store import Owner
from headway_operator.workqueue import WorkQueue


async def serve(
    *,
    host: str,
    port: int,
    metrics: Metrics,
    queue: WorkQueue[Owner],
    complaints: Callable[[], list[str]],
) -> web.AppRunner:
    """Start to serve; the caller ends it with `cleanup`. Raises OSError when the port is in use."""

    async def healthz(_: web.Request) -> web.Response:
        found = complaints()
        return web.json_response({"complaints": found}, status=503 if found else 200)

    async def text(_: web.Request) -> web.Response:
        metrics.queue_depth.set(queue.depth)
        metrics.queue_age.set(queue.oldest_wait)
        return web.Response(body=metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/metrics", text)])
    runner = web.AppRunner(app, access_log=None, handle_signals=False)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner

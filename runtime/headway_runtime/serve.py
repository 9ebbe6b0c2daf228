"""The entry of the serve container: `python -m headway_runtime.serve`.

Order matters: read the cold configuration, set the thread limits, then import torch (everything that needs it is
imported inside `serve`), bind the ports, live. Exit code 0 after a drain, 1 with a termination message that the
operator turns into a condition.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from headway_api import names
from headway_api.podconfig import ColdConfig, Termination
from pydantic import ValidationError

from headway_runtime import logs, processors
from headway_runtime.errors import FatalError
from headway_runtime.origin import read_origin

MESSAGE_LIMIT = 3000  # bytes, as JSON; the kubelet keeps 4096 of a termination message


def main(argv: Sequence[str] | None = None) -> int:
    """Run the pod; returns the exit code."""
    arguments = _parser().parse_args(argv)
    logs.configure()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    try:
        failure = _serve(arguments)
    except FatalError as error:
        failure = error.termination()
    if failure is None:
        return 0
    logs.log("refused", level="error", **failure.to_dict())
    terminate(failure, arguments.termination_log)
    return 1


def terminate(failure: Termination, path: Path) -> None:
    """Leave the reason where the kubelet looks for it. A pod without that file (a laptop) only logs it."""
    message = failure.message
    while len(json.dumps(message)) > MESSAGE_LIMIT:  # a character may be twelve bytes there
        message = message[: -max(1, (len(json.dumps(message)) - MESSAGE_LIMIT) // 12)]
    short = failure.model_copy(update={"message": message})
    try:
        path.write_text(short.to_json())
    except OSError as error:
        logs.log("termination_log_unwritable", level="warning", path=str(path), error_message=str(error))


def read_config(path: Path) -> ColdConfig:
    """The cold configuration. Raises FatalError `InvalidConfig`."""
    try:
        return ColdConfig.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise FatalError("InvalidConfig", f"{path}: {error}") from None


def _serve(arguments: argparse.Namespace) -> Termination | None:
    config = read_config(arguments.config)
    origin = read_origin(arguments.model)
    threads = processors.compute_threads(processors.cpu_limit())
    processors.limit_threads(threads)

    import asyncio  # after the thread limits: what follows imports torch

    import torch
    import uvloop

    from headway_runtime.life import Life, Options
    from headway_runtime.metrics import Metrics
    from headway_runtime.pod import Pod
    from headway_runtime.server import listen

    torch.set_num_threads(threads)
    logs.log("starting", model=config.model, revision=config.revision, threads=threads, torch=torch.__version__)
    pod = Pod(config, Metrics(), origin)
    options = Options(
        model=arguments.model,
        knobs=arguments.knobs,
        inference=listen(arguments.host, arguments.port),
        admin=listen(arguments.host, arguments.admin_port),
    )

    async def live() -> tuple[Termination | None, bool]:
        life = Life(pod, options)
        return await life.run(), life.engine_alive

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        failure, engine_alive = runner.run(live())
    if engine_alive:  # in a load or a run that cannot be interrupted: the interpreter must not wait for it
        if failure is not None:
            terminate(failure, arguments.termination_log)
        sys.stderr.flush()
        os._exit(0 if failure is None else 1)
    return failure


def _end(number: int, _: FrameType | None) -> None:
    """Until the life cycle listens, nothing is lost by ending at once; without a handler the first process of a
    container would ignore SIGTERM while it imports torch, and be waited for.
    """
    logs.log("ended_before_loading", signal=number)
    os._exit(0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headway-serve", description="Serve one prepared program.")
    parser.add_argument("--config", type=Path, default=Path(names.CONFIG_FILE), help="cold configuration, JSON")
    parser.add_argument("--knobs", type=Path, default=Path(names.KNOBS_FILE), help="hot knobs, JSON; watched")
    parser.add_argument("--model", type=Path, default=Path(names.MODEL_DIR), help="the prepared program")
    parser.add_argument("--termination-log", type=Path, default=Path(names.TERMINATION_LOG))
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on")  # noqa: S104 - a pod has only its own
    parser.add_argument("--port", type=int, default=names.INFERENCE_PORT)
    parser.add_argument("--admin-port", type=int, default=names.ADMIN_PORT)
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""The entry of the serve container: `python -m headway_runtime.serve`.

Order matters: read the cold configuration and bind the ports, which the process cannot do later; set the thread
limits; confine the process while it has one thread; only then import torch (everything that needs it is imported inside
`_live`) and live. Exit code 0 after a drain, 1 with a termination message that the operator turns into a condition.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from headway_api import names
from headway_api.podconfig import ColdConfig, SandboxReport, Termination
from headway_api.types import DeviceKind
from pydantic import ValidationError

from headway_runtime import logs, processors
from headway_runtime.errors import FatalError
from headway_runtime.origin import Origin, read_origin
from headway_runtime.ports import Listeners, inherited, listen
from headway_runtime.sandbox import confine, files_of_this_process
from headway_runtime.sandbox.limits import end_with, forget_the_caller
from headway_runtime.termination import TerminationLog


def main(argv: Sequence[str] | None = None) -> int:
    """Run the pod; returns the exit code."""
    arguments = _parser().parse_args(argv)
    logs.configure()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    if arguments.ends_with:
        end_with(arguments.ends_with)
    forget_the_caller(arguments.sockets)
    termination = TerminationLog(arguments.termination_log)
    try:
        failure = _serve(arguments, termination)
    except FatalError as error:
        failure = error.termination()
    if failure is None:
        return 0
    logs.log("refused", level="error", **failure.to_dict())
    termination.write(failure)
    return 1


def read_config(path: Path) -> ColdConfig:
    """The cold configuration. Raises FatalError `InvalidConfig`."""
    try:
        return ColdConfig.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise FatalError("InvalidConfig", f"{path}: {error}") from None


def _serve(arguments: argparse.Namespace, termination: TerminationLog) -> Termination | None:
    config = read_config(arguments.config)
    origin = read_origin(arguments.model)
    listeners = _listen(arguments)
    processors.limit_threads(_threads(config))
    report = _confine(arguments, config)
    return _live(arguments, config, origin, report, listeners, termination)


def _listen(arguments: argparse.Namespace) -> Listeners:
    """Raises FatalError `PortTaken`."""
    if arguments.sockets:
        return Listeners(*map(inherited, arguments.sockets))
    host, grpc_port = arguments.host, arguments.grpc_port
    grpc = listen(host, grpc_port) if grpc_port else None
    return Listeners(listen(host, arguments.port), listen(host, arguments.admin_port), grpc)


def _confine(arguments: argparse.Namespace, config: ColdConfig) -> SandboxReport:
    """Raises FatalError: `SandboxUnavailable`; `InvalidConfig` for a scratch folder that would lay the model open."""
    scratch: Path = arguments.scratch
    for kept in (arguments.model, arguments.knobs):
        if kept.resolve().is_relative_to(scratch.resolve()):
            raise FatalError("InvalidConfig", f"--scratch {scratch} holds {kept}, which must not be written")
    scratch.mkdir(parents=True, exist_ok=True)
    os.environ["TMPDIR"] = str(scratch)
    files = files_of_this_process(
        read=(arguments.model, arguments.knobs.parent), scratch=scratch, gpu=config.device.kind is DeviceKind.GPU
    )
    return confine(files, demand=config.sandbox)


def _live(
    arguments: argparse.Namespace,
    config: ColdConfig,
    origin: Origin,
    sandbox: SandboxReport,
    listeners: Listeners,
    termination: TerminationLog,
) -> Termination | None:
    import asyncio  # what follows imports torch

    import torch
    import uvloop

    from headway_runtime.life import Life, Options
    from headway_runtime.metrics import Metrics
    from headway_runtime.pod import Pod

    threads = _threads(config)
    torch.set_num_threads(threads)  # of every thread that computes
    logs.log(
        "starting",
        model=config.model,
        revision=config.revision,
        instances=config.batching.instances,
        threads=threads,
        torch=torch.__version__,
    )
    pod = Pod(config, Metrics(), origin, sandbox=sandbox)
    inference, admin, grpc = listeners
    options = Options(model=arguments.model, knobs=arguments.knobs, inference=inference, admin=admin, grpc=grpc)

    async def live() -> tuple[Termination | None, bool]:
        life = Life(pod, options)
        return await life.run(), life.engine_alive

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        failure, engine_alive = runner.run(live())
    if engine_alive:  # in a load or a run that cannot be interrupted: the interpreter must not wait for it
        if failure is not None:
            termination.write(failure)
        sys.stderr.flush()
        os._exit(0 if failure is None else 1)
    return failure


def _threads(config: ColdConfig) -> int:
    return processors.compute_threads(processors.cpu_limit(), config.batching.instances)


def _end(number: int, _: FrameType | None) -> None:
    """Until the life cycle listens, nothing is lost by ending at once; without a handler the first process of a
    container would ignore SIGTERM while it imports torch, and be waited for.
    """
    logs.log("ended_before_loading", signal=number)
    os._exit(0)


def _numbers(text: str) -> tuple[int, int, int]:
    inference, admin, grpc = map(int, text.split(","))
    return inference, admin, grpc


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headway-serve", description="Serve one prepared program.")
    parser.add_argument("--config", type=Path, default=Path(names.CONFIG_FILE), help="cold configuration, JSON")
    parser.add_argument("--knobs", type=Path, default=Path(names.KNOBS_FILE), help="hot knobs, JSON; watched")
    parser.add_argument("--model", type=Path, default=Path(names.MODEL_DIR), help="the prepared program")
    parser.add_argument("--termination-log", type=Path, default=Path(names.TERMINATION_LOG))
    parser.add_argument(
        "--scratch",
        type=Path,
        default=Path("/tmp"),  # noqa: S108 - a pod's own
        help="private folder, the only one to be written",
    )
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on")  # noqa: S104 - a pod has only its own
    parser.add_argument("--port", type=int, default=names.INFERENCE_PORT)
    parser.add_argument("--admin-port", type=int, default=names.ADMIN_PORT)
    parser.add_argument("--sockets", type=_numbers, default=(), metavar="N,N,N", help="of the parent, for these ports")
    parser.add_argument("--ends-with", type=int, default=0, metavar="PID", help="of the parent, if it ends with that")
    parser.add_argument("--grpc-port", type=int, default=0, help="0: gRPC is not served")
    return parser


if __name__ == "__main__":
    sys.exit(main())

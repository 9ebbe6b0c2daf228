"""`headway serve`."""

import contextlib
import tempfile
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any

import typer
from headway_api.names import ADMIN_PORT, GRPC_PORT, INFERENCE_PORT
from headway_api.types import Precision

from headway_runtime.cli.arguments import File, precision_option, told


def _port(text: str) -> Any:
    return typer.Option(min=0, max=65535, metavar="PORT", help=f"{text}; 0: any free one")


def serve(
    file: File,
    manifest: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            metavar="FILE",
            help="a ModelDeployment, for its name, precision, batching and generation",
        ),
    ] = None,
    precision: Annotated[
        Precision | None,
        precision_option("in which large weights are kept; else the manifest's, else as exported"),
    ] = None,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, _port("inference")] = INFERENCE_PORT,
    admin_port: Annotated[int, _port("report and metrics")] = ADMIN_PORT,
    grpc_port: Annotated[int, _port("inference by gRPC")] = GRPC_PORT,
    logs: Annotated[bool, typer.Option("--logs", help="show the pod's log: JSON lines, as in a cluster")] = False,
) -> None:
    """Serve a program on this machine, with exactly the code of a pod.

    Prepares, loads and warms it, then says how to ask it. Ctrl-C ends it.
    """
    from headway_runtime import local
    from headway_runtime.cli.serve_progress import Progress

    _check_different({"--port": port, "--admin-port": admin_port, "--grpc-port": grpc_port})
    progress = Progress(logs=logs)
    with tempfile.TemporaryDirectory(prefix="headway-") as name, progress, contextlib.ExitStack() as held:
        folder = Path(name)
        try:
            found = local.read_manifest(manifest) if manifest else None
            if found and found[1].artifact.trust:
                typer.echo("headway: spec.artifact.trust is not checked here; use headway verify", err=True)
            ports = held.enter_context(local.Ports.of(host, port, admin_port, grpc_port))
            config = local.write_files(folder, file, found, precision=precision)
            progress.step(f"preparing {file.name}: inspecting it, and rewriting it without pickle")
            local.prepare(folder, found[1].artifact.digest if found else None, say=progress.log)
            with local.serve(folder, ports, say=progress.log) as pod:
                progress.follow(pod, ports, config, folder)
                pod.wait()
        except local.Interrupted:
            raise typer.Exit(130) from None
        except local.LocalError as error:
            progress.clear()
            typer.echo(f"headway: {told(error, precision)}", err=True)
            raise typer.Exit(1) from None


def _check_different(ports: Mapping[str, int]) -> None:
    """Raises BadParameter for two options with one port."""
    for (one, port), (other, same) in combinations(ports.items(), 2):
        if port == same != 0:
            raise typer.BadParameter(
                f"{one} and {other} are both {port}; the three ports must differ (0: any free one)"
            )

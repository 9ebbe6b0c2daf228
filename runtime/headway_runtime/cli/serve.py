"""`headway serve`."""

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from headway_api.names import ADMIN_PORT, INFERENCE_PORT

from headway_runtime.cli.arguments import File


def serve(
    file: File,
    manifest: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="a ModelDeployment, for its batching fields")
    ] = None,
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="inference")] = INFERENCE_PORT,
    admin_port: Annotated[int, typer.Option(help="report and metrics")] = ADMIN_PORT,
) -> None:
    """Serve a program with exactly the code of a pod, prepare step included. Ctrl-C ends it."""
    from headway_runtime import local

    with tempfile.TemporaryDirectory(prefix="headway-") as name:
        folder = Path(name)
        try:
            found = local.read_manifest(manifest) if manifest else None
            if found and found[1].artifact.trust:
                typer.echo("headway: spec.artifact.trust is not checked here; use headway verify", err=True)
            config = local.write_files(folder, file, found)
            local.prepare(folder, found[1].artifact.digest if found else None)
            url = f"http://{host}:{port}"
            typer.echo(f"POST {url}/v2/models/{config.model}/infer   (docs: {url}/docs)", err=True)
            typer.echo(f"hot knobs: edit {folder / 'knobs.json'}", err=True)
            local.serve(folder, host=host, port=port, admin_port=admin_port)
        except local.LocalError as error:
            typer.echo(f"headway: {error}", err=True)
            raise typer.Exit(1) from None

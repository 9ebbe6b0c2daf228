"""`headway compile`."""

import time
from pathlib import Path
from typing import Annotated

import typer

from headway_runtime.cli.arguments import File
from headway_runtime.cli.passphrase import private_keys


def compile_program(
    file: File,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="where the package goes; for model.pt2: model.native.pt2")
    ] = None,
    target: Annotated[
        str, typer.Option(help="the processor: native (this machine's), x86-64-v3 (AVX2), x86-64-v4 (AVX-512)")
    ] = "native",
    key: Annotated[
        list[Path] | None,
        typer.Option(
            exists=True, dir_okay=False, help="a builder's Ed25519 private key; the package is signed with it"
        ),
    ] = None,
    rtol: Annotated[float, typer.Option(help="how far answers may be apart, relative to the program's")] = 1e-3,
    atol: Annotated[float, typer.Option(help="and absolute")] = 1e-5,
) -> None:
    """Compile a program to native code for CPUs, in a build step: a C++ compiler is needed here, and none in a pod.

    FILE is inspected like in a pod, and only what was checked is compiled. The package is written when its answers
    agree with the program's at several sizes and on its golden samples. A pod loads it only when a key of
    spec.artifact.trust.builderKeys has signed it: here with --key, or later, elsewhere, by `headway sign --native`.
    """
    from headway_runtime.native.errors import CompileError
    from headway_runtime.prepare.errors import PrepareError
    from headway_runtime.prepare.signatures.verify import signature_file

    began = time.monotonic()
    package = output or file.with_name(f"{file.name.removesuffix('.pt2')}.native.pt2")
    if package.exists() and package.samefile(file):
        _fail(f"{package} is the file to be compiled; give another --output")
    try:
        keys = private_keys(key or ())

        from headway_runtime.native.build import build  # imports torch: seconds, after what can be wrong at once
        from headway_runtime.native.trial import Tolerance

        tolerance = Tolerance(rtol, atol)
        built = build(file, package, target=target, tolerance=tolerance, keys=keys, tell=_tell)
    except CompileError as error:
        _fail(f"{file}: not compiled: {error}")
    except PrepareError as error:
        _fail(f"{file}: not compiled ({error.reason})\n  {error}")
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}")
    typer.echo(f"{package}: {built.bytes:,} bytes, for {built.manifest.target}, torch {built.manifest.torch}")
    typer.echo(f"  took {time.monotonic() - began:.0f} s; source {built.manifest.source}")
    typer.echo(f"  needs of the processor: {', '.join(built.manifest.features)}")
    for program in built.programs:
        tried = program.trials
        typer.echo(f"  {program.name}: {program.library_bytes:,} bytes of code in {program.seconds:.0f} s")
        typer.echo(f"    agrees in {tried.count} trials; largest difference {tried.largest:.2g}")
        if not program.parallel:
            typer.echo("    it scatters by index: generated code runs in one thread, torch's own in all")
        for where in tried.skipped:
            typer.echo(f"    not compared at {where}: the program itself fails there on made-up inputs")
        for guard in program.guards:
            typer.echo(f"    holds only when {guard}")
    beside = signature_file(package)
    if keys:
        typer.echo(f"{beside}: signed by {', '.join(signer.keyid for signer in keys)}; publish both files")
    else:
        typer.echo(f"not signed: no pod will load it until `headway sign --native` has{_stale(beside)}")


def _stale(beside: Path) -> str:
    return f" ({beside} is of an earlier package)" if beside.exists() else ""


def _tell(step: str) -> None:
    typer.echo(f"… {step}", err=True)


def _fail(message: str) -> None:
    typer.echo(f"headway: {message}", err=True)
    raise typer.Exit(1)

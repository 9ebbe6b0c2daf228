"""`headway-operator`: the command line of the operator."""

import argparse
import asyncio
import os
from pathlib import Path

from headway_operator import logs
from headway_operator.app import run
from headway_operator.config import Config
from headway_operator.debug import Debug


def main() -> None:
    """Run the operator until SIGTERM or SIGINT."""
    arguments = _parser().parse_args()
    logs.configure(arguments.log_level)
    asyncio.run(run(config(arguments), Debug.from_environment(os.environ)))


def config(arguments: argparse.Namespace) -> Config:
    """What was said on the command line."""
    return Config(
        runtime_image=arguments.runtime_image,
        router_image=arguments.router_image,
        router_pull_secrets=tuple(arguments.router_pull_secret),
        cluster_domain=arguments.cluster_domain,
        namespaces=tuple(arguments.namespace),
        kubeconfig=_kubeconfig(arguments.kubeconfig) if arguments.dev else None,
        host="127.0.0.1" if arguments.dev else arguments.host,
        port=arguments.port,
        workers=arguments.workers,
        resync_seconds=arguments.resync,
    )


def _kubeconfig(given: Path | None) -> Path:
    return given or Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="headway-operator", description=__doc__, allow_abbrev=False)
    parser.add_argument("--runtime-image", required=True, help="image of the pods of new revisions")
    parser.add_argument("--router-image", required=True, help="image of the routers")
    parser.add_argument(
        "--router-pull-secret",
        action="append",
        default=[],
        help="Secret, in each namespace of models, with which new routers pull their image; may be repeated",
    )
    parser.add_argument("--cluster-domain", default="cluster.local", help="DNS domain of the cluster")
    parser.add_argument("--namespace", action="append", default=[], help="work in this one only; may be repeated")
    parser.add_argument("--dev", action="store_true", help="run outside the cluster, with a kubeconfig, on loopback")
    parser.add_argument("--kubeconfig", type=Path, help="with --dev; else $KUBECONFIG or ~/.kube/config")
    parser.add_argument("--host", default="0.0.0.0", help="address of /healthz and /metrics")  # noqa: S104
    parser.add_argument("--port", type=int, default=8080, help="port of /healthz and /metrics")
    parser.add_argument("--workers", type=int, default=8, help="passes at the same time")
    parser.add_argument("--resync", type=float, default=300.0, help="seconds between two comparisons with the cluster")
    parser.add_argument("--log-level", default="INFO", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
    return parser


if __name__ == "__main__":
    main()

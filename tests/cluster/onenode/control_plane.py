"""etcd, the API server, the controllers and the scheduler."""

import ssl
import sys
import time
import urllib.request

from .layout import INSIDE, Layout
from .processes import Processes

READY_SECONDS = 60.0


def wait_for(layout: Layout, path: str) -> None:
    """Wait until the API server answers a request for the path with success."""
    context = ssl.create_default_context(cafile=str(INSIDE / "pki/ca.crt"))
    request = urllib.request.Request(f"https://127.0.0.1:{layout.port}{path}")
    request.add_header("Authorization", f"Bearer {(INSIDE / 'pki/admin.token').read_text()}")
    wait_for_answer(request, context)


def wait_for_answer(request: urllib.request.Request, context: ssl.SSLContext | None = None) -> None:
    """Wait until the request is answered with success; end the cluster if that takes a minute."""
    end = time.monotonic() + READY_SECONDS
    while True:
        try:
            urllib.request.urlopen(request, timeout=2, context=context).close()
        except OSError as error:
            if time.monotonic() > end:
                sys.exit(f"{request.full_url}: {error}")
            time.sleep(0.05)
        else:
            return


def start(layout: Layout, processes: Processes) -> None:
    """Start all four; returns when the API server is ready."""
    _etcd(processes)
    _api_server(layout, processes)
    wait_for(layout, "/readyz")
    keys = INSIDE / "pki"
    # The default limits of 20 to 50 requests a second would decide how long tests take.
    common = ["--leader-elect=false", "--secure-port=0", "--kube-api-qps=500", "--kube-api-burst=1000"]
    processes.start(
        "kube-controller-manager",
        *common,
        f"--kubeconfig={keys}/kube-controller-manager.kubeconfig",
        "--use-service-account-credentials",
        f"--service-account-private-key-file={keys}/sa.key",
        f"--root-ca-file={keys}/ca.crt",
    )
    processes.start("kube-scheduler", *common, f"--kubeconfig={keys}/kube-scheduler.kubeconfig")


def _etcd(processes: Processes) -> None:
    """On Unix sockets and in memory: nothing else on the machine can meet it, and it ends with the cluster."""
    at = f"unix://{INSIDE}/etcd"
    processes.start(
        "etcd",
        f"--data-dir={INSIDE}/etcd",
        "--unsafe-no-fsync",
        "--log-level=warn",
        f"--listen-client-urls={at}.sock",
        f"--advertise-client-urls={at}.sock",
        f"--listen-peer-urls={at}-peer.sock",
        f"--initial-advertise-peer-urls={at}-peer.sock",
        f"--initial-cluster=default={at}-peer.sock",
    )


def _api_server(layout: Layout, processes: Processes) -> None:
    keys = INSIDE / "pki"
    address = (
        [f"--advertise-address={layout.node_ip}"]
        if layout.node
        else ["--bind-address=127.0.0.1", "--endpoint-reconciler-type=none"]
    )
    processes.start(
        "kube-apiserver",
        f"--etcd-servers=unix://{INSIDE}/etcd.sock",
        "--authorization-mode=Node,RBAC",
        f"--secure-port={layout.port}",
        f"--service-cluster-ip-range={layout.services}",
        f"--tls-cert-file={keys}/apiserver.crt",
        f"--tls-private-key-file={keys}/apiserver.key",
        f"--client-ca-file={keys}/ca.crt",
        f"--token-auth-file={keys}/tokens.csv",
        f"--service-account-key-file={keys}/sa.pub",
        f"--service-account-signing-key-file={keys}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--enable-admission-plugins=NodeRestriction",
        f"--kubelet-client-certificate={keys}/kubelet-client.crt",
        f"--kubelet-client-key={keys}/kubelet-client.key",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged",
        *address,
    )

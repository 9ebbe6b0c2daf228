"""How to reach the API server: the pod's service account, or a kubeconfig for an operator that runs outside.

`kubernetes.aio` reads both; kopf, which has a client of its own, gets the same answer through `kopf_login`.
"""

from pathlib import Path

import kopf
from kubernetes.aio import config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

CONNECTIONS = 32  # at once, to the API server


async def api_client(kubeconfig: Path | None) -> ApiClient:
    """A client for the API server of the kubeconfig, or of the cluster that this process runs in."""
    return ApiClient(configuration=await _configuration(kubeconfig))


async def kopf_login(kubeconfig: Path | None) -> kopf.ConnectionInfo:
    """The same for kopf, which calls again when the server stops to accept the token."""
    configuration = await _configuration(kubeconfig)
    scheme, _, token = (await configuration.get_api_key_with_prefix("BearerToken") or "").partition(" ")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        username=configuration.username or None,
        password=configuration.password or None,
        scheme=scheme or None,
        token=token or None,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
    )


async def _configuration(kubeconfig: Path | None) -> Configuration:
    configuration = Configuration(connection_pool_maxsize=CONNECTIONS)
    if kubeconfig is None:
        config.load_incluster_config(client_configuration=configuration)
    else:
        await config.load_kube_config(
            config_file=str(kubeconfig), client_configuration=configuration, persist_config=False
        )
    return configuration

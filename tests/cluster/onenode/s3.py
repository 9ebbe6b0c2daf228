"""Manifests of a real S3 server (versitygw) for tests and the demo."""

from .images import names_of
from .layout import PACKAGE

NAME = "s3"  # of the Deployment, the Service (port 80) and the pods' app.kubernetes.io/name


def manifest(namespace: str, *, bucket: str, access: str, secret: str, image: str = names_of(NAME, "dev")[0]) -> str:
    """YAML of a Secret, a Deployment and a Service in a namespace; the keys are its administrator's, the bucket exists.

    Within the cluster it answers on http://s3.NAMESPACE.svc, path style, in region us-east-1.
    """
    text = (PACKAGE / "manifests/s3.yaml").read_text()
    values = {"NAMESPACE": namespace, "BUCKET": bucket, "ACCESS": access, "SECRET": secret, "IMAGE": image}
    for name, value in values.items():
        text = text.replace(f"@{name}@", value)
    return text

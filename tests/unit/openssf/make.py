"""The bundles in this folder, by the real tool. They are committed, so that no test needs it.

    python -m venv signing && signing/bin/pip install model-signing==1.1.1 pyOpenSSL
    signing/bin/python tests/unit/openssf/make.py

The private keys are thrown away: each run makes new keys and new bundles, which the tests accept as well.
"""

import datetime
import subprocess
import sys
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from model_signing import hashing, signing

HERE = Path(__file__).parent
MODEL = HERE / "program.bin"
CURVES = {"p256": ec.SECP256R1(), "p384": ec.SECP384R1(), "p521": ec.SECP521R1()}


def tool(*arguments: object) -> None:
    """One run of the command `model_signing`."""
    command = [str(Path(sys.executable).with_name("model_signing")), *map(str, arguments)]
    subprocess.run(command, check=True)


def certificate(key: ec.EllipticCurvePrivateKey) -> bytes:
    """A certificate that the key signs itself, as `sign certificate` asks for one."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "team")])
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=36500))
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
    builder = builder.serial_number(x509.random_serial_number()).add_extension(usage, critical=True)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def main() -> None:
    """Write keys and bundles."""
    MODEL.write_bytes(b"a file, standing for a program\n")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for curve, kind in CURVES.items():
            key = ec.generate_private_key(kind)
            private = folder / f"{curve}.pem"
            private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
            public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
            (HERE / f"{curve}.pub").write_bytes(public)
            tool("sign", "key", MODEL, "--private_key", private, "--signature", HERE / f"file-{curve}.sig")
        directory = folder / "team-model"
        for path, data in (("README.md", b"read me\n"), ("a/program.bin", MODEL.read_bytes()), ("b.bin", b"\0" * 70)):
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(data)
        tool("sign", "key", directory, "--private_key", private, "--signature", HERE / "directory-p521.sig")
        pem = folder / "certificate.pem"
        pem.write_bytes(certificate(key))
        signed = ("--private_key", private, "--signing_certificate", pem, "--certificate_chain", pem)
        tool("sign", "certificate", MODEL, *signed, "--signature", HERE / "certificate.sig")
        config = signing.Config().use_elliptic_key_signer(private_key=private)
        blake = hashing.Config().use_file_serialization(hashing_algorithm="blake3")
        config.set_hashing_config(blake).sign(MODEL, HERE / "blake3.sig")
        shards = hashing.Config().use_shard_serialization(hashing_algorithm="sha256", shard_size=16)
        config.set_hashing_config(shards).sign(MODEL, HERE / "shards.sig")


if __name__ == "__main__":
    main()

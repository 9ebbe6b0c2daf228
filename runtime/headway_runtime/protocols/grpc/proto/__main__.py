"""Write `*_pb2.py` and `*_pb2.pyi` again after a change of a .proto file (`python -m` with this package's name).

It needs `grpcio-tools` (with `protobuf<7`), which nothing else here does: use an environment of its own. Only the
descriptor is taken from it, so that the modules work with every protobuf that pyproject.toml admits.
"""

import hashlib
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
PROTOCOLS = ("inference", "health")

_MODULE = """\
# Generated from {name}.proto by `python -m headway_runtime.protocols.grpc.proto`. Do not edit.
# sha256 of {name}.proto: {digest}
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal import builder

DESCRIPTOR = DescriptorPool().AddSerializedFile(
{lines}
)
builder.BuildMessageAndEnumDescriptors(DESCRIPTOR, globals())
builder.BuildTopDescriptorsAndMessages(DESCRIPTOR, __name__, globals())
"""


def digest(name: str) -> str:
    """Of the .proto file; the generated module names it."""
    return hashlib.sha256((FOLDER / f"{name}.proto").read_bytes()).hexdigest()


def main() -> int:
    """Generate both."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        options = [f"-I{FOLDER}", f"--pyi_out={out}", f"--descriptor_set_out={out / 'all'}"]
        if code := protoc.main(["protoc", *options, *(f"{name}.proto" for name in PROTOCOLS)]):
            return int(code)
        files = FileDescriptorSet.FromString((out / "all").read_bytes()).file
        for name, file in zip(PROTOCOLS, files, strict=True):
            content = file.SerializeToString(deterministic=True)
            parts = (content[at : at + 24] for at in range(0, len(content), 24))
            lines = "\n".join(f"    {part!r}" for part in parts)
            text = _MODULE.format(name=name, digest=digest(name), lines=lines)
            (FOLDER / f"{name}_pb2.py").write_text(text)
            (FOLDER / f"{name}_pb2.pyi").write_text((out / f"{name}_pb2.pyi").read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""BentoML: one worker, an adaptive batching API."""

import os
import sys
from pathlib import Path

from served import config


def main() -> None:
    settings = config()
    os.environ |= {"BENTOML_HOME": f"{settings['folder']}/bentoml", "BENTOML_DO_NOT_TRACK": "True"}
    os.chdir(Path(__file__).parent)
    command = str(Path(sys.executable).parent / "bentoml")
    where = ["--host", "127.0.0.1", "--port", str(settings["port"])]
    os.execv(command, [command, "serve", "bentoml_service:Mlp", *where, "--api-workers", "1", "--quiet"])


if __name__ == "__main__":
    main()

"""The serving process with a traitor in it: a thread that starts after torch is there, and does every act when the file
`go` appears in the scratch folder. Also, the same process on a kernel that lacks something, and as another user.
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from headway_runtime import serve

from tests.unit.sandbox_process import attempt, become, imitate, name_of, opened
from tests.unit.sandbox_world import World


def betray(scratch: Path, acts: list[str], world: World) -> None:
    while not (scratch / "go").exists():
        time.sleep(0.02)
    outcomes = {act: name_of(attempt(act, world)) for act in acts}
    (scratch / "outcomes.new").write_text(json.dumps(outcomes))
    (scratch / "outcomes.new").rename(scratch / "outcomes")


def main() -> int:
    request, *arguments = sys.argv[1:]
    asked: dict[str, Any] = json.loads(request)
    if asked["user"]:
        become(asked["user"])
    imitate(asked["lack"])
    if not asked["acts"]:
        return serve.main(arguments)
    live = serve._live

    with opened() as descriptors:
        world = World(**asked["world"], **descriptors)

        def with_a_traitor(*given: Any) -> Any:
            import torch  # noqa: F401 - the traitor comes with the program, after torch

            scratch = given[0].scratch
            threading.Thread(target=betray, args=(scratch, asked["acts"], world), daemon=True).start()
            return live(*given)

        serve._live, serve.forget_the_caller = with_a_traitor, lambda kept: None  # which would close the descriptors
        return serve.main(arguments)


if __name__ == "__main__":
    sys.exit(main())

"""Print what an extra of pyproject.toml asks for, with `headway[other]` replaced by what that one asks for.

    python requirements.py pyproject.toml EXTRA

In an image build, this is all that the layer of dependencies sees of pyproject.toml.
"""

import re
import sys
import tomllib
from pathlib import Path


def of_extra(project: dict[str, object], extra: str) -> list[str]:
    """Sorted requirement strings of the project and one of its extras. Raises KeyError if it has no such extra."""
    name, base, extras = project["name"], project["dependencies"], project["optional-dependencies"]
    assert isinstance(base, list)
    assert isinstance(extras, dict)
    found: set[str] = set(base)
    for requirement in extras[extra]:
        if own := re.fullmatch(rf"{name}\[([\w,-]+)\]", requirement):
            for other in own[1].split(","):
                found.update(of_extra(project, other))
        else:
            found.add(requirement)
    return sorted(found)


if __name__ == "__main__":
    print("\n".join(of_extra(tomllib.loads(Path(sys.argv[1]).read_text())["project"], sys.argv[2])))

"""All tests, in less time than one after the other: `python -m tests.suite`.

The tests of `tests/cluster` mostly wait for a control plane, and those of `tests/hostile` and `tests/charts` are fewer
than those of `tests/unit`, which run beside them; those of `tests/e2e` need the machine for themselves. Each part is a
pytest of its own, whose output is shown whole.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

PYTEST = (sys.executable, "-m", "pytest", "-q", "--durations=10")
FIRST = ("tests/unit",)
BESIDE = ("tests/cluster", "tests/hostile", "tests/charts")
ALONE = ("tests/e2e",)


def main() -> int:
    """Run every part, whatever became of the others; 1 when one failed."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "beside.log"
        with log.open("wb") as output:
            beside = subprocess.Popen([*PYTEST, *BESIDE], stdout=output, stderr=subprocess.STDOUT)
        try:
            first = subprocess.run([*PYTEST, *FIRST], check=False).returncode
            codes = {FIRST: first, BESIDE: beside.wait()}
        except KeyboardInterrupt:  # the terminal has told both; clusters end with their process
            beside.wait()
            raise
        finally:
            sys.stdout.write(log.read_text(errors="replace"))
            sys.stdout.flush()
    codes[ALONE] = subprocess.run([*PYTEST, *ALONE], check=False).returncode
    failed = [" ".join(part) for part, code in codes.items() if code != 0]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

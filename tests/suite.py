"""All tests, in less time than one after the other: `python -m tests.suite`.

The tests of `tests/cluster` mostly wait for a control plane, so they run beside those that compute; those of
`tests/e2e` need the machine for themselves. Each part is a pytest of its own, whose output is shown whole.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

PYTEST = (sys.executable, "-m", "pytest", "-q", "--durations=10")
COMPUTING = ("tests/unit", "tests/hostile", "tests/charts")
WAITING = ("tests/cluster",)
ALONE = ("tests/e2e",)


def main() -> int:
    """Run every part, whatever became of the others; 1 when one failed."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "waiting.log"
        with log.open("wb") as output:
            waiting = subprocess.Popen([*PYTEST, *WAITING], stdout=output, stderr=subprocess.STDOUT)
        try:
            computing = subprocess.run([*PYTEST, *COMPUTING], check=False).returncode
            codes = {COMPUTING: computing, WAITING: waiting.wait()}
        except KeyboardInterrupt:  # the terminal has told both; clusters end with their process
            waiting.wait()
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

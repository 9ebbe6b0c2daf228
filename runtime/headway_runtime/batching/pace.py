"""How fast the waiting line moves, by the latest runs: who would wait in vain is told at once. Pure.

Of requests that come faster than they can be computed some must be refused. A line that is bounded by rows alone grows
until its end waits longer than anybody will: each request there costs its client the whole timeout, and then fails.
"""

WEIGHT = 0.1  # of the latest run
ENOUGH = 8  # runs before which nothing is said


class Pace:
    """`instances` runs are made at a time."""

    def __init__(self, instances: int) -> None:
        self.row = 0.0  # seconds until the next row is run; 0 while too little is known
        self._instances = instances
        self._runs = 0
        self._seconds = 0.0  # of a run, and
        self._rows = 0.0  # its rows: moving averages

    def ran(self, seconds: float, rows: int) -> None:
        """A run was made."""
        weight = max(WEIGHT, 1 / (self._runs + 1))  # the first ones count alike
        self._runs += 1
        self._seconds += weight * (seconds - self._seconds)
        self._rows += weight * (rows - self._rows)
        if self._runs >= ENOUGH:
            self.row = self._seconds / (self._rows * self._instances)

    def until_run(self, rows: int) -> float:
        """Seconds until so many rows will have been run; 0 while too little is known."""
        return rows * self.row

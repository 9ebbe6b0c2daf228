"""Every act there is: importing the modules that define them registers them."""

from tests.unit import sandbox_acts_of_a_server, sandbox_acts_on_files, sandbox_acts_on_others
from tests.unit.sandbox_world import ACTS, ALLOWED, PROMISE

__all__ = [
    "ACTS",
    "ALLOWED",
    "PROMISE",
    "sandbox_acts_of_a_server",
    "sandbox_acts_on_files",
    "sandbox_acts_on_others",
]

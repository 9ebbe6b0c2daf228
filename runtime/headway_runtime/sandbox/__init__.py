"""The serving process confines itself before it imports torch, and long before it opens a stranger's program.

Enters: which files a process needs (`files`), and the policy `Require` or `BestEffort`. Leaves: a process that reads
only those files, writes only its scratch folder, starts no program and no process, and opens no connection; and a
`SandboxReport` of what could not be promised. It cannot be undone, and every thread made afterwards inherits it.

Two mechanisms of the kernel, each for what it sees: *Landlock* knows files (`landlock`), *seccomp* knows system calls
and their plain arguments (`policy` says which, `bpf` turns that into a program, `seccomp` loads it). `promises` says
which of the two keeps which promise, so that an old kernel costs only what nothing else keeps. Read `promises` first,
then `confine`, which has the order; `kernel` and `numbers` hold system calls that Python has no function for.
"""

from headway_runtime.sandbox.confine import confine
from headway_runtime.sandbox.files import Files, files_of_this_process

__all__ = ["Files", "confine", "files_of_this_process"]

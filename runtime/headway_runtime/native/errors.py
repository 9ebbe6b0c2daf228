"""CompileError: why a program has no native code. It goes on to run without."""


class CompileError(Exception):
    """The build step ends without a package; the message says what to do, or what cannot be compiled."""

"""What can go wrong; every message says what to do about it."""


class OnenodeError(Exception):
    """The cluster cannot do what was asked. The message is for a person."""


class MissingCapabilityError(OnenodeError):
    """The machine lacks something that only its owner can give: root, namespaces, a program."""


class GoMissingError(OnenodeError):
    """No Go toolchain that is new enough was found."""


class StepError(OnenodeError):
    """A command of a build ended with an error; the message has its last lines."""


class StartError(OnenodeError):
    """The cluster's processes ended before it was ready."""

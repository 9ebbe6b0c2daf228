"""The way in which a chat template can end badly."""

from headway_runtime.errors import InvalidRequestError


class TemplateError(InvalidRequestError):
    """The template does not take these messages, or cannot be used: its own message, or why."""

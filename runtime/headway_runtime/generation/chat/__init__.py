"""Messages become a prompt, by the model's own template: a program of a stranger's, in Jinja.

In come messages and tools as JSON has them; out goes text, or a `TemplateError` with what the template says. It is
rendered as transformers does. What it may do is a list (`allowed`), and what it does is counted (`budget`) while it is
done: `rewrite` puts the counting into the template, `environment` and `filters` into all that it calls. So a template
that would never end, or make endless text, is ended after a bounded number of steps, wherever it runs.
Read `rendering` first.
"""

from headway_runtime.generation.chat.errors import TemplateError
from headway_runtime.generation.chat.rendering import render

__all__ = ["TemplateError", "render"]

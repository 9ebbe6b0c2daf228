"""The OpenAPI document as a page to be read: no script, no font, nothing from any other address, so that a cluster
without the internet sees it, and no foreign code runs where a model is asked. Pure.
"""

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

__all__ = ["HEADERS", "page"]

HEADERS = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'", "cache-control": "no-cache"}
"""Of the answer: a browser holds the page to what is said above."""

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "pre{white-space:pre-wrap;overflow:auto;max-height:24em;background:#8881;padding:.6em}"
    "td,th{text-align:left;vertical-align:top;padding:.2em 1em .2em 0}"
    "details{border-top:1px solid #8886;padding:.4em 0}summary{cursor:pointer}"
    ":root{color-scheme:light dark}"
)


def page(document: Mapping[str, Any]) -> str:
    """HTML of an OpenAPI document: one entry for each operation, those that take a body first."""
    told = document["info"]
    title = escape(str(told["title"]))
    found = [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    found.sort(key=lambda each: "requestBody" not in each[2])
    body = "".join(_operation(*each) for each in found)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
        f"<h1>{title}</h1><p>Revision <code>{escape(str(told['version']))}</code>. "
        f'The same for programs: <a href="openapi.json">openapi.json</a>.</p>{body}</html>'
    )


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    parts = "".join(_parts(operation))
    summary = f"<summary><b>{method}</b> <code>{escape(path)}</code> {_escaped(operation.get('summary'))}</summary>"
    return f"<details{' open' if 'requestBody' in operation else ''}>{summary}{parts}</details>"


def _parts(operation: Mapping[str, Any]) -> Iterator[str]:
    if description := operation.get("description"):
        yield f"<pre>{escape(description)}</pre>"
    if parameters := operation.get("parameters"):
        rows = ((f"{each['name']} ({each['in']})", each.get("description")) for each in parameters)
        yield _table("Parameters", rows)
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        for what in ("example", "schema"):
            if what in content:
                shown = escape(json.dumps(content[what], indent=1 if what == "schema" else None, ensure_ascii=False))
                yield f"<h4>Body, {escape(kind)}: {what}</h4><pre>{shown}</pre>"
    answers = operation.get("responses", {}).items()
    yield _table("Answers", ((status, answer.get("description")) for status, answer in answers))


def _table(title: str, rows: Iterator[tuple[str, Any]]) -> str:
    lines = "".join(f"<tr><th><code>{escape(name)}</code><td>{_escaped(what)}" for name, what in rows)
    return f"<h4>{title}</h4><table>{lines}</table>"


def _escaped(text: object) -> str:
    return escape(str(text)) if text else ""

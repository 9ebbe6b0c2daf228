"""The counting is put into the template itself, before it is compiled: whatever it repeats or writes passes a filter.

Loops cost, for each turn, as much as their body has nodes and letters; so do macros, for each call. Only what nobody
rules from outside is refused: other templates, blocks, and loops that call themselves.
"""

from typing import Any, cast

from jinja2 import nodes
from jinja2.exceptions import TemplateSyntaxError
from jinja2.visitor import NodeTransformer

from headway_runtime.generation.chat.budget import LETTERS

STEP, TURNS, TEXT, COPIED = "headway step", "headway turns", "headway text", "headway copied"
"""Names that no template can write."""

_REFUSED = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends, nodes.Block)


def counted(template: nodes.Template) -> nodes.Template:
    """The same template, which counts what it does. Raises TemplateSyntaxError."""
    return cast("nodes.Template", _Counting().visit(template))


class _Counting(NodeTransformer):
    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        if isinstance(node, _REFUSED):
            raise TemplateSyntaxError(f"'{type(node).__name__.lower()}' is not taken", node.lineno)
        return super().generic_visit(node, *args, **kwargs)

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        if node.recursive:
            raise TemplateSyntaxError("a recursive loop is not taken", node.lineno)
        weight = _weight(node)
        self.generic_visit(node)
        node.iter = _filter(cast("nodes.Expr", node.iter), TURNS, weight)
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802
        return self._with_step(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:  # noqa: N802
        return self._with_step(node)

    def _with_step(self, node: nodes.Macro | nodes.CallBlock) -> nodes.Node:
        step = nodes.Output([_filter(nodes.Const("", lineno=node.lineno), STEP, _weight(node))], lineno=node.lineno)
        self.generic_visit(node)
        node.body.insert(0, step)
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.nodes = [each if isinstance(each, nodes.TemplateData) else _filter(each, TEXT) for each in node.nodes]
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.nodes = [_filter(each, TEXT) for each in node.nodes]
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _filter(node.expr, TEXT)
        return node

    def visit_Operand(self, node: nodes.Operand) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.expr = _filter(node.expr, TEXT)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):  # is not asked of the environment
            node.node = _filter(node.node, COPIED)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        node.key = _filter(node.key, TEXT)  # a key is hashed
        return node


def _filter(value: nodes.Expr, name: str, *arguments: int) -> nodes.Expr:
    if isinstance(value, nodes.Const) and name == TEXT and not isinstance(value.value, str):
        return value
    given: list[nodes.Expr] = [nodes.Const(argument, lineno=value.lineno) for argument in arguments]
    return nodes.Filter(value, name, given, [], None, None, lineno=value.lineno)


def _weight(node: nodes.Node) -> int:
    """Units that everything in it costs once, inner loops as if they had one turn."""
    letters = sum(len(each.data) for each in node.find_all(nodes.TemplateData))
    letters += sum(len(each.value) for each in node.find_all(nodes.Const) if isinstance(each.value, str))
    return 1 + sum(1 for _ in node.find_all(nodes.Node)) + letters // LETTERS

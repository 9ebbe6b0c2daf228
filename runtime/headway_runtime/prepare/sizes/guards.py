"""What export assumed about the sizes of the inputs, parsed from its Python text into our own expressions, and kept.

    ((4*L['x'].size()[0]) % (16*L['y'].size()[1])) == 0

torch pastes these strings into a function and runs ``exec``. We parse them with ``ast.parse`` (which runs nothing),
accept the node types named here, and replace ``L[...].size()[n]`` by the shape the program declares for that input.
Dropping a guard would give silently wrong answers; so a guard that cannot be read refuses the program.
"""

import ast
import re
from collections.abc import Callable

from headway_runtime.prepare.errors import Refusal
from headway_runtime.prepare.sizes import expression as ex

MAX_LENGTH = 8192
MAX_DEPTH = 60

Path = tuple[str | int, ...]
Shapes = Callable[[Path], tuple[ex.Expr, ...] | None]

_CHARACTERS = re.compile(r"[A-Za-z0-9_ \[\]().,'+*/%<>=!&-]+\Z", re.ASCII)
_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Div: "truediv",
    ast.Pow: "pow",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
}
_CALLS = {
    "max": ("max", None),
    "min": ("min", None),
    "torch.sym_max": ("max", None),
    "torch.sym_min": ("min", None),
    "torch.sym_float": ("float", 1),
    "math.floor": ("floor", 1),
    "math.ceil": ("ceil", 1),
    "math.trunc": ("trunc", 1),
    "round": ("round", 1),
    "abs": ("abs", 1),
}


def parse(text: str, shape_of: Shapes) -> ex.Expr:
    """Guard as an expression over the program's symbols. ``shape_of`` gives the declared shape of the input at a tree
    path.

    Raises Refusal ``guard.*``.
    """
    return _parse(text, shape_of)


def parse_range(text: str) -> ex.Expr:
    """Key of a range constraint (``s77`` or ``2*s77 + 1``) as an expression over the file's symbols."""
    return _parse(text, _no_inputs)


def _parse(text: str, shape_of: Shapes) -> ex.Expr:
    try:
        return _expr(_tree(text).body, shape_of, 0)
    except ex.EvaluationError as e:
        raise Refusal("guard.form", f"a number out of range in {text}") from e


def _no_inputs(_: Path) -> None:
    return None


def _tree(text: str) -> ast.Expression:
    if len(text) > MAX_LENGTH or not _CHARACTERS.match(text) or text.count("(") + text.count("[") > 512:
        raise Refusal("guard.syntax", text)
    depth = 0
    for c in text:
        depth += (c in "([") - (c in ")]")
        if depth > MAX_DEPTH:
            raise Refusal("guard.syntax", "nested too deeply")
    try:
        return ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as e:
        raise Refusal("guard.syntax", text) from e


def _expr(node: ast.expr, shape_of: Shapes, depth: int) -> ex.Expr:
    if depth > 2 * MAX_DEPTH:
        raise Refusal("guard.syntax", "nested too deeply")

    def sub(child: ast.expr) -> ex.Expr:
        return _expr(child, shape_of, depth + 1)

    match node:
        case ast.Constant(value=bool() | int() | float() as value) if abs(value) < 2**62:
            return ex.const(value)
        case ast.Name(id=name) if re.match(r"[a-z]{1,8}[0-9]{1,9}\Z", name, re.ASCII) and shape_of is _no_inputs:
            return ex.symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return ex.call("neg", sub(operand))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ex.call("not", sub(operand))
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _BINARY:
            return _binary(_BINARY[type(op)], sub(left), sub(right))
        case ast.BoolOp(op=bool_op, values=values):
            return ex.call("and" if isinstance(bool_op, ast.And) else "or", *map(sub, values))
        case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(o) in _COMPARE for o in ops):
            terms = [sub(left), *map(sub, rights)]
            pairs = [ex.call(_COMPARE[type(o)], terms[i], terms[i + 1]) for i, o in enumerate(ops)]
            return pairs[0] if len(pairs) == 1 else ex.call("and", *pairs)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return ex.call("where", sub(test), sub(body), sub(orelse))
        case ast.Subscript(
            value=ast.Call(func=ast.Attribute(value=root, attr=attr), args=[], keywords=[]), slice=index
        ):
            return _axis(_input_shape(root, shape_of), attr, index)
        case ast.Call(func=ast.Attribute(value=root, attr="storage_offset"), args=[], keywords=[]):
            _input_shape(root, shape_of)
            return ex.const(0)  # what we pass is always a tensor of its own
        case ast.Call(func=func, args=args, keywords=[]) if (called := _function(func)) in _CALLS and args:
            name, arity = _CALLS[called]
            if arity not in (None, len(args)):
                raise Refusal("guard.form", _text(node))
            return ex.call(name, *map(sub, args))
    raise Refusal("guard.form", _text(node))


def _function(node: ast.expr) -> str:
    """``max`` or ``torch.sym_max``; empty for anything else that is called."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return f"{module}.{name}"
    return ""


def _text(node: ast.expr) -> str:
    """Source of a part of a guard, for a message: ``ast.unparse`` follows any nesting, this does not."""
    deep = sum(1 for _ in ast.walk(node)) > 64
    return f"a long {type(node).__name__}" if deep else ast.unparse(node)


def _binary(name: str, left: ex.Expr, right: ex.Expr) -> ex.Expr:
    if name == "pow" and not (right.operator == "const" and isinstance(right.value, int) and abs(right.value) <= 8):
        raise Refusal("guard.form", "only small constant exponents")
    return ex.call(name, left, right)


def _axis(shape: tuple[ex.Expr, ...], attr: str, index: ast.expr) -> ex.Expr:
    """``.size()[n]`` or ``.stride()[n]``; the tensors we pass are contiguous, so a stride is the product of later
    sizes.
    """
    if not isinstance(index, ast.Constant) or type(index.value) is not int or not 0 <= index.value < len(shape):
        raise Refusal("guard.form", f"axis {_text(index)} of an input with {len(shape)} axes")
    if attr == "size":
        return shape[index.value]
    if attr == "stride":
        return ex.call("mul", ex.const(1), *shape[index.value + 1 :])
    raise Refusal("guard.form", f".{attr}()")


def _input_shape(root: ast.expr, shape_of: Shapes) -> tuple[ex.Expr, ...]:
    """``L['x']``, ``L['batch']['ids']``, ``L['args'][0]``, ``L['pair'].left``: the declared shape of that input."""
    steps: list[str | int] = []
    node = root
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        if isinstance(node, ast.Attribute):  # a field of a named tuple or a dataclass; to us, a key like any other
            steps.append(node.attr)
            node = node.value
            continue
        if not isinstance(node.slice, ast.Constant) or type(node.slice.value) not in (str, int):
            raise Refusal("guard.form", _text(root))
        steps.append(node.slice.value)  # type: ignore[arg-type]  # checked in the line above
        node = node.value
    known = steps and isinstance(node, ast.Name) and node.id == "L"
    shape = shape_of(tuple(reversed(steps))) if known else None
    if shape is None:
        raise Refusal("guard.input", _text(root))
    return shape

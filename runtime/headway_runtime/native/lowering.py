"""A recorded program as a library, by AOTInductor. Everything that it writes stands in one folder of its own.

Generated code runs in as many threads as the pod may use (OpenMP), unless it checks indices: an exception must not
leave a region of several threads, or it ends the process. Then it runs in one. Plain look-ups (``index``, and
``embedding``, which ``tracing`` makes one) are left to torch's own operator, which raises as it should.

A cache that others can write to would put their code into what a builder signs; inductor's default one has a path in
``/tmp`` that can be guessed. So every build starts with an empty cache in the build's own folder.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch._inductor
from torch._inductor import cpu_vec_isa
from torch._inductor import lowering as inductor
from torch._inductor.utils import fresh_cache

from headway_runtime.native import compiler
from headway_runtime.native.compiler import Target
from headway_runtime.native.errors import CompileError
from headway_runtime.native.tracing import Trace, reason

_OPTIONS: dict[str, Any] = {
    "aot_inductor.package_constants_in_so": False,  # weights stay in weights.bin, mapped and shared
    "always_keep_tensor_constants": True,  # small ones as well
    "aot_inductor.enable_line_tables": False,  # they would hold paths of the build machine
    "aot_inductor.precompile_headers": False,  # pays off from the second build on, and there is one
    "fx_graph_cache": False,
    "compile_threads": 1,
}
# Operators whose generated code checks indices. That list saves time: what is generated is looked at in any case.
_LOOKUP = re.compile(r"gather|scatter|take|index_put|index_add")
_CHECK = re.compile(r"TORCH_CHECK\(|\bthrow\b")
_VECTORS = {256: cpu_vec_isa.VecAVX2, 512: cpu_vec_isa.VecAVX512}


@dataclass(frozen=True, slots=True)
class Lowered:
    """A library, and what recording (``traced``) and compiling (``lowered``) assumed of sizes, in torch's terms.

    ``parallel``: whether what was generated uses as many threads as the pod may, else one; what torch computes
    (products of matrices, convolutions) always does.
    """

    library: Path
    parallel: bool
    traced: tuple[Any, ...]
    lowered: tuple[Any, ...]


def lower(trace: Trace, target: Target, *, cxx: str, folder: Path) -> Lowered:
    """Compile into ``folder``. Raises CompileError."""
    environment = _shape_environment(trace)
    same = dict(environment.replacements) if environment is not None else {}  # two axes of one size, say
    before = len(environment.guards) if environment is not None else 0
    for parallel in (False,) if _looks_up(trace.exported.graph_module) else (True, False):
        library = _compile(trace, target, cxx, folder / ("parallel" if parallel else "serial"), parallel)
        if not ends_the_process(library.parent):
            found = [] if environment is None else [_rewritten(guard.expr, same) for guard in environment.guards]
            return Lowered(library, parallel, tuple(found[:before]), tuple(found[before:]))
    raise CompileError("the code that inductor wrote would end the process on input that it refuses")


def _looks_up(module: torch.fx.GraphModule) -> bool:
    """Whether an operator of the graph, or of a branch in it, takes indices from data."""
    graphs = [inner.graph for inner in module.modules() if isinstance(inner, torch.fx.GraphModule)]
    calls = (node.target for graph in graphs for node in graph.nodes if node.op == "call_function")
    return any(_LOOKUP.search(str(target)) for target in calls)


def _compile(trace: Trace, target: Target, cxx: str, folder: Path, parallel: bool) -> Path:
    library = folder / "model.so"
    options = _OPTIONS | {"aot_inductor.output_path": str(library), "cpp.cxx": (cxx,)}
    options |= {"cpp.dynamic_threads": True} if parallel else {"cpp.threads": 1}
    if target.name != compiler.NATIVE:
        options |= {"cpp.march": target.march, "cpp.simdlen": target.width}
    folder.mkdir()
    with _quiet(), _vectors(target), _own_lookups(), fresh_cache(dir=str(folder)), torch.no_grad():
        try:
            torch._inductor.aot_compile(trace.exported.module(check_guards=False), trace.example, options=options)
        except Exception as error:
            raise CompileError(f"inductor cannot compile the program: {reason(error)}") from error
    if foreign := [file.name for file in folder.glob("*.json") if not file.name.endswith("_metadata.json")]:
        message = f"the program calls operators that have no C interface in torch ({foreign[0]})"
        raise CompileError(f"{message}; they could only be called by name, from a file beside the library")
    return library


def ends_the_process(folder: Path) -> bool:
    """Whether a check of the generated code stands where its exception cannot leave: in a region of several threads.

    Such a check (an index that no table has) would end the pod, and any client could cause it.
    """
    sources = [file.read_text() for file in folder.glob("*.cpp")]
    return any("omp parallel" in source and _CHECK.search(source) for source in sources)


def _rewritten(condition: Any, same: Mapping[Any, Any]) -> Any:
    """In terms of the sizes that the inputs still mention. What lowering replaced is not in ``same``: a size that it
    fixed would turn the very condition that says so into a truism.
    """
    for _ in range(len(same) + 1):
        if (replaced := condition.xreplace(same)) == condition:
            break
        condition = replaced
    return condition


def _shape_environment(trace: Trace) -> Any:
    """Where torch keeps what it assumed of sizes; None for a program without inputs."""
    for node in trace.exported.graph.nodes:
        mode = getattr(node.meta.get("val"), "fake_mode", None)
        if mode is not None and mode.shape_env is not None:
            return mode.shape_env
    return None


@contextmanager
def _vectors(target: Target) -> Iterator[None]:
    """Vectors of exactly the target's instruction set. Asked for 512 bits, inductor adds what else it finds on this
    machine.
    """
    ours = [] if target.name == compiler.NATIVE else [_VECTORS[target.width]()]
    found = cpu_vec_isa.valid_vec_isa_list
    if ours:
        cpu_vec_isa.valid_vec_isa_list = lambda: ours
    try:
        yield
    finally:
        cpu_vec_isa.valid_vec_isa_list = found


@contextmanager
def _own_lookups() -> Iterator[None]:
    """Look-ups by torch's own operator instead of generated code."""
    operator = torch.ops.aten.index.Tensor
    found = inductor.lowerings[operator]
    inductor.lowerings[operator] = inductor.fallback_handler(operator, add_to_fallback_set=False)
    try:
        yield
    finally:
        inductor.lowerings[operator] = found


@contextmanager
def _quiet() -> Iterator[None]:
    """Inductor logs what we raise."""
    logger = logging.getLogger("torch._inductor")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)

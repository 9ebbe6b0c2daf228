"""The C++ compiler of the build machine, and the processors it can build for."""

import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass

from headway_runtime.native import processor
from headway_runtime.native.errors import CompileError

# What GCC and Clang define for an instruction set, where that is not the kernel's name for it in lower case.
_FEATURES = {
    "SSE3": "pni",
    "BMI": "bmi1",
    "LZCNT": "abm",
    "LAHF_SAHF": "lahf_lm",
    "PCLMUL": "pclmulqdq",
    "SHA": "sha_ni",
    "RDRND": "rdrand",
    "PRFCHW": "3dnowprefetch",
    "AVX512BF16": "avx512_bf16",
    "AVX512BITALG": "avx512_bitalg",
    "AVX512FP16": "avx512_fp16",
    "AVX512VBMI2": "avx512_vbmi2",
    "AVX512VNNI": "avx512_vnni",
    "AVX512VPOPCNTDQ": "avx512_vpopcntdq",
    "AVXVNNI": "avx_vnni",
    "AMX_TILE": "amx_tile",
    "AMX_BF16": "amx_bf16",
    "AMX_INT8": "amx_int8",
    "AMX_FP16": "amx_fp16",
}
_SAME = """
    SSSE3 SSE4_1 SSE4_2 SSE4A POPCNT MOVBE AES VAES VPCLMULQDQ GFNI ADX RDSEED RDPID FSGSBASE CLFLUSHOPT CLWB CLZERO
    XSAVE XSAVEC XSAVEOPT XSAVES F16C FMA AVX AVX2 BMI2
    AVX512F AVX512CD AVX512DQ AVX512BW AVX512VL AVX512IFMA AVX512VBMI
"""
_NAMES = {**{name: name.lower() for name in _SAME.split()}, **_FEATURES}
_MACRO = re.compile(r"^#define __([A-Z0-9_]+?)__ 1$", re.MULTILINE)
_BASE = "x86-64"


@dataclass(frozen=True, slots=True)
class Target:
    """A processor to build for: ``march`` as compilers call it, ``width`` of its vectors in bits."""

    name: str
    march: str
    width: int


TARGETS = {
    "x86-64-v3": Target("x86-64-v3", "x86-64-v3", 256),
    "x86-64-v4": Target("x86-64-v4", "x86-64-v4", 512),
}
NATIVE = "native"


def find() -> str:
    """Path of the compiler: ``$CXX``, else ``g++``. Raises CompileError when there is none, before anything is done."""
    if platform.machine() != processor.MACHINE:
        raise CompileError(f"programs are compiled for {processor.MACHINE} only, and this is {platform.machine()}")
    name = os.environ.get("CXX", "g++")
    path = shutil.which(name)
    if path is None:
        raise CompileError(f"no C++ compiler: {name} is not on PATH; install g++, or name one in CXX")
    return path


def target(name: str) -> Target:
    """``native`` is the best that this machine can run. Raises CompileError for a target that is unknown, or whose
    code this machine could not run: answers are compared before a package is written.
    """
    if name == NATIVE:
        return Target(NATIVE, "native", 512 if "avx512vl" in processor.features() else 256)
    if name not in TARGETS:
        raise CompileError(f"no target {name!r}; there are {NATIVE}, {', '.join(TARGETS)}")
    return TARGETS[name]


def needs(compiler: str, found: Target) -> tuple[str, ...]:
    """The features that code for the target may use beyond those of every 64-bit x86 processor, sorted.

    The compiler is asked which instruction sets it takes for granted. Raises CompileError.
    """
    extra = _defined(compiler, found.march) - _defined(compiler, _BASE)
    features = tuple(sorted({_NAMES[name] for name in extra if name in _NAMES}))
    if why := processor.lacking(features):
        message = f"target {found.name}: {why}; compile where the code can run: it is tried before it is written"
        raise CompileError(message)
    return features


def _defined(compiler: str, march: str) -> set[str]:
    command = [compiler, f"-march={march}", "-dM", "-E", "-x", "c++", os.devnull]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"})
    if done.returncode != 0:
        raise CompileError(f"{compiler} does not know -march={march}: {done.stderr.strip()[:300]}")
    return set(_MACRO.findall(done.stdout))

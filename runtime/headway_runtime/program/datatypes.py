"""Element types in three spellings: torch's name in a prepared program, the Open Inference Protocol's, and the torch
object.
"""

import torch

# torch's name -> Open Inference Protocol v2 datatype. Types without one cannot be an input or output.
PROTOCOL: dict[str, str] = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "bfloat16": "BF16",
    "float32": "FP32",
    "float64": "FP64",
}
TORCH: dict[str, torch.dtype] = {
    name: getattr(torch, name) for name in (*PROTOCOL, "complex64", "complex128", "float8_e4m3fn", "float8_e5m2")
}
BY_PROTOCOL: dict[str, torch.dtype] = {PROTOCOL[name]: TORCH[name] for name in PROTOCOL}

"""Policies, as in JAX's jmp: the dtypes of parameters, computations and results."""
from typing import NamedTuple

import cotan
from cotan.tree_util import tree_map

from .autocast_mode import autocast

_SHORT = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "half": "float16", "full": "float32"}
_PARTS = {"p": "param", "param": "param", "params": "param", "c": "compute", "compute": "compute", "o": "output",
          "output": "output"}


def _dtype(name):
    dtype = getattr(cotan, _SHORT.get(name, name), None)
    if not isinstance(dtype, cotan.dtype) or not dtype.is_floating_point:
        raise ValueError(f"get_policy: {name!r} is no floating-point dtype, as float32 or bf16 is")
    return dtype


def _cast(tree, dtype):
    """Casts all float tensors in the tree; everything else is kept."""
    return tree_map(lambda x: x.to(dtype) if isinstance(x, cotan.Tensor) and x.dtype.is_floating_point else x, tree)


class Policy(NamedTuple):
    """The dtypes of a model's parameters, of its computations and of its results.

    `cast_to_param`, `cast_to_compute` and `cast_to_output` cast all float tensors in a tree (a state dict, a
    tuple of inputs). `autocast` is a context manager in which products have the compute dtype while
    parameters keep theirs: they are master weights.
    """
    param_dtype: "cotan.dtype"
    compute_dtype: "cotan.dtype"
    output_dtype: "cotan.dtype"

    def cast_to_param(self, tree):
        return _cast(tree, self.param_dtype)

    def cast_to_compute(self, tree):
        return _cast(tree, self.compute_dtype)

    def cast_to_output(self, tree):
        return _cast(tree, self.output_dtype)

    def with_output_dtype(self, output_dtype):
        return self._replace(output_dtype=output_dtype)

    def autocast(self, device_type="cpu"):
        return autocast(device_type, dtype=self.compute_dtype, enabled=self.compute_dtype != cotan.float32)

    def __str__(self):
        short = {_dtype(name): name for name in ("f16", "bf16", "f32", "f64")}
        parts = zip("pco", (self.param_dtype, self.compute_dtype, self.output_dtype))
        return ",".join(f"{part}={short.get(dtype, dtype)}" for part, dtype in parts)


def get_policy(text):
    """Returns the policy of "params=float32,compute=bfloat16,output=float32" ("p=f32,c=bf16,o=f32" is the
    same), or of one dtype for all."""
    if "=" not in text:
        return Policy(*3 * [_dtype(text)])
    parts = {}
    for item in text.split(","):
        part, _, name = item.partition("=")
        if part.strip() not in _PARTS:
            raise ValueError(f"get_policy: {part.strip()!r} is none of params, compute and output")
        parts[_PARTS[part.strip()]] = _dtype(name.strip())
    # As in jmp: by default the compute dtype is the parameters', and the output dtype is the compute dtype.
    param = parts.get("param", cotan.float32)
    compute = parts.get("compute", param)
    return Policy(param, compute, parts.get("output", compute))

"""Backends of GPUs that programs query and set options of; none of them is available."""
from . import cuda, cudnn, mps  # noqa: F401

fp32_precision = "none"

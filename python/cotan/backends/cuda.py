"""This backend is not available; its options may be set and are ignored."""
import contextlib
import types

# float32 products are computed in float32.
matmul = types.SimpleNamespace(allow_tf32=False, allow_fp16_reduced_precision_reduction=False,
                               allow_bf16_reduced_precision_reduction=False, allow_fp16_accumulation=False, fp32_precision="none")
cufft_plan_cache = types.SimpleNamespace(size=0, max_size=0, clear=lambda: None)
SDPAParams = tuple


def is_built():
    return False


def is_flash_attention_available():
    return False


def can_use_flash_attention(params, debug=False):
    return False


can_use_efficient_attention = can_use_cudnn_attention = can_use_flash_attention
# Attention is one op, whose form is chosen from its shapes: these switches are accepted and ignored.
enable_flash_sdp = enable_mem_efficient_sdp = enable_math_sdp = enable_cudnn_sdp = lambda enabled: None
allow_fp16_bf16_reduction_math_sdp = lambda enabled: None  # noqa: E731
flash_sdp_enabled = mem_efficient_sdp_enabled = math_sdp_enabled = cudnn_sdp_enabled = lambda: True
preferred_linalg_library = preferred_blas_library = lambda backend=None: "default"


def sdp_kernel(enable_flash=True, enable_math=True, enable_mem_efficient=True, enable_cudnn=True):
    """Returns a context manager that changes nothing."""
    return contextlib.nullcontext()

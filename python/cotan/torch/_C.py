"""Names of torch._C that programs touch: errors and types to check against, and switches, which do nothing."""
import contextlib

from .. import LinAlgError as _LinAlgError  # noqa: F401
from .. import Generator, Tensor  # noqa: F401
from .._core import dtype as _dtype
from .._pytorch import device as _device
from .._torch_function import DisableTorchFunctionSubclass
from .._torch_function import disabled_torch_function as _disabled_torch_function_impl  # noqa: F401
from ._tables import absent

__path__ = []
_INNER = "PyTorch's own machinery is not there"
globals().update({name: absent("_C", name, _INNER) for name in """Graph Value Node _CudaDeviceProperties ScriptModule ScriptFunction
Future FunctionSchema Type PyTorchFileReader PyTorchFileWriter AnyType NoneType BoolType FloatType IntType NumberType StringType
ListType DictType TupleType OptionalType TensorType""".split()})
TensorBase = _TensorBase = Tensor
dtype = _dtype
_TensorMeta = type(Tensor)


class DispatchKey:
    """Names of PyTorch's dispatch keys."""
    AutocastCPU = AutocastCUDA = AutocastXPU = CPU = CUDA = Autograd = Meta = CompositeImplicitAutograd = "CPU"


class DispatchKeySet(frozenset):
    """A set of such names."""

    def __new__(cls, *keys):
        return super().__new__(cls, keys)


def _get_privateuse1_backend_name():
    return "privateuseone"


def _log_api_usage_once(event):
    """Does nothing."""


def _nothing(*args, **options):
    return None


def _no(*args, **options):
    return False


def _context(*args, **options):
    return contextlib.nullcontext()


_get_tracing_state = _jit_set_profiling_mode = _jit_set_profiling_executor = _jit_set_texpr_fuser_enabled = _nothing
_jit_override_can_fuse_on_cpu = _jit_override_can_fuse_on_gpu = _jit_set_nvfuser_enabled = _jit_set_nvfuser_guard_mode = _nothing
_jit_set_nvfuser_single_node_mode = _jit_set_inline_everything_mode = _jit_clear_class_registry = _nothing
_set_graph_executor_optimize = _nothing
_jit_can_fuse_on_cpu = _jit_can_fuse_on_gpu = _cuda_isInBadFork = _is_torch_function_enabled = _no
_has_mkldnn = _has_cuda = _has_mps = has_openmp = has_mkl = has_lapack = False
DisableTorchFunction = DisableTorchFunctionSubclass
_ExcludeDispatchKeyGuard = _DisableFuncTorch = _context


class _nn:
    @staticmethod
    def _parse_to(*args, device=None, dtype=None, non_blocking=False, copy=False, memory_format=None):
        """Returns the device, dtype, non_blocking and memory_format that arguments of Tensor.to name, None what they do not."""
        for one in args:
            if isinstance(one, Tensor):
                device, dtype = one.device, one.dtype
            elif isinstance(one, _dtype):
                dtype = one
            elif isinstance(one, bool):
                non_blocking = one
            elif one is not None:
                device = one
        return None if device is None else _device(device), dtype, non_blocking, memory_format


def _get_accelerator(check=None):
    return "cpu"

"""Names of torch itself that are no functions of tensors: types to check against, storages, settings of autocasting."""
from .. import _core
from ..amp import autocast_mode
from . import _C, __config__, jit, storage  # noqa: F401

AcceleratorError = _core.Error
SymInt, SymFloat, SymBool = (type(name, (), {"__doc__": "A number that is not known: there are none."}) for name in (
    "SymInt", "SymFloat", "SymBool"))
qscheme = str
complex32 = chalf = type("complex32", (), {"__doc__": "A name to compare dtypes with: no tensor has this one."})
ScriptModule, PyTorchFileReader, PyTorchFileWriter = jit.ScriptModule, _C.PyTorchFileReader, _C.PyTorchFileWriter
globals().update({name: value for name, value in vars(_C).items() if name.endswith("Type")})
UntypedStorage, TypedStorage = storage.UntypedStorage, storage.TypedStorage
globals().update({name: getattr(storage, name) for name in storage._NAMES})


def typename(obj):
    """Returns the type's full name."""
    if isinstance(obj, _core.Tensor) and type(obj) is _core.Tensor:
        return obj.type()
    kind = obj if isinstance(obj, type) else type(obj)
    return kind.__qualname__ if kind.__module__ in ("builtins", None) else f"{kind.__module__}.{kind.__qualname__}"


def _assert(condition, message):
    assert condition, message


def _softmax_backward_data(grad_output, output, dim, input_dtype):
    """Returns the gradient of the logits of softmax(logits, dim), whose result is `output`."""
    scaled = grad_output * output
    return (scaled - output * scaled.sum(dim, keepdim=True)).to(input_dtype)


def get_autocast_gpu_dtype():
    return autocast_mode.get_autocast_dtype("cuda")


def get_autocast_cpu_dtype():
    return autocast_mode.get_autocast_dtype("cpu")


def is_autocast_cpu_enabled():
    return autocast_mode.is_autocast_enabled()


def is_autocast_cache_enabled():
    return True


def clear_autocast_cache():
    """Does nothing: equal casts are computed once."""


def _is_compiled_with_cxx11_abi():
    return True


compiled_with_cxx11_abi = _is_compiled_with_cxx11_abi


def is_vulkan_available():
    return False

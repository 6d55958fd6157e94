"""PyTorch's names with PyTorch's meaning, over Cotan's tensors: import cotan.torch as torch."""
import cotan as _cotan

from . import _convert, _define, _pointwise, _reduce  # noqa: F401

# What has PyTorch's meaning in cotan already.
_SHARED = """Tensor Size dtype nn optim autograd utils amp cuda backends accelerator profiler library func random distributions
float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool complex64 complex128 float8_e4m3fn
float8_e5m2 FloatTensor DoubleTensor HalfTensor LongTensor IntTensor ShortTensor CharTensor ByteTensor BoolTensor device
e inf nan pi newaxis finfo iinfo no_grad enable_grad inference_mode set_grad_enabled is_grad_enabled Generator manual_seed
seed initial_seed get_rng_state set_rng_state save load compile autocast channels_last contiguous_format preserve_format strided"""
globals().update({name: getattr(_cotan, name) for name in _SHARED.split() if hasattr(_cotan, name)})
float, double, half, int, long, short, cfloat, cdouble = (_cotan.float32, _cotan.float64, _cotan.float16, _cotan.int32, _cotan.int64,
                                                         _cotan.int16, _cotan.complex64, _cotan.complex128)
globals().update({name: function for name, function in _define.functions.items() if "." not in name})
for _name in dir(_cotan.nn.functional):
    globals().setdefault(_name, getattr(_cotan.nn.functional, _name))
for _name in dir(_cotan):
    globals().setdefault(_name, getattr(_cotan, _name))

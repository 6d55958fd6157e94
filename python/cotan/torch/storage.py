"""torch.storage: the bytes of tensors as objects of their own."""
from .. import _core

_NAMES = {"DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16", "BFloat16Storage": "bfloat16",
          "LongStorage": "int64", "IntStorage": "int32", "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8",
          "BoolStorage": "bool", "ComplexFloatStorage": "complex64", "ComplexDoubleStorage": "complex128"}


class UntypedStorage:
    """A number of elements of one dtype, read and written by index: bytes, and those of a tensor for its own
    storage. It is a copy: a write to it does not reach the tensor."""

    dtype = _core.uint8
    device = "cpu"

    def __init__(self, data=0, *, dtype=None):
        self._values = _core.full((data,), 0, dtype or self.dtype) if isinstance(data, int) else _core.asarray(
            data, dtype=dtype or self.dtype)

    @classmethod
    def from_buffer(cls, buffer, byte_order="native", dtype=None, count=-1, offset=0, requires_grad=False):
        data = bytes(memoryview(buffer).cast("B")[offset:])
        made = cls(0)
        made._values = _core._of_bytes(data, made.dtype, (len(data) // made.dtype.itemsize,))
        return made

    _from_buffer = from_buffer

    def __len__(self):
        return self._values.shape[0]

    size = __len__

    def __getitem__(self, index):
        return self._values[index].item() if isinstance(index, int) else self._values[index].tolist()

    def __setitem__(self, index, value):
        self._values[index] = value

    def nbytes(self):
        return len(self) * self._values.dtype.itemsize

    def tolist(self):
        return self._values.tolist()


class TypedStorage(UntypedStorage):
    """The storage of a tensor."""


_LegacyStorage = TypedStorage
globals().update({name: type(name, (TypedStorage,), {"dtype": getattr(_core, dtype), "__module__": __name__})
                  for name, dtype in _NAMES.items()})

"""torch.types: names of types."""
import builtins
import os
from collections.abc import Sequence
from typing import IO, Union

from .. import _core
from .._core import Tensor
from .._pytorch import device as _device
from .._types import Size
from .storage import UntypedStorage

__all__ = ["Device", "FileLike", "Number", "Storage"]
_dtype, _layout = _core.dtype, str
_bool, _int, _float, _complex, _bytes, _str = (
    builtins.bool, builtins.int, builtins.float, builtins.complex, builtins.bytes, builtins.str)
_size = _symsize = Union[Size, list[int], tuple[int, ...]]
_TensorOrTensors = _TensorOrTensorsOrGradEdge = Union[Tensor, Sequence[Tensor]]
SymInt = IntLikeType = int
SymFloat = FloatLikeType = float
SymBool = BoolLikeType = bool
py_sym_types = ()
Number = Union[int, float, bool]
Device = Union[_device, str, int, None]
FileLike = Union[str, os.PathLike, IO[bytes]]
Storage = UntypedStorage
_dispatchkey = str

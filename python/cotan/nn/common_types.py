"""Types of arguments, by the names of torch.nn.common_types."""
from typing import Optional, Tuple, TypeVar, Union

from .._core import Tensor  # noqa: F401

T = TypeVar("T")
_scalar_or_tuple_1_t = Union[T, Tuple[T]]
_scalar_or_tuple_2_t = Union[T, Tuple[T, T]]
_scalar_or_tuple_3_t = Union[T, Tuple[T, T, T]]
_scalar_or_tuple_4_t = Union[T, Tuple[T, T, T, T]]
_scalar_or_tuple_5_t = Union[T, Tuple[T, T, T, T, T]]
_scalar_or_tuple_6_t = Union[T, Tuple[T, T, T, T, T, T]]
_scalar_or_tuple_any_t = Union[T, Tuple[T, ...]]
_size_1_t, _size_2_t, _size_3_t, _size_4_t, _size_5_t, _size_6_t, _size_any_t = (one[int] for one in (
    _scalar_or_tuple_1_t, _scalar_or_tuple_2_t, _scalar_or_tuple_3_t, _scalar_or_tuple_4_t, _scalar_or_tuple_5_t,
    _scalar_or_tuple_6_t,
    _scalar_or_tuple_any_t))
_size_2_opt_t, _size_3_opt_t, _size_any_opt_t = (one[Optional[int]] for one in (
    _scalar_or_tuple_2_t, _scalar_or_tuple_3_t, _scalar_or_tuple_any_t))
_ratio_2_t, _ratio_3_t, _ratio_any_t = (one[float] for one in (_scalar_or_tuple_2_t, _scalar_or_tuple_3_t, _scalar_or_tuple_any_t))
_maybe_indices_t = _scalar_or_tuple_2_t[Tensor]

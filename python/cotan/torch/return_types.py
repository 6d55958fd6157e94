"""The named tuples that functions return: return_types.sort((values, indices)). Each is made when it is first asked for."""
from collections import namedtuple

_FIELDS = {name: fields for fields, names in {
    "values indices": "cummax cummin kthvalue max median min mode nanmedian sort topk",
    "min max": "aminmax", "mantissa exponent": "frexp", "hist bin_edges": "histogram histogramdd", "a tau": "geqrf",
    "L info": "linalg_cholesky_ex", "eigenvalues eigenvectors": "linalg_eig linalg_eigh", "inverse info": "linalg_inv_ex",
    "LD pivots": "linalg_ldl_factor", "LD pivots info": "linalg_ldl_factor_ex",
    "solution residuals rank singular_values": "linalg_lstsq", "P L U": "linalg_lu lu_unpack", "LU pivots": "linalg_lu_factor",
    "LU pivots info": "linalg_lu_factor_ex", "Q R": "linalg_qr qr", "sign logabsdet": "linalg_slogdet slogdet",
    "result info": "linalg_solve_ex", "U S Vh": "linalg_svd", "U S V": "svd", "solution cloned_coefficient": "triangular_solve",
}.items() for name in names.split()}


def _new(cls, *values):
    return tuple.__new__(cls, values if len(values) == len(cls._fields) else values[0])


def _represent(self):
    return f"torch.return_types.{type(self).__name__}(\n" + ",\n".join(f"{name}={x!r}" for name, x in zip(self._fields, self)) + ")"


def __getattr__(name):
    if name not in _FIELDS:
        raise AttributeError(f"module 'torch.return_types' has no attribute {name!r}")
    methods = {"__slots__": (), "__new__": _new, "__repr__": _represent, "__module__": __name__}
    return globals().setdefault(name, type(name, (namedtuple(name, _FIELDS[name]),), methods))


def __dir__():
    return sorted(_FIELDS)

"""Activations and dropout as modules."""
import math

from .. import _core
from .._paths import own_names as _own_names
from . import functional as F
from . import init
from .module import Module
from .parameter import Parameter


def _applied(base, functions):
    """Returns the classes of a base: functions has their names, each before that of its function in torch.nn.functional."""
    pairs = (pair.split("=") for pair in functions.split())
    return [type(name, (base,), {"__module__": __name__, "_function": function}) for name, function in pairs]


class _Plain(Module):
    """The base of activations without parameters."""

    def forward(self, input):
        return getattr(F, self._function)(input)


class _InPlace(Module):
    """The base of activations whose repr shows only whether they write in place."""

    def __init__(self, inplace=False):
        super().__init__()
        self.inplace = inplace

    def forward(self, input):
        return getattr(F, self._function)(input, self.inplace)

    def extra_repr(self):
        return "inplace=True" if self.inplace else ""

    def _with_inplace(self, text):
        return text + (", inplace=True" if self.inplace else "")


ReLU, SELU, SiLU, Mish = _applied(_InPlace, "ReLU=relu SELU=selu SiLU=silu Mish=mish")


class _InPlaceUnshown(_InPlace):
    def extra_repr(self):
        return ""


Hardswish, Hardsigmoid = _applied(_InPlaceUnshown, "Hardswish=hardswish Hardsigmoid=hardsigmoid")


class Hardtanh(_InPlace):
    def __init__(self, min_val=-1.0, max_val=1.0, inplace=False, min_value=None, max_value=None):
        super().__init__(inplace)
        min_val, max_val = (val if value is None else value for val, value in ((min_val, min_value), (max_val, max_value)))
        if max_val <= min_val:
            raise AssertionError("max_val must be larger than min_val")
        self.min_val, self.max_val = min_val, max_val

    def forward(self, input):
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self):
        return self._with_inplace(f"min_val={self.min_val}, max_val={self.max_val}")


class ReLU6(Hardtanh):
    def __init__(self, inplace=False):
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self):
        return "inplace=True" if self.inplace else ""


class _Alpha(_InPlace):
    def __init__(self, alpha=1.0, inplace=False):
        super().__init__(inplace)
        self.alpha = alpha

    def forward(self, input):
        return getattr(F, self._function)(input, self.alpha, self.inplace)

    def extra_repr(self):
        return self._with_inplace(f"alpha={self.alpha}")


ELU, CELU = _applied(_Alpha, "ELU=elu CELU=celu")


class LeakyReLU(_InPlace):
    def __init__(self, negative_slope=1e-2, inplace=False):
        super().__init__(inplace)
        self.negative_slope = negative_slope

    def forward(self, input):
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self):
        return self._with_inplace(f"negative_slope={self.negative_slope}")


class RReLU(_InPlace):
    def __init__(self, lower=1.0 / 8, upper=1.0 / 3, inplace=False):
        super().__init__(inplace)
        self.lower, self.upper = lower, upper

    def forward(self, input):
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self):
        return self._with_inplace(f"lower={self.lower}, upper={self.upper}")


class Threshold(_InPlace):
    def __init__(self, threshold, value, inplace=False):
        super().__init__(inplace)
        self.threshold, self.value = threshold, value

    def forward(self, input):
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self):
        return self._with_inplace(f"threshold={self.threshold}, value={self.value}")


class PReLU(Module):
    def __init__(self, num_parameters=1, init=0.25, device=None, dtype=None):
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(_core.full((num_parameters,), init, dtype or _core.float32))

    def reset_parameters(self):
        init.constant_(self.weight, self.init)

    def forward(self, input):
        return F.prelu(input, self.weight)

    def extra_repr(self):
        return f"num_parameters={self.num_parameters}"


Sigmoid, Tanh, Softsign, Tanhshrink, LogSigmoid = _applied(
    _Plain, "Sigmoid=sigmoid Tanh=tanh Softsign=softsign Tanhshrink=tanhshrink LogSigmoid=logsigmoid")


class Softmax2d(Module):
    def forward(self, input):
        if len(input.shape) not in (3, 4):
            raise ValueError(f"Softmax2d: expected input to be 3D or 4D, got {len(input.shape)}D instead")
        return F.softmax(input, -3)


class GELU(Module):
    def __init__(self, approximate="none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, input):
        return F.gelu(input, self.approximate)

    def extra_repr(self):
        return f"approximate={self.approximate!r}"


class GLU(Module):
    def __init__(self, dim=-1):
        super().__init__()
        self.dim = dim

    def forward(self, input):
        return F.glu(input, self.dim)

    def extra_repr(self):
        return f"dim={self.dim}"


class _AlongAxis(Module):
    def __init__(self, dim=None):
        super().__init__()
        self.dim = dim

    def forward(self, input):
        return getattr(F, self._function)(input, self.dim)

    def extra_repr(self):
        return f"dim={self.dim}"


Softmax, LogSoftmax, Softmin = _applied(_AlongAxis, "Softmax=softmax LogSoftmax=log_softmax Softmin=softmin")


class _Shrink(Module):
    def __init__(self, lambd=0.5):
        super().__init__()
        self.lambd = lambd

    def forward(self, input):
        return getattr(F, self._function)(input, self.lambd)

    def extra_repr(self):
        return str(self.lambd)


Hardshrink, Softshrink = _applied(_Shrink, "Hardshrink=hardshrink Softshrink=softshrink")


class Softplus(Module):
    def __init__(self, beta=1.0, threshold=20.0):
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input):
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self):
        return f"beta={self.beta}, threshold={self.threshold}"


# ------------------------------------------------------------------------------------------ dropout


class _Dropout(Module):
    def __init__(self, p=0.5, inplace=False):
        super().__init__()
        if math.isnan(p) or p < 0 or p > 1:
            raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
        self.p, self.inplace = p, inplace

    def forward(self, input):
        return getattr(F, self._function)(input, self.p, self.training, self.inplace)

    def extra_repr(self):
        return f"p={self.p}, inplace={self.inplace}"


Dropout, Dropout1d, Dropout2d, Dropout3d, AlphaDropout, FeatureAlphaDropout = _applied(
    _Dropout, """Dropout=dropout Dropout1d=dropout1d Dropout2d=dropout2d Dropout3d=dropout3d AlphaDropout=alpha_dropout
    FeatureAlphaDropout=feature_alpha_dropout""")


__all__ = _own_names(globals())

"""RNN, LSTM and GRU, and their cells. Sequences are unrolled; the products with the inputs are one product
for all steps."""
import math

from .. import _core
from .._core import ops
from . import functional as F
from . import init
from .functional.base import concat, index_axis, stack, swap_axes, slice_axis
from .init import empty_parameter_values as empty
from .module import Module
from .parameter import Parameter
from .utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}


def _split_gates(x, n):
    axis, size = len(x.shape) - 1, x.shape[-1] // n
    return [slice_axis(x, axis, i * size, (i + 1) * size) for i in range(n)]


def _cell_step(mode, from_input, state, weight, bias, projection=None):
    """Returns the next state from the input's part (N, G H) and the state: (h, c) for LSTM, else (h,)."""
    from_state = F.linear(state[0], weight, bias)
    if mode == "LSTM":
        i, f, g, o = _split_gates(from_input + from_state, 4)
        c = ops.sigmoid(f) * state[1] + ops.sigmoid(i) * ops.tanh(g)
        h = ops.sigmoid(o) * ops.tanh(c)
        return h if projection is None else F.linear(h, projection), c
    if mode == "GRU":
        r, z, n = _split_gates(from_input, 3)
        hr, hz, hn = _split_gates(from_state, 3)
        z = ops.sigmoid(z + hz)
        n = ops.tanh(n + ops.sigmoid(r + hr) * hn)
        return ((state[0] - n) * z + n,)
    return ((ops.relu if mode == "RNN_RELU" else ops.tanh)(from_input + from_state),)


def _run_layer(mode, x, state, weights, reverse, inside):
    """Runs one layer in one direction over x (T, N, I); inside: (T, N, 1), false after the end of a sequence,
    or None."""
    w_ih, w_hh, b_ih, b_hh, projection = weights
    from_input, outputs = F.linear(x, w_ih, b_ih), [None] * x.shape[0]
    for t in reversed(range(len(outputs))) if reverse else range(len(outputs)):
        new = _cell_step(mode, index_axis(from_input, 0, t), state, w_hh, b_hh, projection)
        if inside is None:
            outputs[t] = new[0]
        else:
            here = index_axis(inside, 0, t)
            outputs[t] = ops.select(here, new[0], 0.0)
            new = tuple(ops.select(here, after, before) for after, before in zip(new, state))
        state = new
    return stack(outputs, 0), state


class RNNBase(Module):
    """A stack of layers of one kind, in two directions if bidirectional: (T, N, input_size), with batch_first (N, T,
    input_size), to (T, N, directions hidden_size)."""

    def __init__(self, mode, input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0,
                 bidirectional=False, proj_size=0, device=None, dtype=None):
        super().__init__()
        if proj_size < 0:
            raise ValueError("proj_size should be a positive integer or zero to disable projections")
        if proj_size >= hidden_size > 0:
            raise ValueError("proj_size has to be smaller than hidden_size")
        if not 0 <= dropout <= 1:
            raise ValueError("dropout should be a number in range [0, 1] representing the probability of an element being "
                             "zeroed")
        if num_layers <= 0:
            raise ValueError("num_layers must be greater than zero")
        if hidden_size <= 0:
            raise ValueError("hidden_size must be greater than zero")
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        self.proj_size = proj_size
        rows, directions = GATES[mode] * hidden_size, 2 if bidirectional else 1
        for layer in range(num_layers):
            width = input_size if layer == 0 else self._width * directions
            for direction in range(directions):
                names = self._names(layer, direction)
                shapes = [(rows, width), (rows, self._width)] + [(rows,)] * 2 * bias + [(proj_size, hidden_size)]
                for name, shape in zip(names, shapes):
                    setattr(self, name, Parameter(empty(shape, dtype)))
        self.reset_parameters()

    @property
    def _width(self):
        """The number of elements of h."""
        return self.proj_size or self.hidden_size

    def _names(self, layer, direction):
        end = f"l{layer}" + ("_reverse" if direction else "")
        kinds = ["weight_ih", "weight_hh"] + ["bias_ih", "bias_hh"] * bool(self.bias) + ["weight_hr"] * bool(self.proj_size)
        return [f"{kind}_{end}" for kind in kinds]

    @property
    def all_weights(self):
        return [[getattr(self, name) for name in self._names(layer, direction)]
                for layer in range(self.num_layers) for direction in range(1 + self.bidirectional)]

    def reset_parameters(self):
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def flatten_parameters(self):
        """Does nothing: weights are stored as they are used."""

    def _initial(self, hx, batch, single, dtype):
        """Returns one initial state for each layer and direction: h, and c for LSTM."""
        count, parts = self.num_layers * (1 + self.bidirectional), 2 if self.mode == "LSTM" else 1
        if hx is None:
            zeros = [ops.expand(ops.cast(0.0, dtype), (batch, width)) for width in (self._width, self.hidden_size)]
            return [tuple(zeros[:parts])] * count
        hx = hx if parts == 2 else (hx,)
        for part, width in zip(hx, (self._width, self.hidden_size)):
            wanted = (count, width) if single else (count, batch, width)
            if tuple(part.shape) != wanted:
                raise RuntimeError(f"Expected hidden size {wanted}, got {list(part.shape)}")
        hx = [ops.reshape(part, (count, 1, part.shape[-1])) if single else part for part in hx]
        return [tuple(index_axis(part, 0, i) for part in hx) for i in range(count)]

    def forward(self, input, hx=None):
        packed = input if isinstance(input, PackedSequence) else None
        inside = None
        if packed is not None:
            input, lengths = pad_packed_sequence(packed)
            lengths = lengths.tolist()
            mask = [[[t < n] for n in lengths] for t in range(input.shape[0])]
            inside = _core.asarray(mask)
        single = len(input.shape) == 2
        if len(input.shape) not in (2, 3):
            raise ValueError(f"{type(self).__name__}: Expected input to be 2D or 3D, got {len(input.shape)}D instead")
        if single:
            x = ops.reshape(input, (input.shape[0], 1, input.shape[1]))
        else:
            x = swap_axes(input, 0, 1) if self.batch_first and packed is None else input
        if x.shape[-1] != self.input_size:
            raise RuntimeError(f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {x.shape[-1]}")
        states, last = self._initial(hx, x.shape[1], single, x.dtype), []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(1 + self.bidirectional):
                weights = [getattr(self, name) for name in self._names(layer, direction)]
                projection = weights.pop() if self.proj_size else None
                weights = [*weights, *[None] * (4 - len(weights)), projection]
                y, state = _run_layer(self.mode, x, states[len(last)], weights, direction == 1, inside)
                outputs.append(y)
                last.append(state)
            x = concat(outputs, 2)
            if self.dropout and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        hidden = [stack([state[i] for state in last]) for i in range(len(last[0]))]
        if single:
            x = ops.reshape(x, (x.shape[0], x.shape[2]))
            hidden = [ops.reshape(h, (h.shape[0], h.shape[2])) for h in hidden]
        elif packed is not None:
            x = pack_padded_sequence(x, lengths, enforce_sorted=packed.sorted_indices is None)
        elif self.batch_first:
            x = swap_axes(x, 0, 1)
        return x, (tuple(hidden) if self.mode == "LSTM" else hidden[0])

    def extra_repr(self):
        text = f"{self.input_size}, {self.hidden_size}" + (f", proj_size={self.proj_size}" if self.proj_size else "")
        for name, usual in (("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0),
                            ("bidirectional", False)):
            if getattr(self, name) != usual:
                text += f", {name}={getattr(self, name)}"
        return text


class RNN(RNNBase):
    def __init__(self, input_size, hidden_size, num_layers=1, nonlinearity="tanh", bias=True, batch_first=False, dropout=0.0,
                 bidirectional=False, device=None, dtype=None):
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first, dropout,
                         bidirectional, dtype=dtype)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    def __init__(self, *args, **kwargs):
        super().__init__("LSTM", *args, **kwargs)


class GRU(RNNBase):
    def __init__(self, *args, **kwargs):
        if kwargs.get("proj_size"):
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        super().__init__("GRU", *args, **kwargs)


class RNNCellBase(Module):
    def __init__(self, mode, input_size, hidden_size, bias=True, dtype=None):
        super().__init__()
        self.mode, self.input_size, self.hidden_size, self.bias = mode, input_size, hidden_size, bias
        rows = GATES[mode] * hidden_size
        self.weight_ih = Parameter(empty((rows, input_size), dtype))
        self.weight_hh = Parameter(empty((rows, hidden_size), dtype))
        self.register_parameter("bias_ih", Parameter(empty((rows,), dtype)) if bias else None)
        self.register_parameter("bias_hh", Parameter(empty((rows,), dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self):
        bound = 1 / math.sqrt(self.hidden_size)
        for parameter in self.parameters():
            init.uniform_(parameter, -bound, bound)

    def forward(self, input, hx=None):
        single = len(input.shape) == 1
        rows = (lambda part: ops.reshape(part, (1, -1))) if single else (lambda part: part)
        x = rows(input)
        if hx is None:
            zeros = ops.expand(ops.cast(0.0, x.dtype), (x.shape[0], self.hidden_size))
            state = (zeros, zeros) if self.mode == "LSTM" else (zeros,)
        else:
            state = tuple(rows(part) for part in (hx if self.mode == "LSTM" else (hx,)))
        state = _cell_step(self.mode, F.linear(x, self.weight_ih, self.bias_ih), state, self.weight_hh, self.bias_hh)
        state = tuple(ops.reshape(part, (-1,)) for part in state) if single else state
        return state if self.mode == "LSTM" else state[0]

    def extra_repr(self):
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        if self.__dict__.get("nonlinearity", "tanh") != "tanh":
            text += f", nonlinearity={self.nonlinearity}"
        return text


class RNNCell(RNNCellBase):
    def __init__(self, input_size, hidden_size, bias=True, nonlinearity="tanh", device=None, dtype=None):
        if nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {nonlinearity}")
        super().__init__(f"RNN_{nonlinearity.upper()}", input_size, hidden_size, bias, dtype)
        self.nonlinearity = nonlinearity


class LSTMCell(RNNCellBase):
    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__("LSTM", input_size, hidden_size, bias, dtype)


class GRUCell(RNNCellBase):
    def __init__(self, input_size, hidden_size, bias=True, device=None, dtype=None):
        super().__init__("GRU", input_size, hidden_size, bias, dtype)

"""Adaptive softmax (Grave, Joulin, Cisse, Grangier, Jegou: "Efficient softmax approximation for GPUs", ICML 2017)."""
from collections import namedtuple

from .. import _core
from .._core import ops
from . import functional as F
from .container import ModuleList, Sequential
from .functional.base import concat, slice_axis
from .layers import Linear
from .module import Module

_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """The log-softmax over n_classes in clusters: frequent classes are in the head, rarer ones in tails of smaller width:
    (N, in_features) and classes (N,) to (output (N,), loss ())."""

    def __init__(self, in_features, n_classes, cutoffs, div_value=4.0, head_bias=False, device=None, dtype=None):
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if cutoffs != sorted(set(cutoffs)) or cutoffs[0] <= 0 or cutoffs[-1] > n_classes - 1 or any(int(c) != c for c in cutoffs):
            raise ValueError("cutoffs should be a sequence of unique, positive integers sorted in an increasing order, where each "
                             "value is between 1 and n_classes-1")
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, cutoffs + [n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = cutoffs[0], len(cutoffs)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, dtype=dtype)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            width = int(in_features // div_value ** (i + 1))
            self.tail.append(Sequential(Linear(in_features, width, bias=False, dtype=dtype),
                                        Linear(width, self.cutoffs[i + 1] - self.cutoffs[i], bias=False, dtype=dtype)))

    def reset_parameters(self):
        self.head.reset_parameters()
        for first, second in self.tail:
            first.reset_parameters()
            second.reset_parameters()

    def forward(self, input_, target_):
        """input_ (N, in_features), target_ (N,), or both without N: returns the log-probabilities of the targets and their
        mean loss."""
        single = target_.ndim == 0
        if target_.ndim > 1 or input_.ndim != 2 - single or (not single and input_.shape[0] != target_.shape[0]):
            raise RuntimeError(f"AdaptiveLogSoftmaxWithLoss: the input is {tuple(input_.shape)} and the target "
                               f"{tuple(target_.shape)}, they must be (N, in_features) and (N,), or (in_features,) and ()")
        input, target = (ops.reshape(input_, (1, -1)), ops.reshape(target_, (1,))) if single else (input_, target_)
        if not _core._tracing():
            values = target.numpy()
            if values.size and (values.min() < 0 or values.max() >= self.n_classes):
                raise RuntimeError(f"Target values should be in [0, {self.n_classes - 1}], but values in range [{values.min()}, "
                                   f"{values.max()}] were found. ")
        entry, output = target, None  # the column of the head: the class itself, or its cluster
        for i, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:])):
            inside = ops.and_(ops.greater_equal(target, low), ops.less(target, high))
            entry = ops.select(inside, self.shortlist_size + i, entry)
            logs = F.log_softmax(self.tail[i](input), 1)
            own = ops.take_along(logs, ops.reshape(ops.select(inside, target - low, 0), (-1, 1)), axis=1)
            own = ops.select(inside, ops.reshape(own, (-1,)), 0.0)
            output = own if output is None else output + own
        head = ops.take_along(F.log_softmax(self.head(input), 1), ops.reshape(entry, (-1, 1)), axis=1)
        output = output + ops.reshape(head, (-1,))
        return _ASMoutput(ops.reshape(output, ()) if single else output, ops.mean(-output))

    def log_prob(self, input):
        """Returns the log-probabilities of all classes: (N, n_classes)."""
        head = F.log_softmax(self.head(input), 1)
        parts = [slice_axis(head, 1, 0, self.shortlist_size)]
        for i, tail in enumerate(self.tail):
            cluster = slice_axis(head, 1, self.shortlist_size + i, self.shortlist_size + i + 1)
            parts.append(F.log_softmax(tail(input), 1) + cluster)
        return concat(parts, 1)

    def predict(self, input):
        """Returns the most probable class of each row: the head's, or of all classes if the head's is a cluster."""
        head = ops.argmax(self.head(input), axis=1)
        classes = ops.select(ops.less(head, self.shortlist_size), head, ops.argmax(self.log_prob(input), axis=1))
        return ops.cast(classes, _core.int64)

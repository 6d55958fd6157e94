"""The losses of torch.nn: means over all elements by default, or as `reduction` says."""
import functools
import math
import warnings

from ... import _core
from ..._core import ops
from ..._dtypes import FLOATS, result_type
from ..._shaping import broadcast_shapes
from .activation import vector_norm
from .base import in_float32, in_float32_if_narrow, move_axis, reduce_loss

__all__ = [
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cosine_similarity",
    "cross_entropy", "gaussian_nll_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "linear_cross_entropy",
    "margin_ranking_loss", "mse_loss", "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss",
    "nll_loss", "pairwise_distance", "pdist", "poisson_nll_loss", "smooth_l1_loss", "soft_margin_loss",
    "triplet_margin_loss", "triplet_margin_with_distance_loss"]


def legacy_reduction(size_average, reduce, reduction="mean"):
    """Returns the reduction, or the one that size_average and reduce name, if either is not None."""
    if size_average is None and reduce is None:
        return reduction
    average, reduce = (True if one is None else one for one in (size_average, reduce))
    result = "mean" if average and reduce else "sum" if reduce else "none"
    warnings.warn(f"size_average and reduce args will be deprecated, please use reduction='{result}' instead.", stacklevel=3)
    return result


def _check_same_shape(name, input, target):
    if tuple(input.shape) != tuple(target.shape):
        raise ValueError(f"{name}: the target has shape {tuple(target.shape)}, the input {tuple(input.shape)}; they must be "
                         "the same")


def _checked_difference(name, input, target, level=4):
    """Returns input - target. Other shapes broadcast, as in PyTorch, where (N,) and (N, 1) make a loss of (N,
    N): it warns, too."""
    input, target = in_float32(input, target)
    shapes = tuple(input.shape), tuple(target.shape)
    if shapes[0] != shapes[1]:
        warnings.warn(f"{name}: the input has shape {shapes[0]}, the target {shapes[1]}, which broadcast to another loss\n"
                      "  hint: target.reshape(input.shape)", stacklevel=level)
    return input - target


def _clamp_at_0(x):
    """Returns x, or 0 where it is negative. The gradient at 0 is 1, unlike relu's, since PyTorch clamps its
    margins."""
    return ops.clamp(x, 0.0, math.inf)


def _reduce_by_weights(loss, weight, reduction):
    """Reduces losses times their weights; the mean is over the sum of the weights."""
    if weight is not None and tuple(weight.shape) != tuple(loss.shape):
        raise ValueError("Weights and input must have the same size.")
    if weight is not None and reduction == "mean":
        return ops.sum(loss * weight) / ops.sum(weight)
    return reduce_loss(loss if weight is None else loss * weight, reduction)


def mse_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    difference = _checked_difference("mse_loss", input, target)
    return _reduce_by_weights(difference * difference, weight, reduction)


def l1_loss(input, target, size_average=None, reduce=None, reduction="mean", weight=None):
    return _reduce_by_weights(ops.abs(_checked_difference("l1_loss", input, target)), weight, reduction)


def smooth_l1_loss(input, target, size_average=None, reduce=None, reduction="mean", beta=1.0):
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")
    distance = ops.abs(_checked_difference("smooth_l1_loss", input, target))
    if beta == 0:
        return reduce_loss(distance, reduction)
    near = ops.less(distance, float(beta))
    small = ops.select(near, distance, 0.0)  # the gradient of an infinite square would be NaN
    return reduce_loss(ops.select(near, small * small * 0.5 / beta, distance - 0.5 * beta), reduction)


def huber_loss(input, target, reduction="mean", delta=1.0, weight=None):
    distance = ops.abs(_checked_difference("huber_loss", input, target, 3))
    near = ops.less_equal(distance, float(delta))
    small = ops.select(near, distance, 0.0)
    loss = ops.select(near, small * small * 0.5, (distance - 0.5 * delta) * delta)
    return reduce_loss(loss if weight is None else loss * weight, reduction)


def _move_classes_last(input):
    """Moves the classes, axis 1 of (N, C, ...) or the only axis, to the end."""
    return input if len(input.shape) < 3 else move_axis(input, 1, -1)


def _reduce_weighted(values, target, weight, ignore_index, reduction):
    """Reduces the losses of rows, weighted by their classes and without those of ignore_index."""
    kept = ops.not_equal(target, ignore_index)
    heavy = ops.cast(kept, values.dtype)
    if weight is not None:
        heavy = ops.select(kept, ops.gather(weight, ops.select(kept, target, 0), axis=0), 0.0)
    values = ops.select(kept, values, 0.0)
    values = values if weight is None else values * heavy
    return ops.sum(values) / ops.sum(heavy) if reduction == "mean" else reduce_loss(values, reduction)


def nll_loss(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean"):
    """input: logarithms of probabilities (N, C, ...); target: classes (N, ...)."""
    input, target = in_float32(input, target)
    logs = _move_classes_last(input)
    _check_target("nll_loss", logs, target)
    safe = ops.select(ops.not_equal(target, ignore_index), target, 0)
    picked = ops.take_along(logs, ops.reshape(safe, tuple(target.shape) + (1,)), axis=-1)
    return _reduce_weighted(-ops.reshape(picked, tuple(target.shape)), target, weight, ignore_index, reduction)


def _check_target(name, logits, target):
    if tuple(target.shape) != tuple(logits.shape)[:-1]:
        raise ValueError(f"{name}: the target has shape {tuple(target.shape)}, with this input it must be "
                         f"{tuple(logits.shape)[:-1]}")


def _is_floating(x):
    return repr(x.dtype).rpartition(".")[2].startswith(("float", "bfloat"))


def cross_entropy(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean",
                  label_smoothing=0.0):
    """input: logits (N, C, ...); target: classes (N, ...), or probabilities of input's shape."""
    input, target = in_float32(input, target)
    logits = _move_classes_last(input)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    n = logits.shape[-1]
    if tuple(target.shape) == tuple(input.shape) and _is_floating(target):
        target = _move_classes_last(target)
        if label_smoothing:
            target = target * (1 - label_smoothing) + label_smoothing / n
        logs = ops.log_softmax(logits)
        rows = -ops.sum((logs if weight is None else logs * weight) * target, axes=(-1,))
        return ops.sum(rows) / float(math.prod(rows.shape)) if reduction == "mean" else reduce_loss(rows, reduction)
    _check_target("cross_entropy", logits, target)
    safe = ops.select(ops.not_equal(target, ignore_index), target, 0)
    rows = ops.cross_entropy(logits, safe, per_row=True)
    loss = _reduce_weighted(rows, target, weight, ignore_index, reduction)
    if not label_smoothing:
        return loss
    kept = ops.not_equal(target, ignore_index)
    logs = ops.log_softmax(logits)
    smooth = ops.select(kept, -ops.sum(logs if weight is None else logs * weight, axes=(-1,)), 0.0)
    if reduction == "mean":
        heavy = ops.cast(kept, logits.dtype)
        if weight is not None:
            heavy = ops.select(kept, ops.gather(weight, safe, axis=0), 0.0)
        smooth = ops.sum(smooth) / ops.sum(heavy)
    else:
        smooth = reduce_loss(smooth, reduction)
    return loss * (1 - label_smoothing) + smooth * (label_smoothing / n)


def linear_cross_entropy(input, linear_weight, target, *, linear_bias=None, weight=None, reduction="mean",
                         ignore_index=None, label_smoothing=0.0, options=None):
    """Returns cross_entropy(linear(input, linear_weight, linear_bias), target) without storing the logits of
    all rows: input (..., D), linear_weight (C, D), target (...). Blocks of rows compute their logits one
    after the other, and their gradients with them, whatever `options` says. Probabilities as targets, weights
    (C, ..., D), and class weights together with smoothing need all logits."""
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}")
    ignored = -100 if ignore_index is None else ignore_index
    if len(linear_weight.shape) != 2 or _is_floating(target) or (weight is not None and label_smoothing) or label_smoothing == 1:
        return _linear_cross_entropy_of_logits(input, linear_weight, target, linear_bias, weight, reduction, ignored, label_smoothing)
    kept = ops.not_equal(target, ignored)
    safe = ops.select(kept, target, 0)
    heavy = ops.cast(kept, input.dtype)
    if weight is not None:
        heavy = ops.select(kept, ops.gather(weight, safe, axis=0), 0.0)
    loss = ops.linear_cross_entropy(input, linear_weight, safe, row_weights=heavy, bias=linear_bias,
                                    smoothing=float(label_smoothing), per_row=reduction == "none")
    if reduction != "sum":
        return loss if reduction == "mean" else reduce_loss(loss, reduction)
    total = ops.sum(heavy)
    return ops.select(ops.equal(total, 0.0), 0.0, loss * total)


def _linear_cross_entropy_of_logits(input, linear_weight, target, bias, weight, reduction, ignore_index, label_smoothing):
    classes, *features, width = linear_weight.shape
    logits = input @ ops.permute(ops.reshape(linear_weight, (-1, width)), axes=(1, 0))
    if bias is not None:
        logits = logits + ops.reshape(bias, (-1,))
    logits = ops.reshape(logits, (*input.shape[:-1], classes, *features))
    return cross_entropy(logits, target, weight, ignore_index=ignore_index, reduction=reduction,
                         label_smoothing=label_smoothing)


def binary_cross_entropy(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    """input: probabilities p; logarithms below -100 count as -100. The gradient is (p - target) / max(p (1 -
    p), 1e-12): it is finite at 0 and 1 too, and times the gradient of a saturated sigmoid it is 0."""
    input, target = in_float32(input, target)
    _check_same_shape("binary_cross_entropy", input, target)
    inside = ops.greater_equal(input * (1.0 - input), 1e-12)
    safe, fixed = ops.select(inside, input, 0.5), ops.stop_gradient(input)
    log_p = ops.select(inside, ops.log(safe), ops.maximum(ops.log(fixed), -100.0))
    log_q = ops.select(inside, ops.log1p(-safe), ops.maximum(ops.log1p(-fixed), -100.0))
    steep = (fixed - target) * 1e12 * (input - fixed)  # 0, with that gradient at the ends
    loss = ops.select(inside, 0.0, steep) - (target * log_p + (1.0 - target) * log_q)
    return reduce_loss(loss if weight is None else loss * weight, reduction)


def binary_cross_entropy_with_logits(input, target, weight=None, size_average=None, reduce=None, reduction="mean",
                                     pos_weight=None):
    input, target = in_float32(input, target)
    _check_same_shape("binary_cross_entropy_with_logits", input, target)
    log_weight = 1.0 if pos_weight is None else (pos_weight - 1.0) * target + 1.0
    loss = (1.0 - target) * input - log_weight * ops.log_sigmoid(input)
    return reduce_loss(loss if weight is None else loss * weight, reduction)


def kl_div(input, target, size_average=None, reduce=None, reduction="mean", log_target=False):
    """input: logarithms of probabilities; 0 log 0 is 0, with gradient 0."""
    input, target = in_float32(input, target)
    if log_target:
        loss = ops.exp(target) * (target - input)
    else:
        none = ops.equal(target, 0.0)
        loss = ops.select(none, 0.0, target * ops.log(ops.select(none, 1.0, target))) - target * input
    if reduction == "batchmean":
        return ops.sum(loss) / float(input.shape[0] if input.shape else 1)
    return reduce_loss(loss, reduction)


def poisson_nll_loss(input, target, log_input=True, full=False, size_average=None, eps=1e-8, reduce=None, reduction="mean"):
    input, target = in_float32(input, target)
    input = input if input.dtype in FLOATS else ops.cast(input, "float32")
    loss = ops.exp(input) - target * input if log_input else input - target * ops.log(input + eps)
    if full:
        large = ops.select(ops.greater(target, 1.0), target, 2.0)
        stirling = large * ops.log(large) - large + 0.5 * ops.log(large * (2 * math.pi))
        loss = loss + ops.select(ops.greater(target, 1.0), stirling, 0.0)
    return reduce_loss(loss, reduction)


def gaussian_nll_loss(input, target, var, full=False, eps=1e-6, reduction="mean"):
    input, target, var = in_float32(input, target, var)
    if not isinstance(var, _core.Tensor):
        var = ops.expand(ops.cast(float(var), input.dtype), tuple(input.shape))
    if tuple(var.shape) == tuple(input.shape)[:-1]:
        var = ops.reshape(var, tuple(var.shape) + (1,))
    # The gradient stays 1.
    var = ops.select(ops.less(var, float(eps)), var - ops.stop_gradient(var) + float(eps), var)
    difference = input - target
    loss = (ops.log(var) + difference * difference / var) * 0.5
    return reduce_loss(loss + 0.5 * math.log(2 * math.pi) if full else loss, reduction)


def hinge_embedding_loss(input, target, margin=1.0, size_average=None, reduce=None, reduction="mean"):
    input, target = in_float32(input, target)
    near, far = ops.equal(target, 1), ops.equal(target, -1)
    apart = _clamp_at_0(margin - input)
    loss = ops.select(near, input, 0.0) + ops.select(far, apart, 0.0)
    loss = ops.select(ops.or_(near, far), loss, input + apart)
    return reduce_loss(loss, reduction)


def soft_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    input, target = in_float32(input, target)
    return reduce_loss(ops.softplus(-target * input), reduction)


def margin_ranking_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    input1, input2, target = in_float32(input1, input2, target)
    return reduce_loss(_clamp_at_0(-target * (input1 - input2) + margin), reduction)


def multilabel_soft_margin_loss(input, target, weight=None, size_average=None, reduce=None, reduction="mean"):
    loss = -(target * ops.log_sigmoid(input) + (1 - target) * ops.log_sigmoid(-input))
    loss = loss if weight is None else loss * weight
    return reduce_loss(ops.mean(loss, axes=(-1,)), reduction)


def multi_margin_loss(input, target, p=1, margin=1.0, weight=None, size_average=None, reduce=None, reduction="mean"):
    """input (N, C) or (C,), target (N,) or one class."""
    input, target = in_float32(input, target)
    if p not in (1, 2):
        raise ValueError("only p == 1 and p == 2 supported")
    single = len(input.shape) <= 1
    x = ops.reshape(input, (1, -1)) if single else input
    y = ops.reshape(target, (-1, 1))
    own = ops.take_along(x, y, axis=-1)
    loss = ops.relu(margin - own + x)
    loss = loss if p == 1 else loss * loss
    if weight is not None:
        loss = loss * ops.gather(weight, y, axis=0)
    other = ops.not_equal(ops.iota(y.dtype, (1, x.shape[1]), 1), y)
    rows = ops.sum(ops.select(other, loss, 0.0), axes=(1,)) / float(x.shape[1])
    return reduce_loss(ops.reshape(rows, ()) if single else rows, reduction)


def multilabel_margin_loss(input, target, size_average=None, reduce=None, reduction="mean"):
    """target: the classes of each row, up to the first -1."""
    input, target = in_float32(input, target)
    single = len(input.shape) <= 1
    x = ops.reshape(input, (1, -1)) if single else input
    y = ops.reshape(target, tuple(x.shape))
    n, c = x.shape
    ended = ops.cumsum(ops.cast(ops.less(y, 0), "int32"), axis=1)
    is_target = ops.equal(ended, 0)  # (N, C): true where entry k is a class
    safe = ops.select(is_target, y, 0)
    own = ops.take_along(x, safe, axis=1)
    named = ops.equal(ops.reshape(safe, (n, c, 1)), ops.iota(y.dtype, (1, 1, c), 2))
    labels = ops.any(ops.and_(named, ops.reshape(is_target, (n, c, 1))), axes=(1,))  # (N, C)
    margins = ops.relu(1.0 - ops.reshape(own, (n, c, 1)) + ops.reshape(x, (n, 1, c)))
    counts = ops.and_(ops.reshape(is_target, (n, c, 1)), ops.reshape(ops.not_(labels), (n, 1, c)))
    rows = ops.sum(ops.select(counts, margins, 0.0), axes=(1, 2)) / float(c)
    return reduce_loss(ops.reshape(rows, ()) if single else rows, reduction)


def cosine_similarity(x1, x2, dim=1, eps=1e-8):
    """Returns the cosine of the angle of vectors along an axis; each norm is at least eps."""
    x1, x2 = in_float32(x1, x2)
    dtype, shape = result_type(x1, x2), broadcast_shapes(tuple(x1.shape), tuple(x2.shape))
    x1, x2 = (ops.expand(x, shape) if shape else ops.reshape(x, (1,)) for x in (x1, x2))
    first, second = (x / ops.maximum(vector_norm(x, 2.0, dim, True), float(eps)) for x in (in_float32_if_narrow(x1), in_float32_if_narrow(x2)))
    # Of normalized vectors: products of large numbers would overflow.
    return ops.cast(ops.sum(first * second, axes=(dim,)), dtype)


def cosine_embedding_loss(input1, input2, target, margin=0, size_average=None, reduce=None, reduction="mean"):
    input1, input2, target = in_float32(input1, input2, target)
    eps = 1e-12
    dot = ops.sum(input1 * input2, axes=(-1,))
    first, second = (ops.sqrt(ops.sum(x * x, axes=(-1,)) + eps) for x in (input1, input2))
    cosine = dot / first / second  # their product may overflow
    loss = ops.select(ops.equal(target, 1), 1.0 - cosine,
                      ops.select(ops.equal(target, -1), _clamp_at_0(cosine - margin), cosine * 0.0))
    return reduce_loss(loss, reduction)


def pairwise_distance(x1, x2, p=2.0, eps=1e-6, keepdim=False):
    x1, x2 = in_float32(x1, x2)
    return vector_norm(x1 - x2 + eps, p, -1, keepdim)


def pdist(input, p=2.0):
    """Returns the distances of all pairs of rows of (N, D): (N (N - 1) / 2,), of row 0 to the others first."""
    if input.ndim != 2:
        raise RuntimeError(f"pdist: the input has {input.ndim} axes, it must have 2")
    pairs = [(i, j) for i in range(input.shape[0]) for j in range(i + 1, input.shape[0])]
    first, second = (ops.gather(input, _core.asarray([pair[k] for pair in pairs], dtype=_core.int64), axis=0) for k in (0, 1))
    return vector_norm(first - second, p, -1)


def triplet_margin_loss(anchor, positive, negative, margin=1.0, p=2, eps=1e-6, swap=False, size_average=None, reduce=None,
                        reduction="mean"):
    anchor, positive, negative = in_float32(anchor, positive, negative)
    near, far = pairwise_distance(anchor, positive, p, eps), pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = ops.minimum(far, pairwise_distance(positive, negative, p, eps))
    return reduce_loss(_clamp_at_0(near - far + margin), reduction)


def triplet_margin_with_distance_loss(anchor, positive, negative, *, distance_function=None, margin=1.0, swap=False,
                                      reduction="mean"):
    distance = distance_function or pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = ops.minimum(far, distance(positive, negative))
    return reduce_loss(_clamp_at_0(near - far + margin), reduction)


def _with_legacy_reduction(function):
    """Returns the loss with size_average and reduce, the older form of reduction, in effect where they are given."""
    names = function.__code__.co_varnames[:function.__code__.co_argcount]
    places = [names.index(name) for name in ("size_average", "reduce")]
    first = min(places)

    @functools.wraps(function)
    def loss(*args, **options):
        if len(args) <= first and "size_average" not in options and "reduce" not in options:
            return function(*args, **options)
        given = [args[place] if len(args) > place else options.pop(names[place], None) for place in places]
        if given != [None, None]:
            options["reduction"] = legacy_reduction(*given)
        return function(*args, **options)

    return loss


for _name in __all__:
    if "size_average" in globals()[_name].__code__.co_varnames:
        globals()[_name] = _with_legacy_reduction(globals()[_name])

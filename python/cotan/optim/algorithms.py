"""The optimizers of torch.optim, by its single-tensor formulas.

Numbers that change from step to step, such as the learning rate and the bias corrections, are operands of the
plan: a new value compiles nothing. The steps themselves are counted in Python.
"""
import functools

from .. import _core
from .._core import ops
from .._dtypes import finfo
from .optimizer import Optimizer, check, check_betas, zeros_like, filled_like


def _group_options(maximize, foreach, capturable, differentiable, fused=None):
    """Returns what PyTorch's groups hold besides the algorithm's numbers. foreach, fused and capturable name implementations of
    the same step, of which there is one: all parameters are updated by one plan."""
    return {"maximize": maximize, "foreach": foreach, "capturable": capturable, "differentiable": differentiable,
            "fused": fused}


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum if it is not 0."""

    def __init__(self, params, lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False, *, maximize=False,
                 foreach=None, differentiable=False, fused=None):
        check("SGD", learning_rate=lr, momentum=momentum, weight_decay=weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, {"lr": lr, "momentum": momentum, "dampening": dampening, "weight_decay": weight_decay,
                                  "nesterov": nesterov, "maximize": maximize, "foreach": foreach,
                                  "differentiable": differentiable, "fused": fused})

    def update(self, group):
        lr, momentum, decay = group["lr"], group["momentum"], group["weight_decay"]
        for param, grad, state in self.with_grads(group):
            if decay:
                grad = grad + param * decay
            if momentum:
                buffer = state.get("momentum_buffer")
                if buffer is None:
                    buffer = state["momentum_buffer"] = zeros_like(param)
                    buffer.copy_(grad)
                else:
                    buffer.copy_(buffer * momentum + grad * (1 - group["dampening"]))
                grad = grad + buffer * momentum if group["nesterov"] else buffer
            param.copy_(param - grad * lr)


@functools.cache
def _moment_ops():
    """Returns Adam's formulas as ops: one call each instead of a dozen in Python."""
    return [_core._op_define(name, "", operands, text) for name, operands, text in (
        ("adam_mean", "m g w", "m + (g - m) * w"),
        ("adam_square", "v g b c", "v * b + g * g * c"),
        ("adam_step", "p m v s e z", "p - m / (sqrt(v) / s + e) * z"))]


def _lerp(old, new, weight):
    """Interpolates old and new by torch.lerp's formulas."""
    return old + (new - old) * weight if abs(weight) < 0.5 else new - (new - old) * (1 - weight)


def _count_step(state, param, *names):
    """Returns the number of the step, which is counted in the state; a new state has zeros under these names."""
    if not state:
        state.update(step=0.0, **{name: zeros_like(param) for name in names})
    state["step"] += 1
    return state["step"]


def _decayed(param, grad, group):
    """Returns the value and the gradient with weight decay: of the gradient or, where it is decoupled, of the value."""
    decay = group["weight_decay"]
    if decay and group.get("decoupled_weight_decay"):
        return param * (1 - group["lr"] * decay), grad
    return param, grad + param * decay if decay else grad


class Adam(Optimizer):
    """Steps by the mean gradient, divided by the root of its mean square."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False, *, foreach=None,
                 maximize=False, capturable=False, differentiable=False, fused=None, decoupled_weight_decay=False):
        check(type(self).__name__, learning_rate=lr, epsilon=eps, weight_decay=weight_decay)
        check_betas(type(self).__name__, betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "amsgrad": amsgrad,
                                  **_group_options(maximize, foreach, capturable, differentiable, fused),
                                  "decoupled_weight_decay": decoupled_weight_decay})

    def update(self, group):
        lr, (beta1, beta2), decay = group["lr"], group["betas"], group["weight_decay"]
        mean_of, square_of, stepped = _moment_ops()
        written, values = [], []  # by one call: a step of small models is mostly calls
        for param, grad, state in self.with_grads(group):
            if not state:
                state.update(step=0.0, exp_avg=zeros_like(param), exp_avg_sq=zeros_like(param))
                if group["amsgrad"]:
                    state["max_exp_avg_sq"] = zeros_like(param)
            state["step"] += 1
            value = param
            if decay and group["decoupled_weight_decay"]:
                value = value * (1 - lr * decay)
            elif decay:
                grad = grad + value * decay
            mean, square = state["exp_avg"], state["exp_avg_sq"]
            written += mean, square, param
            mean = _core._op_call(mean_of, (mean, grad, 1 - beta1), ()) if beta1 > 0.5 else _lerp(mean, grad, 1 - beta1)
            square = _core._op_call(square_of, (square, grad, beta2, 1 - beta2), ())
            values += mean, square
            if group["amsgrad"]:
                square = state["max_exp_avg_sq"].copy_(ops.maximum(state["max_exp_avg_sq"], square))
            scale = (1 - beta2 ** state["step"]) ** 0.5
            size = lr / (1 - beta1 ** state["step"])
            values.append(_core._op_call(stepped, (value, mean, square, scale, group["eps"], size), ()))
        _core._write(written, values)


class AdamW(Adam):
    """Adam with weight decay that is decoupled from the gradient."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False, *, maximize=False,
                 foreach=None, capturable=False, differentiable=False, fused=None):
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize,
                         capturable=capturable, differentiable=differentiable, fused=fused, decoupled_weight_decay=True)


class RMSprop(Optimizer):
    """Steps by the gradient, divided by the root of its mean square."""

    def __init__(self, params, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False, capturable=False,
                 foreach=None, maximize=False, differentiable=False):
        check("RMSprop", learning_rate=lr, epsilon=eps, momentum=momentum, weight_decay=weight_decay, alpha=alpha)
        super().__init__(params, {"lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
                                  "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach,
                                  "maximize": maximize, "differentiable": differentiable})

    def update(self, group):
        lr, alpha = group["lr"], group["alpha"]
        for param, grad, state in self.with_grads(group):
            if not state:
                state.update(step=0.0, square_avg=zeros_like(param))
                if group["momentum"]:
                    state["momentum_buffer"] = zeros_like(param)
                if group["centered"]:
                    state["grad_avg"] = zeros_like(param)
            state["step"] += 1
            _, grad = _decayed(param, grad, group)
            square = state["square_avg"].copy_(state["square_avg"] * alpha + grad * grad * (1 - alpha))
            if group["centered"]:
                mean = state["grad_avg"].copy_(_lerp(state["grad_avg"], grad, 1 - alpha))
                square = square - mean * mean
            move = grad / (ops.sqrt(square) + group["eps"])
            if group["momentum"]:
                move = state["momentum_buffer"].copy_(state["momentum_buffer"] * group["momentum"] + move)
            param.copy_(param - move * lr)


class Adagrad(Optimizer):
    """Steps by the gradient, divided by the root of the sum of its squares."""

    def __init__(self, params, lr=1e-2, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10, foreach=None, *,
                 maximize=False, differentiable=False, fused=None):
        check("Adagrad", learning_rate=lr, lr_decay=lr_decay, weight_decay=weight_decay,
              initial_accumulator_value=initial_accumulator_value, epsilon=eps)
        super().__init__(params, {"lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
                                  "initial_accumulator_value": initial_accumulator_value, "foreach": foreach,
                                  "maximize": maximize, "differentiable": differentiable, "fused": fused})
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param] = {"step": 0.0, "sum": filled_like(param, group["initial_accumulator_value"])}

    def update(self, group):
        for param, grad, state in self.with_grads(group):
            if not state:
                state.update(step=0.0, sum=filled_like(param, group["initial_accumulator_value"]))
            state["step"] += 1
            _, grad = _decayed(param, grad, group)
            rate = group["lr"] / (1 + (state["step"] - 1) * group["lr_decay"])
            total = state["sum"].copy_(state["sum"] + grad * grad)
            param.copy_(param - grad / (ops.sqrt(total) + group["eps"]) * rate)


class Adadelta(Optimizer):
    """Steps whose sizes follow those of earlier steps."""

    def __init__(self, params, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0, foreach=None, *, capturable=False, maximize=False,
                 differentiable=False):
        check("Adadelta", learning_rate=lr, epsilon=eps, weight_decay=weight_decay)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Adadelta: rho must be from 0 to 1, it is {rho}")
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
                                  "capturable": capturable, "foreach": foreach, "differentiable": differentiable})

    def update(self, group):
        rho, eps = group["rho"], group["eps"]
        for param, grad, state in self.with_grads(group):
            _count_step(state, param, "square_avg", "acc_delta")
            _, grad = _decayed(param, grad, group)
            square = state["square_avg"].copy_(state["square_avg"] * rho + grad * grad * (1 - rho))
            delta = ops.sqrt(state["acc_delta"] + eps) / ops.sqrt(square + eps) * grad
            state["acc_delta"].copy_(state["acc_delta"] * rho + delta * delta * (1 - rho))
            param.copy_(param - delta * group["lr"])


class Adamax(Optimizer):
    """Adam with the largest gradient in place of the mean square."""

    def __init__(self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, foreach=None, *, maximize=False,
                 differentiable=False, capturable=False):
        check("Adamax", learning_rate=lr, epsilon=eps, weight_decay=weight_decay)
        check_betas("Adamax", betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach,
                                  "maximize": maximize, "differentiable": differentiable, "capturable": capturable})

    def update(self, group):
        beta1, beta2 = group["betas"]
        for param, grad, state in self.with_grads(group):
            _count_step(state, param, "exp_avg", "exp_inf")
            _, grad = _decayed(param, grad, group)
            mean = state["exp_avg"].copy_(_lerp(state["exp_avg"], grad, 1 - beta1))
            largest = state["exp_inf"].copy_(ops.maximum(state["exp_inf"] * beta2, ops.abs(grad) + group["eps"]))
            param.copy_(param - mean / largest * (group["lr"] / (1 - beta1 ** state["step"])))


class NAdam(Optimizer):
    """Adam with Nesterov momentum."""

    def __init__(self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, momentum_decay=4e-3,
                 decoupled_weight_decay=False, *, foreach=None, maximize=False, capturable=False, differentiable=False):
        check("NAdam", learning_rate=lr, epsilon=eps, weight_decay=weight_decay, momentum_decay=momentum_decay)
        check_betas("NAdam", betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay,
                                  "momentum_decay": momentum_decay, "decoupled_weight_decay": decoupled_weight_decay,
                                  "maximize": maximize, "foreach": foreach, "capturable": capturable,
                                  "differentiable": differentiable})

    def update(self, group):
        lr, (beta1, beta2) = group["lr"], group["betas"]
        for param, grad, state in self.with_grads(group):
            if not state:
                state.update(step=0.0, mu_product=1.0, exp_avg=zeros_like(param), exp_avg_sq=zeros_like(param))
            step = _count_step(state, param)
            value, grad = _decayed(param, grad, group)
            mu, mu_next = (beta1 * (1 - 0.5 * 0.96 ** (t * group["momentum_decay"])) for t in (step, step + 1))
            state["mu_product"] *= mu
            product = state["mu_product"]
            mean = state["exp_avg"].copy_(_lerp(state["exp_avg"], grad, 1 - beta1))
            square = state["exp_avg_sq"].copy_(state["exp_avg_sq"] * beta2 + grad * grad * (1 - beta2))
            root = ops.sqrt(square / (1 - beta2 ** step)) + group["eps"]
            value = value - grad / root * (lr * (1 - mu) / (1 - product))
            param.copy_(value - mean / root * (lr * mu_next / (1 - product * mu_next)))


class RAdam(Optimizer):
    """Adam whose first steps are corrected for the small number of gradients so far."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, decoupled_weight_decay=False, *,
                 foreach=None, maximize=False, capturable=False, differentiable=False):
        check("RAdam", learning_rate=lr, epsilon=eps, weight_decay=weight_decay)
        check_betas("RAdam", betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
                                  "foreach": foreach, "capturable": capturable,
                                  "decoupled_weight_decay": decoupled_weight_decay, "differentiable": differentiable})

    def update(self, group):
        lr, (beta1, beta2) = group["lr"], group["betas"]
        for param, grad, state in self.with_grads(group):
            step = _count_step(state, param, "exp_avg", "exp_avg_sq")
            value, grad = _decayed(param, grad, group)
            mean = state["exp_avg"].copy_(_lerp(state["exp_avg"], grad, 1 - beta1))
            square = state["exp_avg_sq"].copy_(state["exp_avg_sq"] * beta2 + grad * grad * (1 - beta2))
            correction2 = 1 - beta2 ** step
            most = 2 / (1 - beta2) - 1
            rho = most - 2 * step * beta2 ** step / correction2
            move = mean / (1 - beta1 ** step)
            if rho > 5:
                rectified = ((rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho)) ** 0.5
                move = move * (correction2 ** 0.5 / (ops.sqrt(square) + group["eps"])) * rectified
            param.copy_(value - move * lr)


class ASGD(Optimizer):
    """Stochastic gradient descent whose parameters are averaged (Polyak, Juditsky 1992): the means are state "ax"."""

    def __init__(self, params, lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0, foreach=None, maximize=False,
                 differentiable=False, capturable=False):
        check("ASGD", learning_rate=lr, weight_decay=weight_decay)
        super().__init__(params, {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay,
                                  "foreach": foreach,
                                  "maximize": maximize, "differentiable": differentiable, "capturable": capturable})

    def update(self, group):
        lr, lambd = group["lr"], group["lambd"]
        for param, grad, state in self.with_grads(group):
            if not state:
                state.update(step=0.0, eta=lr, mu=1.0, ax=zeros_like(param))
            state["step"] += 1
            _, grad = _decayed(param, grad, group)
            value = param * (1 - lambd * state["eta"]) - grad * state["eta"]
            mean = state["ax"]
            mean.copy_(value if state["mu"] == 1 else mean + (value - mean) * state["mu"])
            param.copy_(value)
            state["eta"] = lr / (1 + lambd * lr * state["step"]) ** group["alpha"]
            state["mu"] = 1 / max(1, state["step"] - group["t0"])


class Rprop(Optimizer):
    """Steps whose sizes grow while the gradient's sign stays, and shrink where it changes."""

    def __init__(self, params, lr=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50), *, capturable=False, foreach=None, maximize=False,
                 differentiable=False):
        check("Rprop", learning_rate=lr)
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Rprop: etas must be less and greater than 1, they are {etas[0]} and {etas[1]}")
        super().__init__(params, {"lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach, "maximize": maximize,
                                  "differentiable": differentiable, "capturable": capturable})

    def update(self, group):
        (minus, plus), (low, high) = group["etas"], group["step_sizes"]
        for param, grad, state in self.with_grads(group):
            if not state:
                state.update(step=0.0, prev=zeros_like(param), step_size=filled_like(param, group["lr"]))
            state["step"] += 1
            sign = grad * state["prev"]
            turned = ops.less(sign, 0.0)
            factor = ops.select(ops.greater(sign, 0.0), plus, ops.select(turned, minus, 1.0))
            size = state["step_size"].copy_(ops.clamp(state["step_size"] * factor, float(low), float(high)))
            grad = ops.select(turned, 0.0, grad)
            param.copy_(param - ops.sign(grad) * size)
            state["prev"].copy_(grad)


class SparseAdam(Optimizer):
    """Adam that leaves rows without a gradient as they are: gradients are stored densely, a row of zeros has none."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, maximize=False):
        check("SparseAdam", learning_rate=lr, epsilon=eps)
        check_betas("SparseAdam", betas)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "maximize": maximize})

    def update(self, group):
        beta1, beta2 = group["betas"]
        for param, grad, state in self.with_grads(group):
            _count_step(state, param, "exp_avg", "exp_avg_sq")
            axes = tuple(range(1, param.ndim))
            used = ops.not_equal(grad, 0.0)
            used = ops.any(used, axes=axes, keepdims=True) if axes else used
            mean, square = state["exp_avg"], state["exp_avg_sq"]
            mean.copy_(ops.select(used, mean + (grad - mean) * (1 - beta1), mean))
            square.copy_(ops.select(used, square + (grad * grad - square) * (1 - beta2), square))
            size = group["lr"] * (1 - beta2 ** state["step"]) ** 0.5 / (1 - beta1 ** state["step"])
            param.copy_(ops.select(used, param - mean / (ops.sqrt(square) + group["eps"]) * size, param))


class Adafactor(Optimizer):
    """Adam whose mean squares of a matrix are stored as one row and one column (Shazeer, Stern 2018)."""

    def __init__(self, params, lr=1e-2, beta2_decay=-0.8, eps=(None, 1e-3), d=1.0, weight_decay=0.0, *, foreach=None,
                 maximize=False):
        check("Adafactor", learning_rate=lr, weight_decay=weight_decay, epsilon_1=eps[0] or 0.0, epsilon_2=eps[1])
        if beta2_decay > 0.0 or d < 1.0:
            raise ValueError(f"Adafactor: beta2_decay must be at most 0 and d at least 1, they are {beta2_decay} and {d}")
        super().__init__(params, {"lr": lr, "beta2_decay": beta2_decay, "eps": eps, "d": d, "weight_decay": weight_decay,
                                  "foreach": foreach, "maximize": maximize})

    def update(self, group):
        lr, (eps1, eps2) = group["lr"], group["eps"]
        for param, grad, state in self.with_grads(group):
            matrix = param.ndim > 1
            if not state:
                like = [(param, "variance")]
                if matrix:
                    like = [(param[..., :1], "row_var"), (param[..., :1, :], "col_var")]
                state.update(step=0.0, **{name: zeros_like(one) for one, name in like})
            state["step"] += 1
            least = finfo(param.dtype).eps if eps1 is None else eps1
            weight = state["step"] ** group["beta2_decay"]
            rate = min(lr, state["step"] ** -0.5)
            size = ops.maximum(ops.sqrt(ops.mean(param * param)), float(eps2)) * rate
            value = param * (1 - lr * group["weight_decay"]) if group["weight_decay"] else param
            squares = grad * grad
            if matrix:
                row = state["row_var"].copy_(_lerp(state["row_var"], ops.mean(squares, axes=(-1,), keepdims=True), weight))
                column = state["col_var"].copy_(_lerp(state["col_var"], ops.mean(squares, axes=(-2,), keepdims=True), weight))
                estimate = row * column / ops.maximum(ops.mean(row, axes=(-2,), keepdims=True), float(least))
            else:
                estimate = state["variance"].copy_(_lerp(state["variance"], squares, weight))
            move = grad / ops.sqrt(ops.maximum(estimate, float(least) ** 2))
            scale = ops.maximum(ops.sqrt(ops.mean(move * move)) / group["d"], 1.0)
            param.copy_(value - move * (size / scale))

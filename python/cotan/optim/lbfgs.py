"""L-BFGS, with steps of fixed length or by a line search for the strong Wolfe conditions (Nocedal, Wright: "Numerical
Optimization", sections 7.2 and 3.5). The parameters are one vector; each evaluation is one plan, and the vectors of the method
itself are NumPy's, since its branches depend on their values."""
import math

from .. import _core
from .._grad import enable_grad, no_grad
from .._step import run_pending
from .optimizer import Optimizer, check

Tensor = _core.Tensor


def _minimum_of_cubic(x1, f1, g1, x2, f2, g2, bounds=None):
    """Returns the minimum, between the bounds, of the cubic with these values and slopes at x1 and x2."""
    low, high = bounds or (min(x1, x2), max(x1, x2))
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1 * d1 - g1 * g2
    if not square >= 0:
        return (low + high) / 2
    root = math.sqrt(square)
    if x1 > x2:
        x1, g1, x2, g2 = x2, g2, x1, g1
    bottom = g2 - g1 + 2 * root
    return min(max(x2 - (x2 - x1) * ((g2 + root - d1) / bottom), low), high) if bottom else low


class _LineSearch:
    """A search along one direction; points are (t, loss, gradient, slope)."""

    c1, c2, most = 1e-4, 0.9, 25

    def __init__(self, evaluate, start, direction, tolerance):
        self.evaluate, self.start, self.direction, self.tolerance = evaluate, start, direction, tolerance
        self.evaluations = 0

    def point(self, t):
        self.evaluations += 1
        loss, grad = self.evaluate(t)
        return t, loss, grad, float(grad @ self.direction)

    def is_too_high(self, point):
        return point[1] > self.start[1] + self.c1 * point[0] * self.start[3]

    def is_flat(self, point):
        return abs(point[3]) <= -self.c2 * self.start[3]

    def bracket(self, t):
        """Returns two points between which one is wanted, or one that is, and the number of trials."""
        before, new = self.start, self.point(t)
        for trial in range(self.most):
            if self.is_too_high(new) or trial > 1 and new[1] >= before[1]:
                return [before, new], trial
            if self.is_flat(new):
                return [new], trial
            if new[3] >= 0:
                return [before, new], trial
            bounds = new[0] + 0.01 * (new[0] - before[0]), new[0] * 10
            t = _minimum_of_cubic(before[0], before[1], before[3], new[0], new[1], new[3], bounds)
            before, new = new, self.point(t)
        return [self.start, new], self.most

    def find(self, t):
        """Returns the point at which the step ends."""
        points, trial = self.bracket(t)
        if len(points) == 1:
            return points[0]
        low, high = points if points[0][1] <= points[1][1] else points[::-1]
        near_edge, longest = False, abs(self.direction).max()
        while trial < self.most:
            if abs(high[0] - low[0]) * longest < self.tolerance:
                break
            t = _minimum_of_cubic(*(number for point in points for number in (point[0], point[1], point[3])))
            first, last = min(low[0], high[0]), max(low[0], high[0])
            edge = 0.1 * (last - first)
            if min(last - t, t - first) < edge:
                if near_edge or t >= last or t <= first:
                    t, near_edge = (last - edge if abs(t - last) < abs(t - first) else first + edge), False
                else:
                    near_edge = True
            else:
                near_edge = False
            new = self.point(t)
            trial += 1
            place = [points.index(low), points.index(high)]
            if self.is_too_high(new) or new[1] >= low[1]:
                points[place[1]] = new
                low, high = points if points[0][1] <= points[1][1] else points[::-1]
                continue
            if self.is_flat(new):
                return new
            if new[3] * (high[0] - low[0]) >= 0:
                points[place[1]] = high = low
            points[place[0]] = low = new
        return low


class LBFGS(Optimizer):
    """Minimizes closure(), which clears the gradients, computes the loss and its gradients, and returns the loss."""

    def __init__(self, params, lr=1, max_iter=20, max_eval=None, tolerance_grad=1e-7, tolerance_change=1e-9, history_size=100,
                 line_search_fn=None):
        check("LBFGS", learning_rate=lr)
        super().__init__(params, {"lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
                                  "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change,
                                  "history_size": history_size, "line_search_fn": line_search_fn})
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    @property
    def _params(self):
        return self.param_groups[0]["params"]

    def _flat(self, tensors):
        """Returns all elements as one array; of complex numbers, real and imaginary parts."""
        import numpy
        arrays = [numpy.zeros_like(param.detach().numpy()) if one is None else one.detach().numpy()
                  for one, param in zip(tensors, self._params)]
        return numpy.concatenate([x.reshape(-1).view(x.real.dtype) for x in arrays])

    def _write(self, flat):
        values, at = [], 0
        for param in self._params:
            like = param.detach().numpy()
            n = like.size * (2 if like.dtype.kind == "c" else 1)
            value = flat[at:at + n].astype(like.real.dtype).view(like.dtype).reshape(like.shape)
            values.append(_core.asarray(value)._to(param._device_name()))
            at += n
        with no_grad():
            _core._write(self._params, values)

    def _evaluate(self, closure):
        with enable_grad():
            loss = closure()
        run_pending()
        return loss, float(loss), self._flat([param.grad for param in self._params])

    def _direction(self, state, grad, history_size):
        """Returns the direction of descent, by the two loops over the history."""
        if state["n_iter"] == 1:
            state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1.0)
            return -grad
        change, step = grad - state["prev_flat_grad"], state["d"] * state["t"]
        product = float(change @ step)
        if product > 1e-10:
            for name, value in (("old_dirs", change), ("old_stps", step), ("ro", 1.0 / product)):
                state[name] = state[name][-history_size + 1 if history_size > 1 else len(state[name]):] + [value]
            state["H_diag"] = product / float(change @ change)
        history = list(zip(state["old_dirs"], state["old_stps"], state["ro"]))
        direction, shares = -grad, []
        for changed, stepped, ro in reversed(history):
            shares.append(float(stepped @ direction) * ro)
            direction = direction - changed * shares[-1]
        direction = direction * state["H_diag"]
        for changed, stepped, ro in history:
            direction = direction + stepped * (shares.pop() - float(changed @ direction) * ro)
        return direction

    def step(self, closure):
        """Takes at most max_iter steps, with at most about max_eval calls of the closure; returns the first loss."""
        group, state = self.param_groups[0], self.state[self._params[0]]
        if group["line_search_fn"] not in (None, "strong_wolfe"):
            raise RuntimeError("only 'strong_wolfe' is supported")
        for name, value in [*state.items()]:  # of a state dict that was loaded
            if isinstance(value, Tensor):
                state[name] = value.numpy() if value.ndim else float(value)
            elif isinstance(value, list):
                state[name] = [(one.numpy() if one.ndim else float(one)) if isinstance(one, Tensor) else one for one in value]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first, loss, grad = self._evaluate(closure)
        evaluations, small = 1, group["tolerance_change"]
        if abs(grad).max() > group["tolerance_grad"]:
            for iteration in range(1, group["max_iter"] + 1):
                state["n_iter"] += 1
                direction = self._direction(state, grad, group["history_size"])
                t = min(1.0, 1.0 / float(abs(grad).sum())) * group["lr"] if state["n_iter"] == 1 else group["lr"]
                slope = float(grad @ direction)
                state.update(d=direction, t=t, prev_flat_grad=grad, prev_loss=loss)
                if slope > -small:
                    break
                start, before = self._flat(self._params), loss
                if group["line_search_fn"] is None:
                    self._write(start + direction * t)
                    if iteration != group["max_iter"]:
                        _, loss, grad = self._evaluate(closure)
                        evaluations += 1
                else:
                    def evaluate(t, start=start, direction=direction):
                        self._write(start + direction * t)
                        return self._evaluate(closure)[1:]

                    search = _LineSearch(evaluate, (0.0, loss, grad, slope), direction, small)
                    t, loss, grad, _ = search.find(t)
                    self._write(start + direction * t)
                    evaluations += search.evaluations
                    state["t"] = t
                if evaluations >= group["max_eval"] or abs(grad).max() <= group["tolerance_grad"] or \
                        abs(direction * t).max() <= small or abs(loss - before) < small:
                    break
        state["func_evals"] += evaluations
        return first

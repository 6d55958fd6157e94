"""torch.autograd.Function: functions with a gradient of their own, which run on real values."""
import functools

from . import _core
from ._core import Tensor, ops
from ._dtypes import COMPLEX, FLOATS
from ._grad import enable_grad, no_grad, set_grad_enabled
from ._rules import traced_rule
from ._sweep import Owner, conj
from ._whole import Swap

_FREED = ("saved_tensors: the saved tensors were freed by the backward that used them\n"
          "  hint: backward(retain_graph=True) keeps them")


_WRITTEN = ("saved_tensors: one of the variables needed for gradient computation has been modified by an inplace "
            "operation: a saved tensor was written to in its place after it was saved\n"
            "  hint: write to a clone(), or save one")


def _version(x):
    return x._version if isinstance(x, Tensor) else None


class FunctionCtx:
    """What forward hands over to backward: saved tensors, and attributes of any name."""

    def __init__(self, needs_input_grad):
        self.needs_input_grad = needs_input_grad
        self._saved, self._fixed, self._materialize, self._unpack = (), (), True, None
        self._versions = ()

    def save_for_backward(self, *tensors):
        """Inputs, results and other tensors that backward finds as ctx.saved_tensors; None is allowed."""
        for one in tensors:
            if one is not None and not isinstance(one, Tensor):
                raise TypeError(f"save_for_backward can only save variables, but argument is of type "
                                f"{type(one).__name__}")
        self._saved = tensors
        self._versions = [_version(one) for one in tensors]

    @property
    def saved_tensors(self):
        if self._saved is None:
            raise RuntimeError(_FREED)
        for one, version in zip(self._saved, self._versions):
            if version is not None and isinstance(one, Tensor) and one._version != version:
                raise RuntimeError(_WRITTEN)
        return self._unpack(self._saved) if self._unpack else self._saved

    def mark_non_differentiable(self, *results):
        """These results of forward have no gradients."""
        self._fixed = results

    def set_materialize_grads(self, value):
        """False: backward gets None, not zeros, for a result that nothing came from."""
        self._materialize = value

    def mark_dirty(self, *inputs):
        raise RuntimeError("mark_dirty: forward must leave its inputs as they are\n  hint: return a new tensor; where "
                           "only that "
                           "is used, nothing is copied")


def _has_slope(x):
    return x.dtype in FLOATS or x.dtype in COMPLEX


def _summed_to(grad, shape):
    """grad without the axes along which the input was broadcast; None: it does not fit."""
    lead = grad.ndim - len(shape)
    if lead < 0 or any(n not in (1, m) for n, m in zip(shape, grad.shape[lead:])):
        return None
    axes = tuple(range(lead)) + tuple(lead + i for i, n in enumerate(shape) if n != grad.shape[lead + i])
    return ops.reshape(ops.sum(grad, axes=axes), shape) if axes else grad


class _Node(Owner):
    """One call of a Function, as its results' history has it."""

    def __init__(self, function, ctx, args, places):
        # places: of what has a history, among the arguments
        self.function, self.ctx, self.places = function, ctx, places
        self.n_args = len(args)
        self.inputs = [(i, tuple(args[i].shape), args[i].dtype) for i in places]

    def call(self, cotangents, like):
        """backward's gradients, one an input that wants one, in that input's shape and dtype, or None."""
        name = self.function.__name__ + "Backward"
        if self.ctx._materialize:
            cotangents = [ops.cast(_core.full(shape, 0), dtype) if one is None else one
                          for one, (shape, dtype) in zip(cotangents, like)]
        grads = self.function.backward(self.ctx, *[conj(one) for one in cotangents])
        grads = grads if isinstance(grads, tuple) else (grads,)
        if len(grads) < self.n_args or any(one is not None for one in grads[self.n_args:]):
            raise RuntimeError(f"function {name} returned an incorrect number of gradients (expected {self.n_args}, "
                               f"got {len(grads)})")
        found = []
        for i, shape, dtype in self.inputs:
            grad = grads[i]
            if grad is not None:
                if not isinstance(grad, Tensor):
                    raise TypeError(f"function {name} returned a {type(grad).__name__} at index {i}, a gradient is a "
                                    f"Tensor or None")
                fitting = grad if tuple(grad.shape) == shape else _summed_to(grad, shape)
                if fitting is None:
                    raise RuntimeError(f"Function {name} returned an invalid gradient at index {i} - got "
                                       f"{list(grad.shape)} but "
                                       f"expected shape compatible with {list(shape)}")
                grad = conj(fitting if fitting.dtype == dtype else ops.cast(fitting, dtype))
            found.append(grad)
        return found

    def pull(self, operands, results, cotangents):
        inside = [None] * self.n_results
        for k, cotangent in zip(self.slopes, cotangents):
            inside[k] = cotangent

        def unpack(saved):
            return tuple(_core._tensor_of(results[one]) if isinstance(one, int) else one for one in saved)

        with Swap(self.ctx, "_unpack", unpack):
            found = self.call(inside, self.like)
        return [(bits, grad) for bits, grad in zip(operands[len(results):], found) if grad is not None]

    def free(self):
        self.ctx._saved = None


class Function:
    """An operation with a gradient of its own: a subclass has staticmethods forward(ctx, *args) and backward(ctx,
    *grads), or forward(*args), setup_context(ctx, inputs, output) and backward; it is called by its apply. forward
    runs on its real values, backward when gradients come there, on theirs; what it records is differentiable again.
    (torch.autograd.Function)"""

    def __init__(self, *args, **options):
        raise RuntimeError(f"{type(self).__name__} should not be instantiated. Methods on autograd functions are all "
                           f"static, so you "
                           "should invoke them on the class itself. Instantiating an autograd function "
                           "will raise an error")

    @staticmethod
    def forward(*args, **options):
        raise NotImplementedError("You must implement the forward function for custom autograd.Function.")

    @staticmethod
    def setup_context(ctx, inputs, output):
        raise NotImplementedError("setup_context is not implemented.")

    @staticmethod
    def backward(ctx, *grads):
        raise NotImplementedError("You must implement either the backward or vjp method for your custom "
                                  "autograd.Function to use it "
                                  "with backward mode AD.")

    @classmethod
    def _forward(cls, ctx, args, mode=no_grad):
        """forward's results as a tuple, and whether there is but one."""
        versions = [one._version if isinstance(one, Tensor) else None for one in args]
        with mode():
            if cls.setup_context is Function.setup_context:
                results = cls.forward(ctx, *args)
            else:
                results = cls.forward(*args)
                cls.setup_context(ctx, args, results)
        for i, (one, version) in enumerate(zip(args, versions)):
            if version is not None and one._version != version:
                raise RuntimeError(f"{cls.__name__}.forward wrote to its argument {i} in its place\n  hint: return a "
                                   f"new tensor; where "
                                   "only that is used, nothing is copied")
        return (results, False) if isinstance(results, tuple) else ((results,), True)

    @classmethod
    def apply(cls, *args):
        enabled = _core.is_grad_enabled()
        places = [i for i, one in enumerate(args) if enabled and isinstance(one, Tensor) and one.requires_grad]
        if _core._tracing():
            return cls._traced(args, places)
        ctx = FunctionCtx(tuple(i in places for i in range(len(args))))
        results, single = cls._forward(ctx, args)
        if places:
            results = cls._marked(ctx, args, places, results)
        return results[0] if single else results

    @classmethod
    def _marked(cls, ctx, args, places, results, values=None):
        """forward's results with the history of the arguments at these places; values: other tensors that are the
        same."""
        node = _Node(cls, ctx, args, places)
        fixed = {id(one) for one in ctx._fixed}
        node.slopes = [k for k, one in enumerate(results) if isinstance(one, Tensor) and _has_slope(one)
                       and id(one) not in fixed]
        node.n_results = len(results)
        node.like = [(tuple(one.shape), one.dtype) if isinstance(one, Tensor) else ((), _core.float32)
                     for one in results]
        found = list(results) if values is None else list(values)
        with no_grad():
            for k, one in enumerate(results):
                if values is None and isinstance(one, Tensor) and one.requires_grad:
                    found[k] = one.detach()  # an input as it is
            if node.slopes:
                marked = _core._mark(tuple(found[k] for k in node.slopes), tuple(args[i] for i in places), node)
                # Results that are saved are named by their places: they have the history that leads here.
                at = {id(results[k]): place for place, k in enumerate(node.slopes)}
                ctx._saved = tuple(at.get(id(one), one) for one in ctx._saved)
                for k, one in zip(node.slopes, marked):
                    found[k] = one
        return tuple(found)

    @classmethod
    def _traced(cls, args, places):
        """Inside of a function that is traced: backward is traced as well, and gradients from outside find it."""
        tensors = [i for i, one in enumerate(args) if isinstance(one, Tensor)]
        wants = [i for i in tensors if _has_slope(args[i])]
        seen = {}

        def arguments(operands):
            full = list(args)
            for i, one in zip(tensors, operands):
                full[i] = one
            return tuple(full)

        def forward(operands):
            ctx = FunctionCtx(tuple(i in wants for i in range(len(args))))
            results, seen["single"] = cls._forward(ctx, arguments(operands), enable_grad)
            seen.update(ctx=ctx, like=[(tuple(one.shape), one.dtype) for one in results])
            return results, [one for one in ctx._saved if one is not None]

        def restored(saved):
            ctx, rest = FunctionCtx(seen["ctx"].needs_input_grad), iter(saved)
            ctx.__dict__.update(seen["ctx"].__dict__)
            ctx._saved = tuple(one if one is None else next(rest) for one in seen["ctx"]._saved)
            ctx._versions = ()  # they are what is traced
            return ctx

        def backward(operands, results, saved, cotangents):
            node = _Node(cls, restored(saved), arguments(operands), wants)
            found = dict(zip(wants, node.call(list(cotangents), seen["like"])))
            return [found.get(i) for i in tensors]

        results, _ = traced_rule(forward, backward, [args[i] for i in tensors])
        if places:  # gradients are taken inside, too: they find what forward records here, whose history goes on
            ctx = FunctionCtx(tuple(i in places for i in range(len(args))))
            results = cls._marked(ctx, args, places, cls._forward(ctx, args)[0], results)
        return results[0] if seen["single"] else tuple(results)


class _Once(Owner):
    def pull(self, operands, results, cotangents):
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


def once_differentiable(backward):
    """A backward whose gradients have none, by a decorator under @staticmethod: to ask for them is an error."""
    @functools.wraps(backward)
    def function(ctx, *grads):
        with no_grad():
            found = backward(ctx, *grads)
        tracked = [one for one in (*grads, *(ctx._saved or ())) if isinstance(one, Tensor) and one.requires_grad]
        if not _core.is_grad_enabled() or not tracked:
            return found
        found = found if isinstance(found, tuple) else (found,)
        places = [i for i, one in enumerate(found) if one is not None]
        with set_grad_enabled(False):
            marked = dict(zip(places, _core._mark(tuple(found[i] for i in places), tuple(tracked), _Once())))
        return tuple(marked.get(i, one) for i, one in enumerate(found))

    return function

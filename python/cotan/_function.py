"""torch.autograd.Function: functions with a gradient of their own, which run on real values."""
import functools

from . import _core
from ._core import Tensor, ops
from ._dtypes import COMPLEX, FLOATS
from ._grad import enable_grad, no_grad, set_grad_enabled
from ._rules import traced_rule
from ._sweep import HookOwner, conj
from ._whole import Swap

_FREED = ("saved_tensors: the saved tensors were freed by the backward that used them\n"
          "  hint: backward(retain_graph=True) keeps them")


_WRITTEN = ("saved_tensors: one of the variables needed for gradient computation has been modified by an inplace "
            "operation: a saved tensor was written to in its place after it was saved\n"
            "  hint: write to a clone(), or save one")


def _version(x):
    return x._version if isinstance(x, Tensor) else None


class FunctionCtx:
    """The context that forward passes to backward: saved tensors, and attributes of any name."""

    def __init__(self, needs_input_grad):
        self.needs_input_grad = needs_input_grad
        self._saved, self._fixed, self._materialize, self._unpack = (), (), True, None
        self._versions, self._dirty = (), ()

    def save_for_backward(self, *tensors):
        """Saves inputs, results and other tensors, which backward reads as ctx.saved_tensors; None is
        allowed."""
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
        """Marks results of forward that have no gradients."""
        self._fixed = results

    def set_materialize_grads(self, value):
        """With False, backward gets None instead of zeros for a result without a gradient."""
        self._materialize = value

    def mark_dirty(self, *inputs):
        """Marks inputs that forward writes to in their places: where it returns one, the result is that tensor itself."""
        self._dirty = inputs


def _is_differentiable(x):
    return x.dtype in FLOATS or x.dtype in COMPLEX


def _sum_to_shape(grad, shape):
    """Sums grad over the axes along which the input was broadcast; returns None if the shapes do not fit."""
    lead = grad.ndim - len(shape)
    if lead < 0 or any(n not in (1, m) for n, m in zip(shape, grad.shape[lead:])):
        return None
    axes = tuple(range(lead)) + tuple(lead + i for i, n in enumerate(shape) if n != grad.shape[lead + i])
    return ops.reshape(ops.sum(grad, axes=axes), shape) if axes else grad


class _Node(HookOwner):
    """One call of a Function, as the hook in the history of its results."""

    def __init__(self, function, ctx, args, positions):
        # positions: those of the arguments that have a history
        self.function, self.ctx, self.positions = function, ctx, positions
        self.n_args = len(args)
        self.inputs = [(i, tuple(args[i].shape), args[i].dtype) for i in positions]

    def call(self, cotangents, like):
        """Calls backward and returns its gradients: one for each input that needs one, in that input's shape
        and dtype, or None."""
        name = self.function.__name__ + "Backward"
        if self.ctx._materialize:
            cotangents = [ops.cast(_core.full(shape, 0), dtype) if one is None else one
                          for one, (shape, dtype) in zip(cotangents, like)]
        grads = self.function.backward(self.ctx, *[conj(one) for one in cotangents])
        grads = grads if isinstance(grads, tuple) else (grads,)
        if len(grads) < self.n_args or any(one is not None for one in grads[self.n_args:]):
            raise RuntimeError(f"function {name} returned an incorrect number of gradients (expected {self.n_args}, "
                               f"got {len(grads)})")
        result = []
        for i, shape, dtype in self.inputs:
            grad = grads[i]
            if grad is not None:
                if not isinstance(grad, Tensor):
                    raise TypeError(f"function {name} returned a {type(grad).__name__} at index {i}, a gradient is a "
                                    f"Tensor or None")
                fitting = grad if tuple(grad.shape) == shape else _sum_to_shape(grad, shape)
                if fitting is None:
                    raise RuntimeError(f"Function {name} returned an invalid gradient at index {i} - got "
                                       f"{list(grad.shape)} but "
                                       f"expected shape compatible with {list(shape)}")
                grad = conj(fitting if fitting.dtype == dtype else ops.cast(fitting, dtype))
            result.append(grad)
        return result

    def pull(self, operands, results, cotangents):
        inside = [None] * self.n_results
        for k, cotangent in zip(self.differentiable_outputs, cotangents):
            inside[k] = cotangent

        def unpack(saved):
            return tuple(_core._tensor_of(results[one]) if isinstance(one, int) else one for one in saved)

        with Swap(self.ctx, "_unpack", unpack):
            result = self.call(inside, self.like)
        return [(bits, grad) for bits, grad in zip(operands[len(results):], result) if grad is not None]

    def free(self):
        self.ctx._saved = None


class Function:
    """An operation with a gradient of its own. A subclass has static methods forward(ctx, *args) and
    backward(ctx, *grads), or forward(*args), setup_context(ctx, inputs, output) and backward; it is called by
    its apply. forward runs on real values, and backward runs on real cotangents when gradients reach it; what
    it records is differentiable again. (torch.autograd.Function)"""

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
        """Calls forward; returns its results as a tuple, and whether there is only one."""
        versions = [one._version if isinstance(one, Tensor) else None for one in args]
        with mode():
            if cls.setup_context is Function.setup_context:
                results = cls.forward(ctx, *args)
            else:
                results = cls.forward(*args)
                cls.setup_context(ctx, args, results)
        for i, (one, version) in enumerate(zip(args, versions)):
            if version is not None and one._version != version and _core._tracing():
                raise RuntimeError(f"{cls.__name__}.forward wrote to its argument {i} in its place, in a function that is traced\n"
                                   "  hint: return a new tensor; where only that is used, nothing is copied")
        return (results, False) if isinstance(results, tuple) else ((results,), True)

    @classmethod
    def apply(cls, *args):
        enabled = _core.is_grad_enabled()
        positions = [i for i, one in enumerate(args) if enabled and isinstance(one, Tensor) and one.requires_grad]
        if _core._tracing():
            return cls._traced(args, positions)
        ctx = FunctionCtx(tuple(i in positions for i in range(len(args))))
        # The history continues at what the arguments are before forward may write to them.
        before = tuple(ops.reshape(one, one.shape) if i in positions else one for i, one in enumerate(args))
        results, single = cls._forward(ctx, args)
        if positions:
            returned, results = results, cls._hooked(ctx, before, positions, results)
            results = tuple(old.copy_(new) if any(old is one for one in ctx._dirty) else new
                            for old, new in zip(returned, results))
        return results[0] if single else results

    @classmethod
    def _hooked(cls, ctx, args, positions, results, values=None):
        """Gives forward's results the history of the arguments at these positions; values: other tensors of
        the same values."""
        node = _Node(cls, ctx, args, positions)
        fixed = {id(one) for one in ctx._fixed}
        node.differentiable_outputs = [k for k, one in enumerate(results) if isinstance(one, Tensor) and _is_differentiable(one)
                                       and id(one) not in fixed]
        node.n_results = len(results)
        node.like = [(tuple(one.shape), one.dtype) if isinstance(one, Tensor) else ((), _core.float32)
                     for one in results]
        result = list(results) if values is None else list(values)
        with no_grad():
            for k, one in enumerate(results):
                if values is None and isinstance(one, Tensor) and one.requires_grad:
                    result[k] = one.detach()  # an input that is returned as it is
            if node.differentiable_outputs:
                hooked = _core._hook(tuple(result[k] for k in node.differentiable_outputs), tuple(args[i] for i in positions), node)
                # Saved results are stored by their positions: they have the history that leads to this node.
                at = {id(results[k]): place for place, k in enumerate(node.differentiable_outputs)}
                ctx._saved = tuple(at.get(id(one), one) for one in ctx._saved)
                for k, one in zip(node.differentiable_outputs, hooked):
                    result[k] = one
        return tuple(result)

    @classmethod
    def _traced(cls, args, positions):
        """Inside a traced function, backward is traced as well, so that gradients taken outside find it."""
        tensors = [i for i, one in enumerate(args) if isinstance(one, Tensor)]
        differentiable = [i for i in tensors if _is_differentiable(args[i])]
        forward_info = {}

        def arguments(operands):
            full = list(args)
            for i, one in zip(tensors, operands):
                full[i] = one
            return tuple(full)

        def forward(operands):
            ctx = FunctionCtx(tuple(i in differentiable for i in range(len(args))))
            results, forward_info["single"] = cls._forward(ctx, arguments(operands), enable_grad)
            forward_info.update(ctx=ctx, like=[(tuple(one.shape), one.dtype) for one in results])
            return results, [one for one in ctx._saved if one is not None]

        def restored(saved):
            ctx, rest = FunctionCtx(forward_info["ctx"].needs_input_grad), iter(saved)
            ctx.__dict__.update(forward_info["ctx"].__dict__)
            ctx._saved = tuple(one if one is None else next(rest) for one in forward_info["ctx"]._saved)
            ctx._versions = ()  # they are the traced values
            return ctx

        def backward(operands, results, saved, cotangents):
            node = _Node(cls, restored(saved), arguments(operands), differentiable)
            result = dict(zip(differentiable, node.call(list(cotangents), forward_info["like"])))
            return [result.get(i) for i in tensors]

        results, _ = traced_rule(forward, backward, [args[i] for i in tensors])
        # Gradients may be taken inside the trace, too: they find the history of what forward records here.
        if positions:
            ctx = FunctionCtx(tuple(i in positions for i in range(len(args))))
            results = cls._hooked(ctx, args, positions, cls._forward(ctx, args)[0], results)
        return results[0] if forward_info["single"] else tuple(results)


class _OnceDifferentiable(HookOwner):
    def pull(self, operands, results, cotangents):
        raise RuntimeError("trying to differentiate twice a function that was marked with @once_differentiable")


def once_differentiable(backward):
    """A decorator under @staticmethod for a backward that cannot be differentiated: to ask for its gradients
    is an error."""
    @functools.wraps(backward)
    def function(ctx, *grads):
        with no_grad():
            result = backward(ctx, *grads)
        tracked = [one for one in (*grads, *(ctx._saved or ())) if isinstance(one, Tensor) and one.requires_grad]
        if not _core.is_grad_enabled() or not tracked:
            return result
        result = result if isinstance(result, tuple) else (result,)
        positions = [i for i, one in enumerate(result) if one is not None]
        with set_grad_enabled(False):
            hooked = dict(zip(positions, _core._hook(tuple(result[i] for i in positions), tuple(tracked), _OnceDifferentiable())))
        return tuple(hooked.get(i, one) for i, one in enumerate(result))

    return function

"""cotan.compile: records again what a function has recorded, without running its Python code."""
import functools
import types

from . import _core, _random
from ._core import Tensor, ops
from ._random import default_generator
from ._rules import as_tensors
from ._whole import Around
from .nn.module import Module
from .tree_util import tree_flatten, tree_map, tree_unflatten

_MAX_SIGNATURES = 64  # the maximum of signatures that a compiled function caches
# Python values that are part of a signature where they are found.
_CONSTANT_TYPES = (bool, int, float, complex, str)
_MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class _Recording:
    """The recording of a function for one signature: a traced function of its arguments, of the tensors that
    it captures, and of the random keys that it draws."""

    def __init__(self, fun, args, options, leaves, captured, modules, draws):
        self.draws = draws
        tensors = _unique_tensors(leaves)
        n = len(tensors)
        tensors += [one for one in captured if not any(one is other for other in tensors)]
        captures, position = [], default_generator.position()
        keys = [_core.random_key(0)] * draws
        holders = [vars(one) for one in (*modules, getattr(fun, "__self__", None)) if hasattr(one, "__dict__")]
        self.holders = holders + [holder[name] for holder in holders for name in ("_parameters", "_buffers")
                                  if isinstance(holder.get(name), dict)]
        with Around(lambda: _core._meet(captures), lambda: _core._meet(None)), default_generator.rewound_to(position):
            self.function, self.count = _core._trace(lambda operands: self._run(fun, args, options, tensors, operands),
                                                     _specs(tensors + keys), True)
            if default_generator.position() != position or self.unused_keys:
                raise RuntimeError("compile: the function draws another number of times when it runs again")
        if any(all(one is not other for other in tensors) for one in captures):
            raise RuntimeError("compile: the function uses a tensor of another object, or of a function that it calls, "
                               "whose place recording cannot look at again\n  hint: pass it as an argument")
        self.captured = tensors[n:]
        self.required_grad = _requires_grad(self.captured)

    def _run(self, fun, args, options, tensors, operands):
        """Runs the function while its tensors are replaced by the operands; returns its results, then the
        values that it wrote to them."""
        stand_ins = tuple(operands[:len(tensors)])
        versions = [one._version for one in stand_ins]
        saved = [dict(holder) for holder in self.holders]
        moved = []

        def put_back():
            _core._stand_in(tuple(tensors), stand_ins)
            moved.append(self._put_back(saved))

        with Around(lambda: _core._stand_in(tuple(tensors), stand_ins), put_back):
            with _random.with_recorded_keys(operands[len(tensors):]):
                leaves, self.structure = tree_flatten(fun(*args, **options))
                self.unused_keys = len(_random._given.keys)
            self.gives_views = any(isinstance(one, Tensor) and any(one._base is other for other in tensors)
                                   for one in leaves)
            self.constants = [None if hasattr(one, "shape") else one for one in leaves]
            self.aliases = [next((i for i, other in enumerate(tensors) if other is one), None) for one in leaves
                            if hasattr(one, "shape")]
            self.written = [i for i, (one, version) in enumerate(zip(tensors, versions)) if one._version != version]
            values = [ops.cast(tensors[i], tensors[i].dtype) for i in self.written]
            outputs = [ops.cast(one, one.dtype) if any(one is other for other in tensors) else one
                       for one in as_tensors([one for one in leaves if hasattr(one, "shape")])]
        if moved[0]:
            raise RuntimeError(f"compile: the function gives {moved[0]!r} of an object another tensor, which recording "
                               "cannot do again\n  hint: copy_() writes to the tensor that is there")
        return (*outputs, *values)

    def _put_back(self, saved):
        """Restores what objects had before the function ran; returns the name of a tensor that they did not
        have."""
        moved = None
        for holder, before in zip(self.holders, saved):
            for name in [*holder]:
                if isinstance(holder[name], Tensor) and holder[name] is not before.get(name):
                    moved = name
                    if name in before:
                        holder[name] = before[name]
                    else:
                        del holder[name]
        return moved

    def fits(self, leaves):
        """True if the captured tensors are not among the arguments, and are as they were."""
        ids = set(map(id, leaves))
        return not any(id(one) in ids for one in self.captured) and self.required_grad == _requires_grad(self.captured)

    def writes_among_views(self, leaves):
        """True if the function writes to a tensor and another one may share its memory."""
        return self.written and any(isinstance(one, Tensor) and one._base is not None for one in (*leaves, *self.captured))

    def __call__(self, leaves):
        tensors = _unique_tensors(leaves) + self.captured
        keys = [default_generator.next_key() for _ in range(self.draws)]
        results = _core._replay(self.function, (*tensors, *keys), self.count)
        n = self.count - len(self.written)
        for i, value in zip(self.written, results[n:]):
            tensors[i].copy_(value)
        outputs = iter([value if i is None else tensors[i] for i, value in zip(self.aliases, results[:n])])
        return tree_unflatten(self.structure, [next(outputs) if one is None else one for one in self.constants])


def _unique_tensors(leaves):
    """Returns the tensors without repetitions."""
    return list({id(one): one for one in leaves if isinstance(one, Tensor)}.values())


def _requires_grad(tensors):
    return tuple(one.requires_grad for one in tensors)


def _leaf_signature(leaf, places):
    """Returns a leaf's part of the signature; places: where each tensor first occurs. 0.0 and -0.0 differ,
    and NaN equals itself."""
    if isinstance(leaf, Tensor):
        return leaf.dtype, tuple(leaf.shape), leaf.requires_grad, places.setdefault(id(leaf), len(places))
    return _number_key(leaf)


def _specs(tensors):
    return tuple((one.dtype, tuple(one.shape)) for one in tensors)


def _number_key(value):
    return type(value), repr(value) if isinstance(value, (float, complex)) else value


def _captured_values(fun):
    """Returns the modules and tensors that a function captures, and the numbers and strings (a module's,
    too): in its own attributes, its closure and the globals that it names."""
    seen = [fun, getattr(fun, "__self__", None)]
    fun = getattr(fun, "__func__", fun)
    while isinstance(fun, functools.partial):
        seen += [*fun.args, *fun.keywords.values()]
        fun = fun.func
    if isinstance(fun, types.FunctionType):
        for cell in fun.__closure__ or ():
            try:
                seen.append(cell.cell_contents)
            except ValueError:  # not set yet
                pass
        seen += [fun.__globals__[name] for name in fun.__code__.co_names if name in fun.__globals__]
        seen += fun.__defaults__ or ()
    results = [leaf for one in seen if isinstance(one, (Tensor, Module, list, tuple, dict))
               for leaf in tree_flatten(one)[0]]
    modules = [part for one in results if isinstance(one, Module) for part in one.modules()]
    tensors = [one for one in results if isinstance(one, Tensor)]
    for one in modules:
        tensors += [part for members in (one._parameters, one._buffers) for part in members.values()
                    if part is not None]
    numbers = [_number_key(one) for one in seen if isinstance(one, _CONSTANT_TYPES)]
    numbers += [(name, _number_key(one)) for module in modules for name, one in vars(module).items()
                if isinstance(one, _CONSTANT_TYPES)]
    return modules, list({id(one): one for one in tensors}.values()), tuple(numbers)


def _compile_function(fun, fullgraph):
    recordings, refused = {}, set()

    def signature(args, options):
        """Returns the signature of a recording, the part of it that decides whether the function can be
        recorded, and what both were made of."""
        leaves, structure = tree_flatten((args, options))
        leaves = [one if isinstance(one, Tensor) or not hasattr(one, "shape") else _core.asarray(one) for one in leaves]
        modules, captured, numbers = _captured_values(fun)
        places = {id(one): i for i, one in enumerate(captured)}
        key = (structure, *(_leaf_signature(one, places) for one in leaves), _core.is_grad_enabled(), _core._autocast_dtype(),
               numbers, tuple(map(id, captured)), _requires_grad(captured))
        kind = (structure, *(one.dtype if isinstance(one, Tensor) else type(one) for one in leaves))
        return key, kind, structure, leaves, modules, captured

    @functools.wraps(fun, updated=())
    def function(*args, **options):
        if _core._tracing():
            return fun(*args, **options)
        key, kind, structure, leaves, _, _ = signature(args, options)
        args, options = tree_unflatten(structure, leaves)  # NumPy's arrays are tensors from here on
        if kind in refused:
            return fun(*args, **options)
        recording = recordings.get(key)
        if recording is not None and recording.fits(leaves):
            return fun(*args, **options) if recording.writes_among_views(leaves) else recording(leaves)
        reads, position = _core._reads(), default_generator.position()
        result = fun(*args, **options)  # run it as it is, then once more to record it
        if _core._reads() != reads and not fullgraph:
            refused.add(kind)
            return result
        # the plain run may have made tensors that the function uses, such as those of layers that are
        # initialised by their first input
        key, _, structure, leaves, modules, captured = signature(args, options)
        args, options = tree_unflatten(structure, leaves)
        try:
            recording = _Recording(fun, args, options, leaves, captured, modules, default_generator.position()[1] - position[1])
        # It uses tensors that recording cannot find, assigns a tensor to an object, and so on.
        except (_core.Error, RuntimeError):
            if fullgraph:
                raise
            recording = None
        if recording is None or recording.gives_views and not fullgraph:
            refused.add(kind)
            return result
        if recording.gives_views:  # as all later calls do
            result = tree_map(lambda one: one.clone() if isinstance(one, Tensor) and one._base is not None else one, result)
        if len(recordings) >= _MAX_SIGNATURES:
            del recordings[next(iter(recordings))]
        recordings[key] = recording
        return result

    return function


class OptimizedModule(Module):
    """A module whose calls are compiled. The module itself is _orig_mod, whose parameters and attributes it
    has."""

    def __init__(self, module, fullgraph):
        super().__init__()
        self._orig_mod = module
        self.__dict__["_call"] = _compile_function(module, fullgraph)

    def forward(self, *args, **options):
        return self._call(*args, **options)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_orig_mod"), name)


def compile(model=None, *, fullgraph=False, dynamic=None, backend="inductor", mode=None, options=None, disable=False):
    """Returns a function or module that gives bit for bit the results of the given one, without running its
    Python code again.

    It is never needed: every step runs as a compiled plan, which is found again by what was recorded. It
    saves the time in which Python records, so it is for small steps of many ops whose arguments keep their
    structure, dtypes, shapes and Python values. For each such signature the function runs twice in the first
    call: once as it is, and once to be recorded; later calls record the result again with the new tensors.
    Tensors that it closes over, a module's parameters and buffers (which it may write), and draws from the
    process's generator are as in the plain function; so are numbers and strings of its closure, of the
    globals that it names and of modules. Prints and other side effects happen in the first call alone, and
    numbers that Python has elsewhere (attributes of other objects, globals of functions that it calls) keep
    their first values. A function that reads a value, calls backward() or uses tensors from elsewhere runs as
    it is in each call; with fullgraph that is an error. So does one that returns a view of an argument, which
    with fullgraph is a copy. Can be used as a decorator. (torch.compile)

    dynamic and mode change nothing: new sizes are recorded anew. disable returns model as it is."""
    if backend not in ("inductor", "eager") or options is not None:
        raise ValueError(f"compile: there is one backend, which has no options; backend={backend!r}, "
                         f"options={options!r} are given")
    if mode not in _MODES:
        raise ValueError(f"Unrecognized mode={mode}, should be one of: default, reduce-overhead, max-autotune, "
                         "max-autotune-no-cudagraphs")
    if model is None:
        return functools.partial(compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode,
                                 disable=disable)
    if not callable(model):
        raise TypeError(f"compile: a function or a module is compiled, not {type(model).__name__}")
    if disable or backend == "eager":
        return model
    return OptimizedModule(model, fullgraph) if isinstance(model, Module) else _compile_function(model, fullgraph)

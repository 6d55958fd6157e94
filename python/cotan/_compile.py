"""cotan.compile: what a function records, recorded again without running its Python."""
import functools
import types

from . import _core, _random
from ._core import Tensor, ops
from ._random import default_generator
from ._rules import as_tensors
from ._whole import Around
from .nn.module import Module
from .tree_util import tree_flatten, tree_map, tree_unflatten

_MOST = 64  # signatures that a compiled function remembers
_NUMBERS = (bool, int, float, complex, str)  # of Python, which are part of a signature where they are found
_MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class _Recording:
    """What a function records for one signature, as a function that lasts: of its arguments, of the tensors that it
    uses beside them, and of the keys that it draws."""

    def __init__(self, fun, args, options, leaves, beside, modules, draws):
        self.draws = draws
        tensors = _different(leaves)
        n = len(tensors)
        tensors += [one for one in beside if not any(one is other for other in tensors)]
        met, place = [], default_generator.place()
        keys = [_core.random_key(0)] * draws
        holders = [vars(one) for one in (*modules, getattr(fun, "__self__", None)) if hasattr(one, "__dict__")]
        self.holders = holders + [holder[name] for holder in holders for name in ("_parameters", "_buffers")
                                  if isinstance(holder.get(name), dict)]
        with Around(lambda: _core._meet(met), lambda: _core._meet(None)), default_generator.back_at(place):
            self.function, self.count = _core._trace(lambda operands: self._run(fun, args, options, tensors, operands),
                                                     _specs(tensors + keys), True)
            if default_generator.place() != place or self.undrawn:
                raise RuntimeError("compile: the function draws another number of times when it runs again")
        if any(all(one is not other for other in tensors) for one in met):
            raise RuntimeError("compile: the function uses a tensor of another object, or of a function that it calls, "
                               "whose place recording cannot look at again\n  hint: pass it as an argument")
        self.beside = tensors[n:]
        self.needs = _needs(self.beside)

    def _run(self, fun, args, options, tensors, operands):
        """The function, whose tensors stand for operands meanwhile: its results, then what it wrote to them."""
        standing = tuple(operands[:len(tensors)])
        versions = [one._version for one in standing]
        held = [dict(holder) for holder in self.holders]
        moved = []

        def put_back():
            _core._stand_in(tuple(tensors), standing)
            moved.append(self._put_back(held))

        with Around(lambda: _core._stand_in(tuple(tensors), standing), put_back):
            with _random.recording(operands[len(tensors):]):
                leaves, self.structure = tree_flatten(fun(*args, **options))
                self.undrawn = len(_random._given.keys)
            self.gives_views = any(isinstance(one, Tensor) and any(one._base is other for other in tensors)
                                   for one in leaves)
            self.rest = [None if hasattr(one, "shape") else one for one in leaves]
            self.same = [next((i for i, other in enumerate(tensors) if other is one), None) for one in leaves
                         if hasattr(one, "shape")]
            self.written = [i for i, (one, version) in enumerate(zip(tensors, versions)) if one._version != version]
            values = [ops.cast(tensors[i], tensors[i].dtype) for i in self.written]
            made = [ops.cast(one, one.dtype) if any(one is other for other in tensors) else one
                    for one in as_tensors([one for one in leaves if hasattr(one, "shape")])]
        if moved[0]:
            raise RuntimeError(f"compile: the function gives {moved[0]!r} of an object another tensor, which recording "
                               "cannot do again\n  hint: copy_() writes to the tensor that is there")
        return (*made, *values)

    def _put_back(self, held):
        """What objects had before the function ran on stand-ins; the name of a tensor that they did not have."""
        moved = None
        for holder, before in zip(self.holders, held):
            for name in [*holder]:
                if isinstance(holder[name], Tensor) and holder[name] is not before.get(name):
                    moved = name
                    if name in before:
                        holder[name] = before[name]
                    else:
                        del holder[name]
        return moved

    def fits(self, leaves):
        """Are the tensors that were found to be used not among the arguments, and as they were?"""
        ids = set(map(id, leaves))
        return not any(id(one) in ids for one in self.beside) and self.needs == _needs(self.beside)

    def writes_among_views(self, leaves):
        """Does it write to a tensor, and may another one be of the same memory?"""
        return self.written and any(isinstance(one, Tensor) and one._base is not None for one in (*leaves, *self.beside))

    def __call__(self, leaves):
        tensors = _different(leaves) + self.beside
        keys = [default_generator.next_key() for _ in range(self.draws)]
        found = _core._replay(self.function, (*tensors, *keys), self.count)
        n = self.count - len(self.written)
        for i, value in zip(self.written, found[n:]):
            tensors[i].copy_(value)
        made = iter([value if i is None else tensors[i] for i, value in zip(self.same, found[:n])])
        return tree_unflatten(self.structure, [next(made) if one is None else one for one in self.rest])


def _different(leaves):
    """The tensors, each once."""
    return list({id(one): one for one in leaves if isinstance(one, Tensor)}.values())


def _needs(tensors):
    return tuple(one.requires_grad for one in tensors)


def _kind(leaf, places):
    """What a signature has of a leaf; places: where each tensor came first. 0.0 and -0.0 differ, NaN is itself."""
    if isinstance(leaf, Tensor):
        return leaf.dtype, tuple(leaf.shape), leaf.requires_grad, places.setdefault(id(leaf), len(places))
    return _number(leaf)


def _specs(tensors):
    return tuple((one.dtype, tuple(one.shape)) for one in tensors)


def _number(value):
    return type(value), repr(value) if isinstance(value, (float, complex)) else value


def _beside(fun):
    """The modules and tensors that a function has beside its arguments, and numbers and texts (a module's, too): in
    itself, its closure and the globals that it names."""
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
    found = [leaf for one in seen if isinstance(one, (Tensor, Module, list, tuple, dict))
             for leaf in tree_flatten(one)[0]]
    modules = [part for one in found if isinstance(one, Module) for part in one.modules()]
    tensors = [one for one in found if isinstance(one, Tensor)]
    for one in modules:
        tensors += [part for members in (one._parameters, one._buffers) for part in members.values()
                    if part is not None]
    numbers = [_number(one) for one in seen if isinstance(one, _NUMBERS)]
    numbers += [(name, _number(one)) for module in modules for name, one in vars(module).items()
                if isinstance(one, _NUMBERS)]
    return modules, list({id(one): one for one in tensors}.values()), tuple(numbers)


def _compiled(fun, fullgraph):
    recordings, refused = {}, set()

    def signature(args, options):
        """What a recording is for; what of it decides whether the function can be recorded; and what both were made of."""
        leaves, structure = tree_flatten((args, options))
        leaves = [one if isinstance(one, Tensor) or not hasattr(one, "shape") else _core.asarray(one) for one in leaves]
        modules, beside, numbers = _beside(fun)
        places = {id(one): i for i, one in enumerate(beside)}
        key = (structure, *(_kind(one, places) for one in leaves), _core.is_grad_enabled(), _core._autocast_dtype(),
               numbers, tuple(map(id, beside)), _needs(beside))
        kind = (structure, *(one.dtype if isinstance(one, Tensor) else type(one) for one in leaves))
        return key, kind, structure, leaves, modules, beside

    @functools.wraps(fun, updated=())
    def function(*args, **options):
        if _core._tracing():
            return fun(*args, **options)
        key, kind, structure, leaves, _, _ = signature(args, options)
        args, options = tree_unflatten(structure, leaves)  # arrays of NumPy are tensors from here on
        if kind in refused:
            return fun(*args, **options)
        recording = recordings.get(key)
        if recording is not None and recording.fits(leaves):
            return fun(*args, **options) if recording.writes_among_views(leaves) else recording(leaves)
        reads, place = _core._reads(), default_generator.place()
        result = fun(*args, **options)  # as it is; then once more, to record it
        if _core._reads() != reads and not fullgraph:
            refused.add(kind)
            return result
        # the plain run may have made what it uses: layers that are initialised by their first input
        key, _, structure, leaves, modules, beside = signature(args, options)
        args, options = tree_unflatten(structure, leaves)
        try:
            recording = _Recording(fun, args, options, leaves, beside, modules, default_generator.place()[1] - place[1])
        except (_core.Error, RuntimeError):  # it uses tensors that recording cannot find, gives a tensor to an object ...
            if fullgraph:
                raise
            recording = None
        if recording is None or recording.gives_views and not fullgraph:
            refused.add(kind)
            return result
        if recording.gives_views:  # as all later calls do
            result = tree_map(lambda one: one.clone() if isinstance(one, Tensor) and one._base is not None else one, result)
        if len(recordings) >= _MOST:
            del recordings[next(iter(recordings))]
        recordings[key] = recording
        return result

    return function


class OptimizedModule(Module):
    """A module that is called compiled; the module itself is _orig_mod, whose parameters and attributes it has."""

    def __init__(self, module, fullgraph):
        super().__init__()
        self._orig_mod = module
        self.__dict__["_call"] = _compiled(module, fullgraph)

    def forward(self, *args, **options):
        return self._call(*args, **options)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("_orig_mod"), name)


def compile(model=None, *, fullgraph=False, dynamic=None, backend="inductor", mode=None, options=None, disable=False):
    """A function or module that gives, bit for bit, what the given one gives, without running its Python again.

    Nothing needs it: every step runs as a compiled plan, found again by what was recorded. What it saves is the time
    in which Python records, so it is for small steps of many ops, whose arguments keep their structure, dtypes,
    shapes and values of Python: for each such signature the function runs twice in the first call, once as it is, then
    what it recorded is recorded again with the new tensors. Tensors that it closes over, a module's parameters and buffers (which it may write),
    and draws of the process's generator are as in the plain function, as are numbers and texts of its closure, of the
    globals that it names and of modules; prints and other effects happen in the first call alone, and numbers that Python has
    elsewhere (attributes of other objects, globals of functions that it calls) stay what they were then. A function that
    reads a value, calls backward() or uses tensors from elsewhere runs as it is, once a call; with fullgraph that is an error. So does
    one that gives a view of an argument, which with fullgraph is a copy. Also a decorator. (torch.compile)

    dynamic and mode choose nothing here: new sizes are recorded anew. disable: model as it is."""
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
    return OptimizedModule(model, fullgraph) if isinstance(model, Module) else _compiled(model, fullgraph)

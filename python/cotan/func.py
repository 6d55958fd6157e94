"""Transforms of functions and of modules, by the names of torch.func."""
from . import _core
from ._transforms import _stacked, grad, hessian, jacfwd, jacrev, jvp, value_and_grad, vjp, vmap  # noqa: F401
from ._whole import Around


def grad_and_value(func, argnums=0, has_aux=False):
    """As value_and_grad, but the gradients come first."""
    both = value_and_grad(func, argnums, has_aux)
    return lambda *args, **options: both(*args, **options)[::-1]


def _owner(module, name):
    path, _, name = name.rpartition(".")
    return module.get_submodule(path), name


def _members(module, name):
    """The dict that has this parameter or buffer, and its name there."""
    owner, name = _owner(module, name)
    for members in (owner._parameters, owner._buffers):
        if name in members:
            return members, name
    raise AttributeError(f"{type(owner).__name__} has no attribute `{name}`")


def functional_call(module, parameter_and_buffer_dicts, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """module(*args, **kwargs) with other parameters and buffers, by their names; those that are not named are the
    module's own. The module stays as it is; what it writes to its buffers goes to those that are given."""
    dicts = parameter_and_buffer_dicts if isinstance(parameter_and_buffer_dicts, (tuple,
        list)) else [parameter_and_buffer_dicts]
    given = {name: value for members in dicts for name, value in members.items()}
    own = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    if strict and given.keys() != own.keys():
        missing, unexpected = sorted(own.keys() - given.keys()), sorted(given.keys() - own.keys())
        raise RuntimeError(f"functional_call: missing key(s): {missing}, unexpected key(s): {unexpected}")
    if tie_weights:  # one tensor by several names is one of whatever is given
        tied = {id(own[name]): value for name, value in given.items() if name in own}
        given |= {name: tied[id(one)] for name, one in own.items() if name not in given and id(one) in tied}
    places = [(*_members(module, name), value) for name, value in given.items()]
    before = [(members, name, members[name]) for members, name, _ in places]
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with Around(lambda: _put(places), lambda: _put(before)):
        return module(*args, **(kwargs or {}))


def _put(places):
    for members, name, value in places:
        members[name] = value


def stack_module_state(models):
    """(parameters, buffers) of models of one kind, by name, each stacked along a new axis 0: for vmap of
    functional_call."""
    if len(models) == 0:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if any(model.training != models[0].training for model in models):
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if any(type(model) is not type(models[0]) for model in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")

    def stacked(dicts, leaves):
        found = {}
        for name in dicts[0]:
            parts = [_core._snapshot(members[name]) for members in dicts]
            found[name] = _stacked(parts, (len(parts), *parts[0].shape))
            if leaves and dicts[0][name].requires_grad:
                found[name].requires_grad_()
        return found

    return (stacked([dict(model.named_parameters()) for model in models], True),
            stacked([dict(model.named_buffers()) for model in models], False))


def linearize(func, *primals):
    """(result, moves): moves(*tangents) is how func's result moves along tangents of the primals, as jvp's."""
    result = func(*primals)

    def moves(*tangents):
        return jvp(func, primals, tangents)[1]

    return result, moves


__all__ = ["functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
           "stack_module_state",
           "value_and_grad", "vjp", "vmap"]

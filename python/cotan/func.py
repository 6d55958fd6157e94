"""Transforms of functions and of modules, by the names of torch.func."""
from . import _core
from ._transforms import _stacked, grad, hessian, jacfwd, jacrev, jvp, value_and_grad, vjp, vmap  # noqa: F401
from ._whole import Around


def grad_and_value(func, argnums=0, has_aux=False):
    """Returns value_and_grad with the gradients first."""
    both = value_and_grad(func, argnums, has_aux)
    return lambda *args, **options: both(*args, **options)[::-1]


def _find_module(module, name):
    path, _, name = name.rpartition(".")
    return module.get_submodule(path), name


def _find_member(module, name):
    """Returns the dict that has this parameter or buffer, and its name in it."""
    owner, name = _find_module(module, name)
    for members in (owner._parameters, owner._buffers):
        if name in members:
            return members, name
    raise AttributeError(f"{type(owner).__name__} has no attribute `{name}`")


def functional_call(module, parameter_and_buffer_dicts, args=None, kwargs=None, *, tie_weights=True, strict=False):
    """Calls module(*args, **kwargs) with other parameters and buffers, given by name; the others are the
    module's own. The module does not change; what it writes to buffers goes to the given ones."""
    dicts = parameter_and_buffer_dicts if isinstance(parameter_and_buffer_dicts, (tuple,
        list)) else [parameter_and_buffer_dicts]
    given = {name: value for members in dicts for name, value in members.items()}
    own = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    if strict and given.keys() != own.keys():
        missing, unexpected = sorted(own.keys() - given.keys()), sorted(given.keys() - own.keys())
        raise RuntimeError(f"functional_call: missing key(s): {missing}, unexpected key(s): {unexpected}")
    if tie_weights:  # a tensor with several names is replaced under all of them
        tied = {id(own[name]): value for name, value in given.items() if name in own}
        given |= {name: tied[id(one)] for name, one in own.items() if name not in given and id(one) in tied}
    places = [(*_find_member(module, name), value) for name, value in given.items()]
    before = [(members, name, members[name]) for members, name, _ in places]
    args = () if args is None else args if isinstance(args, tuple) else (args,)
    with Around(lambda: _swap_members(places), lambda: _swap_members(before)):
        return module(*args, **(kwargs or {}))


def _swap_members(places):
    for members, name, value in places:
        members[name] = value


def stack_module_state(models):
    """Returns (parameters, buffers) of models of one architecture, by name, each stacked along a new axis 0,
    for vmap of functional_call."""
    if len(models) == 0:
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if any(model.training != models[0].training for model in models):
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if any(type(model) is not type(models[0]) for model in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")

    def stacked(dicts, leaves):
        results = {}
        for name in dicts[0]:
            parts = [_core._snapshot(members[name]) for members in dicts]
            results[name] = _stacked(parts, (len(parts), *parts[0].shape))
            if leaves and dicts[0][name].requires_grad:
                results[name].requires_grad_()
        return results

    return (stacked([dict(model.named_parameters()) for model in models], True),
            stacked([dict(model.named_buffers()) for model in models], False))


def linearize(func, *primals):
    """Returns (result, jvp): jvp(*tangents) is the derivative of func's result in the direction of tangents
    of the primals."""
    result = func(*primals)

    def moves(*tangents):
        return jvp(func, primals, tangents)[1]

    return result, moves


__all__ = ["functional_call", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "jvp", "linearize",
           "stack_module_state",
           "value_and_grad", "vjp", "vmap"]

"""Optimizer: parameter groups, state, hooks and state dicts, as in PyTorch."""
import functools
from collections import OrderedDict, defaultdict
from copy import deepcopy

from .. import _core, _devices
from .._grad import enable_grad, no_grad
from .._step import run_pending, make_state_variable
from .._whole import whole
from ..nn.module import _add_hook, clear_grads

Tensor = _core.Tensor
required = object()
COUNTERS = ("step", "mu_product", "eta", "mu")  # Python numbers, which PyTorch has as tensors
_global_pre_hooks, _global_post_hooks = OrderedDict(), OrderedDict()


def register_optimizer_step_pre_hook(hook):
    """Registers hook(optimizer, args, kwargs), called before the step of every optimizer."""
    return _add_hook(_global_pre_hooks, hook)


def register_optimizer_step_post_hook(hook):
    """Registers hook(optimizer, args, kwargs), called after the step of every optimizer."""
    return _add_hook(_global_post_hooks, hook)


def _with_hooks(step):
    """Returns an optimizer's step that calls the hooks around it, once if it calls the step of its base."""
    @functools.wraps(step)
    def hooked(self, *args, **kwargs):
        # No _hooks: __init__ of Optimizer was not called.
        if not (_global_pre_hooks or _global_post_hooks or self.__dict__.get("_hooks")) or self.__dict__.get("_in_step"):
            return step(self, *args, **kwargs)
        hooks = self.__dict__.get("_hooks") or _no_hooks()
        for hook in [*_global_pre_hooks.values(), *hooks["step_pre"].values()]:
            changed = hook(self, args, kwargs)
            if changed is not None:
                if not isinstance(changed, tuple) or len(changed) != 2:
                    raise RuntimeError(f"{hook} must return None or a tuple of (new_args, new_kwargs), but got {changed}.")
                args, kwargs = changed
        self._in_step = True
        try:
            loss = step(self, *args, **kwargs)
        finally:
            self._in_step = False
        for hook in [*hooks["step_post"].values(), *_global_post_hooks.values()]:
            hook(self, args, kwargs)
        return loss

    return hooked


def _no_hooks():
    return defaultdict(OrderedDict)


def check(kind, **numbers):
    """Raises a ValueError unless each number is at least 0."""
    for name, value in numbers.items():
        if not 0.0 <= value:
            raise ValueError(f"{kind}: {name.replace('_', ' ')} must be at least 0, it is {value}")


def check_betas(kind, betas):
    for i, beta in enumerate(betas):
        if not 0.0 <= beta < 1.0:
            raise ValueError(f"{kind}: beta {i} must be at least 0 and less than 1, it is {beta}")


class Optimizer:
    """The base of optimizers. Subclasses define update(group), which writes new values to the parameters of a
    group."""

    _moves = 0  # the number of moves of tensors at the last check

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.step)

    def __init__(self, params, defaults):
        self.defaults, self._hooks = defaults, _no_hooks()  # by kind: {number: hook}
        if defaults.get("foreach") and defaults.get("fused"):
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
        if defaults.get("differentiable"):
            raise NotImplementedError(f"{type(self).__name__}: differentiable=True is asked for, steps are not recorded; "
                                      "differentiate through new values of parameters, with cotan.func.functional_call")
        if isinstance(params, Tensor):
            raise TypeError("params argument given to the optimizer should be an iterable of Tensors or dicts, but got "
                            + type(params).__name__)
        self.state = defaultdict(dict)
        self.param_groups = []
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(dict(group))

    def __repr__(self):
        text = type(self).__name__ + " ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            for key in sorted(group):
                if key != "params":
                    text += f"    {key}: {group[key]}\n"
        return text + ")"

    def add_param_group(self, param_group):
        """Adds a group; missing options get the defaults."""
        params = param_group["params"]
        if isinstance(params, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections, but the ordering of tensors "
                            "in sets will change between runs. Please use a list instead.")
        params = [params] if isinstance(params, Tensor) else list(params)
        if params and isinstance(params[0], tuple):
            param_group["param_names"] = [name for name, _ in params]
            params = [param for _, param in params]
        known = {id(param) for group in self.param_groups for param in group["params"]}
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError("optimizer can only optimize Tensors, but one of the params is " + type(param).__name__)
            if not param.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
            if id(param) in known:
                raise ValueError("some parameters appear in more than one parameter group")
        if len({id(param) for param in params}) != len(params):
            raise ValueError("some parameters appear twice in one parameter group")
        param_group["params"] = params
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        self.param_groups.append(param_group)
        run_pending()  # initial values are computed now, so that a first step that fails keeps them

    def zero_grad(self, set_to_none=True):
        clear_grads([param for group in self.param_groups for param in group["params"]], set_to_none)

    # ---------------------------------------------------------------------------------------- step

    @_with_hooks
    def step(self, closure=None):
        """Writes new values to the parameters, and runs all that is pending as one plan."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        self._update()
        return loss

    @whole
    def _update(self):
        """Updates all groups. If the step's plan is interrupted, nothing was assigned, and the state is
        restored as well."""
        if self._moves != _devices.move_count:
            self._follow()
        before = {param: inside.copy() for param, inside in self.state.items()}
        with no_grad():
            for group in self.param_groups:
                self.update(group)
        try:
            _core._eval_last()
        except _core.Error:  # a value cannot be computed: what does not depend on it was assigned
            raise
        except BaseException:
            for param, inside in [*self.state.items()]:
                inside.clear()
                inside.update(before.get(param, ()))
            raise

    def _follow(self):
        """Moves state to the device of its parameter."""
        for param, inside in self.state.items():
            for value in inside.values():
                if isinstance(value, Tensor) and value.shape == param.shape:
                    _devices.move_in_place(value, param._device_name())
        self._moves = _devices.move_count

    def update(self, group):
        raise NotImplementedError

    def with_grads(self, group):
        """Yields for each parameter that has a gradient: the parameter, the gradient (negated to maximize),
        its state."""
        maximize, state = group.get("maximize"), self.state
        for param in group["params"]:
            grad = param.grad
            if grad is not None:
                yield param, -grad if maximize else grad, state[param]

    def register_step_pre_hook(self, hook):
        """Registers hook(optimizer, args, kwargs), called before step; a pair (args, kwargs) replaces the arguments."""
        return _add_hook(self._hooks["step_pre"], hook)

    def register_step_post_hook(self, hook):
        return _add_hook(self._hooks["step_post"], hook)

    def register_state_dict_pre_hook(self, hook, prepend=False):
        """Registers hook(optimizer), called before state_dict."""
        return _add_hook(self._hooks["state_pre"], hook, prepend)

    def register_state_dict_post_hook(self, hook, prepend=False):
        """Registers hook(optimizer, state_dict); a result replaces the state dict."""
        return _add_hook(self._hooks["state_post"], hook, prepend)

    def register_load_state_dict_pre_hook(self, hook, prepend=False):
        """Registers hook(optimizer, state_dict), called before loading; a result replaces the state dict."""
        return _add_hook(self._hooks["load_pre"], hook, prepend)

    def register_load_state_dict_post_hook(self, hook, prepend=False):
        """Registers hook(optimizer), called after loading."""
        return _add_hook(self._hooks["load_post"], hook, prepend)

    # ----------------------------------------------------------------------------------- state dicts

    def state_dict(self):
        """Returns {"state": {number: tensors}, "param_groups": [...]}, as PyTorch does: parameters are given
        by their numbers."""
        for hook in [*self._hooks["state_pre"].values()]:
            hook(self)
        numbers, groups = {}, []
        for group in self.param_groups:
            packed = {key: value for key, value in group.items() if key != "params"}
            for param in group["params"]:
                numbers.setdefault(id(param), len(numbers))
            packed["params"] = [numbers[id(param)] for param in group["params"]]
            groups.append(packed)
        state = {numbers[id(param)]: {key: _export_state(key, value) for key, value in inside.items()}
                 for param, inside in self.state.items()}
        result = {"state": state, "param_groups": groups}
        for hook in [*self._hooks["state_post"].values()]:
            changed = hook(self, result)
            result = result if changed is None else changed
        return result

    def load_state_dict(self, state_dict):
        for hook in [*self._hooks["load_pre"].values()]:
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        groups, saved = self.param_groups, state_dict["param_groups"]
        if len(groups) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(group["params"]) != len(other["params"]) for group, other in zip(groups, saved)):
            raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
        by_number = {number: param for group, other in zip(groups, saved)
                     for number, param in zip(other["params"], group["params"])}
        state = defaultdict(dict)
        for number, inside in state_dict["state"].items():
            if number in by_number:
                param = by_number[number]
                state[param] = {key: _import_state(key, value, param) for key, value in inside.items()}
        self.__setstate__({"state": state, "param_groups": [
            {**{key: deepcopy(value) for key, value in other.items() if key != "params"}, "params": group["params"]}
            for group, other in zip(groups, saved)]})
        for hook in [*self._hooks["load_post"].values()]:
            hook(self)

    def __getstate__(self):
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self.__dict__.setdefault("_hooks", _no_hooks())
        for group in self.param_groups:
            for name, default in self.defaults.items():
                group.setdefault(name, default)


def _export_state(key, value):
    """Converts state for a state dict: a step counter becomes a tensor."""
    if key in COUNTERS:
        return _core.asarray(float(value))
    if isinstance(value, list):
        return [_export_state(None, one) for one in value]
    return value.detach() if isinstance(value, Tensor) else _core.asarray(value) if hasattr(value, "__array__") else value


def _import_state(key, value, param):
    if key in COUNTERS:
        return float(value)
    if value is None or isinstance(value, (int, float, bool)):
        return value
    if isinstance(value, list):
        return [_import_state(None, one, param) for one in value]
    return make_state_variable(_core.ops.cast(_core.asarray(value), param.dtype)._to(param._device_name()))


def zeros_like(param):
    """Returns state of a parameter's shape and dtype, which plans update in place."""
    return filled_like(param, 0)


def filled_like(param, value):
    return make_state_variable(_core.full(tuple(param.shape), value, param.dtype)._to(param._device_name()))

"""Module: the base of layers and models, with parameters, buffers and submodules, as in PyTorch."""
import functools
import itertools
import weakref
from collections import OrderedDict, namedtuple

from .. import _core, _devices
from .._grad import no_grad
from .hooks import GLOBAL, GLOBAL_ALWAYS_CALLED, GLOBAL_WITH_KWARGS, ModuleGradients, hooks_of
from .parameter import Buffer, Parameter, UninitializedTensorMixin

Tensor = _core.Tensor
EXTRA_STATE = "_extra_state"


class IncompatibleKeys(namedtuple("IncompatibleKeys", ["missing_keys", "unexpected_keys"])):
    """The keys that load_state_dict found in only one of the module and the dict."""

    __slots__ = ()

    def __repr__(self):
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return super().__repr__()

    __str__ = __repr__


class RemovableHandle:
    """The handle of a hook: remove() removes it, and so does the end of a with block."""

    _next = itertools.count()

    def __init__(self, hooks, *others):
        self.id = next(RemovableHandle._next)
        self._dicts = [weakref.ref(each) if isinstance(each, OrderedDict) else lambda each=each: each
                       for each in (hooks, *others)]

    def remove(self):
        for each in self._dicts:
            hooks = each()
            if hooks is not None:
                hooks.pop(self.id, None)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.remove()

    def __getstate__(self):
        return self.id, [each() for each in self._dicts]

    def __setstate__(self, state):
        self.id, dicts = state
        self._dicts = [weakref.ref(each) if isinstance(each, OrderedDict) else lambda each=each: each for each in dicts]


def _add_hook(hooks, hook, prepend=False):
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def _indented(text, spaces):
    first, *rest = text.split("\n")
    return "\n".join([first] + [" " * spaces + line for line in rest])


def _argument_names(function):
    code = function.__code__
    return code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]


def _move_to_device_after(init):
    """Returns a layer's __init__ that moves the layer to the given device afterwards."""
    position = _argument_names(init).index("device")

    @functools.wraps(init)
    def __init__(self, *args, **kwargs):
        init(self, *args, **kwargs)
        device = kwargs.get("device") if len(args) < position else args[position - 1]
        device = _devices.default_device.names[-1] if device is None else device
        if device is not None:
            self.to(device)

    return __init__


def _load_state(module, state, prefix, metadata, assign, found):
    """Loads a module and those inside it. Not a function of load_state_dict: one that calls itself is a cycle, which would hold
    the state until a collection."""
    local = {} if metadata is None else metadata.get(prefix[:-1], {})
    if assign:
        local = dict(local, assign_to_params_buffers=True)
    module._load_from_state_dict(state, prefix, local, True, *found)
    for name, child in module._modules.items():
        if child is not None:
            path = prefix + name + "."
            _load_state(child, {key: value for key, value in state.items() if key.startswith(path)}, path, metadata, assign, found)
    for hook in module._load_state_dict_post_hooks.values():
        if hook(module, IncompatibleKeys(*found[:2])) is not None:
            raise RuntimeError("Hooks registered with ``register_load_state_dict_post_hook`` are not expected to "
                               "return new values, if incompatible_keys need to be modified, it should be done inplace.")


class Module:
    """The base of all layers and models; subclasses define forward."""

    dump_patches = False
    call_super_init = False
    _version = 1
    training: bool

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        own = cls.__dict__.get("__init__")
        if own and cls.__module__.startswith("cotan.nn.") and "device" in _argument_names(own):
            cls.__init__ = _move_to_device_after(own)

    def __init__(self, *args, **kwargs):
        if not self.call_super_init and (args or kwargs):
            given = f"an argument '{next(iter(kwargs))}'" if kwargs else f"{len(args) + 1} positional arguments"
            raise TypeError(f"{type(self).__name__}.__init__() got {given}, it takes none")
        self.__dict__.update(
            training=True, _parameters={}, _buffers={}, _modules={}, _non_persistent_buffers_set=set(),
            _forward_pre_hooks=OrderedDict(), _forward_hooks=OrderedDict(), _backward_hooks=OrderedDict(),
            _backward_pre_hooks=OrderedDict(), _hooks_with_kwargs=set(), _always_called_hooks=set(),
            _state_dict_hooks=OrderedDict(),
            _state_dict_pre_hooks=OrderedDict(), _load_state_dict_pre_hooks=OrderedDict(),
            _load_state_dict_post_hooks=OrderedDict())
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # ------------------------------------------------------------------------------------- calls

    def forward(self, *inputs):
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    def __call__(self, *args, **kwargs):
        if self._forward_pre_hooks or self._forward_hooks or self._backward_hooks or self._backward_pre_hooks or GLOBAL:
            return self._call_with_hooks(args, kwargs)
        return self.forward(*args, **kwargs)

    def _before(self, key, hook, args, kwargs):
        """Returns the arguments, as a hook before forward may replace them."""
        if key in self._hooks_with_kwargs:
            changed = hook(self, args, kwargs)
            if changed is None:
                return args, kwargs
            if not isinstance(changed, tuple) or len(changed) != 2:
                raise RuntimeError("forward pre-hook must return None or a tuple of (new_args, new_kwargs), "
                                   f"but got {changed}.")
            return changed
        changed = hook(self, args)
        return args if changed is None else changed if isinstance(changed, tuple) else (changed,), kwargs

    def _call_with_hooks(self, args, kwargs):
        result, called, gradients = None, set(), None
        try:
            for key, hook in hooks_of("forward_pre", self._forward_pre_hooks):
                args, kwargs = self._before(key, hook, args, kwargs)
            full, before = (hooks_of(kind, own) for kind, own in (("backward", self._backward_hooks),
                                                                  ("backward_pre", self._backward_pre_hooks)))
            if full or before:
                gradients = ModuleGradients(self, [hook for _, hook in full], [hook for _, hook in before])
                args = gradients.tap_inputs(args)
            result = self.forward(*args, **kwargs)
            for key, hook in hooks_of("forward", self._forward_hooks):
                called.add(key)
                result = self._after(key, hook, args, kwargs, result)
            return result if gradients is None else gradients.tap_outputs(result)
        except Exception:
            for key, hook in hooks_of("forward", self._forward_hooks):
                if (key in self._always_called_hooks or key in GLOBAL_ALWAYS_CALLED) and key not in called:
                    self._after(key, hook, args, kwargs, result)
            raise

    def _after(self, key, hook, args, kwargs, result):
        with_kwargs = key in self._hooks_with_kwargs or key in GLOBAL_WITH_KWARGS
        changed = hook(self, args, kwargs, result) if with_kwargs else hook(self, args, result)
        return result if changed is None else changed

    def register_forward_pre_hook(self, hook, *, prepend=False, with_kwargs=False):
        """Registers hook(module, args), called before forward; a result replaces the arguments."""
        handle = _add_hook(self._forward_pre_hooks, hook, prepend)
        if with_kwargs:
            self._hooks_with_kwargs.add(handle.id)
        return handle

    def register_forward_hook(self, hook, *, prepend=False, with_kwargs=False, always_call=False):
        """Registers hook(module, args, output), called after forward; a result replaces the output."""
        handle = _add_hook(self._forward_hooks, hook, prepend)
        if with_kwargs:
            self._hooks_with_kwargs.add(handle.id)
        if always_call:
            self._always_called_hooks.add(handle.id)
        return handle

    def register_full_backward_hook(self, hook, prepend=False):
        """Registers hook(module, grad_input, grad_output), called when backward has both; a result replaces the gradients of
        the inputs."""
        return _add_hook(self._backward_hooks, hook, prepend)

    register_backward_hook = register_full_backward_hook

    def register_full_backward_pre_hook(self, hook, prepend=False):
        """Registers hook(module, grad_output), called before the module's backward; a result replaces the gradients."""
        return _add_hook(self._backward_pre_hooks, hook, prepend)

    # -------------------------------------------------------------------------------- attributes

    def __getattr__(self, name):
        inside = self.__dict__
        try:
            return inside["_parameters"][name]  # the most common case
        except KeyError:
            pass
        for kind in ("_buffers", "_modules"):
            members = inside.get(kind)
            if members is not None and name in members:
                return members[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name, value):
        inside = self.__dict__
        parameters = inside.get("_parameters")
        if isinstance(value, Parameter):
            if parameters is None:
                raise AttributeError("cannot assign parameters before Module.__init__() call")
            self._forget(name, "_parameters")
            self.register_parameter(name, value)
            return
        if parameters is not None and name in parameters:
            if value is not None:
                raise TypeError(f"cannot assign '{_type_name(value)}' as parameter '{name}' "
                                "(cotan.nn.Parameter or None expected)")
            self.register_parameter(name, value)
            return
        modules = inside.get("_modules")
        if isinstance(value, Module):
            if modules is None:
                raise AttributeError("cannot assign module before Module.__init__() call")
            self._forget(name, "_modules")
            modules[name] = value
            return
        if modules is not None and name in modules:
            if value is not None:
                raise TypeError(f"cannot assign '{_type_name(value)}' as child module '{name}' "
                                "(cotan.nn.Module or None expected)")
            modules[name] = value
            return
        buffers = inside.get("_buffers")
        if isinstance(value, Buffer) and buffers is not None:
            self._forget(name, "_buffers")
            self.register_buffer(name, value, value.persistent)
        elif buffers is not None and name in buffers:
            if value is not None and not isinstance(value, Tensor):
                raise TypeError(f"cannot assign '{_type_name(value)}' as buffer '{name}' "
                                "(cotan.Tensor or None expected)")
            buffers[name] = value
        else:
            object.__setattr__(self, name, value)

    def _forget(self, name, becomes):
        """Frees the name for a member of another kind; one of the same kind keeps its position."""
        inside = self.__dict__
        for kind in ("_parameters", "_buffers", "_modules"):
            if kind != becomes:
                inside[kind].pop(name, None)
        inside.pop(name, None)
        inside["_non_persistent_buffers_set"].discard(name)

    def __delattr__(self, name):
        for kind in (self._parameters, self._buffers, self._modules):
            if name in kind:
                del kind[name]
                self._non_persistent_buffers_set.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self):
        names = set(object.__dir__(self)) | set(self._parameters) | set(self._buffers) | set(self._modules)
        return sorted(name for name in names if not name[:1].isdigit())

    def __setstate__(self, state):
        if "_hooks_with_kwargs" not in state:  # of a file of PyTorch, whose hooks are others
            Module.__init__(self)
            state = {name: value for name, value in state.items() if not (name.startswith("_") and "hook" in name)}
        self.__dict__.update(state)
        self.__dict__.setdefault("_backward_pre_hooks", OrderedDict())

    def _check_name(self, kind, name, members):
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {kind} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{kind} name should be a string. Got {_type_name(name)}")
        if hasattr(self, name) and name not in members:
            raise KeyError(f"attribute '{name}' already exists")
        if "." in name:
            raise KeyError(f'{kind} name can\'t contain ".", got: {name}')
        if name == "":
            raise KeyError(f'{kind} name can\'t be empty string ""')

    def register_parameter(self, name, param):
        self._check_name("parameter", name, self.__dict__.get("_parameters", ()))
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"cannot assign '{_type_name(param)}' object to parameter '{name}' "
                            "(cotan.nn.Parameter or None required)")
        self._parameters[name] = param

    def register_buffer(self, name, tensor, persistent=True):
        self._check_name("buffer", name, self.__dict__.get("_buffers", ()))
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{_type_name(tensor)}' object to buffer '{name}' "
                            "(cotan.Tensor or None required)")
        self._buffers[name] = tensor
        (self._non_persistent_buffers_set.discard if persistent else self._non_persistent_buffers_set.add)(name)

    def add_module(self, name, module):
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{_type_name(module)} is not a Module subclass")
        self._check_name("module", name, self.__dict__.get("_modules", ()))
        self._modules[name] = module

    register_module = add_module

    def get_submodule(self, target):
        """Returns the module of a dotted name; "" is the module itself."""
        found = self
        for name in target.split(".") if target else ():
            if not hasattr(found, name):
                raise AttributeError(f"{type(found).__name__} has no attribute `{name}`")
            found = getattr(found, name)
            if not isinstance(found, Module):
                raise AttributeError(f"`{name}` is not an nn.Module")
        return found

    def set_submodule(self, target, module, strict=False):
        """Sets the module of a dotted name; strict: one of that name must exist."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if not hasattr(owner, name):
            if strict:
                raise AttributeError(f"{type(owner).__name__} has no attribute `{name}`")
        elif not isinstance(getattr(owner, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(owner, name, module)

    def get_parameter(self, target):
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if not isinstance(getattr(owner, name, None), Parameter):
            what = f"`{name}` is not an nn.Parameter" if hasattr(owner, name) else \
                f"{type(owner).__name__} has no attribute `{name}`"
            raise AttributeError(what)
        return getattr(owner, name)

    def get_buffer(self, target):
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if not hasattr(owner, name):
            raise AttributeError(f"{type(owner).__name__} has no attribute `{name}`")
        if name not in owner._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return owner._buffers[name]

    # ---------------------------------------------------------------------------------- members

    def _named_members(self, members_of, prefix, recurse, remove_duplicate):
        seen = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in members_of(module).items():
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield path + ("." if path else "") + name, value

    def named_parameters(self, prefix="", recurse=True, remove_duplicate=True):
        yield from self._named_members(lambda module: module._parameters, prefix, recurse, remove_duplicate)

    def named_buffers(self, prefix="", recurse=True, remove_duplicate=True):
        yield from self._named_members(lambda module: module._buffers, prefix, recurse, remove_duplicate)

    def parameters(self, recurse=True):
        for _, value in self.named_parameters(recurse=recurse):
            yield value

    def buffers(self, recurse=True):
        for _, value in self.named_buffers(recurse=recurse):
            yield value

    def named_children(self):
        seen = set()
        for name, module in self._modules.items():
            if module is not None and id(module) not in seen:
                seen.add(id(module))
                yield name, module

    def children(self):
        for _, module in self.named_children():
            yield module

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, prefix + ("." if prefix else "") + name, remove_duplicate)

    def modules(self):
        for _, module in self.named_modules():
            yield module

    # ---------------------------------------------------------------------------------- changes

    def apply(self, fn):
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def _apply(self, fn, recurse=True):
        """Replaces each parameter and buffer by fn of it; parameters, and their gradients, stay the same
        objects."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        with no_grad():
            for value in self._parameters.values():
                if value is None:
                    continue
                for tensor in (value, value.grad):
                    changed = tensor if tensor is None else fn(tensor)
                    if changed is not tensor:
                        tensor.data = changed
            for name, value in self._buffers.items():
                if value is not None:
                    self._buffers[name] = fn(value)
        return self

    def _cast(self, dtype, which):
        return self._apply(lambda t: _core.ops.cast(t, dtype) if which(t) and t.dtype != dtype else t)

    def to(self, *args, **kwargs):
        """Converts: to(dtype), to(device), to(device, dtype), to(tensor). Floats take the dtype; parameters
        are moved and stay the same objects, so that an optimizer's references stay valid."""
        dtype, device = kwargs.get("dtype"), kwargs.get("device")
        for value in args:
            if isinstance(value, Tensor):
                dtype, device = value.dtype, value._device_name()
            elif isinstance(value, _core.dtype):
                dtype = value
            elif value is not None and not isinstance(value, bool):
                device = value
        if device is not None:
            self._move(_devices.canonical_device_name(device))
        if dtype is None:
            return self
        dtype = _core.dtype(dtype)
        if not _is_float_dtype(dtype):
            raise TypeError("nn.Module.to only accepts floating point or complex dtypes, "
                            f"but got desired dtype={dtype!r}")
        return self._cast(dtype, _is_float)

    def _move(self, device, recurse=True):
        for module in self.modules() if recurse else (self,):
            for parameter in module._parameters.values():
                if parameter is not None:
                    _devices.move_in_place(parameter, device)
            for name, value in module._buffers.items():
                if value is not None:
                    module._buffers[name] = value._to(device)
        return self

    def float(self):
        return self._cast(_core.float32, _is_float)

    def double(self):
        return self._cast(_core.float64, _is_float)

    def half(self):
        return self._cast(_core.float16, _is_float)

    def bfloat16(self):
        return self._cast(_core.bfloat16, _is_float)

    def type(self, dst_type):
        return self._cast(_core.dtype(dst_type), lambda t: True)

    def cpu(self):
        return self.to("cpu")

    def cuda(self, device=None):
        return self.to("cuda" if device is None else device)

    def xpu(self, device=None):
        return self.to("xpu" if device is None else device)

    def to_empty(self, *, device, recurse=True):
        """Moves the parameters and buffers to the device; their values, which may be any in PyTorch, stay."""
        return self._move(_devices.canonical_device_name(device), recurse)

    def train(self, mode=True):
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self):
        return self.train(False)

    def requires_grad_(self, requires_grad=True):
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none=True):
        clear_grads(list(self.parameters()), set_to_none)

    def share_memory(self):
        """Returns the module as it is: its values are shared with processes that are forked, as copies."""
        return self

    def compile(self, *args, **kwargs):
        """Does nothing: every step is compiled."""

    # --------------------------------------------------------------------------------- state_dict

    def get_extra_state(self):
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called.")

    def set_extra_state(self, state):
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called.")

    def register_state_dict_pre_hook(self, hook):
        """Registers hook(module, prefix, keep_vars), called before state_dict."""
        return _add_hook(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook):
        """Registers hook(module, state_dict, prefix, local_metadata), called after state_dict, which it may
        change."""
        return _add_hook(self._state_dict_hooks, (hook, True))

    def _register_state_dict_hook(self, hook):
        return _add_hook(self._state_dict_hooks, (hook, False))

    def register_load_state_dict_pre_hook(self, hook):
        """Registers hook(module, state_dict, prefix, local_metadata, strict, missing, unexpected, errors),
        called before loading."""
        return _add_hook(self._load_state_dict_pre_hooks, (hook, True))

    def _register_load_state_dict_pre_hook(self, hook, with_module=False):
        return _add_hook(self._load_state_dict_pre_hooks, (hook, with_module))

    def register_load_state_dict_post_hook(self, hook):
        """Registers hook(module, incompatible_keys), called after loading."""
        return _add_hook(self._load_state_dict_post_hooks, hook)

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        for name, value in self._parameters.items():
            if value is not None:
                destination[prefix + name] = value if keep_vars or isinstance(value, UninitializedTensorMixin) else value.detach()
        for name, value in self._buffers.items():
            if value is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = value if keep_vars or isinstance(value, UninitializedTensorMixin) else value.detach()
        if type(self).get_extra_state is not Module.get_extra_state:
            destination[prefix + EXTRA_STATE] = self.get_extra_state()

    def state_dict(self, *args, destination=None, prefix="", keep_vars=False):
        """Returns parameters and persistent buffers by their dotted names."""
        destination, prefix, keep_vars = (*args, *(destination, prefix, keep_vars)[len(args):])
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        local = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = local
        for hook in self._state_dict_pre_hooks.values():
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=prefix + name + ".", keep_vars=keep_vars)
        for hook, in_place in list(self._state_dict_hooks.values()):
            given = hook(self, destination, prefix, local)
            if given is not None:
                if in_place:
                    raise RuntimeError("state_dict post-hook must return None")
                destination = given
        return destination

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys,
                              error_msgs):
        for hook, with_module in list(self._load_state_dict_pre_hooks.values()):
            hook(*((self,) if with_module else ()), state_dict, prefix, local_metadata, strict, missing_keys,
                 unexpected_keys, error_msgs)
        buffers = {name: value for name, value in self._buffers.items()
                   if name not in self._non_persistent_buffers_set}
        for name, value in [*self._parameters.items(), *buffers.items()]:
            if value is None:
                continue
            key = prefix + name
            if key in state_dict:
                self._load_member(name, value, key, state_dict[key], local_metadata, error_msgs)
            elif strict:
                missing_keys.append(key)
        key = prefix + EXTRA_STATE
        if type(self).set_extra_state is not Module.set_extra_state:
            if key in state_dict:
                self.set_extra_state(state_dict[key])
            elif strict:
                missing_keys.append(key)
        elif strict and key in state_dict:
            unexpected_keys.append(key)
        if strict:
            for found in state_dict:
                if found.startswith(prefix) and found != key:
                    first, dot, _ = found[len(prefix):].partition(".")
                    if first not in self._modules and (dot or first not in self._parameters and first not in buffers):
                        unexpected_keys.append(found)

    def _load_member(self, name, value, key, given, local_metadata, error_msgs):
        if isinstance(value, UninitializedTensorMixin) and isinstance(given, UninitializedTensorMixin):
            return
        if not hasattr(given, "shape") or not hasattr(given, "dtype"):
            error_msgs.append(f'While copying the parameter named "{key}", expected cotan.Tensor or Tensor-like object '
                              f"from checkpoint but received {type(given)}")
            return
        if tuple(given.shape) == (1,) and tuple(value.shape) == ():
            given = _core.ops.reshape(given, ())
        if tuple(given.shape) != tuple(value.shape):
            error_msgs.append(f"size mismatch for {key}: copying a param with shape {_size_text(given.shape)} from "
                              f"checkpoint, the shape in current model is {_size_text(value.shape)}.")
            return
        if local_metadata.get("assign_to_params_buffers"):
            if isinstance(value, Parameter) and not isinstance(given, Parameter):
                given = Parameter(given, value.requires_grad)
            setattr(self, name, given)
            return
        try:
            with no_grad():
                value.copy_(given)
        except Exception as error:
            error_msgs.append(f'While copying the parameter named "{key}", whose dimensions in the model are '
                              f"{_size_text(value.shape)} and whose dimensions in the checkpoint are "
                              f"{_size_text(given.shape)}, an exception occurred : {error.args}.")

    def load_state_dict(self, state_dict, strict=True, assign=False):
        """Copies the values into the module; one error lists all keys that are missing, unexpected or of
        another shape."""
        if not hasattr(state_dict, "items"):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
        missing, unexpected, errors = [], [], []
        metadata = getattr(state_dict, "_metadata", None)
        state_dict = OrderedDict(state_dict)
        if metadata is not None:
            state_dict._metadata = metadata

        _load_state(self, state_dict, "", metadata, assign, (missing, unexpected, errors))
        if strict:
            quoted = ", ".join
            if unexpected:
                errors.insert(0, f"Unexpected key(s) in state_dict: {quoted(f'{chr(34)}{k}{chr(34)}' for k in unexpected)}. ")
            if missing:
                errors.insert(0, f"Missing key(s) in state_dict: {quoted(f'{chr(34)}{k}{chr(34)}' for k in missing)}. ")
        if errors:
            raise RuntimeError("Error(s) in loading state_dict for {}:\n\t{}".format(
                type(self).__name__, "\n\t".join(errors)))
        return IncompatibleKeys(missing, unexpected)

    # --------------------------------------------------------------------------------------- text

    def _get_name(self):
        return type(self).__name__

    def extra_repr(self):
        return ""

    def __repr__(self):
        extra = self.extra_repr()
        extra_lines = extra.split("\n") if extra else []
        children = [f"({name}): {_indented(repr(module), 2)}" for name, module in self._modules.items()]
        lines = extra_lines + children
        if not lines:
            return self._get_name() + "()"
        if len(extra_lines) == 1 and not children:
            return f"{self._get_name()}({extra_lines[0]})"
        return self._get_name() + "(\n  " + "\n  ".join(lines) + "\n)"


def _global_hook(kind, hook):
    return _add_hook(GLOBAL, (kind, hook))


def register_module_forward_pre_hook(hook):
    """Registers hook(module, args) for all modules."""
    return _global_hook("forward_pre", hook)


def register_module_forward_hook(hook, *, with_kwargs=False, always_call=False):
    """Registers hook(module, args, output) for all modules."""
    handle = _global_hook("forward", hook)
    for numbers, wanted in ((GLOBAL_WITH_KWARGS, with_kwargs), (GLOBAL_ALWAYS_CALLED, always_call)):
        if wanted:
            numbers.add(handle.id)
    return handle


def register_module_full_backward_hook(hook):
    """Registers hook(module, grad_input, grad_output) for all modules."""
    return _global_hook("backward", hook)


register_module_backward_hook = register_module_full_backward_hook


def register_module_full_backward_pre_hook(hook):
    """Registers hook(module, grad_output) for all modules."""
    return _global_hook("backward_pre", hook)


def _type_name(value):
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"


def _size_text(shape):
    return f"cotan.Size({list(shape)})"


def _is_float_dtype(dtype):
    return str(dtype).rpartition(".")[2].startswith(("float", "bfloat", "complex"))


def _is_float(t):
    return _is_float_dtype(t.dtype)


def clear_grads(parameters, set_to_none=True):
    """Clears the gradients, or sets those that exist to zeros: all at once."""
    grads = None
    if not set_to_none:
        parameters = [one for one in parameters if one.grad is not None]
        grads = [_core.ops.expand(_core.asarray(0, dtype=one.dtype), tuple(one.shape)) for one in parameters]
    _core._set_grads(parameters, grads)

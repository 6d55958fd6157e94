"""DataParallel and DistributedDataParallel, by the names of torch.nn.parallel: there is one device and one process, hence both
call their module as it is."""
import contextlib

from ..._paths import add_paths
from ..module import Module

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]


def _check_devices(name, device_ids):
    if device_ids is not None and len(device_ids) > 1:
        raise RuntimeError(f"{name}: device_ids names {len(device_ids)} devices, a module runs on one")


class DataParallel(Module):
    """The module as .module, called on its one device; state dicts have PyTorch's prefix "module."."""

    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        super().__init__()
        _check_devices(type(self).__name__, device_ids)
        self.module, self.dim, self.output_device = module, dim, output_device
        self.device_ids = list(device_ids or [])

    def forward(self, *inputs, **kwargs):
        return self.module(*inputs, **kwargs)


class DistributedDataParallel(DataParallel):
    """The module as .module in the one process: its gradients are the mean over all processes already. Options of
    communication have no effect; a process group of several processes is an error."""

    def __init__(self, module, device_ids=None, output_device=None, dim=0, broadcast_buffers=True, init_sync=True,
                 process_group=None,
                 bucket_cap_mb=None, find_unused_parameters=False, check_reduction=False, gradient_as_bucket_view=False,
                 static_graph=False, delay_all_reduce_named_params=None, param_to_hook_all_reduce=None, mixed_precision=None,
                 device_mesh=None):
        super().__init__(module, device_ids, output_device, dim)
        size = process_group.size() if hasattr(process_group, "size") else 1
        if size != 1:
            raise RuntimeError(f"DistributedDataParallel: the process group has {size} processes, there is one process")
        self.process_group, self.broadcast_buffers = process_group, broadcast_buffers
        self.find_unused_parameters, self.require_backward_grad_sync = find_unused_parameters, True

    @contextlib.contextmanager
    def no_sync(self):
        """A context in which gradients are not averaged over processes: of one process there is nothing to average."""
        before, self.require_backward_grad_sync = self.require_backward_grad_sync, False
        try:
            yield
        finally:
            self.require_backward_grad_sync = before

    @contextlib.contextmanager
    def join(self, divide_by_initial_world_size=True, enable=True, throw_on_early_termination=False):
        """A context for uneven inputs of several processes, of which there is one."""
        yield


def data_parallel(module, inputs, device_ids=None, output_device=None, dim=0, module_kwargs=None):
    """Returns module(*inputs, **module_kwargs)."""
    _check_devices("data_parallel", device_ids)
    return module(*(inputs if isinstance(inputs, tuple) else (inputs,)), **(module_kwargs or {}))


add_paths(__name__, {"distributed": {"DistributedDataParallel": DistributedDataParallel},
                     "data_parallel": {"DataParallel": DataParallel, "data_parallel": data_parallel}})

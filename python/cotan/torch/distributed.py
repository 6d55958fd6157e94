"""torch.distributed of one process: a group of world size 1, in which collective operations change nothing. More
processes are refused."""
import datetime
import enum
import os

from .._grad import no_grad
from ._tables import absent

__path__ = []
_ALONE = "the program is one process on one machine: world_size must be 1"
default_pg_timeout = default_pg_nccl_timeout = datetime.timedelta(minutes=30)


class ReduceOp:
    """How values of several processes are combined."""
    RedOpType = enum.Enum("RedOpType", "SUM AVG PRODUCT MIN MAX BAND BOR BXOR PREMUL_SUM", start=0)
    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM = RedOpType


reduce_op = ReduceOp


class Backend(str):
    UNDEFINED, GLOO, NCCL, UCC, MPI, XCCL = "undefined", "gloo", "nccl", "ucc", "mpi", "xccl"
    backend_list = ["undefined", "gloo", "nccl", "xccl", "ucc", "mpi"]


class ProcessGroup:
    """The group of this process."""
    rank, size = (lambda self: 0), (lambda self: 1)


class group:
    WORLD = None


class GroupMember:
    WORLD, NON_GROUP_MEMBER = None, -100


class Work:
    """A collective operation, which is done."""

    def wait(self, timeout=None):
        return True

    is_completed = is_success = wait


class DistError(RuntimeError):
    """An error of a process group."""


DistBackendError = DistNetworkError = DistStoreError = DistError
_backend = [None]


def _constant(value):
    return lambda *args, **options: value


is_available = _constant(True)  # a group of one process can be used
is_nccl_available = is_gloo_available = is_mpi_available = is_ucc_available = is_xccl_available = _constant(False)
is_backend_available = is_torchelastic_launched = is_nccl_available
get_rank = get_node_local_rank = get_global_rank = get_group_rank = _constant(0)
get_world_size = _constant(1)
get_process_group_ranks = _constant([0])


def is_initialized():
    return _backend[0] is not None


def get_backend(group=None):
    _check("get_backend")
    return _backend[0]


def new_group(ranks=None, *args, **options):
    _check("new_group")
    return ProcessGroup()


def new_subgroups(*args, **options):
    return ProcessGroup(), [ProcessGroup()]


def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None, group_name="",
                       pg_options=None, device_id=None):
    """Begins the group of this process. World size and rank may come from the environment, as torchrun sets
    it."""
    if is_initialized():
        raise ValueError("trying to initialize the default process group twice!")
    size = world_size if world_size >= 0 else int(os.environ.get("WORLD_SIZE", 1))
    if size != 1 or max(rank, 0):
        raise NotImplementedError(f"init_process_group: world_size is {size}, rank is {max(rank, 0)}; {_ALONE}")
    _backend[0], group.WORLD = Backend(backend or "gloo"), ProcessGroup()
    GroupMember.WORLD = group.WORLD


def destroy_process_group(group=None):
    _backend[0] = None


def _check(name):
    if not is_initialized():
        raise ValueError(f"{name}: Default process group has not been initialized, please make sure to call init_process_group.")


def _identity(name):
    def collective(tensor=None, *args, async_op=False, **options):
        _check(name)
        return Work() if async_op else None

    collective.__name__ = collective.__qualname__ = name
    return collective


all_reduce, broadcast, reduce, barrier, monitored_barrier, all_reduce_coalesced, broadcast_object_list = map(_identity, (
    "all_reduce", "broadcast", "reduce", "barrier", "monitored_barrier", "all_reduce_coalesced", "broadcast_object_list"))


def all_gather(tensor_list, tensor, group=None, async_op=False):
    """Copies the tensor to the list's one tensor."""
    _check("all_gather")
    with no_grad():
        tensor_list[0].copy_(tensor.reshape(tensor_list[0].shape))
    return Work() if async_op else None


def all_gather_into_tensor(output_tensor, input_tensor, *args, async_op=False, **options):
    """Copies the tensor."""
    return all_gather([output_tensor], input_tensor, async_op=async_op)


_all_gather_base = reduce_scatter_tensor = all_to_all_single = all_gather_into_tensor


def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    return all_gather(output_tensor_list, input_tensor_list[0], async_op=async_op)


def scatter(tensor, scatter_list=None, src=0, group=None, async_op=False):
    return all_gather([tensor], scatter_list[0], async_op=async_op)


reduce_scatter = scatter


def gather(tensor, gather_list=None, dst=0, group=None, async_op=False):
    return all_gather(gather_list, tensor, async_op=async_op)


def all_gather_object(object_list, obj, group=None):
    _check("all_gather_object")
    object_list[0] = obj


def gather_object(obj, object_gather_list=None, dst=0, group=None):
    all_gather_object(object_gather_list, obj)


def scatter_object_list(scatter_object_output_list, scatter_object_input_list, src=0, group=None):
    all_gather_object(scatter_object_output_list, scatter_object_input_list[0])


def _other(name):
    def refuse(*args, **options):
        raise NotImplementedError(f"{name}: there is no other process; {_ALONE}")
    return refuse


wait_tensor = lambda tensor: tensor  # noqa: E731
_get_default_group = _get_pg_default_device = lambda *args: group.WORLD  # noqa: E731
_pg_map = {}
_sync_module_states = lambda *args, **options: None  # noqa: E731
send, recv, isend, irecv, batch_isend_irecv, init_device_mesh, all_to_all_single_autograd = map(
    _other, ("send", "recv", "isend", "irecv", "batch_isend_irecv", "init_device_mesh",
             "all_to_all_single_autograd"))
DeviceMesh, P2POp, TCPStore, FileStore, HashStore, PrefixStore, Store = (
    absent("distributed", name, _ALONE) for name in ("DeviceMesh", "P2POp", "TCPStore", "FileStore", "HashStore", "PrefixStore",
                                                     "Store"))


class ErrorHandler:
    """Of distributed.elastic: is not needed in one process."""

    def initialize(self):
        """Does nothing."""


class ChildFailedError(Exception):
    """Of distributed.elastic: is never raised."""


def record(fn, error_handler=None):
    """Returns the function itself."""
    return fn

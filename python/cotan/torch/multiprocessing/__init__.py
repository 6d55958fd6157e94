"""torch.multiprocessing: Python's own, and spawn. Tensors are sent by their values; processes do not share them."""
import multiprocessing
from multiprocessing import *  # noqa: F401, F403

from .spawn import (ProcessContext, ProcessException, ProcessExitedException, ProcessRaisedException, SpawnContext,  # noqa: F401
                    spawn, start_processes)

__all__ = [*multiprocessing.__all__, "get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy", "spawn",
           "start_processes"]


def set_sharing_strategy(new_strategy):
    """Does nothing: memory of tensors is not shared."""


def get_sharing_strategy():
    return "file_system"


def get_all_sharing_strategies():
    return {"file_system"}

"""torch.autograd.graph: what is saved for backward is managed when the graph is compiled, so these change nothing."""
import contextlib


class save_on_cpu(contextlib.nullcontext):
    """Changes nothing: saved values are where the tensors are."""

    def __init__(self, pin_memory=False, device_type="cuda"):
        super().__init__()


class saved_tensors_hooks:
    """Is refused: values that ops save are not handed to a program."""

    def __init__(self, pack_hook, unpack_hook):
        raise NotImplementedError("saved_tensors_hooks: values that ops save are not handed out\n"
                                  "  hint: cotan.checkpoint recomputes them")


def disable_saved_tensors_hooks(error_message):
    """Returns a context manager that changes nothing: there are no such hooks."""
    return contextlib.nullcontext()


allow_mutation_on_saved_tensors = lambda: contextlib.nullcontext()  # noqa: E731


class Node:
    """The class of a graph's nodes in PyTorch: to check against."""

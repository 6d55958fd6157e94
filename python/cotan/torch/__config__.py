"""What was compiled in."""
from .. import get_num_threads


def show():
    return "Cotan: kernels are compiled when they are first used"


def parallel_info():
    return f"Cotan: {get_num_threads()} threads"

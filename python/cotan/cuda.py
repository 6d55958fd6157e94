"""torch.cuda's queries: there is no GPU."""


def is_available():
    return False


def is_initialized():
    return False


def device_count():
    return 0


def manual_seed(seed):
    """Does nothing: the only generator is that of cotan.manual_seed."""


def manual_seed_all(seed):
    """Does nothing: the only generator is that of cotan.manual_seed."""


def empty_cache():
    """Does nothing: there is no cache."""

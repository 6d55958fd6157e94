"""What programs ask before they use a GPU: there is none."""


def is_available():
    return False


def is_initialized():
    return False


def device_count():
    return 0


def manual_seed(seed):
    """There is no generator but manual_seed's."""


def manual_seed_all(seed):
    """There is no generator but manual_seed's."""


def empty_cache():
    """There is no cache."""

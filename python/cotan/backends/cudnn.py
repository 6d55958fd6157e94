"""Options that may be set and are ignored: results are the same in every run."""
enabled = benchmark = False
deterministic = True


def is_available():
    return False


def version():
    return None

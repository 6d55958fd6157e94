"""Options that may be set, and mean nothing: results are the same in every run anyway."""
enabled = benchmark = False
deterministic = True


def is_available():
    return False


def version():
    return None

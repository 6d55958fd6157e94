"""There is no such device."""


def is_available():
    return False


def is_built():
    return False

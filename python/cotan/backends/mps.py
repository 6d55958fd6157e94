"""This backend is not available."""


def is_available():
    return False


def is_built():
    return False

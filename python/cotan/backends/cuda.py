"""This backend is not available."""


def is_built():
    return False

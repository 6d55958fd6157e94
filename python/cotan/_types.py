"""Small classes for Tensor's attributes."""
import math


class Size(tuple):
    """A shape: a tuple of sizes."""

    def numel(self):
        """Returns the number of elements of a tensor of this shape."""
        return math.prod(self)

    def __repr__(self):
        return f"cotan.Size({list(self)})"


class Count(int):
    """Tensor.size: the number of elements, as in NumPy; called, it returns the shape or one of its sizes, as
    in PyTorch."""

    def __new__(cls, count, shape):
        self = int.__new__(cls, count)
        self.shape = shape
        return self

    def __call__(self, dim=None):
        return self.shape if dim is None else self.shape[dim]

    def __reduce__(self):
        return int, (int(self),)

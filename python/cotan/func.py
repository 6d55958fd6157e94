"""Transforms of functions, by the names of torch.func."""
from ._transforms import grad, hessian, jacfwd, jacrev, jvp, value_and_grad, vjp, vmap  # noqa: F401


def grad_and_value(func, argnums=0, has_aux=False):
    """As value_and_grad, but the gradients come first."""
    both = value_and_grad(func, argnums, has_aux)
    return lambda *args, **options: both(*args, **options)[::-1]

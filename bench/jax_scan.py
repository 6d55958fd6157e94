"""JAX's side of bench/compare_scan: medians in milliseconds, as bench/scan.c prints them."""
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

length, width, rounds = (int(a) for a in (sys.argv[1:] + ["10000", "64", "51"][len(sys.argv) - 1:]))


def scan(c, xs):
    def body(c, x):
        y = jnp.tanh(c + x)
        return y, y

    return jax.lax.scan(body, c, xs)[1]


def median(f):
    times = []
    for i in range(-3, rounds):  # the first ones compile
        begin = time.perf_counter()
        jax.block_until_ready(f(c, xs))
        if i >= 0:
            times.append(time.perf_counter() - begin)
    return sorted(times)[rounds // 2] * 1e3


xs = jnp.asarray(np.sin(np.arange(length * width, dtype=np.float32)).reshape(length, width))
c = jnp.zeros(width, jnp.float32)
forward = median(jax.jit(scan))
both = median(jax.jit(jax.value_and_grad(lambda c, xs: scan(c, xs).sum(), (0, 1))))
print(f"forward {forward:.3f} ms, gradient {both:.3f} ms")

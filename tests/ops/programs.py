"""Functions written once and run twice: by Cotan and by JAX.

A function takes an `o`, whose methods are the ops of the table and the transforms, and tensors: `o.mul(x, o.tanh(x))`,
`o.vmap(f, (0, None))(x, w)`. With a `Jax` for it JAX computes; with a `Recorder` its calls become a program, which
`test_transforms --programs` records with the library's functions. Arrays and numbers among the operands are constants.
"""
import os
import struct
import subprocess
import tempfile
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.ad_checkpoint import checkpoint_name
from op_cases import COMPLEX_OPS, DTYPES, NUMPY, Failure, Operand, Reader, attr_words, data, ints, pack, read_table
from op_twins import LINALG, TWINS
from support.program import command

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_threefry_partitionable", True)
PROGRAM = command("tests/ops/test_transforms")
TABLE = read_table(leave_out=())
TWINS = TWINS | {name: getattr(lax if name == "complex" else jnp, name) for name in COMPLEX_OPS} | LINALG
OP, NUMBER, WHOLE, CONST, TRANSFORM = range(5)
TRANSFORMS = ["call", "grad", "value_and_grad", "jvp", "vjp", "vmap", "linearize", "linear_transpose",
              "jacfwd", "jacrev", "hessian", "hvp", "custom_jvp", "custom_vjp", "remat", "scan", "while", "fori", "cond", "switch",
              "associative_scan", "name", "einsum"]
NO_AXIS = -2**63


def listed(x):
    return list(x) if isinstance(x, (list, tuple)) else [x]


def single(xs):
    return xs[0] if len(xs) == 1 else tuple(xs)


class Jax:
    """The ops and transforms as JAX has them. Functions take and give tensors one by one."""

    def __getattr__(self, name):
        twin = TWINS[name]

        def op(*operands, **attrs):
            return single(listed(twin(*operands, **attrs)))
        return op

    def call(self, f):
        return jax.jit(f)

    def grad(self, f):
        return lambda *x: single(jax.grad(lambda *x: listed(f(*x))[0], tuple(range(len(x))))(*x))

    def value_and_grad(self, f):
        def g(*x):
            def split(*x):
                outs = listed(f(*x))
                return outs[0], outs[1:]
            (value, rest), grads = jax.value_and_grad(split, tuple(range(len(x))), has_aux=True)(*x)
            return [value, *rest, *grads]
        return g

    def jvp(self, f, primals, tangents):
        outs, slopes = jax.jvp(f, tuple(primals), tuple(map(self.tangent, primals, tangents)))
        return [*listed(outs), *(s for s in listed(slopes) if s.dtype != jax.dtypes.float0)]

    @staticmethod
    def tangent(primal, tangent):
        if tangent is not None:
            return tangent
        floats = jnp.issubdtype(jnp.result_type(primal), jnp.inexact)
        return jnp.zeros_like(primal) if floats else np.zeros(np.shape(primal), jax.dtypes.float0)

    def vjp(self, f, primals, cotangents):
        outs, back = jax.vjp(f, *primals)
        given = [np.zeros(out.shape, jax.dtypes.float0) if c is None else jnp.asarray(c)
                 for out, c in zip(listed(outs), cotangents)]
        grads = back(type(outs)(given) if isinstance(outs, (list, tuple)) else given[0])
        return [*listed(outs), *(g for g in grads if g.dtype != jax.dtypes.float0)]

    def linearize(self, f, primals, *tangents):
        outs, linear = jax.linearize(f, *primals)
        return [*listed(outs), *(t for ts in tangents for t in listed(linear(*ts)))]

    def linear_transpose(self, f, primals, cotangents):
        return self.vjp(f, primals, cotangents)

    def vmap(self, f, in_axes=0, out_axes=0, size=None):
        return jax.vmap(f, in_axes, out_axes, axis_size=size)

    def jacfwd(self, f):
        return lambda *x: jax.tree.leaves(jax.jacfwd(f, tuple(range(len(x))))(*x))

    def jacrev(self, f):
        return lambda *x: jax.tree.leaves(jax.jacrev(f, tuple(range(len(x))))(*x))

    def hessian(self, f):
        return lambda *x: jax.tree.leaves(jax.hessian(f, tuple(range(len(x))))(*x))

    def hvp(self, f, primals, vectors):
        g = jax.grad(f, tuple(range(len(primals))))
        return list(jax.jvp(g, tuple(primals), tuple(map(self.tangent, primals, vectors)))[1])

    def custom_jvp(self, f, rule):
        """rule(*primals, *results, *tangents) gives the tangents of the results."""
        g = jax.custom_jvp(f)

        def both(primals, tangents):
            outs = f(*primals)
            return outs, rule(*primals, *listed(outs), *tangents)
        g.defjvp(both)
        return g

    def custom_vjp(self, f, rule):
        """f itself: JAX has no forward mode of one, nor a second order that is f's. rule must be true to f."""
        return f

    def remat(self, f, policy="nothing", names=()):
        known = jax.checkpoint_policies
        return jax.checkpoint(f, policy={
            "nothing": known.nothing_saveable, "everything": known.everything_saveable,
            "products": known.dots_saveable}.get(policy) or known.save_only_these_names(*names))

    def name(self, x, name):
        return checkpoint_name(x, name)

    def einsum(self, expression, *operands):
        return jnp.einsum(expression, *operands)

    def scan(self, body, carry, xs, length=None, reverse=False):
        """body(*carry, *elements) gives the next carry and the elements of ys."""
        n = len(carry)

        def step(c, x):
            outs = listed(body(*c, *x))
            return tuple(outs[:n]), tuple(outs[n:])
        last, ys = jax.lax.scan(step, tuple(carry), tuple(xs), length, reverse)
        return [*last, *ys]

    def associative_scan(self, f, xs, axis=0, reverse=False):
        """f(*left, *right), of elements."""
        def batched(a, b):
            return tuple(jax.vmap(lambda *e: tuple(listed(f(*e))), axis, axis)(*a, *b))
        return list(jax.lax.associative_scan(batched, tuple(xs), reverse, axis))

    def while_loop(self, cond, body, carry):
        return list(jax.lax.while_loop(lambda c: cond(*c), lambda c: tuple(listed(body(*c))), tuple(carry)))

    def fori(self, lower, upper, body, carry):
        """body(i, *carry) gives the next carry, with i an i32. Bounds are numbers, or tensors."""
        return list(jax.lax.fori_loop(lower, upper, lambda i, c: tuple(listed(body(jnp.int32(i), *c))), tuple(carry)))

    def cond(self, pred, then, otherwise, operands):
        return single(listed(jax.lax.cond(pred, then, otherwise, *operands)))

    def switch(self, index, branches, operands):
        return single(listed(jax.lax.switch(index, branches, *operands)))


class Value:
    """A tensor of the program being written: a register of a function."""

    def __init__(self, function, register):
        self.function, self.register = function, register


class Function:
    def __init__(self, outer, n_params):
        self.outer, self.n, self.code, self.n_code = outer, n_params, [], 0
        self.n_params, self.outs = n_params, []

    def add(self, words, n_out):
        self.code.append(words)
        self.n_code += 1
        self.n += n_out
        return [Value(self, self.n - n_out + i) for i in range(n_out)]

    def ref(self, value):
        depth, function = 0, self
        while function is not value.function:
            depth, function = depth + 1, function.outer
        return pack(depth, value.register)

    def words(self):
        body = pack(self.n_params, self.n_code) + b"".join(self.code) + pack(len(self.outs)) + \
            b"".join(self.ref(v) for v in self.outs)
        return pack(len(body) // 8) + body


class Recorder:
    def __init__(self):
        self.functions, self.now = [], None

    # ------------------------------------------------------------------------------ writing

    def value(self, x):
        if isinstance(x, Value):
            return x
        if isinstance(x, bool) or not isinstance(x, (int, float)):
            a = np.asarray(x)
            kind = next(d for d, n in NUMPY.items() if n == a.dtype.type)
            laid = np.ascontiguousarray(a).reshape(a.shape)
            return self.now.add(pack(CONST, DTYPES.index(kind)) + ints(a.shape) + data(laid), 1)[0]
        if isinstance(x, int):
            return self.now.add(pack(WHOLE, x), 1)[0]
        return self.now.add(pack(NUMBER) + struct.pack("<d", x), 1)[0]

    def refs(self, operands):
        values = [None if x is None else self.value(x) for x in operands]
        return pack(len(values)) + b"".join(pack(-1, 0) if v is None else self.now.ref(v) for v in values)

    def trace(self, f, n_params):
        function = Function(self.now, n_params)
        place = len(self.functions)
        self.functions.append(function)
        self.now = function
        function.outs = [self.value(v) for v in listed(f(*[Value(function, i) for i in range(n_params)]))]
        self.now = function.outer
        return place

    def __getattr__(self, name):
        op = TABLE[name]

        def record(*operands, **attrs):
            refs = self.refs(operands)
            n_out = max(op.n_out, 1)
            return single(self.now.add(pack(OP, op.place, n_out) + attr_words(op, attrs) + refs, n_out))
        return record

    def transform(self, name, functions, operands, n_out, *lists):
        refs = self.refs(operands)
        words = pack(TRANSFORM, TRANSFORMS.index(name), n_out, len(functions), *functions) + refs + \
            pack(len(lists)) + b"".join(ints(v) for v in lists)
        return self.now.add(words, n_out)

    def outs_of(self, place):
        return len(self.functions[place].outs)

    # --------------------------------------------------------------------------- transforms

    def call(self, f):
        def g(*x):
            place = self.trace(f, len(x))
            return single(self.transform("call", [place], x, self.outs_of(place)))
        return g

    def grad(self, f):
        """By ct_grad of what is recorded in a function, so that it is with respect to its parameters."""
        def g(*x):
            def inner(*x):
                return self.transform("grad", [], [listed(f(*x))[0], *x], len(x))
            return self.call(inner)(*x)
        return g

    def value_and_grad(self, f):
        def g(*x):
            place = self.trace(f, len(x))
            outs = self.outs_of(place)
            return self.transform("value_and_grad", [place], x, outs + len(x), [len(x)], [outs])
        return g

    def jvp(self, f, primals, tangents):
        place = self.trace(f, len(primals))
        return self.transform("jvp", [place], [*primals, *tangents], 2 * self.outs_of(place), [len(primals)],
                              [self.outs_of(place)])

    def vjp(self, f, primals, cotangents):
        place = self.trace(f, len(primals))
        return self.transform("vjp", [place], [*primals, *cotangents], self.outs_of(place) + len(primals),
                              [len(primals)], [self.outs_of(place)])

    def linearize(self, f, primals, *tangents):
        place, n = self.trace(f, len(primals)), len(primals)
        flat = [t for ts in tangents for t in ts]
        return self.transform("linearize", [place], [*primals, *flat], self.outs_of(place) * (1 + len(tangents)), [n])

    def linear_transpose(self, f, primals, cotangents):
        place, n = self.trace(f, len(primals)), len(primals)
        return self.transform("linear_transpose", [place], [*primals, *cotangents], self.outs_of(place) + n, [n])

    def vmap(self, f, in_axes=0, out_axes=0, size=None):
        def g(*x):
            place = self.trace(f, len(x))
            n_out = self.outs_of(place)

            def spread(axes, n):
                axes = list(axes) if isinstance(axes, (list, tuple)) else [axes] * n
                return [NO_AXIS if a is None else a for a in axes]
            return single(self.transform("vmap", [place], x, n_out, spread(in_axes, len(x)), spread(out_axes, n_out),
                                         [size or 0]))
        return g

    def jacobian(self, name, f):
        def g(*x):
            place = self.trace(f, len(x))
            outs = self.outs_of(place)
            per = len(x)**2 if name == "hessian" else len(x)
            return self.transform(name, [place], x, outs * per, [len(x)], [outs])
        return g

    def jacfwd(self, f):
        return self.jacobian("jacfwd", f)

    def jacrev(self, f):
        return self.jacobian("jacrev", f)

    def hessian(self, f):
        return self.jacobian("hessian", f)

    def hvp(self, f, primals, vectors):
        place = self.trace(f, len(primals))
        return self.transform("hvp", [place], [*primals, *vectors], len(primals), [len(primals)])

    def custom(self, name, f, rule):
        def g(*x):
            place = self.trace(f, len(x))
            n_out = self.outs_of(place)
            slopes = len(x) if name == "custom_jvp" else n_out
            second = self.trace(rule, len(x) + n_out + slopes)
            return single(self.transform(name, [place, second], x, n_out))
        return g

    def custom_jvp(self, f, rule):
        return self.custom("custom_jvp", f, rule)

    def custom_vjp(self, f, rule):
        return self.custom("custom_vjp", f, rule)

    def remat(self, f, policy="nothing", names=()):
        def g(*x):
            place = self.trace(f, len(x))
            policies = ["nothing", "everything", "products", "named"]
            return single(self.transform("remat", [place], x, self.outs_of(place), [policies.index(policy)],
                                         "".join(n + "\0" for n in names).encode()))
        return g

    def name(self, x, name):
        """name: one letter."""
        return self.transform("name", [], [x], 1, [ord(name)])[0]

    def einsum(self, expression, *operands):
        return self.transform("einsum", [], operands, 1, expression.encode())[0]

    def scan(self, body, carry, xs, length=None, reverse=False):
        place = self.trace(body, len(carry) + len(xs))
        n_out = self.outs_of(place)
        return self.transform("scan", [place], [*carry, *xs], n_out, [len(carry), length or 0, int(reverse)])

    def associative_scan(self, f, xs, axis=0, reverse=False):
        place = self.trace(f, 2 * len(xs))
        return self.transform("associative_scan", [place], xs, len(xs), [axis, int(reverse)])

    def while_loop(self, cond, body, carry):
        places = [self.trace(cond, len(carry)), self.trace(body, len(carry))]
        return self.transform("while", places, carry, len(carry))

    def fori(self, lower, upper, body, carry):
        place = self.trace(body, len(carry) + 1)
        if isinstance(lower, int) and isinstance(upper, int):
            return self.transform("fori", [place], carry, len(carry), [lower, upper])
        return self.transform("fori", [place], [lower, upper, *carry], len(carry), [])

    def choice(self, name, index, branches, operands, *lists):
        places = [self.trace(f, len(operands)) for f in branches]
        return single(self.transform(name, places, [index, *operands], self.outs_of(places[0]), *lists))

    def cond(self, pred, then, otherwise, operands):
        return self.choice("cond", pred, [then, otherwise], operands)

    def switch(self, index, branches, operands):
        return self.choice("switch", index, branches, operands, [len(branches)])


def program(f, operands):
    """The words of f(o, *operands)."""
    operands = [o if isinstance(o, Operand) else Operand(o) for o in operands]
    o = Recorder()
    o.trace(lambda *x: f(o, *x), len(operands))
    return pack(len(o.functions)) + b"".join(g.words() for g in o.functions) + \
        pack(len(operands), len(o.functions[0].outs)) + b"".join(x.words() for x in operands)


def run_programs(programs, device="ref", compiled=False, **env):
    """Of each (f, operands) the arrays that f(o, *operands) gives, or a Failure."""
    env = os.environ | env | ({} if compiled else {"COTAN_CC": "none"})
    with tempfile.TemporaryDirectory() as folder:
        Path(f"{folder}/in").write_bytes(b"".join(program(f, operands) for f, operands in programs))
        done = subprocess.run([*PROGRAM, "--programs", device, f"{folder}/in", f"{folder}/out"],
                              capture_output=True, text=True, env=env)
        assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr[-2000:]}"
        r = Reader(Path(f"{folder}/out").read_bytes())
    results = []
    for _ in programs:
        if r.word():
            results.append(Failure(r.bytes(r.word()).decode()))
        else:
            results.append([r.tensor() for _ in range(r.word())])
    assert r.at == len(r.raw)
    return results


def run_jax(f, operands):
    """What f(o, *operands) gives, by JAX, as one compiled function."""
    values = [x.value() if isinstance(x, Operand) else np.asarray(x) for x in operands]
    return [np.asarray(v) for v in listed(jax.jit(lambda *x: f(Jax(), *x))(*values))]

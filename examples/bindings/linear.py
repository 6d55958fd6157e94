"""Cotan from Python with ctypes alone: trains a linear model.

usage: python3 linear.py [LIBRARY], else libcotan.so.0.1 where the loader finds it
"""
import ctypes as c
import sys

cotan = c.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libcotan.so.0.1")
F32 = 12  # ct_dtype


class Tensor(c.Structure):
    _fields_ = [("bits", c.c_uint64)]


class Ints(c.Structure):
    _fields_ = [("n", c.c_int64), ("v", c.POINTER(c.c_int64))]


class Loc(c.Structure):
    _fields_ = [("file", c.c_char_p), ("line", c.c_uint32)]


class Scope(c.Structure):
    _fields_ = [("ctx", c.c_void_p), ("of", c.c_uint64), ("depth", c.c_uint32), ("serial", c.c_uint32)]


class Num(c.Structure):
    _fields_ = [("value", c.c_double), ("given", c.c_bool)]


class Schedule(c.Structure):
    _fields_ = [("shape", c.c_int), ("lr", c.c_double), ("min_lr", c.c_double), ("warmup", c.c_int64),
                ("steps", c.c_int64), ("custom", c.c_void_p), ("user", c.c_void_p)]


class LossScale(c.Structure):
    _fields_ = [("initial", c.c_double), ("growth", c.c_double), ("backoff", c.c_double), ("interval", c.c_int64)]


class OptimOptions(c.Structure):
    _fields_ = [("lr", c.c_double), ("schedule", Schedule), ("clip", c.c_double), ("beta1", Num),
                ("beta2", Num), ("eps", Num), ("weight_decay", Num), ("decay_mask", c.c_void_p),
                ("mask_user", c.c_void_p), ("momentum", c.c_double), ("nesterov", c.c_bool),
                ("loss_scale", LossScale), ("here", Loc)]


class MeanArgs(c.Structure):
    _fields_ = [("x", Tensor), ("axes", Ints), ("keepdims", c.c_bool), ("here", Loc)]


def function(name, result, *arguments):
    f = getattr(cotan, name)
    f.restype, f.argtypes = result, arguments
    return f


params_new = function("ct_params_new", c.c_void_p)
params_free = function("ct_params_free", None, c.c_void_p)
param = function("ct_param_at", Tensor, c.c_void_p, c.c_char_p, c.c_int, Ints, Loc)
zeros = function("ct_zeros_at", Tensor, c.c_int, Ints, Loc)
assign = function("ct_assign_at", None, Tensor, Tensor, Loc)
adam = function("ct_adam_with", c.c_void_p, c.c_void_p, OptimOptions)
optim_step = function("ct_optim_step_at", None, c.c_void_p, Tensor, Loc)
optim_free = function("ct_optim_free", None, c.c_void_p)
scope_begin = function("ct_scope_begin", Scope, Loc)
scope_end = function("ct_scope_end", None, Scope, Loc)
from_data = function("ct_from_at", Tensor, c.c_void_p, c.c_int, Ints, Loc)
matmul = function("ct_matmul", Tensor, Tensor, Tensor)
add = function("ct_add", Tensor, Tensor, Tensor)
sub = function("ct_sub", Tensor, Tensor, Tensor)
square = function("ct_square", Tensor, Tensor)
mean = function("ct_mean_with", Tensor, MeanArgs)
metric = function("ct_metric_at", None, c.c_char_p, Tensor, Loc)
metric_value = function("ct_metric_value", c.c_double, c.c_char_p)
data = function("ct_data_at", c.POINTER(c.c_float), Tensor, Loc)
failed = function("ct_failed", c.c_bool)
error_text = function("ct_error_text", c.c_char_p)


def here():
    return Loc(__file__.encode(), sys._getframe(1).f_lineno)


def dims(*sizes):
    return Ints(len(sizes), (c.c_int64 * len(sizes))(*sizes))


N = 64
xs, ys = (c.c_float * (2 * N))(), (c.c_float * N)()
for i in range(N):  # y = 2 a - 3 b + 1
    a, b = i % 8 / 8, i // 8 / 8
    xs[2 * i], xs[2 * i + 1], ys[i] = a, b, 2 * a - 3 * b + 1

params = params_new()
w = param(params, b"w", F32, dims(2, 1), here())
b = param(params, b"b", F32, dims(1), here())
assign(w, zeros(F32, dims(2, 1), here()), here())
assign(b, zeros(F32, dims(1), here()), here())
optim = adam(params, OptimOptions(lr=0.05, here=here()))
for _ in range(400):
    scope = scope_begin(here())
    x, y = from_data(xs, F32, dims(N, 2), here()), from_data(ys, F32, dims(N, 1), here())
    error = sub(add(matmul(x, w), b), y)
    loss = mean(MeanArgs(x=square(error), here=here()))
    optim_step(optim, loss, here())
    metric(b"loss", loss, here())
    scope_end(scope, here())
    if failed():
        sys.exit(error_text().decode())

scope = scope_begin(here())
weights, bias = data(w, here()), data(b, here())
print(f"y = {weights[0]:.5f} a + {weights[1]:.5f} b + {bias[0]:.5f}, loss {metric_value(b'loss'):.2e}")
scope_end(scope, here())
optim_free(optim)
params_free(params)

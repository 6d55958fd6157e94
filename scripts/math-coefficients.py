#!/usr/bin/env python3
"""Prints the polynomial coefficients of src/kir/kir_math.c, src/ops/elementwise.c and src/ops/special.c. Needs mpmath.

Each is the polynomial that interpolates the function at Chebyshev nodes, computed with 120 digits and
rounded to the dtype; beside it stands the largest error over the interval.
"""
import struct

from mpmath import atan, chebyfit, cos, erf, erfc, exp, log, mp, mpf, nstr, pi, sin, sqrt, tan, tanh

mp.dps = 120


def to_f32(x):
    return struct.unpack("f", struct.pack("f", float(x)))[0]


def fit(name, f, low, high, degree, single):
    def near(x):  # the quotients are defined at 0 as a limit
        return f(x if abs(x) > mpf(10) ** -30 else mpf(10) ** -30)

    c, error = chebyfit(near, [mpf(low), mpf(high)], degree + 1, error=True)
    texts = ["%.9g" % to_f32(v) if single else repr(float(v)) for v in reversed(c)]
    print("// %s: error %s" % (name, nstr(error, 3)))
    print("static const double %s[] = {%s};" % (name, ", ".join(texts)))


half_ln2 = log(mpf(2)) / 2 * mpf("1.001")
quarter = (pi / 4) ** 2 * mpf("1.0001")
for single in (True, False):
    t = "_f32" if single else "_f64"
    fit("exp_q" + t, lambda r: (exp(r) - 1 - r) / r**2, -half_ln2, half_ln2, 4 if single else 10, single)
    if single:
        fit("log_q" + t, lambda f: (log(1 + f) - f) / f**2, sqrt(mpf(0.5)) - 1 - mpf(10) ** -6,
            sqrt(mpf(2)) - 1 + mpf(10) ** -6, 8, single)
    else:
        fit("log_r" + t, lambda z: (log((1 + sqrt(z)) / (1 - sqrt(z))) - 2 * sqrt(z)) / sqrt(z) ** 3, 0,
            mpf("0.02944"), 7, single)
    fit("tanh_p" + t, lambda z: (tanh(sqrt(z)) - sqrt(z)) / sqrt(z) ** 3, 0, mpf(0.25 if single else 0.390625),
        3 if single else 11, single)
    # the quarter of an f32 is found in f32, so that what is left of it may be a little longer
    z = quarter * mpf("1.03") if single else quarter
    fit("sin_p" + t, lambda z: (sin(sqrt(z)) - sqrt(z)) / sqrt(z) ** 3, 0, z, 2 if single else 6, single)
    fit("cos_q" + t, lambda z: (cos(sqrt(z)) - 1 + z / 2) / z**2, 0, z, 2 if single else 6, single)
    # of atan2 (src/ops/elementwise.c)
    fit("atan_p" + t, lambda z: (atan(sqrt(z)) - sqrt(z)) / sqrt(z) ** 3, 0, tan(pi / 8) ** 2 * mpf("1.0001"),
        4 if single else 10, single)
    split, end = (mpf("0.921875"), mpf(4)) if single else (mpf(1), mpf(6))
    fit("erf_p" + t, lambda z: erf(sqrt(z)) / sqrt(z) - 1, 0, split**2, 6 if single else 13, single)
    middle, half = (split + end) / 2, (end - split) / 2
    fit("erf_t" + t, lambda u: log(erfc(middle + half * u)) / (middle + half * u), -1, 1, 9 if single else 27, single)
    # of erfc (src/ops/special.c), in t = (x - 3) / (x + 3)
    far = mpf(11) if single else mpf(28)
    fit("erfc_p" + t, lambda t: (1 + 2 * 3 * (1 + t) / (1 - t)) * exp((3 * (1 + t) / (1 - t)) ** 2) * erfc(3 * (1 + t) / (1 - t)),
        -1, (far - 3) / (far + 3), 10 if single else 22, single)

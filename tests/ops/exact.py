"""Functions of decimal numbers, to as many digits as nobody needs."""
import decimal
from decimal import Decimal
from functools import cache

decimal.getcontext().prec = 200
decimal.getcontext().Emin, decimal.getcontext().Emax = -10**9, 10**9
HALF, ONE, TWO = Decimal("0.5"), Decimal(1), Decimal(2)


def arctan(x):
    """Of a small x."""
    total, power, n = Decimal(0), x, 1
    while abs(power) > Decimal(10) ** -210:
        total, power, n = total + power / n * (1 if n % 4 == 1 else -1), power * x * x, n + 2
    return total


PI = 16 * arctan(ONE / 5) - 4 * arctan(ONE / 239)


def atan(x):
    """Halved until the series is short."""
    halvings = 0
    while abs(x) > Decimal("0.05"):
        x, halvings = x / (1 + (1 + x * x).sqrt()), halvings + 1
    return arctan(x) * 2**halvings


def asin(x):
    return PI / 2 * x if abs(x) == 1 else atan(x / ((1 - x) * (1 + x)).sqrt())


def acos(x):
    return PI / 2 - asin(x)


def exp(x):
    return x.exp() if x > -100000 else Decimal(0)


def log(x):
    return x.ln()


def log1p(x):
    return (1 + x).ln()


def expm1(x):
    return x.exp() - 1


def tanh(x):
    e = exp(2 * -abs(x))
    return ((1 - e) / (1 + e)).copy_sign(x)


def sinh(x):
    return (x.exp() - (-x).exp()) / 2


def cosh(x):
    return (x.exp() + (-x).exp()) / 2


def asinh(x):
    return (abs(x) + (x * x + 1).sqrt()).ln().copy_sign(x)


def acosh(x):
    return (x + (x * x - 1).sqrt()).ln()


def atanh(x):
    return ((1 + x) / (1 - x)).ln() / 2


def cbrt(x):
    return (abs(x).ln() / 3).exp().copy_sign(x) if x else x


def sigmoid(x):
    return 1 / (1 + exp(-x)) if x > -100000 else Decimal(0)


def softplus(x):
    return log1p(exp(x))


def sin(x):
    x = x - 2 * PI * (x / (2 * PI)).to_integral_value()
    total, term, n = Decimal(0), x, 1
    while abs(term) > Decimal(10) ** -195:
        total, term, n = total + term, -term * x * x / ((n + 1) * (n + 2)), n + 2
    return total


def cos(x):
    return sin(x + PI / 2)


def tan(x):
    return sin(x) / cos(x)


def erf(x):
    if abs(x) > 14:
        return ONE.copy_sign(x)
    total, term, n = Decimal(0), x, 0
    while abs(term) > Decimal(10) ** -195 or n < x * x:
        total, term, n = total + term / (2 * n + 1), -term * x * x / (n + 1), n + 1
    return 2 / PI.sqrt() * total


def bell(x):
    """The slope of erf."""
    return 2 / PI.sqrt() * exp(-x * x)


@cache
def erfinv(x):
    """By Newton's method."""
    y = Decimal(0)
    for _ in range(400):
        step = (erf(y) - x) / bell(y)
        step = min(max(step, -HALF), HALF)
        y -= step
        if abs(step) < Decimal(10) ** -60:
            return y
    raise ValueError(x)

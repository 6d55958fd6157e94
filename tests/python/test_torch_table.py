"""cotan.torch: the table of signatures, how arguments are bound, and the pages and stubs that are derived from it.

COTAN_DOCS=write writes these anew.
"""
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import cotan
import pytest
from cotan import torch
from cotan._torch import define as _define

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/torch-names.md"
HEAD = """# The functions of cotan.torch

This page lists the functions of [`cotan.torch`](torch.md) and the methods of its Tensor that come from its table of
signatures, as PyTorch's documentation has them. It is written by `make docs`. The forms of a row: f is a function, m a method,
i a method in place (`add_`), I also a function in place. `out=` takes the result where it is a parameter.
"""

def page():
    lines, spaces = [HEAD], {}
    for name, row in _define.rows.items():
        if row.name == name:
            spaces.setdefault(name.rpartition(".")[0], []).append(row)
    for space in sorted(spaces):
        lines += [f"## {'Methods alone' if space == 'Tensor' else 'cotan.torch' + ('.' + space if space else '')}", "",
                  "| Signature | Forms | |", "|---|---|---|"]
        for row in sorted(spaces[space], key=lambda row: row.name):
            texts = "<br>".join(f"`{text.partition(' -> ')[0]}`".replace("|", "\\|") for text in reversed(row.signatures))
            doc = " ".join(row.doc.split("\n\n")[0].split()).replace("|", "\\|")
            lines.append(f"| {texts} | {row.forms} | {doc} |")
        lines.append("")
    return "\n".join(lines)


def test_the_page_is_current():
    text = page()
    if os.environ.get("COTAN_DOCS") == "write":
        PAGE.write_text(text)
    assert PAGE.read_text() == text, "COTAN_DOCS=write scripts/run-tests tests/python/test_torch_table.py writes it"


@pytest.fixture
def example():
    """A function of two signatures."""
    _define.define("example(input, dim: int|ints=None, *, factor: float=2, flag: bool=False, out=None)")(lambda *given: given)
    _define.define("example(input, other: Tensor)")(lambda *given: given)
    yield _define.functions["example"]
    del _define.functions["example"], _define.rows["example"]


def test_arguments_are_bound_by_position_and_name(example):
    x = cotan.ones(2)
    assert example(x) == (x, None, 2, False)
    assert example(x, 1, flag=True) == (x, 1, 2, True)
    assert example(x, (0, 1), factor=0.5) == (x, (0, 1), 0.5, False)
    assert example(input=x, axis=-1) == (x, -1, 2, False) == example(a=x, dim=-1)
    assert example(x, x) == (x, x) == example(x, x2=x) == example(x, other=x)


@pytest.mark.parametrize("call, text", [
    (lambda f, x: f(x, "rows"), """example() received an invalid combination of arguments - got (Tensor, str), but expected one of:
 * (input, dim: int|ints=None, *, factor: float=2, flag: bool=False, out=None)
 * (input, other: Tensor)"""),
    (lambda f, x: torch.exp(), "exp() missing required argument: 'input'"),
    (lambda f, x: torch.exp(1.0), "exp(): argument 'input' must be a Tensor, not <class 'float'>"),
    (lambda f, x: torch.exp(x, x), "exp() takes 1 positional arguments, 2 were given"),
    (lambda f, x: torch.exp(x, dim=1), "exp() got an unexpected keyword argument 'dim'"),
    (lambda f, x: torch.exp(x, input=x), "exp() got multiple values for argument 'input'"),
    (lambda f, x: torch.logsumexp(x, 0.5), "logsumexp(): argument 'dim' must be an int or a tuple of ints, not <class 'float'>"),
    (lambda f, x: torch.exp(x, out=3), "exp(): argument 'out' must be a Tensor, not int"),
])
def test_wrong_arguments(example, call, text):
    with pytest.raises(TypeError) as error:
        call(example, cotan.ones(2))
    assert str(error.value) == text


def test_out_takes_the_result():
    x, to = torch.tensor([0.0, 1.0]), torch.empty(0)
    assert torch.exp(x, out=to) is to and to.tolist() == torch.exp(x).tolist()
    values, indices = torch.empty(0), torch.empty(0, dtype=torch.int64)
    torch.max(torch.tensor([[1.0, 3.0]]), 1, out=(values, indices))
    assert (values.tolist(), indices.tolist()) == ([3.0], [1])
    with pytest.raises(RuntimeError, match="result type float32 can't be cast to the desired output type int64"):
        torch.exp(x, out=indices)
    with pytest.raises(RuntimeError, match=r"exp\(\): functions with out=... arguments don't support automatic differentiation"):
        torch.exp(x.requires_grad_(), out=to)


def test_in_place_forms():
    x = torch.tensor([1.0, 4.0])
    rows = x[:1]
    assert x.sqrt_() is x and x.tolist() == [1.0, 2.0]
    assert torch.exp_(rows) is rows and x[0].item() == pytest.approx(2.7182817)
    with pytest.raises(RuntimeError, match="a tensor of int64 is written in its place, it cannot hold float32"):
        torch.tensor([1]).sqrt_()


def test_torch_function():
    class Doubled(torch.Tensor):
        seen = []

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.seen.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs)

    class Other:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__, len(args), kwargs

    x = torch.ones(2).as_subclass(Doubled)
    assert type(torch.add(x, 1)) is Doubled is type(torch.cat([x, x])) and Doubled.seen == ["add", "cat"]
    assert x.mul_(2) is x and x.tolist() == [2.0, 2.0]
    assert torch.sin(Other()) == ("sin", 1, {}) and torch.add(torch.ones(1), Other(), alpha=2) == ("add", 2, {"alpha": 2})
    with torch._C.DisableTorchFunctionSubclass():
        assert type(torch.add(x, 1)) is torch.Tensor
    parameter = torch.nn.Parameter(torch.ones(2))
    assert type(torch.exp(parameter)) is torch.Tensor


def test_signatures_are_seen_by_tools():
    assert str(inspect.signature(torch.exp)) == "(input, *, out=None)"
    assert str(inspect.signature(torch.Tensor.clamp)) == "(self, /, min=None, max=None, *, out=None)"
    assert torch.exp.__doc__ and torch.Tensor.exp.__name__ == "exp"


def test_every_row_says_what_it_does():
    assert not [row.name for row in _define.rows.values() if not row.doc.strip()]


def test_the_page_of_docs_says_what_is_printed():
    text = (ROOT / "docs/torch.md").read_text()
    program, printed = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", text, re.S).groups()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == printed, done.stderr

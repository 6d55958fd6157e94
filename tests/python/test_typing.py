"""Types: the stubs that scripts/make-stubs writes, by mypy --strict over programs and, in `make test-all`, over themselves and
against the package."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests/python/data/typed_programs.py"
# Whole names that stubtest finds to differ, as regular expressions, each with the reason.
ALLOWED = r"""
cotan\.torch\.__main__                     # a program, which is not imported
cotan\.torch\..*\.__class_getitem__        # of classes that only say what is not there
cotan\.distributions\..*\.(probs|logits|variance|covariance_matrix|precision_matrix|scale_tril)  # lazy_property: typed as its value
"""


@pytest.fixture(scope="module")
def stubs(tmp_path_factory):
    """A folder with the stubs."""
    pytest.importorskip("mypy")
    folder = tmp_path_factory.mktemp("stubs")
    subprocess.run([sys.executable, ROOT / "scripts/make-stubs", folder / "cotan"], check=True)
    return folder


def run_mypy(stubs, *args, tool="mypy"):
    env = {**os.environ, "MYPYPATH": str(stubs)}
    cache = ["--cache-dir", str(stubs / "cache")] if tool == "mypy" else []
    return subprocess.run([sys.executable, "-m", tool, *cache, *map(str, args)], env=env, capture_output=True, text=True)


def test_typed_programs_run(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(PROGRAMS.parent))
    import typed_programs
    typed_programs.run(str(tmp_path / "net.pt"))


WRONG = {  # line of a program: what mypy says of it
    'word: str = x.sum()': 'expression has type "Tensor", variable has type "str"',
    'x.summ()': '"Tensor" has no attribute "summ"',
    'torch.summ(x)': 'Module has no attribute "summ"',
    'x + "1"': "Unsupported operand types",
    'torch.sum(x, dim="0")': 'incompatible type "str"; expected "int | Sequence[int] | None"',
    'torch.max(x, dim="0")': 'No overload variant of "max"',
    'torch.stack(x.sum(), 0)': 'incompatible type "Tensor"; expected "Sequence[Tensor]"',
    'torch.zeros(2, dtype=1)': "incompatible type",
    'nn.Linear("3", 2)': 'Argument 1 to "Linear" has incompatible type "str"; expected "int"',
    'nn.Linear(3, 2, biased=True)': 'Unexpected keyword argument "biased"',
    'nn.Linear(3, 2)(1)': 'incompatible type "int"; expected "Tensor"',
    'nn.LSTM(3, 2)(x).sum()': '"tuple[Tensor, tuple[Tensor, Tensor]]" has no attribute "sum"',
    'F.relu(x, inplace="yes")': 'incompatible type "str"; expected "bool"',
    'optim.Adam(3)': "incompatible type",
    'optim.SGD(net.parameters(), rate=1)': 'Unexpected keyword argument "rate"',
    'net.load_state_dict([])': 'incompatible type "list[Never]"',
    'x.sort().value': 'has no attribute "value"',
    'torch.linalg.svd(x).V': 'has no attribute "V"',
    'x.grad.sum()': 'Item "None" of "Tensor | None" has no attribute "sum"',
    'net(x, y=1)': 'Unexpected keyword argument "y"',
    'flag: bool = x == x': 'expression has type "Tensor", variable has type "bool"',
}


def test_typed_programs_pass_mypy_and_wrong_ones_do_not(stubs, tmp_path):
    head = ["import cotan.torch as torch", "from cotan.torch import nn, optim", "from cotan.torch.nn import functional as F",
            "class Net(nn.Module):", "    def forward(self, x: torch.Tensor) -> torch.Tensor:", "        return x",
            "x, net = torch.ones(2), Net()"]
    program = tmp_path / "wrong.py"
    program.write_text("\n".join([*head, *WRONG]))
    result = run_mypy(stubs, "--strict", "--hide-error-codes", PROGRAMS, program)
    errors = {(Path(path).name, int(line)): text for path, line, text in re.findall(r"^(.*?):(\d+): error: (.*)", result.stdout, re.M)}
    assert not [where for where in errors if where[0] != "wrong.py"], result.stdout + result.stderr
    found = {line: errors.pop(("wrong.py", i), "") for i, line in enumerate(WRONG, len(head) + 1)}
    assert not errors
    assert not [(line, found[line]) for line, message in WRONG.items() if message not in found[line]]


def names_with_several_signatures():
    """Of these, the text signature shows the first alone, with which stubtest compares."""
    import cotan.torch
    from cotan._torch.define import functions, rows
    for row in {id(row): row for row in rows.values() if len(row.signatures) > 1}.values():
        base = row.name.rpartition(".")[2]
        yield from (rf"cotan\.(torch|_core\.Tensor|torch\._C\.TensorBase)\.{end}" for end in (base, base + "_"))
        yield "cotan.torch." + row.name


@pytest.mark.skipif(os.environ.get("COTAN_TEST_ALL") != "1", reason="half a minute of mypy over all stubs, twice")
def test_all_stubs_agree_with_the_package(stubs, tmp_path):
    result = run_mypy(stubs, "--strict", "-p", "cotan")
    assert result.returncode == 0, result.stdout
    allowed = tmp_path / "allowed"
    allowed.write_text(ALLOWED + "\n".join(names_with_several_signatures()))
    result = run_mypy(stubs, "cotan", "--concise", "--ignore-disjoint-bases", "--ignore-unused-allowlist", "--allowlist", allowed, tool="mypy.stubtest")
    assert result.returncode == 0, result.stdout + result.stderr

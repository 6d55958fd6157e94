"""python -m cotan.torch runs programs that import torch."""
import os
import subprocess
import sys

import cotan
from cotan.torch.__main__ import main

ENVIRONMENT = dict(os.environ, PYTHONPATH=os.path.dirname(os.path.dirname(cotan.__file__)))


def run(*args, code=0, **options):
    done = subprocess.run([sys.executable, "-m", "cotan.torch", *args], capture_output=True, text=True, timeout=120,
                          env=ENVIRONMENT,
                          **options)
    assert done.returncode == code, done.stderr
    return done


TRAIN = """
import importlib.metadata
import importlib.util
import sys
from dataclasses import dataclass

import helper
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

@dataclass
class Settings:
    lr: float = 0.1

assert torch.nn is sys.modules["torch.nn"] and torch.nn.functional is F and helper.F is F
assert importlib.metadata.version("torch") == torch.__version__ == "2.7.0" and importlib.util.find_spec("torch")
assert sys.modules["__main__"].Settings is Settings and __name__ == "__main__"
torch.manual_seed(0)
x = torch.linspace(-1, 1, 32).reshape(32, 1)
model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=Settings.lr)
for epoch in range(int(sys.argv[1])):
    for a, b in DataLoader(TensorDataset(x, x * x), batch_size=16, shuffle=True):
        optimizer.zero_grad()
        loss = F.mse_loss(model(a), b)
        loss.backward()
        optimizer.step()
print(sys.argv[1:], loss.item() < 0.05, torch.cuda.is_available())
"""


def test_a_script(tmp_path):
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "helper.py").write_text("from torch.nn import functional as F\n")
    done = run(tmp_path / "train.py", "20", "--flag", cwd="/")
    assert done.stdout == "['20', '--flag'] True False\n" and done.stderr == ""


def test_a_module_and_a_line(tmp_path):
    (tmp_path / "tool.py").write_text("import sys, torch\nprint(sys.argv[1:], torch.__name__, __name__)\n")
    assert run("-m", "tool", "a", cwd=tmp_path).stdout == "['a'] cotan.torch __main__\n"
    assert run("-c", "import sys, torch; print(sys.argv, torch.ones(2).sum().item())", "a").stdout == "['-c', 'a'] 2.0\n"


def test_missing_names_are_reported(tmp_path):
    (tmp_path / "missing.py").write_text(
        "import torch\nhasattr(torch, 'only_asked')\nfor i in range(2):\n    try:\n        torch.no_such_name\n"
        "    except AttributeError:\n        pass\ntorch.ones(2).no_such_method()\n")
    done = run(tmp_path / "missing.py", code=1)
    lines = done.stderr.splitlines()
    assert lines[0].startswith("Traceback") and "missing.py" in lines[1]  # the program's own lines alone
    assert lines[-3:] == ["cotan.torch: names of PyTorch that this program met and that are not there yet:",
                          "  torch.no_such_name  (2 times)", "  Tensor.no_such_method"]


def test_spawned_processes(tmp_path):
    (tmp_path / "many.py").write_text("""
import torch
import torch.multiprocessing as mp

def work(number, x):
    if number == 1:
        raise ValueError(f"{x.sum().item()} {torch.__name__}")

if __name__ == "__main__":
    try:
        mp.spawn(work, (torch.ones(3),), nprocs=2)
    except mp.ProcessRaisedException as error:
        print("ValueError: 3.0 cotan.torch" in str(error), error.error_index)
""")
    assert run(tmp_path / "many.py").stdout == "True 1\n"


def test_errors_of_use(capsys):
    assert main(["--help"]) == 0 and "usage: python -m cotan.torch train.py" in capsys.readouterr().out
    for args, text in ((["-m"], "what to run is missing"), (["-z"], "no such option; see --help")):
        assert main(args) == 2 and text in capsys.readouterr().err
    assert "nothing.py: No such file" in run("nothing.py", code=2).stderr


def test_pytorch_itself_is_imported_already(tmp_path):
    (tmp_path / "torch.py").write_text("__version__ = '1'\n")
    done = subprocess.run([sys.executable, "-c", "import torch, cotan.torch\ncotan.torch.install()"], capture_output=True,
                          text=True,
                          env=dict(ENVIRONMENT, PYTHONPATH=f"{ENVIRONMENT['PYTHONPATH']}:{tmp_path}"), timeout=60)
    assert "RuntimeError: install: PyTorch itself is imported already" in done.stderr

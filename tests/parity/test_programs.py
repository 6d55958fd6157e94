"""Programs that are written for PyTorch, and run under Cotan as they are, with cotan.torch in torch's place: the same losses."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
OLD = int(torch.__version__.partition(".")[0]) < 2
PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
ROOT = Path(__file__).parents[2]

# Runs a program several times in one process, and says what it printed last, and what each time was made.
REPEATED = """
import contextlib
import io
import json
import sys
import cotan
from cotan import torch

torch.install()
passes = []
for _ in range(PASSES):
    before, printed = cotan.stats(), io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(TEXT, "<program>", "exec"), {"__name__": "__main__"})
    after = cotan.stats()
    passes.append([printed.getvalue().splitlines()[-1], *(after[key] - before[key] for key in ("plans_made", "kernels_compiled"))])
print(json.dumps(passes))
"""
PASSES = 5  # in the first ones it turns out what is read, and so is kept from then on


def losses(text, **env):
    """What a program prints last, and what it says on standard error; it runs in the root of the repository."""
    done = subprocess.run([sys.executable, "-P", "-c", text], capture_output=True, text=True, cwd=ROOT, env={**os.environ, **env})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_program(path):
    """The losses are PyTorch's, the same bits each time; and once all structures and sizes have occurred, which is so when the
    program runs again, no step makes a plan or compiles a kernel."""
    text = path.read_text()
    assert re.search(r"^(import|from) torch\b", text, re.M)
    needs = re.search(r"^# Needs PyTorch 2: (.*)", text, re.M)
    if needs and OLD:
        pytest.skip(f"PyTorch {torch.__version__} lacks {needs[1]}")
    theirs, _ = losses(text)
    assert len(theirs) >= (20 if path.stem == "dcgan" else 50)
    passes, _ = losses(REPEATED.replace("TEXT", repr(text)).replace("PASSES", str(PASSES)), COTAN_COMPILE="wait")
    assert json.loads(passes[0][0]) == pytest.approx(theirs, rel=1e-4, abs=1e-7)
    assert [last for last, _, _ in passes] == [passes[0][0]] * PASSES
    plans, kernels = ([made[i] for made in passes] for i in (1, 2))
    assert plans[0] > 0 and sum(plans[1:]) <= 5 and plans[-1] == 0, plans
    assert sum(kernels[1:]) <= 5 and kernels[-1] == 0, kernels


def test_a_loop_makes_no_plan_after_its_first_steps():
    """Counted step by step: what the programs' repetition cannot tell apart."""
    text = (PROGRAMS[0].parent / "cnn.py").read_text()
    text = text.replace("loss.backward()", "loss.backward()\n    plans.append(cotan.stats()['plans_made'])")
    plans, _ = losses("import cotan, cotan.torch\ncotan.torch.install()\nplans = []\n" + text + "\nprint(json.dumps(plans))\n")
    assert plans[5] == plans[-1] and plans[-1] <= 6, plans


INTERRUPTED = """
import cotan
from cotan import nn, optim
from cotan.nn import functional as F
LOOKED
cotan.manual_seed(3)
model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
adam = optim.Adam(model.parameters())
x = cotan.randn(16, 5)
for step in range(20):
    y = model(x)
    loss = F.mse_loss(y, x[:, :1])
    LOOK
    adam.zero_grad()
    loss.backward()
    adam.step()
import json
print(json.dumps([p.tolist() for p in model.parameters()]))
"""


@pytest.mark.parametrize("look", ["print(y[0])", "if loss > 1e9: break", "y.numpy(); loss.item(); model[0].weight.tolist()",
                                  "pdb.Pdb(stdin=io.StringIO('p y\\np loss.item()\\nc\\n'), stdout=io.StringIO(), nosigint=True).set_trace()"])
def test_looking_changes_no_bit(look):
    plain, _ = losses(INTERRUPTED.replace("LOOKED", "").replace("LOOK", "pass"))
    looked, _ = losses(INTERRUPTED.replace("LOOKED", "import io, pdb").replace("LOOK", look))
    assert looked == plain

"""Programs that are written for PyTorch, and run under Cotan with other imports alone: the same losses."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
STATS = """
import cotan as _cotan
import atexit as _atexit
import sys as _sys
_atexit.register(lambda: print(_cotan.stats()["plans_made"], file=_sys.stderr))
"""


def losses(text, **env):
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, env={**os.environ, **env})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def translated(text):
    """The import lines name cotan; nothing else is changed."""
    lines = [re.sub(r"^import torch$", "import cotan as torch", line) for line in text.splitlines()]
    lines = [re.sub(r"\btorch\.", "cotan.", line) if line.startswith("import torch.") else line for line in lines]
    return "\n".join(re.sub(r"^from torch\b", "from cotan", line) for line in lines)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_program(path):
    text = path.read_text()
    assert "torch" in text and translated(text) != text
    theirs, _ = losses(text)
    ours, _ = losses(translated(text))
    assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-7)


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


def test_no_plans_once_all_structures_occurred():
    text = translated((Path(__file__).parent / "programs/cnn.py").read_text())
    text = text.replace("loss.backward()", "loss.backward()\n    _plans.append(_cotan.stats()['plans_made'])")
    _, said = losses("_plans = []\n" + STATS + text + "\nprint(_plans, file=_sys.stderr)\n")
    plans = json.loads(re.search(r"\[.*\]", said).group())
    assert plans[5] == plans[-1] and plans[-1] <= 6, plans

"""Tokens that a folder with a SentencePiece model alone adds, in tokenizer_config.json and added_tokens.json."""
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from support.program import command

MODEL = Path(__file__).parent.parent / "unit/tokenizers/bpe.model"


def tokens(folder, text, fails=0):
    done = subprocess.run([*command("cotan"), "tokenize", folder, "--ids", "--text", text], capture_output=True, text=True)
    assert done.returncode == fails, done.stderr
    return done.stderr if fails else [int(i) for i in done.stdout.split()]


@pytest.fixture
def folder(tmp_path):
    shutil.copy(MODEL, tmp_path / "tokenizer.model")
    return tmp_path


def test_they_are_tokens(folder):
    alone = tokens(folder, "fox")
    spelled = tokens(folder, "fox<|end|><mark>")
    last = 5000
    (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": {str(last): {"content": "<|end|>", "special": True}}}))
    (folder / "added_tokens.json").write_text(json.dumps({"<|end|>": 7, "<mark>": last + 1}))
    assert tokens(folder, "fox<|end|><mark>") == [*alone, last, last + 1] != spelled


def test_an_id_that_is_too_large(folder):
    (folder / "added_tokens.json").write_text(json.dumps({"<mark>": 1 << 40}))
    said = tokens(folder, "fox", fails=1)
    assert "an added token has id 1099511627776, after a vocabulary of " in said

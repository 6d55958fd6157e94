"""Writes language_models.npz: of each model of support/language_models.py its config.json, the shapes of its weights and
some of its logits, or its scores of classes, as Hugging Face's transformers has them. Needs torch and transformers; of names those alone:
    PYTHONPATH=tests python tests/unit/record_language_models.py [NAME...]
"""
import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from support import language_models as lm

AT = [0, 13, 26, 39]  # positions whose logits are kept
DROPPED = {"transformers_version", "architectures", "dtype", "id2label", "label2id"}
KEPT = {"architectures", "id2label"}  # of models that tell classes apart
PATH = Path(__file__).parent / "language_models.npz"


def logits(model, name):
    ids, written = (torch.tensor(x, dtype=torch.long) for x in (lm.IDS, lm.WRITTEN))
    found = (model(input_ids=ids, decoder_input_ids=written) if name in lm.PAIRS else model(input_ids=ids)).logits.numpy()
    return found[:1, [at % found.shape[1] for at in AT]]


def scores(model):
    """Of the question, and of the question and its answer, as the tokenizer of save_tokenizer(around=True) puts them."""
    first, second = ([lm.CHARACTERS.index(c) for c in text] + [0] for text in (lm.QUESTION, lm.ANSWER))
    out = []
    for ids, kinds in (([0] + first, [0] * (1 + len(first))), ([0] + first + second, [0] * (1 + len(first)) + [1] * len(second))):
        kinds = {"token_type_ids": torch.tensor([kinds])} if getattr(model.config, "type_vocab_size", 1) > 1 else {}
        out.append(model(input_ids=torch.tensor([ids]), **kinds).logits.numpy())
    return np.concatenate(out)


names = sys.argv[1:]
out = dict(np.load(PATH)) if names else {"at": np.array(AT)}
for name, (kind, config, given) in (lm.MODELS | lm.CLASSES).items():
    if names and name not in names:
        continue
    model = getattr(transformers, kind)(getattr(transformers, config)(**given, attn_implementation="eager")).eval().float()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        path = Path(folder) / "model.safetensors"
        shapes = {k: v.shape for k, v in lm.safetensors.read(path).items()}
        lm.safetensors.write(path, {k: lm.weight(k, s) for k, s in shapes.items()})
        again = type(model).from_pretrained(folder, attn_implementation="eager").eval().float()
        own = json.loads((Path(folder) / "config.json").read_text())
    classes = name in lm.CLASSES
    with torch.no_grad():
        out[f"{name}.{'scores' if classes else 'logits'}"] = scores(again) if classes else logits(again, name)
    own = {k: v for k, v in own.items() if k not in DROPPED or (classes and k in KEPT)}
    out[f"{name}.config"] = np.array(json.dumps(own))
    out[f"{name}.shapes"] = np.array(json.dumps({k: list(s) for k, s in shapes.items()}))
np.savez_compressed(PATH, **out)

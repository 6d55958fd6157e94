"""Writes language_models.npz: of each model of support/language_models.py its config.json, the shapes of its weights and
some of its logits, as Hugging Face's transformers has them. Needs torch and transformers:
    PYTHONPATH=tests python tests/unit/record_language_models.py
"""
import json
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from support import language_models as lm

AT = [0, 13, 26, 39]  # positions whose logits are kept
DROPPED = {"transformers_version", "architectures", "dtype", "id2label", "label2id"}

out = {"at": np.array(AT)}
for name, (kind, config, given) in lm.MODELS.items():
    model = getattr(transformers, kind)(getattr(transformers, config)(**given, attn_implementation="eager")).eval().float()
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        path = Path(folder) / "model.safetensors"
        shapes = {k: v.shape for k, v in lm.safetensors.read(path).items()}
        lm.safetensors.write(path, {k: lm.weight(k, s) for k, s in shapes.items()})
        again = type(model).from_pretrained(folder, attn_implementation="eager").eval().float()
        own = json.loads((Path(folder) / "config.json").read_text())
    ids, written = (torch.tensor(x, dtype=torch.long) for x in (lm.IDS, lm.WRITTEN))
    with torch.no_grad():
        logits = (again(input_ids=ids, decoder_input_ids=written) if name in lm.PAIRS else again(input_ids=ids)).logits.numpy()
    own = {k: v for k, v in own.items() if k not in DROPPED}
    out[f"{name}.config"] = np.array(json.dumps(own))
    out[f"{name}.shapes"] = np.array(json.dumps({k: list(s) for k, s in shapes.items()}))
    out[f"{name}.logits"] = logits[:1, [at % logits.shape[1] for at in AT]]
np.savez_compressed(Path(__file__).parent / "language_models.npz", **out)

"""What is drawn from a model: frequencies against the distribution of known logits, and what a full context keeps
against a second model (tests/support/gpt2.py)."""
import math
import os
import string
import subprocess

import numpy as np
import pytest
from support import gpt2
from support.program import command

COTAN = command("cotan")
SEED, DRAWS = 20250613, 24000
LETTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase  # 62, more than the default top-k leaves


def sample(folder, prompt, length, *words, device="cpu"):
    done = subprocess.run([*COTAN, "sample", folder, "--prompt", prompt, "--max-tokens", str(length), "--device", device, *words],
                          capture_output=True, text=True, env=os.environ | {"COTAN_CC": "none"}, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(prompt) and done.stdout.endswith("\n")
    written = done.stdout[len(prompt):-1]
    assert len(written) == length
    return written


# ------------------------------------------------------------------------------------------ frequencies

@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """A model whose last norm gives the same whatever came before, and its logits."""
    folder, rng = tmp_path_factory.mktemp("known"), np.random.default_rng(SEED)
    config = gpt2.Config(vocab=len(LETTERS), context=32, width=4, layers=1, heads=1)
    weights = gpt2.draw(config, rng, embedding=1)
    weights["ln_f.weight"][:] = 0
    gpt2.save(folder, config, weights, tokenizer="chars", vocabulary=LETTERS)
    return folder, weights["wte.weight"].astype(np.float64) @ weights["ln_f.bias"].astype(np.float64)


def distribution(logits, temperature, top_k):
    """Of softmax(logits / temperature) among the likeliest k."""
    p = np.exp((logits - logits.max()) / temperature)
    p[np.argsort(-logits)[top_k:]] = 0
    return p / p.sum()


def chi_square(counts, p):
    """How far counts are from n p, in deviations of the chi-square distribution (Wilson and Hilferty)."""
    assert (counts[p == 0] == 0).all(), "drawn, but impossible"
    want = counts.sum() * p
    many = want >= 5
    seen, want = np.append(counts[many], counts[~many].sum()), np.append(want[many], want[~many].sum())
    seen, want = seen[want > 0], want[want > 0]
    freedom, total = len(want) - 1, float(((seen - want)**2 / want).sum())
    return ((total / freedom)**(1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))


@pytest.mark.parametrize("words, temperature, top_k", [
    ([], 0.8, 40),  # what is documented as the default
    (["--temperature", "1", "--top-k", "1000"], 1, 1000),
    (["--temperature", "0.4", "--top-k", "5"], 0.4, 5),
    (["--temperature", "3", "--top-k", "61"], 3, 61),
])
def test_frequencies(known, words, temperature, top_k):
    folder, logits = known
    drawn = sample(folder, "a", DRAWS, "--seed", str(SEED), *words)
    tokens = np.array([LETTERS.index(c) for c in drawn])
    p = distribution(logits, temperature, top_k)
    assert (p > 0).sum() == min(top_k, len(LETTERS))
    off = chi_square(np.bincount(tokens, minlength=len(LETTERS)), p)
    assert abs(off) < 4, f"seed {SEED}: {off:.1f} deviations"
    # What follows the likeliest token is drawn like the first.
    after = tokens[1:][tokens[:-1] == np.argmax(p)]
    off = chi_square(np.bincount(after, minlength=len(LETTERS)), p)
    assert abs(off) < 4, f"seed {SEED}: {off:.1f} deviations behind the likeliest"


def test_no_temperature_is_the_likeliest(known):
    folder, logits = known
    assert sample(folder, "a", 20, "--temperature", "0") == LETTERS[int(np.argmax(logits))] * 20
    assert sample(folder, "a", 20, "--top-k", "1") == LETTERS[int(np.argmax(logits))] * 20


def test_another_seed_draws_another_text(known):
    texts = [sample(known[0], "a", 40, "--seed", str(seed)) for seed in (0, 1, 1 << 32, 1 << 52)]
    assert len(set(texts)) == 4 and texts[1] == sample(known[0], "a", 40, "--seed", "1")


# ------------------------------------------------------------------------------------------ a full context

CONTEXT = 16


@pytest.fixture(scope="module")
def attentive(tmp_path_factory):
    """A model that looks at all of its text, and at the places of it."""
    folder, rng = tmp_path_factory.mktemp("attentive"), np.random.default_rng(SEED)
    config = gpt2.Config(vocab=len(LETTERS), context=CONTEXT, width=16, layers=2, heads=2)
    weights = gpt2.draw(config, rng, embedding=0.3, scale=1.5)
    for name in weights:  # what is the same at all places would choose the same letter there
        if name.endswith("bias"):
            weights[name] *= np.float32(0.05)
    gpt2.save(folder, config, weights, tokenizer="chars", vocabulary=LETTERS)
    return folder, config, gpt2.in_double(weights)


def likeliest(config, weights, text, length):
    """The likeliest text of so many letters, and the least distance of a chosen letter's logit from the next one's. Where
    the context is full, its newest half stays."""
    kept, margin, out = [], math.inf, ""

    def add(token):
        nonlocal kept
        if len(kept) == config.context:
            kept = kept[-(config.context // 2):]
        kept.append(token)
    for c in text:
        add(LETTERS.index(c))
    for _ in range(length):
        # Padded behind, which a causal model does not see: of one length, it is compiled once.
        padded = np.array([kept + [0] * (config.context - len(kept))])
        scores = np.asarray(gpt2.jitted(weights, padded, config))[0, len(kept) - 1]
        second, first = np.argsort(scores)[-2:]
        margin = min(margin, scores[first] - scores[second])
        out += LETTERS[first]
        add(int(first))
    return out, margin


@pytest.mark.parametrize("device", ["ref", "cpu"])
@pytest.mark.parametrize("length", [1, CONTEXT - 1, CONTEXT, CONTEXT + 1, CONTEXT + 2, 2 * CONTEXT - 1, 2 * CONTEXT, 3 * CONTEXT + 5])
def test_a_full_context_keeps_its_newest_half(attentive, length, device):
    folder, config, weights = attentive
    rng = np.random.default_rng([SEED, length])
    prompt = "".join(rng.choice(list(LETTERS), length))
    want, margin = likeliest(config, weights, prompt, 2 * CONTEXT)
    assert margin > 1e-4 and len(set(want)) > 5, "a weak comparison: another seed"
    assert sample(folder, prompt, 2 * CONTEXT, "--temperature", "0", device=device) == want

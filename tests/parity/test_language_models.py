"""Language models of every architecture against Hugging Face's library: its folders load here as they are and ours there,
with equal logits, gradients and, from the likeliest token each time, texts."""
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

transformers = pytest.importorskip("transformers", minversion="5", reason="Hugging Face's transformers 5 is not there")
torch = pytest.importorskip("torch")

from support import language_models as lm  # noqa: E402

PROGRAM = Path(os.environ["COTAN_BUILD"]) / "tests/unit/test_language_models"
transformers.logging.set_verbosity_error()


def make(model):
    """What their library makes of a row of lm.MODELS."""
    kind, config, given = model
    return getattr(transformers, kind)(getattr(transformers, config)(**given, attn_implementation="eager")).eval().float()


def fill(model, folder):
    """Their folder, with weights by name in the place of random ones; the model that their library reads of it."""
    model.save_pretrained(folder)
    path = folder / "model.safetensors"
    shapes = {k: v.shape for k, v in lm.safetensors.read(path).items()}
    lm.safetensors.write(path, {k: lm.weight(k, s) for k, s in shapes.items()})
    return type(model).from_pretrained(folder, attn_implementation="eager").eval().float(), shapes


def run(mode, name, folder, tmp_path, *more, written=lm.WRITTEN, ids=lm.IDS):
    np.savez(tmp_path / "in.npz", ids=ids, **({"written": written} if name in lm.PAIRS else {}))
    done = subprocess.run([PROGRAM, mode, folder, tmp_path / "in.npz", tmp_path / "out.npz", *more], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(np.load(tmp_path / "out.npz"))


def logits_of(name, model):
    ids, written = (torch.tensor(x, dtype=torch.long) for x in (lm.IDS, lm.WRITTEN))
    return (model(input_ids=ids, decoder_input_ids=written) if name in lm.PAIRS else model(input_ids=ids)).logits


@pytest.fixture(scope="module", params=lm.MODELS)
def model(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, folder, *fill(make(lm.MODELS[request.param]), folder)


def test_logits_and_gradients(model, tmp_path):
    name, folder, theirs, shapes = model
    ids = torch.tensor(lm.WRITTEN if name in lm.PAIRS else lm.IDS, dtype=torch.long)
    want = logits_of(name, theirs)
    got = run("grads", name, folder, tmp_path)
    assert abs(want.detach().numpy() - got["logits"]).max() < 1e-4 * max(1, float(want.abs().max()))
    loss = torch.nn.functional.cross_entropy(want[:, :-1].reshape(-1, want.shape[-1]), ids[:, 1:].reshape(-1))
    if name == "rwkv":
        return  # whose gradients theirs cannot take: it writes over what they need
    loss.backward()
    assert abs(float(loss) - float(got["loss"])) < 1e-5
    theirs.gradients = {k: p.grad.numpy() for k, p in theirs.named_parameters() if p.grad is not None}
    norm = np.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for g in theirs.gradients.values()))
    ours = np.sqrt(sum(float((g.astype(np.float64) ** 2).sum()) for k, g in got.items() if k not in ("logits", "loss", "final_logits_bias")))
    assert abs(norm - ours) < 1e-4 * norm
    compared = 0
    for key, gradient in theirs.gradients.items():
        try:
            own = lm.ours(key, got)
        except KeyError:  # experts are laid out otherwise while their library computes
            continue
        compared += 1
        assert abs(gradient - own).max() < 1e-4 * max(1, abs(gradient).max()), key
    assert compared > len(theirs.gradients) / 2


def test_texts(model, tmp_path):
    name, folder, theirs, shapes = model
    if name in lm.ENCODERS:
        pytest.skip("an encoder writes no text")
    ids, begun = torch.tensor(lm.IDS[:1], dtype=torch.long), np.array([[theirs.config.decoder_start_token_id or 0]], np.int32) \
        if name in lm.PAIRS else None
    with torch.no_grad():
        want = theirs.generate(ids, max_new_tokens=64, do_sample=False, eos_token_id=None, pad_token_id=0)[0, -64:]
    got = run("write", name, folder, tmp_path, written=begun)["tokens"]
    assert got.tolist() == want.tolist()


def test_half_weights(model, tmp_path):
    """Weights of float16 in the file, computed in float32 on both sides: logits, and the likeliest text."""
    name, folder, theirs, shapes = model
    half = tmp_path / "half"
    type(theirs).from_pretrained(folder, attn_implementation="eager").half().save_pretrained(half)
    rounded = type(theirs).from_pretrained(half, attn_implementation="eager", dtype=torch.float32).eval()
    with torch.no_grad():
        want = logits_of(name, rounded)
    got = run("logits", name, half, tmp_path)["logits"]
    assert abs(want.numpy() - got).max() < 1e-4 * max(1, float(want.abs().max()))
    if name in lm.ENCODERS:
        return
    ids, begun = torch.tensor(lm.IDS[:1], dtype=torch.long), np.array([[theirs.config.decoder_start_token_id or 0]], np.int32) \
        if name in lm.PAIRS else None
    with torch.no_grad():
        text = rounded.generate(ids, max_new_tokens=64, do_sample=False, eos_token_id=None, pad_token_id=0)[0, -64:]
    assert run("write", name, half, tmp_path, written=begun)["tokens"].tolist() == text.tolist()


@pytest.mark.parametrize("beams", [2, 4])
def test_beams(model, beams, tmp_path):
    """The best of several texts, of which some end: by a token that the likeliest text has."""
    name, folder, theirs, shapes = model
    if name not in ("llama3", "gemma2", "deepseek_v3", "gpt2", "t5", "bart"):
        pytest.skip("one of each kind is enough")
    ids = torch.tensor(lm.IDS[:1], dtype=torch.long)
    options = dict(max_new_tokens=12, do_sample=False, pad_token_id=0, forced_eos_token_id=None)
    begun = 1 if name in lm.PAIRS else ids.shape[1]
    with torch.no_grad():
        free = theirs.generate(ids, num_beams=beams, eos_token_id=None, **options)[0, begun:].tolist()
        for end in {free[3], free[-2], 95}:
            want = theirs.generate(ids, num_beams=beams, eos_token_id=end, **options)[0, begun:].tolist()
            want = want[:want.index(end)] if end in want else want
            got = run(f"generateb{beams}{end}", name, folder, tmp_path)["tokens"].tolist()
            assert got == want, end
        late = theirs.generate(ids, num_beams=beams, eos_token_id=free[3], min_new_tokens=7, **options)[0, begun:].tolist()
        got = run(f"generateb{beams}{free[3]}m7", name, folder, tmp_path)["tokens"].tolist()
        assert got == (late[:late.index(free[3])] if free[3] in late else late) and free[3] not in got and len(got) >= 7


def test_a_saved_folder_loads_there(model, tmp_path):
    name, folder, theirs, shapes = model
    run("logits", name, folder, tmp_path, tmp_path / "saved")
    again = type(theirs).from_pretrained(tmp_path / "saved", attn_implementation="eager").eval().float()
    with torch.no_grad():
        assert torch.equal(logits_of(name, theirs), logits_of(name, again))


REPEATED = np.array([1, 2, 3, 2, 3, 4, 1, 2, 3], np.int32)


@pytest.mark.parametrize("options, theirs", [
    (dict(repetition=1.4), lambda p: p.RepetitionPenaltyLogitsProcessor(1.4)),
    (dict(temperature=0.6), lambda p: p.TemperatureLogitsWarper(0.6)),
    (dict(top_k=20), lambda p: p.TopKLogitsWarper(20)),
    (dict(top_p=0.7), lambda p: p.TopPLogitsWarper(0.7)),
    (dict(min_p=0.03), lambda p: p.MinPLogitsWarper(0.03)),
    (dict(typical=0.6), lambda p: p.TypicalLogitsWarper(0.6)),
    (dict(bias=[(3, 2.0), (5, -4.0)]), lambda p: p.SequenceBiasLogitsProcessor([[[3], 2.0], [[5], -4.0]])),
    (dict(banned=[7]), lambda p: p.NoBadWordsLogitsProcessor([[7]], eos_token_id=torch.tensor([299]))),
    (dict(text=REPEATED, no_repeat=1), lambda p: p.NoRepeatNGramLogitsProcessor(1)),
    (dict(text=REPEATED, no_repeat=3), lambda p: p.NoRepeatNGramLogitsProcessor(3)),
])
def test_scores_are_bent_as_theirs(options, theirs, tmp_path):
    from transformers.generation import logits_process
    want = theirs(logits_process)(torch.tensor(options.get("text", lm.TEXT)[None], dtype=torch.long), torch.tensor(lm.SCORES[None]))[0].numpy()
    got = lm.process([PROGRAM], tmp_path, **options)
    assert ((got == -np.inf) == (want == -np.inf)).all()
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_what_a_folder_says_of_writing(tmp_path):
    """Its generation_config.json, alone and all of it together: the server's text is that of their generate(), in each token."""
    from support.serving import Server, make_model
    folder = make_model(tmp_path / "small")
    ids = [40, 41, 42, 43, 44, 45, 41, 42]

    def want(**generation):
        (folder / "generation_config.json").write_text(json.dumps({"do_sample": False, "pad_token_id": 0} | generation))
        theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval().float()
        with torch.no_grad():
            return theirs.generate(torch.tensor([ids]), max_new_tokens=24)[0, len(ids):].tolist()

    def got():
        s = Server(folder)
        said = s.say("/v1/completions", prompt=ids, max_tokens=24)["choices"][0]
        assert s.stop() == 0 and not s.errors, s.errors
        return said["text"]
    plain = want(eos_token_id=299)
    ends = plain[5]
    texts = set()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    options = [dict(no_repeat_ngram_size=1), dict(min_new_tokens=9), dict(min_length=20), dict(suppress_tokens=[plain[1]]),
               dict(bad_words_ids=[plain[1:4], [ends]]), dict(sequence_bias=[[[plain[0]], -5.5], [[60], 1.5]])]
    for option in [{}, *options, {k: v for o in options for k, v in o.items()}]:
        tokens = want(eos_token_id=ends, **option)
        if tokens[-1] == ends:
            tokens.pop()
        text = tokenizer.decode(tokens)
        assert got() == text, option
        texts.add(text)
    assert len(texts) > len(options), (plain, texts)

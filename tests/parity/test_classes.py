"""Heads that tell classes of texts apart against Hugging Face's AutoModelForSequenceClassification: scores of texts and of two texts
that are read together (rerankers), as its tokenizer puts them, whole and cut."""
import numpy as np
import pytest

transformers = pytest.importorskip("transformers", minversion="5", reason="Hugging Face's transformers 5 is not there")
torch = pytest.importorskip("torch")
tokenizers = pytest.importorskip("tokenizers")

import cotan as ct  # noqa: E402
from support import language_models as lm  # noqa: E402
from support import safetensors  # noqa: E402

SIZES = lm.SIZES | dict(pad_token_id=1, max_position_embeddings=64)
FORMS = {  # of two texts; kinds of tokens stand behind the colons
    "bert": ("<s>:0 $A:0 </s>:0", "<s>:0 $A:0 </s>:0 $B:1 </s>:1"),
    "roberta": ("<s>:0 $A:0 </s>:0", "<s>:0 $A:0 </s>:0 </s>:0 $B:0 </s>:0"),
    "bare": (None, None),
}
# name: (class, its config's class, what that is given, form, its tokenizer says kinds)
MODELS = {
    "bert": ("BertForSequenceClassification", "BertConfig", SIZES, "bert"),
    "roberta": ("RobertaForSequenceClassification", "RobertaConfig", SIZES | dict(max_position_embeddings=66), "roberta"),
    "xlm-roberta": ("XLMRobertaForSequenceClassification", "XLMRobertaConfig", SIZES | dict(max_position_embeddings=66, type_vocab_size=1), "roberta"),
    "distilbert": ("DistilBertForSequenceClassification", "DistilBertConfig", dict(
        vocab_size=96, dim=32, hidden_dim=48, n_layers=2, n_heads=4, max_position_embeddings=64, pad_token_id=1), "bert"),
    "modernbert": ("ModernBertForSequenceClassification", "ModernBertConfig", SIZES | dict(
        bos_token_id=0, eos_token_id=2, cls_token_id=0, sep_token_id=2, local_attention=12, classifier_bias=True), "bert"),
    "modernbert mean": ("ModernBertForSequenceClassification", "ModernBertConfig", SIZES | dict(
        bos_token_id=0, eos_token_id=2, cls_token_id=0, sep_token_id=2, local_attention=12, classifier_pooling="mean", norm_bias=True), "bert"),
    "llama": ("LlamaForSequenceClassification", "LlamaConfig", SIZES | dict(num_key_value_heads=2), "bare"),
    "qwen3": ("Qwen3ForSequenceClassification", "Qwen3Config", SIZES | dict(num_key_value_heads=2, tie_word_embeddings=True), "bare"),
    "gpt2": ("GPT2ForSequenceClassification", "GPT2Config", dict(
        vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=64, pad_token_id=1), "bare"),
    "gpt_neox": ("GPTNeoXForSequenceClassification", "GPTNeoXConfig", SIZES, "bare"),
}
LETTERS = "<s> <pad> </s>".split() + [chr(i) for i in range(33, 126)]
TEXTS = ["a", "What_is_sought?", "An_answer:_it_is_this_one,_of_forty_letters"]
PAIRS = [("What?", "This."), ("a", "An_answer:_it_is_this_one."), ("What_is_sought,_and_where_is_it?", "b")]
LONG = [("What?", "0123456789" * 9), ("0123456789" * 9, "What?"), ("x" * 80, "y" * 79), ("z" * 31, "0123456789" * 9)]
transformers.logging.set_verbosity_error()


def tokenizer_of(folder, form):
    t = tokenizers.Tokenizer(tokenizers.models.BPE({letter: i for i, letter in enumerate(LETTERS)}, []))
    single, pair = FORMS[form]
    if single:
        t.post_processor = tokenizers.processors.TemplateProcessing(single=single, pair=pair, special_tokens=[("<s>", 0), ("</s>", 2)])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=t, pad_token="<pad>", eos_token="</s>", model_max_length=64)
    fast.save_pretrained(folder)
    return fast


@pytest.fixture(scope="module", params=[(name, labels) for name in MODELS for labels in (1, 3)], ids=str)
def model(request, tmp_path_factory):
    name, labels = request.param
    kind, config, given, form = MODELS[name]
    folder = tmp_path_factory.mktemp("model")
    made = getattr(transformers, kind)(getattr(transformers, config)(**given, num_labels=labels, attn_implementation="eager"))
    made.save_pretrained(folder)
    path = folder / "model.safetensors"
    safetensors.write(path, {k: lm.weight(k, v.shape) for k, v in safetensors.read(path).items()})
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(folder, attn_implementation="eager").eval().float()
    return folder, theirs, tokenizer_of(folder, form)


def want(theirs, tokenizer, texts, **options):
    """One at a time; kinds are given where the model has some."""
    out = []
    for text in texts:
        read = tokenizer(*(text if isinstance(text, tuple) else (text,)), return_tensors="pt", return_token_type_ids=True, **options)
        if getattr(theirs.config, "type_vocab_size", 1) < 2 or theirs.config.model_type == "distilbert":
            del read["token_type_ids"]
        with torch.no_grad():
            out.append(theirs(**read).logits[0].numpy())
    return np.stack(out)


def ours(folder, texts, **options):
    return ct.lm.load(folder).classify(texts, **options).numpy()


def test_scores(model):
    folder, theirs, tokenizer = model
    for texts in (TEXTS, PAIRS, TEXTS + PAIRS):
        expected = want(theirs, tokenizer, texts)
        got = ours(folder, texts)
        assert abs(got - expected).max() < 1e-4 * max(1, abs(expected).max())
    # What a text gives hangs on no other.
    assert (got[-1] == ours(folder, PAIRS[-1:])[0]).all()
    # The second text is seen, and which of the two it is.
    assert abs(got[-1] - ours(folder, [PAIRS[-1][::-1]])[0]).max() > 1e-3


def test_texts_that_are_cut(model):
    folder, theirs, tokenizer = model
    expected = want(theirs, tokenizer, LONG, truncation="longest_first", max_length=64)
    assert abs(ours(folder, LONG, truncate=True) - expected).max() < 1e-4 * max(1, abs(expected).max())


def test_probabilities(model, tmp_path):
    folder, theirs, tokenizer = model
    logits = torch.tensor(want(theirs, tokenizer, TEXTS))
    expected = torch.sigmoid(logits) if logits.shape[1] == 1 else torch.softmax(logits, 1)
    assert abs(ours(folder, TEXTS, probabilities=True) - expected.numpy()).max() < 1e-5

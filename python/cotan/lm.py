"""Published language models: loaded from their files, for generation, scoring, embeddings and training.

    m = cotan.lm.load("SmolLM2-135M-Instruct")           # a folder, a GGUF file, or ORG/NAME in the Hub's cache
    print(m.generate("The capital of France is", max_tokens=8))
    for chunk in m.generate([{"role": "user", "content": "Hello"}], stream=True):
        print(chunk, end="", flush=True)
"""
import json
import math
import os
import shutil
import threading
import warnings
from dataclasses import dataclass, field
from pathlib import Path

from . import _core
from ._core import Tensor, is_grad_enabled

__all__ = ["ChatTemplate", "Completion", "CompletionChunk", "Model", "Perplexity", "Tokenizer", "add_architecture", "load"]

TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json", "generation_config.json",
                   "chat_template.jinja", "chat_template.json", "added_tokens.json", "vocab.json", "vocab.txt", "merges.txt")
# Keys of generation_config.json that change what is generated and are not supported, each with the value that
# changes nothing.
UNSUPPORTED_GENERATION_KEYS = {
    "begin_suppress_tokens": None, "constraints": None, "dola_layers": None, "encoder_no_repeat_ngram_size": 0,
    "encoder_repetition_penalty": 1, "epsilon_cutoff": 0, "eta_cutoff": 0, "exponential_decay_length_penalty": None,
    "force_words_ids": None, "forced_bos_token_id": None, "forced_eos_token_id": None, "guidance_scale": 1, "num_beam_groups": 1,
    "num_beams": 1, "penalty_alpha": 0, "stop_strings": None, "token_healing": None, "top_h": None, "watermarking_config": None}


def _as_list(x):
    """Returns arrays and tensors as Python lists."""
    return x.tolist() if hasattr(x, "tolist") else x


# --------------------------------------------------------------------------------------------- text

class Tokenizer:
    """Encodes text as token ids and decodes them: loaded from a model's folder (tokenizer.json,
    tokenizer.model, *.tiktoken) or from such a file."""

    def __init__(self, path):
        self._handle = _core._tokenizer_load(os.fspath(path))
        self.path = os.fspath(path)
        self.vocab_size, special, self.eos_token_ids, self.all_special_ids = _core._tokenizer_about(self._handle)
        self.bos_token_id, self.eos_token_id, self.unk_token_id, self.pad_token_id = (i if i >= 0 else None for i in special)

    from_pretrained = classmethod(lambda cls, path: cls(path))

    def __len__(self):
        return self.vocab_size

    def encode(self, text, add_special_tokens=True, *, allow_special=True, return_offsets=False):
        """Returns the ids of a text. add_special_tokens: with the special tokens that the tokenizer adds
        around it; allow_special: special tokens written in the text are encoded as these tokens, otherwise as
        text; return_offsets: returns the ids and, for each, where its characters begin and end."""
        if not isinstance(text, str):
            raise TypeError(f"encode: the text must be a str, not {type(text).__name__}")
        ids, places = _core._tokenizer_encode(self._handle, text, add_special_tokens, not allow_special, return_offsets)
        return (ids, places) if return_offsets else ids

    def decode(self, ids, skip_special_tokens=False):
        """Returns the text of ids: one id, or a sequence."""
        ids = _as_list(ids)
        return _core._tokenizer_decode(self._handle, [ids] if isinstance(ids, int) else ids, skip_special_tokens)

    def batch_decode(self, batch, skip_special_tokens=False):
        return [self.decode(ids, skip_special_tokens) for ids in _as_list(batch)]

    def __call__(self, text, add_special_tokens=True):
        """Returns {"input_ids": ...} of a text or a list of texts."""
        texts = [text] if isinstance(text, str) else text
        ids = [self.encode(one, add_special_tokens) for one in texts]
        return {"input_ids": ids[0] if isinstance(text, str) else ids}

    def convert_ids_to_tokens(self, ids):
        """Returns tokens as in the tokenizer's file; None for ids that have none."""
        return _core._tokenizer_piece(self._handle, ids) if isinstance(ids, int) else [self.convert_ids_to_tokens(i) for i in _as_list(ids)]

    def convert_tokens_to_ids(self, tokens):
        if not isinstance(tokens, str):
            return [self.convert_tokens_to_ids(one) for one in tokens]
        result = _core._tokenizer_id(self._handle, tokens)
        return result if result >= 0 else self.unk_token_id

    def __repr__(self):
        return f"Tokenizer({self.path!r}, {self.vocab_size} tokens)"


class ChatTemplate:
    """Renders conversations as the text on which a model was trained: from its folder or a file, or from
    text=, the template itself."""

    def __init__(self, path=None, *, text=None):
        if (path is None) == (text is None):
            raise TypeError("ChatTemplate: it takes a path or text=, one of them")
        self._handle = _core._chat_new(text) if path is None else _core._chat_load(os.fspath(path))

    def render(self, messages, *, tools=None, add_generation_prompt=True, name=None, **variables):
        """Returns the text of messages ({"role": ..., "content": ...}); other variables of the template are
        keyword arguments."""
        variables["add_generation_prompt"] = add_generation_prompt
        return _core._chat_render(self._handle, json.dumps(messages), None if tools is None else json.dumps(tools),
                                  json.dumps(variables), name)

    __call__ = render


# ------------------------------------------------------------------------------------------------ results

@dataclass
class CompletionChunk:
    """The part of a generated text that one token adds."""
    text: str
    token_id: int
    logprob: float = None
    top_logprobs: dict = None  # the most likely tokens at its position
    index: int = 0  # the index of the prompt

    def __str__(self):
        return self.text


@dataclass
class Completion:
    """The text that a model generated after a prompt. finish_reason: "stop" or "length"; stop: the stop
    string that ended it, if one did."""
    text: str = ""
    token_ids: list = field(default_factory=list)
    finish_reason: str = None
    stop: str = None
    logprobs: list = None
    top_logprobs: list = None
    prompt_tokens: int = 0
    cached_tokens: int = 0

    def __str__(self):
        return self.text


@dataclass
class Perplexity:
    """The perplexity of a text, as lm-evaluation-harness counts it: for each word, byte and token."""
    log_likelihood: float
    tokens: int
    words: int
    bytes: int
    windows: int

    @property
    def token_perplexity(self):
        return math.exp(-self.log_likelihood / self.tokens)

    @property
    def word_perplexity(self):
        return math.exp(-self.log_likelihood / self.words)

    @property
    def byte_perplexity(self):
        return math.exp(-self.log_likelihood / self.bytes)

    @property
    def bits_per_byte(self):
        return -self.log_likelihood / self.bytes / math.log(2)


# ------------------------------------------------------------------------------------------------ models

def load(path, *, trainable=False, activations="int8", context=0, max_sequences=0, cache_memory=0):
    """Loads a published model: its folder, a GGUF file, or ORG/NAME that `cotan pull` downloaded. Weights
    stay in the file and keep its format; with trainable they are float32 tensors, which have gradients.
    Products with quantised weights take activations quantised to 8 bits ("int8"), or as they are ("f32"):
    that is slower, and gives the bits of a model with the dequantised float32 weights; with other weights
    activations are never quantised. For generate(): context is the maximum of tokens in a sequence (by
    default the model's, at most 8192), max_sequences the maximum of sequences that are generated at one time
    (32), cache_memory the bytes for keys and values."""
    return Model(path, trainable=trainable, activations=activations, context=context, max_sequences=max_sequences, cache_memory=cache_memory)


def add_architecture(row):
    """Defines an architecture until the process ends: a row of text as in src/models/architectures.c,
    "my_llama: like=llama act=relu2 mlp=ungated". A model whose config.json has this model_type is loaded with
    it."""
    _core._lm_architecture(row)


def _is_messages(x):
    return isinstance(x, (list, tuple)) and len(x) > 0 and all(isinstance(one, dict) for one in x)


def _is_ids(x):
    return isinstance(x, (list, tuple)) and len(x) > 0 and all(isinstance(one, int) for one in x)


class _GenerateCall:
    """The requests of one call of generate(); the events of each are in a list of its own."""

    def __init__(self, model, requests):
        self.model, self.event_lists, self.ids, self.n_read = model, [], [], {}
        try:
            for request in requests:
                self.event_lists.append([])
                self.ids.append(_core._engine_add(model._engine, request[0], self.event_lists[-1], *request[1:]))
                self.n_read[len(self.ids) - 1] = 0  # the number of events of its list that were read
        except BaseException:
            self.cancel()
            raise

    def cancel(self):
        for index in self.n_read:
            _core._engine_cancel(self.model._engine, self.ids[index])
        self.n_read = {}

    __del__ = cancel

    def events(self):
        """Yields (index, event) as events arrive. The last event of a request has None as its first item."""
        try:
            while self.n_read:
                for index, read in list(self.n_read.items()):
                    new = self.event_lists[index][read:]
                    self.n_read[index] = read + len(new)
                    for event in new:
                        if event[0] is None:
                            del self.n_read[index]
                        yield index, event
                if self.n_read:
                    with self.model._lock:  # another thread's step may have run our requests, too
                        if all(len(self.event_lists[i]) == read for i, read in self.n_read.items()):
                            _core._engine_step(self.model._engine)
        finally:
            self.cancel()


class Model:
    """A language model with its tokenizer and configuration. m(ids) returns logits."""

    def __init__(self, path, *, trainable=False, activations="int8", context=0, max_sequences=0, cache_memory=0):
        if activations not in ("int8", "f32"):
            raise ValueError(f'load: activations must be "int8" or "f32", not {activations!r}')
        path = os.fspath(path)
        self.path = path if os.path.exists(path) else _core._lm_find(path)
        self._handle = _core._lm_load(self.path, trainable, activations == "f32")
        (self.model_type, self.context_length, self.vocab_size, self.hidden_size, self.num_layers, self.is_generative, self._is_encoder_decoder,
         self._has_lm_head, labels, as_f32) = _core._lm_info(self._handle)
        self.activations = "f32" if as_f32 else "int8"  # the dtype in which products take them
        self.labels = [_core._lm_label(self._handle, i) for i in range(labels)]
        self.trainable = trainable
        self.tokenizer = self._load_part(Tokenizer)
        self.chat_template = self._load_part(ChatTemplate)
        self.generation_config = self._json("generation_config.json")
        self.config = self._json("config.json")
        unsupported = self._generation_constraints()[3]
        if unsupported and self.is_generative:
            warnings.warn(f"{self.path}: generation_config.json has keys that are not supported: {', '.join(unsupported)}; output "
                          "may differ from that of transformers", stacklevel=3)
        self._lock = threading.RLock()  # held by what runs in the model's own context
        self._engine, self._engine_options = None, (max_sequences, 0, context, cache_memory)
        # The Tensors of the variables; training needs them from the first logits on.
        self._parameters = dict(_core._lm_parameters(self._handle, True)) if trainable else None

    def _load_part(self, kind):
        try:
            return kind(self.path)
        except _core.FileError:  # there is no such file
            return None

    def _json(self, name):
        file = Path(self.path) / name
        return json.loads(file.read_text()) if file.is_file() else {}

    def _generation_constraints(self):
        """Returns what generation_config.json bans and biases (words, tokens, {token: number}), and its keys
        that are not supported."""
        def are_tokens(x):
            return isinstance(x, list) and bool(x) and all(isinstance(t, int) and 0 <= t < self.vocab_size for t in x)

        def parse_list(key, is_one):
            """Returns the items of the key's list that are valid, and whether all of them are."""
            result = defaults.get(key)
            good = [one for one in result if is_one(one)] if isinstance(result, list) else []
            return good, result is None or isinstance(result, list) and len(good) == len(result)
        defaults = self.generation_config
        words, words_ok = parse_list("bad_words_ids", are_tokens)
        unsupported = [] if words_ok else ["bad_words_ids"]
        suppressed = defaults.get("suppress_tokens")
        if not isinstance(suppressed, list | None):
            suppressed, unsupported = [], [*unsupported, "suppress_tokens"]
        biases, biases_ok = parse_list("sequence_bias", lambda one: isinstance(one, list) and len(one) == 2 and are_tokens(one[0])
                                       and len(one[0]) == 1 and isinstance(one[1], int | float))
        unsupported += [] if biases_ok else ["sequence_bias"]
        unsupported += [key for key, harmless in UNSUPPORTED_GENERATION_KEYS.items()
                       if (value := defaults.get(key)) is not None and value is not False and value != [] and value != harmless]
        ends = self.tokenizer.eos_token_ids if self.tokenizer else []
        words = [one for one in words if len(one) > 1 or one[0] not in ends] if words_ok else []
        return words, [[t] for t in suppressed or [] if are_tokens([t])], {tokens[0]: add for tokens, add in biases}, unsupported

    def __repr__(self):
        return f"Model({self.path!r}, {self.model_type}, {self.num_layers} layers of width {self.hidden_size})"

    # -------------------------------------------------------------------------------------------- tensors

    def _tokens(self, ids):
        """Returns ids as a batch, and whether they were a single sequence."""
        ids = ids if isinstance(ids, Tensor) else _core.asarray(_as_list(ids))
        if ids.dtype not in (_core.int32, _core.int64):
            raise TypeError(f"logits: ids must be whole numbers, not {ids.dtype}")
        one = len(ids.shape) == 1
        return _core.ops.cast(_core.ops.reshape(ids, (1, -1)) if one else ids, _core.int32), one

    def _record(self, function, *ids):
        tokens, one = zip(*(self._tokens(x) for x in ids))
        y = function(self._handle, *tokens)
        y = y if is_grad_enabled() else _core.ops.stop_gradient(y)
        return y[0] if one[0] else y

    def logits(self, ids, decoder_ids=None):
        """ids (batch, time) or (time,) -> (batch, time, vocab_size) or (time, vocab_size): logits of the
        token after each token. Encoder-decoder models (t5, bart) take both ids and decoder_ids."""
        if decoder_ids is not None:
            return self._record(_core._lm_pair_logits, ids, decoder_ids)
        if self._is_encoder_decoder:
            raise ValueError(f"logits: {self.model_type} is an encoder-decoder model; give decoder_ids, too")
        return self._record(_core._lm_logits, ids)

    __call__ = logits

    def hidden(self, ids):
        """Returns the last hidden states: (batch, time, hidden_size), after the last norm."""
        return self._record(_core._lm_hidden, ids)

    def named_parameters(self):
        """Yields pairs of a name, as in the file, and the tensor. The experts of a layer are one tensor, with
        # in its name."""
        if self._parameters is None:
            self._parameters = dict(_core._lm_parameters(self._handle, False))
        return self._parameters.items()

    def parameters(self):
        """Yields the tensors, for an optimizer."""
        return [value for _, value in self.named_parameters()]

    def state_dict(self):
        return dict(self.named_parameters())

    def zero_grad(self, set_to_none=True):
        for value in self.parameters():
            value.grad = None if set_to_none or value.grad is None else value.grad * 0

    def save(self, folder):
        """Writes config.json and model.safetensors, and copies the tokenizer's files: a folder that Hugging
        Face's library can load."""
        folder = os.fspath(folder)
        with self._lock:
            _core._lm_save(self._handle, folder)
        for name in TOKENIZER_FILES:
            source, target = Path(self.path) / name, Path(folder) / name
            if source.is_file() and not (target.exists() and target.samefile(source)):
                shutil.copyfile(source, target)

    save_pretrained = save

    # -------------------------------------------------------------------------------------------- text

    def _tokenizer(self, what):
        if self.tokenizer is None:
            raise ValueError(f"{what}: the model in {self.path} has no tokenizer; give token ids")
        return self.tokenizer

    def apply_chat_template(self, messages, *, tools=None, add_generation_prompt=True, **variables):
        """Returns the conversation rendered by the model's template, as text."""
        if self.chat_template is None:
            raise ValueError(f"apply_chat_template: the model in {self.path} has no chat template")
        return self.chat_template.render(messages, tools=tools, add_generation_prompt=add_generation_prompt, **variables)

    def _prompts(self, prompt, tools, add_special_tokens):
        """Returns the token ids of each prompt, and whether there was a single prompt."""
        prompt = _as_list(prompt)
        one = isinstance(prompt, str) or _is_messages(prompt) or _is_ids(prompt)
        if not one and not (isinstance(prompt, (list, tuple)) and prompt):
            raise TypeError("generate: the prompt must be a text, a list of messages, a list of token ids, or a list of such prompts")
        result = []
        for i, each in enumerate([prompt] if one else prompt):
            each = _as_list(each)
            if isinstance(each, str):
                result.append(self._tokenizer("generate").encode(each, add_special_tokens))
            elif _is_messages(each):
                result.append(self._tokenizer("generate").encode(self.apply_chat_template(each, tools=tools), False))
            elif _is_ids(each):
                result.append(list(each))
            else:
                raise TypeError(f"generate: prompt {i} is no text, no list of messages and no list of token ids")
        return result, one

    def generate(self, prompt, *, max_tokens=256, temperature=None, top_k=None, top_p=None, min_p=None, typical_p=None,
                 repetition_penalty=None, no_repeat_ngram_size=None, min_new_tokens=None, min_length=None, frequency_penalty=None,
                 presence_penalty=None, logit_bias=None, bad_words_ids=None, stop=(), stop_token_ids=None, seed=0, logprobs=None,
                 stream=False, tools=None, add_special_tokens=True, skip_special_tokens=True):
        """Continues a text or token ids, or answers a list of messages; a list of such prompts is generated
        as a batch. Returns a Completion, or a list of them; with stream, an iterator of
        CompletionChunks, as they are generated.

        Sampling follows generation_config.json unless arguments are given; temperature=0 always takes the
        most likely token. Prompt i of a batch is sampled with seed + i: equal arguments give equal texts,
        whatever else runs. max_tokens=None: as many as the context allows. stop: strings that end the text.
        logprobs: True for the log-probabilities of its tokens, a number for so many of the most likely tokens
        at each position. stop_token_ids: instead of the tokenizer's EOS tokens."""
        if self._is_encoder_decoder:
            raise ValueError(f"generate: {self.model_type} is an encoder-decoder model; logits(ids, decoder_ids) takes both")
        prompts, one = self._prompts(prompt, tools, add_special_tokens)
        if max_tokens is not None and (not isinstance(max_tokens, int) or max_tokens < 1):
            raise ValueError(f"generate: max_tokens must be 1 or more, not {max_tokens!r}")
        if not isinstance(seed, int) or not 0 <= seed < 2**63:
            raise ValueError(f"generate: seed must be a whole number from 0 to 2**63 - 1, not {seed!r}")
        if logprobs is not None and not (isinstance(logprobs, int) and 0 <= logprobs <= 128):
            raise ValueError(f"generate: logprobs must be True, or a number from 0 to 128, not {logprobs!r}")
        defaults = self.generation_config
        if temperature is None:
            temperature = 0 if defaults.get("do_sample") is False else defaults.get("temperature")
        options = [temperature, *(defaults.get(name) if value is None else value for name, value in (
            ("top_k", top_k), ("top_p", top_p), ("min_p", min_p), ("typical_p", typical_p), ("repetition_penalty", repetition_penalty),
            ("no_repeat_ngram_size", no_repeat_ngram_size), ("min_new_tokens", min_new_tokens), ("min_length", min_length))),
            frequency_penalty, presence_penalty]
        words, suppressed, biases, _ = self._generation_constraints()
        banned = [*(words if bad_words_ids is None else bad_words_ids), *suppressed]
        biases = list((biases | (logit_bias or {})).items())
        if stop_token_ids is None:
            stop_token_ids = self.tokenizer.eos_token_ids if self.tokenizer else []
        stops = [stop] if isinstance(stop, str) else list(stop or ())
        n_top = 0 if isinstance(logprobs, bool) else logprobs or 0
        with self._lock:
            if self._engine is None:
                handle = self.tokenizer and self.tokenizer._handle
                self._engine = _core._engine_new(self._handle, handle, *self._engine_options)
        want_logprobs = bool(logprobs)
        run = _GenerateCall(self, [
            (ids, max_tokens or 0, stop_token_ids, stops, (*options, seed + i), biases, banned,
             n_top, want_logprobs, not skip_special_tokens)
            for i, ids in enumerate(prompts)])
        if stream:
            return self._stream(run, want_logprobs, n_top)
        done = self._collect(run, want_logprobs, n_top)
        return done[0] if one else done

    @staticmethod
    def _make_chunk(index, event, want_logprobs, n_top):
        token, logprob, top, text = event
        return CompletionChunk(text, token, logprob if want_logprobs else None, top if n_top else None, index)

    @staticmethod
    def _check_finish_reason(end, why):
        if end == 3:
            raise RuntimeError(why)

    def _stream(self, run, want_logprobs, n_top):
        for index, event in run.events():
            if event[0] is not None:
                yield self._make_chunk(index, event, want_logprobs, n_top)
                continue
            _, end, why, _, text, *_ = event
            self._check_finish_reason(end, why)
            if text:  # text that was held back, since it might have begun a stop string
                yield CompletionChunk(text, None, index=index)

    def _collect(self, run, want_logprobs, n_top):
        done = [Completion(logprobs=[] if want_logprobs else None, top_logprobs=[] if n_top else None) for _ in run.ids]
        for index, event in run.events():
            to = done[index]
            if event[0] is not None:
                chunk = self._make_chunk(index, event, want_logprobs, n_top)
                to.text += chunk.text
                to.token_ids.append(chunk.token_id)
                if want_logprobs:
                    to.logprobs.append(chunk.logprob)
                if n_top:
                    to.top_logprobs.append(chunk.top_logprobs)
                continue
            _, end, why, to.stop, text, to.prompt_tokens, to.cached_tokens, _ = event
            self._check_finish_reason(end, why)
            to.text += text
            to.finish_reason = ("stop", "length", "cancelled")[end]
        return done

    def embed(self, texts, *, pooling=None, normalize=None, truncate=False, batch_tokens=0):
        """Returns vectors (n, hidden_size) of n texts, or (hidden_size,) of one. pooling: "mean", "cls",
        "last", "max", "sqrt" or "weighted"; by default pooling and normalize are those of the folder
        (modules.json), or else the mean for an encoder and the last token for a decoder, normalized to length
        1. truncate: cuts a text that is too long; otherwise it is an error."""
        names = ("mean", "cls", "last", "max", "sqrt", "weighted")
        if pooling is not None and pooling not in names:
            raise ValueError(f"embed: pooling is one of {', '.join(names)}, not {pooling!r}")
        one = isinstance(texts, str)
        texts = [texts] if one else list(texts)
        for text in texts:
            if not isinstance(text, str):
                raise TypeError(f"embed: texts must be str, not {type(text).__name__}")
        by, normalised, most = _core._lm_embedding(self._handle, self.path)
        by = by if pooling is None else 1 + names.index(pooling)
        normalised = normalised if normalize is None else bool(normalize)
        with self._lock:
            vectors = _core._lm_embed(self._handle, self._tokenizer("embed")._handle, texts, by, normalised, most, truncate, batch_tokens)
        return vectors[0] if one else vectors

    def classify(self, texts, *, probabilities=False, truncate=False, batch_tokens=0):
        """Returns for a classification model (...ForSequenceClassification; `labels` has the names of its
        classes) the scores (n, labels) of n texts, or (labels,) of one; a text may be a tuple of two that are
        encoded together, such as a question and an answer. probabilities: after a softmax; or, if labels do
        not exclude each other or there is only one, after a sigmoid of each."""
        one = isinstance(texts, (str, tuple))
        texts = [texts] if one else list(texts)
        for text in texts:
            if not (isinstance(text, str) or isinstance(text, tuple) and len(text) == 2 and all(isinstance(part, str) for part in text)):
                raise TypeError(f"classify: texts must be str, or tuples of two, not {text!r:.60}")
        with self._lock:
            scores = _core._lm_classify(self._handle, self._tokenizer("classify")._handle, texts, truncate, probabilities, batch_tokens)
        return scores[0] if one else scores

    # ----------------------------------------------------------------------------------- evaluation

    def loglikelihood(self, pairs, *, context=0, batch_tokens=0):
        """Returns for each pair (prompt, continuation) of texts or of token ids the natural logarithm of the
        continuation's probability, and whether each of its tokens is the most likely one."""
        pairs = [tuple(pair) for pair in pairs]
        for i, pair in enumerate(pairs):
            if len(pair) != 2 or isinstance(pair[0], str) != isinstance(pair[1], str):
                raise TypeError(f"loglikelihood: pair {i} must be two texts or two lists of token ids")
        texts = [isinstance(given, str) for given, _ in pairs]
        if any(texts) and not all(texts):
            raise TypeError("loglikelihood: pairs must all be texts or all be token ids")
        with self._lock:
            if any(texts):
                return _core._lm_log_likelihood(self._handle, self._tokenizer("loglikelihood")._handle, pairs, context, batch_tokens)
            ids = [([*_as_list(given), *_as_list(rest)], len(rest)) for given, rest in pairs]
            return _core._lm_score(self._handle, ids, context, batch_tokens)

    def perplexity(self, text, *, context=0, stride=0, batch_tokens=0):
        """Returns the perplexity of a text, in windows of `context` tokens, each of which predicts at most
        `stride` tokens: each token is predicted once."""
        if not isinstance(text, str):
            raise TypeError(f"perplexity: the text must be a str, not {type(text).__name__}")
        with self._lock:
            return Perplexity(*_core._lm_perplexity(self._handle, self._tokenizer("perplexity")._handle, text, context, stride,
                                                    batch_tokens))

    def multiple_choice(self, path, *, context=0, limit=0, batch_tokens=0):
        """Evaluates a file of multiple-choice questions, as `cotan eval --task` reads it: returns a dict of
        acc, acc_norm (by characters), acc_bytes and the standard error of each."""
        names = ("questions", "acc", "acc_stderr", "acc_norm", "acc_norm_stderr", "acc_bytes", "acc_bytes_stderr")
        with self._lock:
            return dict(zip(names, _core._lm_choices(self._handle, self._tokenizer("multiple_choice")._handle, os.fspath(path), context,
                                                     limit, batch_tokens)))

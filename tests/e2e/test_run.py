"""cotan run: a small model with a tokenizer of its own goes on with a text, and answers by its chat template."""
import json
import os
import pty
import re
import select
import shutil
import subprocess
import time

import numpy as np
import pytest
from support import language_models as lm
from support.program import command
from support.serving import make_parrot

COTAN = command("cotan")
TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")

TURN = "<system>{}</system><user>{}</user><assistant>"


def cotan(*args, stdin="", fails=0):
    done = subprocess.run([*COTAN, *map(str, args)], input=stdin, capture_output=True, text=True, env=os.environ | {"COTAN_CC": "none"})
    assert done.returncode == fails, done.stderr
    return done.stdout if not fails else done.stderr


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 50)
    cotan("tokenize", folder / "text.txt", "--train", "bpe:300", "--out", folder / "model")
    recorded = np.load(lm.RECORDED)
    config, shapes = (json.loads(str(recorded[f"llama2.{what}"])) for what in ("config", "shapes"))
    config |= {"vocab_size": 300, "eos_token_id": 0}
    shapes = {k: [300, *s[1:]] if k in ("model.embed_tokens.weight", "lm_head.weight") else s for k, s in shapes.items()}
    lm.save(folder / "model", config, shapes)
    return folder / "model"


def test_it_goes_on_with_a_text(model):
    said = cotan("run", model, "--prompt", "the quick", "--max-tokens", 12, "--temperature", 0)
    assert said.startswith("the quick") and said.endswith("\n")
    assert said == cotan("run", model, "--max-tokens", 12, "--temperature", 0, stdin="the quick")
    drawn = [cotan("run", model, "--prompt", "the", "--max-tokens", 12, "--seed", seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_it_answers_by_its_template(model):
    (model / "chat_template.jinja").write_text(TEMPLATE)
    try:
        said = cotan("run", model, "--prompt", "fox", "--system", "dog", "--max-tokens", 8, "--temperature", 0)
        raw = cotan("run", model, "--raw", "--max-tokens", 8, "--temperature", 0,
                    "--prompt", "<system>dog</system><user>fox</user><assistant>")
        assert raw == "<system>dog</system><user>fox</user><assistant>" + said
        (model / "chat_template.jinja").write_text("{% if %}")
        assert "chat_template.jinja" in cotan("run", model, "--prompt", "fox", fails=1)
    finally:
        (model / "chat_template.jinja").unlink()


class Terminal:
    """What a person sees and types."""

    def __init__(self, *args):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ |= {"COTAN_CC": "none", "TERM": "dumb"}
            os.execvp(COTAN[0], [*COTAN, *map(str, args)])
        self.seen = ""

    def until(self, end):
        """What appeared before `end`, which did too."""
        deadline = time.monotonic() + 60
        while end not in self.seen:
            assert select.select([self.fd], [], [], deadline - time.monotonic())[0], self.seen
            self.seen += os.read(self.fd, 4096).decode()
        before, self.seen = self.seen.split(end, 1)
        return before.replace("\r", "")

    def type(self, text):
        os.write(self.fd, text.encode())

    def ask(self, line):
        self.type(line + "\n")
        self.until(line.splitlines()[-1] + "\r\n")  # the terminal shows what is typed
        self.seen = "\r\n" + self.seen
        return self.until("\r\n> ").strip()

    def end(self):
        try:
            while os.read(self.fd, 4096):
                pass
        except OSError:
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


@pytest.fixture
def chatting(model):
    (model / "chat_template.jinja").write_text(TEMPLATE)
    yield model
    (model / "chat_template.jinja").unlink()


def test_a_conversation(chatting):
    """Turns share what was read before; commands change what comes next; one that fails ends nothing."""
    t = Terminal("chat", chatting, "--max-tokens", 8, "--temperature", 0, "--verbose", "--system", "dog")
    t.until("> ")
    first = t.ask("fox")
    assert re.search(r"\[\d+ prompt tokens, 0 of them cached; first token after .* s; \d+ generated", first)
    assert re.search(r"\[\d+ prompt tokens, [1-9]\d* of them cached", t.ask("the lazy dog"))
    assert t.ask("/set temperature") == "temperature is a number from 0 to 1000"
    assert t.ask("/set warmth 1").startswith("/set takes one of temperature, top-k,")
    assert t.ask("/nothing").startswith("there is no /nothing\n  /clear")
    assert t.ask("/set max-tokens 3") == t.ask("/clear") == ""
    assert "; 3 generated" in t.ask("fox") and "; 3 generated" in t.ask("/again")
    n = len(cotan("tokenize", chatting, "--ids", "--text", TURN.format("dog", "the quick " * 100)).split())
    assert t.ask("/clear") == ""
    assert t.ask("the quick " * 100) == (f"cotan: run: the conversation would have {n} tokens, and the context has a capacity of 127\n"
                                         "  hint: /clear removes all messages")
    assert t.ask('"""the quick\nbrown"""').split("[")[0] != ""
    t.type("/bye\n")
    assert t.end() == 0


def test_a_context_that_is_full(chatting):
    """Whoever talks is told what to do, whether the answer or the question was too long, and what is said then is answered."""
    t = Terminal("chat", chatting, "--max-tokens", 1000, "--temperature", 0, "--context", 64, "--repetition-penalty", 3)
    t.until("> ")
    hint = "  hint: /clear removes all messages; --context can be up to 128 tokens"
    assert t.ask("fox").endswith(f"\ncotan: run: the answer ends here, for the context of 64 tokens is full\n{hint}")
    assert re.fullmatch(r"cotan: run: the conversation would have \d+ tokens, and the context has a capacity of 63\n" + re.escape(hint),
                        t.ask("dog"))
    assert t.ask("/set max-tokens 3") == t.ask("/clear") == ""
    assert "cotan" not in t.ask("dog")
    t.type("/bye\n")
    assert t.end() == 0


def test_what_it_thinks(tmp_path):
    """It is seen on a terminal, above the answer, and is no part of that."""
    parrot = make_parrot(tmp_path / "parrot")
    assert cotan("run", parrot, "--prompt", "What does it do?") == "The fox `jumps`.\n"
    t = Terminal("chat", parrot, "--verbose")
    t.until("> ")
    assert t.ask("What?").split("\n[")[0] == "Let me see.\n\nThe fox `jumps`."
    # The next prompt has what was answered, not what was thought: <user>What?<assistant>The fox `jumps`.<user>And?<assistant>
    asked = "<user>What?<assistant>The fox `jumps`.<user>And?<assistant>"
    n = len(cotan("tokenize", parrot, "--ids", "--text", asked).split())
    assert f"[{n} prompt tokens, " in t.ask("And?")
    t.type("/bye\n")
    assert t.end() == 0


def test_where_it_ends(tmp_path):
    """What ends a text is said by generation_config.json, as a number or a list, else by config.json, beside the tokenizer's own."""
    parrot = make_parrot(tmp_path / "parrot")
    ids = {t["content"]: t["id"] for t in json.loads((parrot / "tokenizer.json").read_text())["added_tokens"]}
    config = json.loads((parrot / "config.json").read_text())

    def says(end=None, **generation):
        (parrot / "config.json").write_text(json.dumps(config | ({"eos_token_id": end} if end else {})))
        (parrot / "generation_config.json").write_text(json.dumps(generation))
        return cotan("run", parrot, "--raw", "--prompt", "<plain>", "--temperature", "0", "--max-tokens", "9").rstrip("\n")
    assert says() == "<plain>Straight on."
    assert says(eos_token_id=ids["on."]) == says(eos_token_id=[0, ids["on."]]) == says(end=ids["on."]) == "<plain>Straight "
    assert says(end=ids["on."], eos_token_id=[0]) == "<plain>Straight on."


def test_interrupted(chatting):
    """Ctrl-C ends an answer, and where none is written the conversation."""
    t = Terminal("run", chatting, "--max-tokens", 100000, "--context", 128)
    t.until("> ")
    t.type("\x03")
    assert t.end() == 130


def test_a_stop_string_is_not_shown(model):
    said = cotan("run", model, "--prompt", "the quick", "--max-tokens", 12, "--temperature", 0)
    stop = said.rstrip("\n")[len("the quick") + 3:][:2]
    cut = cotan("run", model, "--prompt", "the quick", "--max-tokens", 12, "--temperature", 0, "--stop", stop)
    assert cut == said[:said.index(stop, len("the quick"))] + "\n"


def test_a_vocabulary_that_does_not_fit(model, tmp_path):
    """Special tokens may stand behind what the weights know; a text with one, and any other such token, is refused."""
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    extra = dict(id=300, content="<image>", single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    for special in (True, False):
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer | {
            "added_tokens": [*tokenizer["added_tokens"], extra | {"special": special}]}))
        if special:
            assert cotan("run", folder, "--prompt", "fox", "--max-tokens", 2, "--temperature", 0).startswith("fox")
            said = cotan("run", folder, "--prompt", "<image>", fails=1)
            assert said == "cotan: engine_add: token 0 of the prompt is 300, it must be 0 to 299\n"
        else:
            said = cotan("run", folder, "--prompt", "fox", fails=1)
            assert said == f"cotan: pretrained_load: the tokenizer of {folder} has 301 tokens, its weights know 300\n"


def test_long_factors_are_asked_for(tmp_path):
    """Texts within the context from before it was stretched are written with short factors, unless there shall be room for longer ones."""
    recorded, folder = np.load(lm.RECORDED), tmp_path / "model"
    config, shapes = (json.loads(str(recorded[f"phi3_long.{what}"])) for what in ("config", "shapes"))
    lm.save(folder, config | {"eos_token_id": None}, shapes)
    lm.save_tokenizer(folder)
    usual, short, long = (cotan("run", folder, "--raw", "--prompt", "hello wo", "--temperature", 0, "--max-tokens", 10, *more)
                          for more in ((), ("--context", 24), ("--context", 25)))
    assert usual == short != long
    said = cotan("run", folder, "--raw", "--prompt", "hello " * 5, fails=1)
    assert said == ("cotan: engine_add: the prompt has 30 tokens; it must have 1 to 23, one less than the context\n"
                    "  hint: the model scales its positions beyond 24 tokens; a larger context than that must be requested\n")


def test_what_is_no_model(model, tmp_path):
    for name in (tmp_path / "nothing", "nothing.gguf", "./a/b", "org/x.gguf"):
        assert cotan("run", name, fails=1) == (f"cotan: pretrained_load: {name}: there is no such file or folder\n"
                                               "  hint: a model is a folder, a GGUF file, or ORG/NAME that cotan pull "
                                               "downloaded\n")
    assert "revision main is not in the cache" in cotan("run", "org/nothing", fails=1)
    assert "temperature" in cotan("run", model, "--temperature", -1, fails=2)
    (model / "config.json").rename(model / "config.away")
    try:
        assert "config.json" in cotan("run", model, "--prompt", "fox", fails=1)
    finally:
        (model / "config.away").rename(model / "config.json")


def test_what_generation_config_says(tmp_path):
    """Bans, biases and lengths are followed; of what is not, a sentence tells at the load."""
    parrot = make_parrot(tmp_path / "parrot")
    ids = {t["content"]: t["id"] for t in json.loads((parrot / "tokenizer.json").read_text())["added_tokens"]}
    straight, on, look = ids["Straight "], ids["on."], ids["I look. "]
    neutral = dict(suppress_tokens=[], bad_words_ids=None, num_beams=1, no_repeat_ngram_size=0, min_length=0, forced_eos_token_id=None,
                   encoder_repetition_penalty=1.0, token_healing=False, begin_suppress_tokens=[])

    def says(prompt="<plain>", **generation):
        (parrot / "generation_config.json").write_text(json.dumps(generation))
        done = subprocess.run([*COTAN, "run", parrot, "--raw", "--prompt", prompt, "--temperature", "0", "--max-tokens", "3"], capture_output=True,
                              text=True, env=os.environ | {"COTAN_CC": "none"})
        assert done.returncode == 0, done.stderr
        return done.stdout.rstrip("\n")[len(prompt):], done.stderr
    assert says(**neutral) == ("Straight on.", "")
    assert "Straight" not in says(suppress_tokens=[-1, straight, 10**6])[0]
    assert says(bad_words_ids=[[straight, on]])[0].startswith("Straight ") and "on." not in says(bad_words_ids=[[straight, on]])[0]
    assert says(bad_words_ids=[[0]], eos_token_id=0) == ("Straight on.", "")  # an end is not banned by it
    assert says(sequence_bias=[[[look], 100.0]]) == ("I look. I look. I look. ", "")
    assert says(sequence_bias=[[[look], 100.0]], no_repeat_ngram_size=2)[0].count("I look. ") == 2
    n = len(cotan("tokenize", parrot, "--ids", "--text", "<plain>").split())
    for least in (dict(min_new_tokens=3), dict(min_length=n + 3)):
        longer, said = says(**least)
        assert longer.startswith("Straight on.") and longer != "Straight on." and not said, least
    assert says(min_new_tokens=2) == says(min_length=n + 2) == ("Straight on.", "")
    assert says(num_beams=4, forced_eos_token_id=[2], stop_strings=["x"], sequence_bias=[[[1, 2], -1.0]], bad_words_ids=[["x"]]) == (
        "Straight on.", f"cotan: {parrot}: warning: generation_config.json has keys that are not supported: bad_words_ids, sequence_bias, "
        "forced_eos_token_id, num_beams, stop_strings; output may differ from that of transformers\n")
    for wrong in ("x", 3, {"a": 1}, [[]], [[[]]], [["x"]], [[[1], "x"]], [[[-1], 2.0]], [[[336], 2.0]]):
        said = says(bad_words_ids=wrong, sequence_bias=wrong)
        assert said == ("Straight on.", f"cotan: {parrot}: warning: generation_config.json has keys that are not supported: bad_words_ids, "
                        "sequence_bias; output may differ from that of transformers\n"), wrong
    assert "not supported: suppress_tokens;" in says(suppress_tokens="x")[1] and not says(suppress_tokens=[None, 2.5, "x", 336])[1]


def test_activations(model, tmp_path):
    """f32 is as a model of the numbers that quantised weights stand for, wherever it may be asked for; of other weights it changes nothing."""
    packed, plain = tmp_path / "packed", tmp_path / "plain"
    lm.save_quantised(model, packed, plain)
    (tmp_path / "text.txt").write_text("the quick brown fox jumps over the lazy dog. " * 4)
    calls = {"run": ("--prompt", "the quick", "--max-tokens", 12, "--temperature", 0), "chat": ("--prompt", "fox", "--max-tokens", 12, "--temperature", 0),
             "eval": ("--perplexity", tmp_path / "text.txt", "--json"), "embed": ("the quick", "brown fox")}
    for name, words in calls.items():
        said = {(folder, more): cotan(name, folder, *words, *more).replace(str(folder), "MODEL")
                for folder, more in [(packed, ()), (packed, ("--activations", "int8")), (packed, ("--activations", "f32")), (plain, ()),
                                     (plain, ("--activations", "f32"))]}
        usual, int8, f32, numbers, same = said.values()
        assert usual == int8 and f32 == numbers == same
        assert usual != f32 or name in ("run", "chat")
    for name in (*calls, "serve", "pack"):
        assert cotan(name, packed, "--activations", "f16", fails=2) == (
            f'cotan: {"run" if name == "chat" else name}: --activations is int8 or f32, not "f16"\n')

"""What the program says to what it cannot do: whole messages and exit statuses."""
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COTAN = Path(os.environ.get("COTAN_BUILD", ROOT / "build")) / "cotan"


def cotan(*words, env=None):
    return subprocess.run([str(COTAN), *map(str, words)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, env=os.environ | (env or {}), timeout=120)


def test_usage_ends_with_what_is_taken():
    for words, usage in ((["doctor"], "usage: cotan doctor"), (["info"], "usage: cotan info FILE|DIR...")):
        done = cotan("help", *words)
        assert done.returncode == 0 and done.stdout.splitlines()[0] == usage


def refused(status, message, *words, env=None):
    done = cotan(*words, env=env)
    assert (done.returncode, done.stderr, done.stdout) == (status, f"cotan: {message}\n", "")


@pytest.mark.parametrize("words, message", [
    (["inof"], 'there is no command "inof"; is info meant?'),
    (["quantize"], 'there is no command "quantize"; cotan help lists them'),
    (["reconstruct"], 'there is no command "reconstruct"; cotan help lists them'),
    (["x\x1b[2J"], 'there is no command "x?[2J"; cotan help lists them'),
    (["help", "inof"], 'there is no command "inof"; is info meant?'),
    (["help", "info", "info"], "help: one command is wanted: cotan help train"),
    (["version", "x"], "version: it takes no options"),
    (["info"], "info: it needs a FILE or DIR: cotan info FILE|DIR..."),
    (["info", "a", ""], "info: it needs a FILE or DIR: cotan info FILE|DIR..."),
    (["train"], "train: --data is missing: files, folders or patterns of text"),
    (["plan"], "plan: --data is missing: files, folders or patterns of text"),
    (["train", "README.md"], 'train: "README.md" is not an option; options begin with --'),
    (["sample"], "sample: it needs a DIR: cotan sample DIR [options]"),
    (["sample", "run", "--promt", "x"], "sample: there is no option --promt; is --prompt meant?"),
    (["sample", "run", "--top-k", "0"], "sample: --top-k must be from 1 to 1000000000, not 0"),
    (["sample", "run", "--temperature", "-1"],
     "sample: --temperature must be from 0 to 1000, not -1"),
    (["sample", "run", "--max-tokens", "many"], 'sample: --max-tokens takes a whole number, not "many"'),
    (["sample", "run", "--device", "rev"],
     'sample: --device is cpu, ref or opencl, not "rev"; is ref meant?'),
    (["compile"], "compile: it needs a DIR: cotan compile DIR --out PATH [options]"),
    (["compile", "run"], "compile: --out is missing: the path of the files, without .c"),
    (["compile", "run", "--function", "tokn"],
     'compile: --function is token, window or step, not "tokn"; is token meant?'),
    (["compile", "run", "--out", "step", "--function", "step", "--embed-weights"],
     "compile: --embed-weights is not allowed for a training step, which changes the weights"),
    (["compile", "run", "--out", "step", "--batch", "0"], "compile: --batch must be from 1 to 1000000000, not 0"),
    (["compile", "run", "--out="], "compile: --out needs a value: PATH"),
    (["train", "--data", "README.md", "--overwrite"], "train: --overwrite needs --out"),
    (["train", "--data", "README.md", "--min-delta", "0.1"], "train: --min-delta needs --patience"),
    (["train", "--resume", "run", "--overwrite"], "train: --overwrite is not allowed with --resume, which continues in its folder"),
    (["train", "--data", "README.md", "--out="], "train: --out needs a value: DIR"),
    (["train", "--data", "README.md", "--out", ""], "train: --out needs a value: DIR"),
    (["train", "--resume="], "train: --resume needs a value: DIR"),
    (["train", "--data="], "train: --data needs a value: PATH..."),
    (["sample", ""], "sample: it needs a DIR: cotan sample DIR [options]"),
    (["explain", "a", "b"], 'explain: one CODE is wanted, not both "a" and "b"'),
    (["info", "--hlp"], "info: there is no option --hlp; is --help meant?"),
    (["info", "--completely-else"],
     "info: there is no option --completely-else; cotan info --help lists them"),
])
def test_words(words, message):
    refused(2, message, *words)


def test_the_help_names_every_variable():
    names = set(re.findall(r'"(COTAN_[A-Z0-9_]+)"', "".join(p.read_text() for p in (ROOT / "src").rglob("*.c"))))
    assert len(names) > 8
    told = cotan("help").stdout
    assert [name for name in sorted(names - {"COTAN_VERIFY"}) if name not in told] == []  # which is for tests


def test_no_words():
    done = cotan()
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("Cotan: deep learning in C.\n")


def test_info_of_what_is_not_there(tmp_path):
    path = tmp_path / "none.txt"
    refused(1, f"{path}: cannot open: No such file or directory", "info", path)


def test_info_of_one_after_the_other(tmp_path):
    """What is wrong with one keeps none of the others from being told."""
    texts = [tmp_path / name for name in ("a.txt", "none.txt", "b.txt", "away.txt")]
    for path in texts[::2]:
        path.write_text("ab\n")
    done = cotan("info", *texts)
    told = "text: 3 bytes, 3 characters, 1 lines\nvocabulary as characters: 3: \\nab\n"
    assert done.stdout == f"{texts[0]}:\n{told}\n{texts[1]}:\n\n{texts[2]}:\n{told}\n{texts[3]}:\n"
    assert done.stderr == "".join(f"cotan: {path}: cannot open: No such file or directory\n" for path in texts[1::2])
    assert done.returncode == 1
    assert cotan("info", texts[0]).stdout == told


def test_info_of_an_empty_file(tmp_path):
    path = tmp_path / "empty.txt"
    path.write_bytes(b"")
    refused(1, f"{path}: the file is empty", "info", path)


def test_info_of_a_truncated_checkpoint(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    refused(1, f"{path}: safetensors: the header takes 16 bytes by its length, but only 2 follow: the "
            "file is cut short",
            "info", path)


@pytest.mark.parametrize("words, message", [
    (["--lyers", 3], "there is no option --lyers; is --layers meant?"),
    (["--lyers=3"], "there is no option --lyers; is --layers meant?"),
    (["-x"], "there is no option -x; cotan {command} --help lists them"),
    (["--layers"], "--layers needs a value: N"),
    (["--layers", "--heads", 2], "--layers needs a value: N"),
    (["--layers", 0], "--layers must be from 1 to 1000, not 0"),
    (["--layers", 3.5], '--layers takes a whole number, not "3.5"'),
    (["--lr", "fast"], '--lr takes a number, not "fast"'),
    (["--lr", "nan"], '--lr takes a number, not "nan"'),
    (["--dropout", 1.5], "--dropout must be from 0 to 0.99, not 1.5"),
    (["--tokenizer", "char"], '--tokenizer is bytes, chars, bpe:8192 (or another number) or the path of a tokenizer, not "char"; is chars meant?'),
    (["--steps", 10, "--steps", 20], "--steps is given twice, as 10 and as 20"),
    (["--data", "docs"], f"--data is given twice, as {ROOT / 'README.md'} and as docs: one takes several"),
    (["--no-bias=1"], "--no-bias takes no value"),
    (["--width", 100, "--heads", 3], "--width 100 is not a multiple of --heads 3"),
    (["--lr", 0.01, "--min-lr", 0.1], "--min-lr 0.1 is above --lr 0.01"),
    (["--warmup", 100, "--steps", 50], "--warmup 100 is not below --steps 50"),
])
@pytest.mark.parametrize("command", ["train", "plan"])
def test_options_of_train(tmp_path, command, words, message):
    out = tmp_path / "out"
    refused(2, f"{command}: {message.format(command=command)}", command, "--data", ROOT / "README.md",
            *(["--out", out] if command == "train" else []), *words)
    assert not out.exists()


@pytest.mark.parametrize("value", ["abc", "-3", "0", "1e9", "257", "1000000000000", "2 ", "0x2"])
def test_threads_of_the_environment(tmp_path, run, value):
    message = f'cpu: COTAN_THREADS is "{value}", not a whole number from 1 to 256'
    env = {"COTAN_THREADS": value, "COTAN_DEVICE": "cpu"}
    words = ["train", "--data", ROOT / "README.md", "--out", tmp_path / "out"]
    refused(2, message, *words, env=env)
    assert not (tmp_path / "out").exists()
    refused(2, message, "sample", run, env=env)
    # What --threads says stands before it; nothing is what it is not to be.
    assert cotan("sample", run, "--max-tokens", 1, "--threads", 2, env=env).returncode == 0
    assert cotan("sample", run, "--max-tokens", 1, env=env | {"COTAN_THREADS": ""}).returncode == 0


DUMPS = "cannot be shown: graph, dot, groups, plan, kernels and cuda can, with commas between them"


@pytest.mark.parametrize("name, value, message", [
    *[(name, value, f'{name}: it is "{value}", not 0 or 1')
      for name in ("COTAN_FUSE", "COTAN_EXPLAIN", "COTAN_VERIFY") for value in ("maybe", "2", "yes")],
    ("COTAN_DUMP", "nonsense", f'COTAN_DUMP: "nonsense" {DUMPS}'),
    ("COTAN_DUMP", "plan,kernel", f'COTAN_DUMP: "kernel" {DUMPS}\n  hint: did you mean kernels?'),
    ("COTAN_DUMP", "plan,", f'COTAN_DUMP: "" {DUMPS}'),
    ("COTAN_DUMP_DIR", "/nowhere", 'COTAN_DUMP_DIR: it is "/nowhere", no folder that this process may write to'),
])
def test_words_of_the_environment(tmp_path, run, name, value, message):
    words = ["train", "--data", ROOT / "README.md", "--out", tmp_path / "out"]
    refused(2, message, *words, env={name: value})
    assert not (tmp_path / "out").exists()
    refused(2, message, "sample", run, env={name: value})
    assert cotan("sample", run, "--max-tokens", 1, env={name: ""}).returncode == 0


def test_device_of_the_environment(run):
    message = ('device: there is no device "maybe": known are cpu, ref, opencl (or opencl:1), '
               'and async: or dry: before them')
    refused(1, message, "sample", run, env={"COTAN_DEVICE": "maybe"})


def test_relative_cache(tmp_path, run):
    message = 'cpu: COTAN_CACHE_DIR is "kernels", not an absolute path'
    env = {"COTAN_CACHE_DIR": "kernels", "COTAN_DEVICE": "cpu"}
    refused(2, message, "train", "--data", ROOT / "README.md", "--out", tmp_path / "out", env=env)
    refused(2, message, "sample", run, env=env)
    assert not (tmp_path / "out").exists() and not Path("kernels").exists()


def test_data(tmp_path):
    missing, empty, binary = (tmp_path / name for name in ("missing", "empty", "binary"))
    empty.touch()
    binary.write_bytes(bytes(range(256)))
    words = ["train", "--out", tmp_path / "out", "--device", "ref", "--data"]
    refused(1, f"{missing}: cannot open: No such file or directory", *words, missing)
    refused(1, ".data: cannot open: No such file or directory", *words, ".data")  # a file's name, no option
    refused(1, f"{empty}: the file is empty", *words, empty)
    refused(1, f"{binary}: the file is not text: byte 0 of 256 is 0\n"
               "  hint: --tokenizer \"bytes\" accepts any file", *words, binary, "--tokenizer", "chars")
    refused(1, f"{tmp_path}/*.txt: no file matches this pattern", *words, f"{tmp_path}/*.txt")
    binary.write_text("short" * 20)
    refused(1, "corpus: 100 tokens are too few for context 64: 90 to train on and 10 to validate on, "
               "each must be at least 65\n  hint: use more text or a smaller --context",
            *words, binary, "--context", 64)
    assert not (tmp_path / "out").exists()


def test_unreadable_data(tmp_path):
    path, why = tmp_path / "text", "Permission denied"
    if os.geteuid() == 0:  # who may read every file: one that names itself
        path.symlink_to(path)
        why = "Too many levels of symbolic links"
    else:
        path.write_text("text" * 100)
        path.chmod(0)
    refused(1, f"{path}: cannot open: {why}", "train", "--data", path, "--out", tmp_path / "out")


def test_out_is_a_file(tmp_path):
    path = tmp_path / "out"
    path.touch()
    refused(1, f"{path}: exists and is not a folder", "train", "--data", ROOT / "README.md", "--out",
            path)


def test_no_compiler(tmp_path):
    words = ["train", "--data", ROOT / "README.md", "--out", tmp_path / "out", "--device", "cpu"]
    hint = "\n  hint: install gcc or clang, set COTAN_CC to one, or to none to have kernels interpreted"
    refused(1, "cpu: no working C compiler: COTAN_CC names no program: /nonexistent" + hint, *words,
            env={"COTAN_CC": "/nonexistent"})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "run"
    done = cotan("train", "--data", ROOT / "README.md", "--tokenizer", "chars", "--layers", 1, "--heads",
                 1, "--width", 16, "--context", 8, "--batch", 2, "--steps", 1, "--eval-batches", 1,
                 "--device", "ref", "--out", out)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.parametrize("words, status, message", [
    (["--out", "a/1st"], 2, 'compile: "1st" cannot be a name in C\n  hint: up to 60 letters, digits and _, a letter '
                            "first; no word of the language or its library"),
    (["--out", "none/step"], 1, "none/step.c: cannot create: No such file or directory"),
    *[(["--out", "step", "--function", function, "--context", 9], 2,
       "compile: --context 9 is more than the 8 tokens of the model") for function in ("token", "window", "step")],
])
def test_compile_of_a_run(run, tmp_path, words, status, message):
    done = subprocess.run([COTAN.resolve(), "compile", run, *map(str, words)], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout) == (status, f"cotan: {message}\n", "")
    assert list(tmp_path.iterdir()) == []


def test_compile_of_a_step_of_several_batches(tmp_path):
    run, out = tmp_path / "run", tmp_path / "step"
    done = cotan("train", "--data", ROOT / "README.md", "--layers", 1, "--heads", 1, "--width", 16, "--context", 8, "--batch", 2,
                 "--accumulate", 4, "--steps", 1, "--eval-batches", 1, "--device", "ref", "--out", run)
    assert done.returncode == 0, done.stderr
    words = ["compile", run, "--function", "step", "--out", out]
    refused(2, f"compile: a step of the run in {run} takes 4 batches of 2, a function takes one\n"
               "  hint: --batch 8 takes the sequences of all of them at once, which is the same but for rounding and dropout", *words)
    assert not out.with_suffix(".c").exists()
    assert cotan(*words, "--batch", 8).returncode == 0
    assert "const int32_t *tokens; // (8, 8) i32" in out.with_suffix(".h").read_text()


def test_compile_of_a_step_of_no_run(copy):
    edit_config(copy, '"training"', '"trainin"')
    refused(1, f'{copy}/config.json: key "training" is missing', "compile", copy, "--out", copy / "step", "--function", "step")


@pytest.fixture
def copy(run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    return tmp_path / "run"


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def edit_config(folder, old, new):
    """As who means it does: without the checksum."""
    config = folder / "config.json"
    edit(config, old, new)
    edit(config, re.search(r',\s*"crc32c": "\w{8}"', config.read_text())[0], "")


def whole_save(folder):
    return f"\n  hint: the checkpoint of step 1 is complete: cotan sample {folder}/checkpoints/step-1"


def refuses_to_sample(folder, message, *more):
    refused(1, message, "sample", folder, "--device", "ref", *more)


def test_prompt_outside_the_vocabulary(run):
    n = len(set((ROOT / "README.md").read_text()))
    refuses_to_sample(run, f'prompt: character "☃" (U+2603) at byte 2 is not among the {n} '
                           "characters of the model", "--prompt", "A ☃")


@pytest.mark.parametrize("words", [["sample"], ["compile", "--out", "step"], ["train", "--resume"]])
def test_a_file_is_not_its_folder(run, words):
    for name in ("config.json", "model.safetensors", "state.safetensors"):
        refused(1, f"{run / name}: a file, not the folder of a model or a run\n  hint: give the folder that it is in, {run}",
                *words, run / name)
    refused(1, f"{run}/loss.svg: a file, not the folder of a model or a run", *words, run / "loss.svg")


def test_a_file_in_the_folder_one_is_in(run):
    done = subprocess.run([str(COTAN.resolve()), "sample", "config.json"], cwd=run, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr, done.stdout) == (
        1, "cotan: config.json: a file, not the folder of a model or a run\n  hint: give the folder that it is in, .\n", "")


def test_no_checkpoint(tmp_path):
    missing = "/config.json: cannot open: No such file or directory\n  hint: "
    refuses_to_sample(tmp_path, f"{tmp_path}{missing}a model's folder has it; that of a run gets it with the first save")
    refuses_to_sample(tmp_path / "none", f"{tmp_path}/none{missing}there is no such folder")


def test_truncated_checkpoint(copy):
    path = copy / "model.safetensors"
    whole = path.read_bytes()
    header = int.from_bytes(whole[:8], "little")
    assert header > 1000
    path.write_bytes(whole[:1000])
    refuses_to_sample(copy, f"{path}: safetensors: the header takes {header} bytes by its length, but "
                            f"only 992 follow: the file is cut short{whole_save(copy)}")


def test_another_architecture(copy):
    edit_config(copy, '"gpt2"', '"lama"')
    refuses_to_sample(copy, f'{copy}/config.json: key "model_type" is "lama", an architecture that is not known'
                            '\n  hint: the nearest that is known is "llama"')


def test_another_width(copy):
    edit_config(copy, '"n_embd": 16', '"n_embd": 32')
    n = len(set((ROOT / "README.md").read_text()))
    done = cotan("sample", copy, "--device", "ref")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f'cotan: {copy}: 15 of the weights that gpt2 has do not fit: "wte.weight" is ({n}, 16) F32, '
                                  f"({n}, 32) f32 is expected; ")


def test_a_vocabulary_with_a_flipped_bit(copy):
    config = copy / "config.json"
    was = json.loads(config.read_text())["crc32c"]
    edit(config, "abc", "\u00e0bc")
    for words in (["sample", copy, "--device", "ref"], ["compile", copy, "--out", copy / "step"]):
        done = cotan(*words)
        assert (done.returncode, done.stdout) == (1, "")
        assert re.sub("is [0-9a-f]{8}, not", "is NOW, not", done.stderr) == (
            f"cotan: {config}: the file is damaged or was changed: the CRC-32C of its values is NOW, not {was}; where the "
            f'change is meant, remove the key "crc32c"{whole_save(copy)}\n')


def test_tokens_that_are_not_said(copy):
    edit_config(copy, '"tokenizer": "chars",', "")
    (copy / "tokenizer.json").unlink()
    refuses_to_sample(copy, f"{copy}: config.json has no vocabulary for the tokens")


def test_vocabulary_of_another_size(copy):
    edit_config(copy, "abc", "ab")
    n = len(set((ROOT / "README.md").read_text()))
    refuses_to_sample(copy, f"{copy}: the model has {n} tokens, but the vocabulary in config.json {n - 1}")

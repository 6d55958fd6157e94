"""Every public function, called with NULL for each pointer and nothing for the rest: no call ends the process.

The calls are generated from the headers, so that a new function is tested when it is declared. Each runs in a process of its own,
once with every argument zero and once for each pointer, list and struct that is zero beside others that are not.
"""
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("COTAN_BUILD", ROOT / "build"))
SANITIZED = "COTAN_SANITIZE:BOOL=ON" in (BUILD / "CMakeCache.txt").read_text()
SANITIZE = ["-fsanitize=address,undefined"] if SANITIZED else []
HEADERS = [*sorted((ROOT / "include/cotan").glob("*.h")), BUILD / "derived/cotan/ops.h"]
# Functions to which NULL says something that is no error, as their comments have it: they name nothing, free nothing, ask nothing.
NOTHING = """ct_nearest ct_ctx_use ct_ctx_free ct_cancel ct_set_log ct_set_allocator ct_params_free ct_params_count ct_params_get
ct_params_name ct_params_find ct_params_size ct_metric_value ct_npz_close ct_npz_count ct_npz_name
ct_safetensors_close ct_safetensors_count ct_safetensors_name ct_safetensors_metadata ct_safetensors_metadata_key ct_chat_template_text ct_schedule_lr ct_optim_free
ct_optim_lr ct_optim_lr_operand ct_optim_step_count ct_optim_state ct_lm_free ct_lm_params ct_lm_info ct_lm_process_logits
ct_lm_class_probabilities ct_lm_label
ct_borrow_end ct_history_cut_free ct_ended_hooks ct_function_free ct_params_in_use ct_op_find ct_op_next ct_op_info ct_resnet_free ct_resnet_params ct_resnet_running_stats
ct_diagnose ct_format_at ct_print_at ct_nn_dropout_at ct_mask_matrices ct_mask_all ct_nn_builder_for ct_set_threads ct_set_memory_limit
ct_tokenizer_free ct_tokenizer_size ct_tokenizer_piece ct_tokenizer_id
ct_tokenizer_is_special ct_tokenizer_special ct_tokenizer_eos_ids ct_encoding_free ct_decoder_free
ct_annotate_end ct_chat_template_free ct_chat_parser_free ct_pretrained_free ct_engine_free ct_engine_cancel ct_engine_stats ct_measure_machine_limits ct_memory_table ct_memory_snapshot_free""".split()
# Values that stand for what is given; the rest is zero.
GIVEN = {"ct_tensor": "ct_ones(CT_F32, CT_DIMS(2, 2))", "ct_dtype": "CT_F32", "ct_ints": "CT_DIMS(2, 2)", "size_t": "2", "int": "2",
         "int64_t": "2", "uint64_t": "2", "double": "0.5", "bool": "true", "ct_loc": "CT_HERE", "ct_fn": "function", "ct_mask": "ct_mask_all",
         "const char *": '"/nonexistent/x"', "ct_params *": "ct_params_new()", "const ct_params *": "ct_params_new()",
         "const ct_tensor *": "pair()", "ct_tensor *": "pair()"}


def functions():
    for header in HEADERS:
        text = re.sub(r"//[^\n]*", "", header.read_text())
        for found in re.finditer(r"^CT_API\s+([^;]*?);", text, re.S | re.M):
            text_of = " ".join(found[1].replace("CT_MUST_USE", "").split())
            name = re.search(r"\b(ct_\w+)\(", text_of)
            if not name or re.search(r"\(ct_\w+\)\(", text_of):
                continue  # "ct_tensor(ct_add)(": the same without a line
            args = text_of[name.end():text_of.rindex(")")]
            if "..." in args or name[1].startswith("ct__"):
                continue
            kinds = []
            for arg in [] if args.strip() in ("void", "") else args.split(","):
                kind = re.sub(r"\w+(\[\d*\])?$", r"\1", arg.strip()).strip()
                kinds.append(kind)
            yield name[1], kinds


FUNCTIONS = dict(functions())
HEAD = """#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cotan/binding.h>
#include <cotan/chat.h>
#include <cotan/data.h>
#include <cotan/device.h>
#include <cotan/embed.h>
#include <cotan/engine.h>
#include <cotan/eval.h>
#include <cotan/custom_op.h>
#include <cotan/hub.h>
#include <cotan/io.h>
#include <cotan/lm.h>
#include <cotan/models.h>
#include <cotan/profile.h>
#include <cotan/tokenizer.h>
static void function(const ct_tensor *in, ct_tensor *out, void *user) { (void)user; out[0] = in[0]; out[1] = in[1]; }
static ct_tensor *pair(void) {
    static ct_tensor both[8]; // room for a Hessian of two operands and two results
    for (int i = 0; i < 8; i++) both[i] = ct_ones(CT_F32, CT_DIMS(2, 2));
    return both;
}
static int run(const char *what, void (*call)(void)) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        ct_set_log(NULL, NULL);
        if (!ct_set_device("ref")) _exit(9);
        call();
        printf("%s|%s\\n", what, ct_error_text());
        fflush(stdout);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (status) printf("%s|ENDED WITH %d\\n", what, status);
    return status;
}
"""


def value(kind, given):
    if given and kind in GIVEN:
        return GIVEN[kind]
    if kind.endswith("*") or kind in ("ct_fn", "ct_log_fn", "ct_write_fn", "ct_mask", "ct_finding_fn", "ct_device_fn", "ct_lm_plan_fn", "ct_chat_part_fn"):
        return "NULL"
    if kind in ("size_t", "int", "int64_t", "uint64_t", "double", "bool", "uint32_t", "float") or kind in (
            "ct_dtype", "ct_code", "ct_nn_activation"):
        return "0"
    return f"({kind}){{0}}"


def calls():
    for name, kinds in FUNCTIONS.items():
        yield f"{name}: all", f"{name}({', '.join(value(k, False) for k in kinds)})"
        for i, kind in enumerate(kinds):
            if kind.endswith("*") and kind != "void *" or kind.endswith("_fn") or kind == "ct_ints":
                values = [value(k, j != i) for j, k in enumerate(kinds)]
                if kind == "ct_ints":  # a list that says it has members
                    values[i] = "(ct_ints){3, NULL}"
                yield f"{name}: {i}", f"{name}({', '.join(values)})"


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    folder = tmp_path_factory.mktemp("null")
    listed = list(calls())
    text = HEAD + "".join(f"static void call{i}(void) {{ {call}; }}\n" for i, (_, call) in enumerate(listed))
    text += "int main(void) {\n" + "".join(f'    run("{what}", call{i});\n' for i, (what, _) in enumerate(listed)) + "    return 0;\n}\n"
    (folder / "calls.c").write_text(text)
    subprocess.run(["gcc", "-std=gnu17", "-w", *SANITIZE, "-I", ROOT / "include", "-I", BUILD / "derived", folder / "calls.c", "-o", folder / "calls",
                    f"-L{BUILD}", "-lcotan", f"-Wl,-rpath,{BUILD}"], check=True)
    done = subprocess.run([folder / "calls"], cwd=folder, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert not [p for p in folder.iterdir() if p.name not in ("calls", "calls.c")]
    return dict(re.findall(r"^(ct_\w+: \w+)\|(.*(?:\n(?!ct_).*)*)\n", done.stdout, re.M))


def test_the_headers_are_read():
    assert len(FUNCTIONS) > 200 and {"ct_eval_at", "ct_concat_at", "ct_fit_at", "ct_lm_new_at"} <= set(FUNCTIONS)


def test_no_call_ends_the_process(said):
    assert len(said) == len(list(calls()))
    assert {what: text for what, text in said.items() if text.startswith("ENDED")} == {}


def test_a_pointer_that_is_null_is_an_error(said):
    """NULL beside arguments that are there is an error, but where the header says what it means."""
    silent = [what for what, text in said.items() if not text and not what.endswith("all") and what.split(":")[0] not in NOTHING]
    assert silent == []


@pytest.mark.parametrize("what, text", [
    ("ct_set_device: 0", "set_device: the name must not be NULL"), ("ct_fit_at: 0", "fit: the options must not be NULL")])
def test_whole_sentences(said, what, text):
    assert re.sub(r"^\S*calls\.c:\d+: ", "", said[what]) == text

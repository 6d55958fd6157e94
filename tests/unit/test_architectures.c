// Architectures that a program adds: rows are checked, models of them begin, are saved, and load.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/mem.h"
#include "cotan/lm.h"
#include "models/stack.h"

static void refused(const char *row, const char *message) {
    assert_false(ct_lm_add_architecture_at(row, CT_NOWHERE));
    assert_string_equal(ct_error_text(), message);
    ct_error_clear();
}

static void bad_rows(void **state) {
    (void)state;
    refused("mine: like=llama hiden=3",
            "architecture: \"mine\" has a setting \"hiden\", which there is "
            "not\n  hint: the nearest is \"hidden\"");
    refused("mine: like=llama q7z9w8x",
            "architecture: \"mine\" has a setting \"q7z9w8x\", which there is "
            "not");
    refused("mine: like=nobody", "architecture: there is no architecture \"nobody\" to be like");
    refused("mine: like=llama rope=thirds",
            "architecture: \"rope\" is \"thirds\", it must be one of: none half pairs");
    refused("mine: like=llama act=relu act=silu", "architecture: \"mine\" sets \"act\" twice");
    refused("mine: like=llama embed=",
            "architecture: \"mine\" has no embed, which every row needs");
    refused("mine: like=llama experts=8",
            "architecture: \"mine\" has no router, which is needed with experts");
    refused("mine: like=qwen2 v=",
            "architecture: \"mine\" has no v, which is needed with family=decoder, qkv=split, no "
            "kv_lora_rank");
    refused("mine: like=gptj rotary_fraction=0.5",
            "architecture: \"mine\" has rotary_fraction, which excludes rotary");
    refused("mine: like=bert order=post rope=half",
            "architecture: \"mine\" has no rope=none, which is needed with position_table");
    refused("mine: like=llama layer=model.layers",
            "architecture: \"mine\" has the layer \"model.layers\", in which no % stands for its "
            "number");
    refused("mine like=llama",
            "architecture: \"mine like=llama\" is no row: it begins with a name of "
            "a-z, 0-9 and _, and a colon");
    refused("",
            "architecture: \"\" is no row: it begins with a name of a-z, 0-9 and _, and a colon");
}

// What the table itself must obey, beside each row: names are of one row, and the encoders are rows.
static void the_table(void **state) {
    (void)state;
    for (size_t i = 0; ct__architectures[i]; i++) {
        const char *row = ct__architectures[i], *encoder = strstr(row, " encoder=");
        const size_t n = strcspn(row, ":");
        ct_err err = {0};
        char name[80];
        if (!ct__spec_check_row(row, &err)) fail_msg("%s", err.text);
        for (size_t k = 0; k < i; k++) {
            if (!strncmp(ct__architectures[k], row, n + 1)) fail_msg("%.*s: two rows", (int)n, row);
            for (int j = 0; j < 2; j++) {
                const char *key = j ? " gguf=" : " class=", *at = strstr(row, key),
                           *of_other = strstr(ct__architectures[k], key);
                const size_t length = at ? 1 + strcspn(at + 1, " ") : 0;
                if (length > strlen(key) && of_other && !strncmp(at, of_other, length) &&
                    strcspn(of_other + 1, " ") + 1 == length)
                    fail_msg("%.*s: row %zu has its%.*s too", (int)n, row, k, (int)length, at);
            }
        }
        if (!encoder || encoder[9] == ' ') continue;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(encoder + 9, " "), encoder + 9);
        if (!ct__spec_is_known(name)) fail_msg("%.*s: its encoder is no row", (int)n, row);
    }
}

static ct_lm_sizes sizes(const char *arch) {
    return (ct_lm_sizes){.arch = arch,
                         .vocab = 20,
                         .context = 8,
                         .layers = 2,
                         .heads = 2,
                         .width = 8,
                         .begin = -1,
                         .end = 3};
}

// A row of the same name as one before goes before it.
static void own_rows(void **state) {
    (void)state;
    assert_true(ct_lm_add_architecture("own: like=llama"));
    assert_true(
        ct_lm_add_architecture("own: like=llama\n  act=relu2 mlp=ungated\tup=mlp.up down=mlp.down "
                               "new=num_experts:8;scale:1/head;more:width*2"));
    const ct_lm_sizes s = sizes("own");
    ct_lm *lm = ct__lm_new(&s, 7, CT_NOWHERE);
    assert_non_null(lm);
    assert_int_equal(ct_params_size(ct_lm_params(lm)), ct__stack_size(&lm->spec));
    assert_true(ct_params_find(ct_lm_params(lm), "model.layers.1.mlp.up.weight").bits);
    assert_false(ct_params_find(ct_lm_params(lm), "model.layers.1.mlp.gate_proj.weight").bits);
    char folder[] = "/tmp/cotan-test-XXXXXX", path[80];
    assert_non_null(mkdtemp(folder));
    assert_true(ct_lm_save(lm, folder));
    ct_lm *again = ct_lm_load(folder, .trainable = true);
    assert_non_null(again);
    CT_SCOPE;
    const int32_t ids[] = {1, 2, 3};
    ct_tensor tokens = ct_from(ids, CT_I32, CT_DIMS(1, 3));
    const float *a = ct_data(ct_lm_logits(lm, tokens, NULL)),
                *b = ct_data(ct_lm_logits(again, tokens, NULL));
    assert_non_null(a);
    assert_non_null(b);
    assert_memory_equal(a, b, 60 * sizeof *a);
    ct_lm_free(again);
    ct_lm_free(lm);
    const char *const names[] = {"config.json", "model.safetensors"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        remove(path);
    }
    remove(folder);
}

// Equal seeds give equal values, others give others; norms are 1, and what is added is smaller.
static void first_values(void **state) {
    (void)state;
    CT_SCOPE;
    const ct_lm_sizes s = sizes("qwen3_moe");
    const float *values[3];
    ct_lm *lm[3];
    for (int i = 0; i < 3; i++) {
        lm[i] = ct__lm_new(&s, i == 2 ? 8 : 7, CT_NOWHERE);
        assert_non_null(lm[i]);
        values[i] = ct_data(ct_params_find(ct_lm_params(lm[i]), "model.embed_tokens.weight"));
        assert_non_null(values[i]);
    }
    assert_memory_equal(values[0], values[1], 160 * sizeof *values[0]);
    assert_memory_not_equal(values[0], values[2], 160 * sizeof *values[0]);
    const float *norm = ct_data(ct_params_find(ct_lm_params(lm[0]), "model.norm.weight"));
    for (int i = 0; i < 8; i++) assert_true(norm[i] == 1);
    const char *const name[] = {"model.layers.0.mlp.experts.#.up_proj.weight",
                                "model.layers.0.mlp.experts.#.down_proj.weight"};
    double size[2];
    for (int i = 0; i < 2; i++) {
        ct_tensor w = ct_params_find(ct_lm_params(lm[0]), name[i]);
        const float *v = ct_data(w);
        assert_non_null(v);
        size[i] = 0;
        for (int64_t k = 0; k < ct_size(w); k++)
            size[i] += (double)v[k] * (double)v[k] / (double)ct_size(w);
    }
    assert_true(size[0] > 3e-4 && size[0] < 5e-4);               // 0.02 squared
    assert_true(size[1] > size[0] / 5 && size[1] < size[0] / 3); // over the root of 2 * 2
    for (int i = 0; i < 3; i++) ct_lm_free(lm[i]);
}

static void bad_new(void **state) {
    (void)state;
    assert_true(ct_lm_add_architecture("odd: like=llama new=a:1;b:wdth"));
    const ct_lm_sizes s = sizes("odd");
    assert_null(ct__lm_new(&s, 0, CT_NOWHERE));
    assert_string_equal(ct_error_text(),
                        "architecture: \"odd\" cannot begin: its setting new has \"b:wdth\"");
    ct_error_clear();
}

static int setup(void **state) {
    (void)state;
    return ct_set_device("ref") ? 0 : 1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_rows),     cmocka_unit_test(the_table), cmocka_unit_test(own_rows),
        cmocka_unit_test(first_values), cmocka_unit_test(bad_new),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}

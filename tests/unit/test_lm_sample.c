// Drawing text: prompts of any length run the kernels of the first one.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "cotan/lm.h"
#include "models/stack.h"

enum { CONTEXT = 200 };
static const char letters[] = "\nabcdefghij";

static size_t written;
static bool count_bytes(const char *text, size_t n, void *user) {
    (void)text;
    (void)user;
    written += n;
    return true;
}

// Kernels that this process did not have yet, whether a disk cache had them or not.
static uint64_t new_kernels(void) {
    ct_stats stats = ct_get_stats();
    return stats.kernels_compiled + stats.kernels_loaded;
}

static void draw(const char *dir, size_t prompt_n, int64_t length) {
    char prompt[CONTEXT + 1] = {0};
    for (size_t i = 0; i < prompt_n; i++) prompt[i] = letters[1 + (7 * i + prompt_n) % 10];
    written = 0;
    ct_lm_sample_options options = {
        .dir = dir, .prompt = prompt, .max_tokens = length, .seed = 3, .on_text = count_bytes};
    if (!ct_lm_sample(&options)) fail_msg("%s", ct_error_text());
    assert_int_equal(written, prompt_n + (size_t)length);
}

static bool add_vocabulary(ct_config *config, void *user, ct_err *err) {
    (void)user, (void)err;
    ct__config_set_string(config, "tokenizer", "chars", 5);
    ct__config_set_string(config, "vocabulary", letters, sizeof letters - 1);
    return true;
}

static void another_length_of_the_prompt_compiles_nothing(void **state) {
    (void)state;
    char dir[] = "/tmp/cotan_sample_XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    ct_lm_config config = {
        .vocab = sizeof letters - 1, .context = CONTEXT, .layers = 2, .heads = 2, .width = 12};
    ct_lm *model = ct_lm_new(&config, 5);
    if (!model || !ct__lm_save(model, dir, add_vocabulary, NULL, CT_HERE))
        fail_msg("%s", ct_error_text());
    ct_lm_free(model);
    draw(dir, 5, 3);
    uint64_t kernels = new_kernels();
    assert_true(kernels > 0);
    // The last ones need several pieces, and a context that moves on.
    static const size_t length[] = {2, 1, 3, 16, 17, 64, 65, 130, 198};
    for (size_t i = 0; i < sizeof length / sizeof *length; i++) {
        draw(dir, length[i], 5);
        if (new_kernels() != kernels)
            fail_msg("a prompt of %zu tokens needs %d kernels more", length[i],
                     (int)(new_kernels() - kernels));
    }
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/config.json", dir);
    unlink(path);
    assert_int_equal(rmdir(dir), 0);
}

int main(void) {
    setenv("COTAN_COMPILE", "wait", 1); // kernels are counted when a plan is made
    ct_set_log(NULL, NULL);             // many lengths on one line are meant here
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_length_of_the_prompt_compiles_nothing)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ct_ctx_free(ct_ctx_use(NULL));
    return failed;
}

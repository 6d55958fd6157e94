// GPT-2 on given weights and batches, for test_gpt2_oracle.py and tests/parity/test_gpt2.py:
//     test_gpt2_oracle DEVICE MODEL_DIR BATCHES.npz OUT.npz SAVED_DIR
// BATCHES holds tokens and targets (steps, B, T) i32. OUT gets logits, loss and every gradient
// (grad.NAME) of the first batch, the logits after its last tokens as decoded in chunks with a KV cache, and the
// loss of one AdamW step on each batch. The model after these steps is saved to SAVED_DIR.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cotan/io.h"
#include "cotan/lm.h"
#include "cotan/optim.h"
#include "models/stack.h"

enum { STEPS = 64, TENSORS = 512 };

typedef struct {
    ct_lm *model;
    const int32_t *tokens, *targets; // (steps, B, T)
    int64_t steps, batch, time;
} given;

static ct_tensor of_step(const given *g, const int32_t *all, int64_t step) {
    return ct_from(all + step * g->batch * g->time, CT_I32, CT_DIMS(g->batch, g->time));
}

// Logits behind the last token, of pieces of 1, 2, 3 ... tokens that a cache is fed.
static ct_tensor decoded(const given *g, ct_lm_cache *cache, ct_tensor tokens) {
    ct_tensor logits = CT_NONE;
    for (int64_t at = 0, n = 1; at < g->time; at += n, n++) {
        if (n > g->time - at) n = g->time - at;
        ct_tensor piece = ct_slice(tokens, .axes = CT_AXES(1), .start = CT_INTS(at),
                                   .stop = CT_INTS(at + n)); // (B, n)
        logits = ct__lm_decode(g->model, cache, piece, ct_i(at), g->time, CT_HERE);
        if (!ct_eval(&logits, 1)) break; // before the cache holds the next piece
    }
    return logits;
}

static bool first_batch(const given *g, ct_named_tensor *out, size_t *n_out) {
    ct_params *params = ct_lm_params(g->model);
    size_t n = ct_params_count(params), at = 0;
    static char names[TENSORS][CT_NN_MAX_PATH + 8];
    ct_tensor wrt[TENSORS], grads[TENSORS];
    if (n > TENSORS) return false;
    for (size_t i = 0; i < n; i++) wrt[i] = ct_params_get(params, i);
    ct_tensor tokens = of_step(g, g->tokens, 0), targets = of_step(g, g->targets, 0);
    ct_tensor loss = ct_lm_loss(g->model, tokens, targets, NULL);
    ct_grad(loss, wrt, n, grads);
    out[at++] = (ct_named_tensor){"logits", ct_lm_logits(g->model, tokens, NULL)};
    out[at++] = (ct_named_tensor){"loss", loss};
    for (size_t i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[i], "grad.%s", ct_params_name(params, i));
        out[at++] = (ct_named_tensor){names[i], grads[i]};
    }
    *n_out = at;
    return !ct_failed();
}

static bool train(const given *g, float *losses) {
    ct_optim *adamw = ct_adamw(ct_lm_params(g->model), .lr = 1e-3, .weight_decay = CT_F(0.1),
                               .beta2 = CT_F(0.99), .clip = 1.0);
    for (int64_t step = 0; step < g->steps && adamw && !ct_failed(); step++) {
        CT_SCOPE;
        ct_tensor loss = ct_lm_loss(g->model, of_step(g, g->tokens, step),
                                    of_step(g, g->targets, step), &(ct_nn_mode){.training = true});
        ct_optim_step(adamw, loss);
        losses[step] = (float)ct_item(loss);
    }
    ct_optim_free(adamw);
    return !ct_failed();
}

static bool read_batches(given *g, const char *path) {
    ct_npz *npz = ct_npz_open(path);
    ct_tensor tokens = ct_npz_get(npz, "tokens"), targets = ct_npz_get(npz, "targets");
    g->tokens = ct_data(tokens);
    g->targets = ct_data(targets);
    g->steps = ct_dim(tokens, 0);
    g->batch = ct_dim(tokens, 1);
    g->time = ct_dim(tokens, 2);
    ct_npz_close(npz);
    return g->tokens && g->targets && g->steps <= STEPS;
}

static bool run(char **argv) {
    CT_SCOPE;
    given g = {0};
    static ct_named_tensor out[TENSORS + 8];
    float losses[STEPS];
    size_t n = 0;
    if (!ct_set_device(argv[1]) || !read_batches(&g, argv[3]) ||
        !(g.model = ct_lm_load(argv[2], .trainable = true)))
        return false;
    ct_lm_cache *cache = ct__lm_decode_cache(g.model, g.batch, g.time, CT_HERE);
    bool ok = cache && first_batch(&g, out, &n);
    if (ok) out[n++] = (ct_named_tensor){"decoded", decoded(&g, cache, of_step(&g, g.tokens, 0))};
    ok = ok && ct_save_npz(argv[4], out, n) && train(&g, losses);
    if (ok) {
        out[n++] = (ct_named_tensor){"losses", ct_from(losses, CT_F32, CT_DIMS(g.steps))};
        ok = ct_save_npz(argv[4], out, n) && ct_lm_save(g.model, argv[5]);
    }
    ct__lm_cache_free(cache);
    ct_lm_free(g.model);
    return ok;
}

static void a_folder_without_a_model_is_an_error(void **state) {
    (void)state;
    assert_null(ct_lm_load("/nowhere"));
    assert_int_equal(ct_error_code(), CT_E_FILE);
    ct_error_clear();
}

int main(int argc, char **argv) {
    if (argc == 6) {
        if (run(argv)) return 0;
        fprintf(stderr, "test_gpt2_oracle: %s\n", ct_error_text());
        return 1;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_folder_without_a_model_is_an_error)};
    return cmocka_run_group_tests_name("gpt2_oracle", tests, NULL, NULL);
}

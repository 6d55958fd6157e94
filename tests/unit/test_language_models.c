// Language models from files, for test_language_models.py and tests/parity:
//     test_language_models MODE DIR IN.npz OUT.npz [SAVED]
// IN has tokens ids (B, T). MODE "logits" writes the logits of all, and saves the model where it is asked to;
// "grads" logits, loss, and its gradients by name; "steps" what steps with a cache say of each token: one text at a
// time in pieces, then all together token by token; "write" 64 tokens behind the first text, the likeliest each time.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "cotan/io.h"
#include "cotan/lm.h"
#include "models/stack.h"

enum { MOST = 512, PIECE = 7, WRITTEN = 64 };

static ct_tensor ids; // (B, T) i32

static bool logits(ct_lm *lm, const char *to) {
    ct_named out = {"logits", ct_lm_logits(lm, ids, NULL)};
    return ct_save_npz(to, &out, 1);
}

static bool grads(ct_lm *lm, const char *to) {
    ct_params *params = ct_lm_params(lm);
    const size_t n = ct_params_count(params);
    ct_tensor wrt[MOST], got[MOST], y = ct_lm_logits(lm, ids, NULL);
    ct_named out[MOST + 2];
    if (n > MOST) return false;
    const int64_t batch = ct_dim(ids, 0), time = ct_dim(ids, 1), vocab = ct_dim(y, 2);
    ct_tensor seen = ct_slice(y, .axes = CT_AXES(1), .stop = CT_INTS(-1)),
              next = ct_slice(ids, .axes = CT_AXES(1), .start = CT_INTS(1));
    ct_tensor loss = ct_cross_entropy(ct_reshape(seen, CT_DIMS(batch * (time - 1), vocab)),
                                      ct_reshape(next, CT_DIMS(batch * (time - 1))));
    for (size_t i = 0; i < n; i++) wrt[i] = ct_params_get(params, i);
    ct_grad(loss, wrt, n, got);
    for (size_t i = 0; i < n; i++) out[i] = (ct_named){ct_params_name(params, i), got[i]};
    out[n] = (ct_named){"logits", y};
    out[n + 1] = (ct_named){"loss", loss};
    return ct_save_npz(to, out, n + 2);
}

// Text i lies in pages i, B + i, 2 B + i ..., so that none of them follow each other.
static ct_tensor table(int64_t first, int64_t n, int64_t texts, int64_t pages) {
    int32_t at[MOST];
    for (int64_t i = 0; i < n; i++)
        for (int64_t p = 0; p < pages; p++) at[i * pages + p] = (int32_t)(p * texts + first + i);
    return ct_from(at, CT_I32, CT_DIMS(n, pages));
}

static ct_tensor columns(ct_tensor x, int64_t row, int64_t rows, int64_t from, int64_t to) {
    return ct_slice(x, .axes = CT_AXES(0, 1), .start = CT_INTS(row, from),
                    .stop = CT_INTS(row + rows, to));
}

static ct_tensor at(int64_t position, int64_t n) {
    return ct_full(ct_scalar((double)position, CT_I32), CT_DIMS(n, 1));
}

// logits (B, T, vocab): of pieces only their last tokens' are known, others are 0.
static bool steps(ct_lm *lm, const char *to) {
    const int64_t n = ct_dim(ids, 0), time = ct_dim(ids, 1), pages = time / CT_LM_PAGE + 1;
    ct_lm_cache *cache = ct__lm_cache_new(lm, n * pages, CT_F32, CT_HERE);
    ct_tensor one[MOST], piece[MOST];
    int64_t pieces = 0;
    for (int64_t i = 0; cache && i < n; i++)
        for (int64_t t = 0; t < time; t += PIECE) {
            const int64_t end = t + PIECE < time ? t + PIECE : time;
            const ct_lm_part part = {columns(ids, i, 1, t, end), at(t, 1), table(i, 1, n, pages)};
            piece[pieces] = ct__lm_step(lm, cache, &part, 1, time, CT_HERE); // (1, vocab)
            if (!ct_eval(&piece[pieces++], 1)) return false;
        }
    // Half of the texts as one part of a step, the others as another.
    for (int64_t t = 0; cache && t < time; t++) {
        const ct_lm_part part[2] = {
            {columns(ids, 0, 1, t, t + 1), at(t, 1), table(0, 1, n, pages)},
            {columns(ids, 1, n - 1, t, t + 1), at(t, n - 1), table(1, n - 1, n, pages)}};
        one[t] = ct__lm_step(lm, cache, part, 2, time, CT_HERE); // (B, vocab)
        if (!ct_eval(&one[t], 1)) return false;
    }
    ct_named out[2] = {{"pieces", ct_concat(piece, (int)pieces, 0)},
                       {"tokens", ct_concat(one, (int)time, 0)}};
    bool ok = cache && ct_save_npz(to, out, 2);
    ct__lm_cache_free(cache);
    return ok;
}

static bool write(ct_lm *lm, const char *to) {
    const int64_t time = ct_dim(ids, 1), all = time + WRITTEN, pages = all / CT_LM_PAGE + 1;
    ct_lm_cache *cache = ct__lm_cache_new(lm, pages, CT_F32, CT_HERE);
    int32_t written[WRITTEN];
    for (int64_t t = 0; cache && t < WRITTEN; t++) {
        CT_SCOPE;
        const ct_lm_part part = {t ? ct_from(&written[t - 1], CT_I32, CT_DIMS(1, 1))
                                   : columns(ids, 0, 1, 0, time),
                                 at(t ? time + t - 1 : 0, 1), table(0, 1, 1, pages)};
        ct_tensor best = ct_argmax(ct__lm_step(lm, cache, &part, 1, all, CT_HERE), .axis = 1);
        written[t] = (int32_t)ct_item(best);
    }
    ct_named out = {"tokens", ct_from(written, CT_I32, CT_DIMS(WRITTEN))};
    bool ok = cache && ct_save_npz(to, &out, 1);
    ct__lm_cache_free(cache);
    return ok;
}

static int run(int argc, char **argv) {
    const char *mode = argv[1], *to = argv[4];
    const bool train = strcmp(mode, "grads") == 0;
    CT_SCOPE;
    ct_npz *in = ct_npz_open(argv[3]);
    ids = ct_npz_get(in, "ids");
    ct_npz_close(in);
    ct_lm *lm = ct_lm_load(argv[2], .trainable = train);
    bool ok = lm != NULL;
    if (ok && strcmp(mode, "logits") == 0) ok = logits(lm, to);
    if (ok && train) ok = grads(lm, to);
    if (ok && strcmp(mode, "steps") == 0) ok = steps(lm, to);
    if (ok && strcmp(mode, "write") == 0) ok = write(lm, to);
    if (ok && argc == 6) ok = ct_lm_save(lm, argv[5]);
    ct_lm_free(lm);
    if (!ok) fprintf(stderr, "%s\n", ct_error_text());
    return ok ? 0 : 1;
}

static void every_row_is_whole(void **state) {
    (void)state;
    assert_non_null(ct__architectures[0]);
    for (size_t i = 0; ct__architectures[i]; i++)
        for (size_t j = 0; j < i; j++)
            assert_false(strncmp(ct__architectures[i], ct__architectures[j],
                                 strcspn(ct__architectures[i], ":") + 1) == 0);
}

int main(int argc, char **argv) {
    if (argc >= 5) return run(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_is_whole)};
    return cmocka_run_group_tests_name("language_models", tests, NULL, NULL);
}

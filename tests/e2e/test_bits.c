// Bits do not depend on how many rows stand together, on prefill against decode, on threads, or on
// fusion.
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cotan/lm.h"
#include "cotan/optim.h"
#include "models/stack.h"

enum { ROWS = 64 };

static uint64_t random_state;
static uint64_t bits(void) { // SplitMix64
    uint64_t z = random_state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
static float *floats(int64_t n) {
    float *v = malloc((size_t)n * sizeof *v + 1);
    assert_non_null(v);
    for (int64_t i = 0; i < n; i++) v[i] = (float)(bits() >> 40) * 0x1p-22f - 2;
    return v;
}
static ct_tensor weight(ct_ints dims) {
    int64_t n = 1;
    for (int64_t i = 0; i < dims.n; i++) n *= dims.v[i];
    float *v = floats(n);
    ct_tensor t = ct_from(v, CT_F32, dims);
    free(v);
    return t;
}
static void good(const char *what) {
    if (ct_failed()) fail_msg("%s: %s", what, ct_error_text());
}

// A context of its own for each way of running.
static ct_ctx *enter(const char *fuse, int threads) {
    setenv("COTAN_FUSE", fuse, 1);
    ct_set_threads(threads);
    ct_ctx *ctx = ct_ctx_new();
    assert_non_null(ctx);
    ct_ctx_use(ctx);
    ct_set_log(NULL, NULL); // many shapes on one line are meant here
    if (!ct_set_device("cpu")) fail_msg("%s", ct_error_text());
    return ctx;
}
static void leave(ct_ctx *ctx) {
    good("end");
    ct_ctx_use(NULL);
    ct_ctx_free(ctx);
    ct_set_threads(0);
}

// ------------------------------------------------------------------------------------------------
// rows

typedef ct_tensor (*row_wise)(ct_tensor x); // (B, T, C) -> (B, ...)

static ct_tensor linear(ct_tensor x) {
    return ct_add(ct_matmul(x, weight(CT_DIMS(1000, 70))), weight(CT_DIMS(70)));
}
static ct_tensor linear_flat(ct_tensor x) { // every element a row
    ct_tensor flat = ct_reshape(x, CT_DIMS(-1, 1000));
    ct_tensor y = ct_matmul(flat, weight(CT_DIMS(1000, 33)));
    return ct_reshape(y, CT_DIMS(ct_dim(x, 0), ct_dim(x, 1), 33));
}
static ct_tensor linear_turned(ct_tensor x) { // the weight as PyTorch stores it
    return ct_matmul(x, ct_permute(weight(CT_DIMS(48, 1000)), CT_AXES(1, 0)));
}
static ct_tensor layer_norm(ct_tensor x) {
    return ct_layer_norm(x, weight(CT_DIMS(1000)), weight(CT_DIMS(1000)));
}
static ct_tensor rms_norm(ct_tensor x) { return ct_rms_norm(x, weight(CT_DIMS(1000))); }
static ct_tensor softmax(ct_tensor x) { return ct_softmax(x); }
static ct_tensor log_softmax(ct_tensor x) { return ct_log_softmax(x); }
static ct_tensor gelu(ct_tensor x) { return ct_gelu(ct_add(x, weight(CT_DIMS(1000)))); }
static ct_tensor sums(ct_tensor x) { return ct_sum(ct_exp(x), .axes = CT_AXES(-1)); }
static ct_tensor cross_entropy(ct_tensor x) {
    ct_tensor targets = ct_zeros(CT_I32, CT_DIMS(ct_dim(x, 0), ct_dim(x, 1)));
    return ct_cross_entropy(x, targets, .per_row = true);
}
static ct_tensor attention(ct_tensor x) { // 4 heads of 250
    ct_ints split = CT_DIMS(ct_dim(x, 0), ct_dim(x, 1), 4, 250);
    ct_tensor h = ct_permute(ct_reshape(x, split), CT_AXES(0, 2, 1, 3));
    return ct_attention(h, ct_sin(h), ct_cos(h), .causal = true);
}
static ct_tensor block(ct_tensor x) {
    ct_tensor w = weight(CT_DIMS(1000, 90));
    return ct_matmul(ct_gelu(ct_matmul(ct_layer_norm(x), w)), ct_permute(w, CT_AXES(1, 0)));
}

static const struct {
    const char *name;
    row_wise f;
} functions[] = {
#define F(f)                                                                                       \
    { #f, f }
    F(linear), F(linear_flat), F(linear_turned), F(layer_norm),    F(rms_norm),  F(softmax),
    F(gelu),   F(log_softmax), F(sums),          F(cross_entropy), F(attention), F(block),
#undef F
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

// Rows `at` to `at + n` of a batch, alone: (n, T, 1000) -> bytes of the result, `each` a row.
static char *some_rows(row_wise f, const float *x, int64_t at, int64_t n, int64_t t, size_t *each) {
    CT_SCOPE;
    random_state = 5; // the same weights
    ct_tensor y = f(ct_from(x + at * t * 1000, CT_F32, CT_DIMS(n, t, 1000)));
    const void *data = ct_data(y);
    good("rows");
    size_t size = (size_t)ct_size(y) * sizeof(float);
    char *copy = malloc(size);
    assert_true(copy && data);
    memcpy(copy, data, size);
    *each = size / (size_t)n;
    return copy;
}

static void check_rows(const char *fuse, int64_t t) {
    static const int64_t every[] = {1, 2, 3, 5, 7, 16, 33}, some[] = {1, 5, 16, 33};
    const bool all_of_them = getenv("COTAN_TEST_ALL");
    const int64_t *batches = all_of_them ? every : some;
    const size_t n_batches =
        all_of_them ? sizeof every / sizeof *every : sizeof some / sizeof *some;
    ct_ctx *ctx = enter(fuse, 2);
    random_state = 11;
    float *x = floats(ROWS * t * 1000);
    for (int f = 0; f < FUNCTIONS; f++) {
        size_t each, own;
        char *all = some_rows(functions[f].f, x, 0, ROWS, t, &each);
        for (size_t b = 0; b < n_batches; b++) {
            int64_t n = batches[b], at = (int64_t)(bits() % (uint64_t)(ROWS - n));
            char *few = some_rows(functions[f].f, x, at, n, t, &own);
            assert_int_equal(own, each);
            if (memcmp(few, all + (size_t)at * each, (size_t)n * each) != 0)
                fail_msg("%s, COTAN_FUSE=%s: %lld rows of length %lld are not those of %d",
                         functions[f].name, fuse, (long long)n, (long long)t, ROWS);
            free(few);
        }
        free(all);
    }
    free(x);
    leave(ctx);
}
static void rows_do_not_see_their_batch(void **state) {
    (void)state;
    check_rows("1", 3);
    check_rows("0", 1);
    if (!getenv("COTAN_TEST_ALL")) return;
    check_rows("1", 1);
    check_rows("0", 3);
}

// ------------------------------------------------------------------------------------------------
// GPT-2

enum { VOCAB = 65, CONTEXT = 150, WIDTH = 48 };
static const ct_lm_config config = {
    .vocab = VOCAB, .context = CONTEXT, .layers = 2, .heads = 3, .width = WIDTH};

static ct_lm *model_of(uint64_t seed) {
    ct_lm *model = ct_lm_new(&config, seed);
    if (!model) fail_msg("%s", ct_error_text());
    return model;
}
static void tokens(int32_t *v, int64_t n) {
    for (int64_t i = 0; i < n; i++) v[i] = (int32_t)(bits() % VOCAB);
}
static void same(const char *what, int64_t at, const float *a, const float *b, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0)
            fail_msg("%s: row %lld, number %lld: %.9g and %.9g", what, (long long)at, (long long)i,
                     (double)a[i], (double)b[i]);
}

static void texts_do_not_see_their_batch(void **state) {
    (void)state;
    enum { T = 20 };
    int32_t ids[ROWS * T];
    for (int fuse = 0; fuse < 2; fuse++) {
        ct_ctx *ctx = enter(fuse ? "1" : "0", 2);
        ct_lm *model = model_of(3);
        random_state = 21;
        tokens(ids, ROWS * T);
        {
            CT_SCOPE;
            ct_tensor all = ct_lm_logits(model, ct_from(ids, CT_I32, CT_DIMS(ROWS, T)), NULL);
            const float *together = ct_data(all);
            good("logits");
            for (int row = 0; row < ROWS; row += 21) {
                ct_tensor one = ct_from(ids + row * T, CT_I32, CT_DIMS(1, T));
                const float *alone = ct_data(ct_lm_logits(model, one, NULL));
                good("logits of one text");
                same("GPT-2, a text alone and in a batch", row, alone, together + row * T * VOCAB,
                     T * VOCAB);
            }
        }
        ct_lm_free(model);
        leave(ctx);
    }
}

// Feeds `ids` in pieces of the given sizes (the last one repeats; a negative one is declared
// dynamic); the logits behind each piece.
static void decode(const ct_lm *model, const int32_t *ids, int64_t n, const int64_t *piece,
                   int64_t capacity, const float *prefill, const char *what) {
    ct_lm_cache *cache = ct__lm_decode_cache(model, 1, capacity, CT_HERE);
    if (!cache) fail_msg("%s", ct_error_text());
    for (int64_t at = 0, k = 0; at < n;) {
        CT_SCOPE;
        bool dynamic = piece[k] < 0;
        int64_t size = dynamic ? -piece[k] : piece[k];
        if (piece[k + 1]) k++;
        if (size > n - at) size = n - at;
        ct_tensor next = ct_from(ids + at, CT_I32, CT_DIMS(1, dynamic ? CT_DYN(size) : size));
        const float *logits =
            ct_data(ct__lm_decode(model, cache, next, ct_i(at), CONTEXT, CT_HERE));
        good(what);
        at += size;
        same(what, at - 1, logits, prefill + (at - 1) * VOCAB, VOCAB);
    }
    ct__lm_cache_free(cache);
}

// Interpreted kernels, which have the bits of compiled ones, unless all is to be tried: most of the
// time would go into compiling for lengths that occur once.
static void decode_equals_prefill(void **state) {
    (void)state;
    int32_t ids[CONTEXT];
    const char *was = getenv("COTAN_CC");
    char *compiler = was ? strdup(was) : NULL;
    if (!getenv("COTAN_TEST_ALL")) setenv("COTAN_CC", "none", 1);
    for (int fuse = 0; fuse < 2; fuse++) {
        ct_ctx *ctx = enter(fuse ? "1" : "0", 2);
        ct_lm *model = model_of(4);
        random_state = 31;
        tokens(ids, CONTEXT);
        {
            CT_SCOPE;
            ct_tensor all = ct_from(ids, CT_I32, CT_DIMS(1, CONTEXT));
            const float *prefill = ct_data(ct_lm_logits(model, all, NULL));
            good("prefill");
            decode(model, ids, CONTEXT, (int64_t[]){1, 0}, CONTEXT, prefill, "token by token");
            decode(model, ids, CONTEXT, (int64_t[]){100, 1, 0}, CONTEXT, prefill,
                   "a prompt, then tokens");
            decode(model, ids, 70, (int64_t[]){5, 66, 0}, 71, prefill, "pieces");
            decode(model, ids, 40, (int64_t[]){1, 0}, 40, prefill, "a small cache");
            decode(model, ids, CONTEXT, (int64_t[]){-100, 1, 0}, CONTEXT, prefill,
                   "a dynamic prompt");
            decode(model, ids, 90, (int64_t[]){-1, -2, -16, -33, -7, 0}, 91, prefill,
                   "dynamic pieces");
        }
        { // prefixes, as sampling without a cache sees them
            CT_SCOPE;
            ct_tensor all = ct_from(ids, CT_I32, CT_DIMS(1, CONTEXT));
            const float *prefill = ct_data(ct_lm_logits(model, all, NULL));
            for (int64_t n = 1; n <= CONTEXT; n += 37) {
                ct_tensor head = ct_from(ids, CT_I32, CT_DIMS(1, n));
                const float *logits = ct_data(ct_lm_logits(model, head, NULL));
                good("prefix");
                same("a prefix", n - 1, logits, prefill, n * VOCAB);
                head = ct_from(ids, CT_I32, CT_DIMS(1, CT_DYN(n)));
                logits = ct_data(ct_lm_logits(model, head, NULL));
                good("dynamic prefix");
                same("a dynamic prefix", n - 1, logits, prefill, n * VOCAB);
            }
        }
        ct_lm_free(model);
        leave(ctx);
    }
    assert_int_equal(compiler ? setenv("COTAN_CC", compiler, 1) : unsetenv("COTAN_CC"), 0);
    free(compiler);
}

// ------------------------------------------------------------------------------------------------
// training

static int threads_alive(void) {
    DIR *folder = opendir("/proc/self/task");
    int n = 0;
    assert_non_null(folder);
    for (const struct dirent *d; (d = readdir(folder));) n += d->d_name[0] != '.';
    closedir(folder);
    return n;
}

static double cpu_ms(clockid_t clock) {
    struct timespec t;
    assert_int_equal(clock_gettime(clock, &t), 0);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

// How long threads other than this one have run. Those that ended are in the process' clock, so a
// pool that shrinks takes nothing back.
static double others_ran_ms(void) {
    double here = cpu_ms(CLOCK_THREAD_CPUTIME_ID); // first: what comes between is not theirs
    return cpu_ms(CLOCK_PROCESS_CPUTIME_ID) - here;
}

typedef struct {
    size_t n;
    char *bytes;
    float loss;
} weights;

static weights weights_of(ct_params *params) {
    CT_SCOPE;
    weights w = {0};
    w.bytes = malloc((size_t)ct_params_size(params) * sizeof(float));
    assert_non_null(w.bytes);
    for (size_t i = 0; i < ct_params_count(params); i++) {
        ct_tensor t = ct_params_get(params, i);
        const void *data = ct_data(t);
        good(ct_params_name(params, i));
        memcpy(w.bytes + w.n, data, (size_t)ct_size(t) * sizeof(float));
        w.n += (size_t)ct_size(t) * sizeof(float);
    }
    return w;
}

static weights train(const char *fuse, int threads) {
    enum { BATCH = 8, T = 64, STEPS = 20 };
    int32_t in[BATCH * T], out[BATCH * T];
    ct_ctx *ctx = enter(fuse, threads);
    ct_lm *model = ct_lm_new(&config, 7);
    if (!model) fail_msg("%s", ct_error_text());
    ct_optim *adamw = ct_adamw(ct_lm_params(model), .lr = 1e-3, .clip = 1.0);
    if (!adamw) fail_msg("%s", ct_error_text());
    random_state = 41;
    double before = others_ran_ms();
    for (int step = 0; step < STEPS; step++) {
        CT_SCOPE;
        tokens(in, BATCH * T);
        for (int i = 0; i < BATCH * T; i++) out[i] = (in[i] * 3 + 1) % VOCAB; // can be learnt
        ct_nn_mode mode = {.training = true, .dropout = 0.1f, .key = ct_random_key(step)};
        ct_tensor x = ct_from(in, CT_I32, CT_DIMS(BATCH, T));
        ct_tensor y = ct_from(out, CT_I32, CT_DIMS(BATCH, T));
        ct_tensor loss = ct_lm_loss(model, x, y, &mode);
        ct_metric("loss", loss);
        ct_optim_step(adamw, loss);
    }
    good("training");
    int alive = threads_alive();
    double ran = others_ran_ms() - before;
    weights w = weights_of(ct_lm_params(model));
    w.loss = (float)ct_metric_value("loss");
    print_message("COTAN_FUSE=%s, %d threads: %d alive, the pool ran %.1f ms; loss %.6f\n", fuse,
                  threads, alive, ran, (double)w.loss);
    if (threads > 1) {
        assert_true(alive >= threads);
        assert_true(ran > 0.1); // the time between two looks at clocks is a hundredth of that
    }
    ct_optim_free(adamw);
    ct_lm_free(model);
    leave(ctx);
    return w;
}

static void weights_do_not_see_threads_or_fusion(void **state) {
    (void)state;
    weights first = train("1", 1);
    assert_true(first.loss < 4.17f); // log(65): something was learnt
    static const struct {
        const char *fuse;
        int threads;
    } ways[] = {{"0", 3}, {"1", 2}, {"1", 4}, {"0", 1}};
    const size_t n = getenv("COTAN_TEST_ALL") ? sizeof ways / sizeof *ways : 1;
    for (size_t i = 0; i < n; i++) {
        weights w = train(ways[i].fuse, ways[i].threads);
        assert_int_equal(w.n, first.n);
        for (size_t k = 0; k < w.n; k += sizeof(float))
            if (memcmp(w.bytes + k, first.bytes + k, sizeof(float)) != 0)
                fail_msg("COTAN_FUSE=%s, %d threads: weights differ at byte %zu", ways[i].fuse,
                         ways[i].threads, k);
        free(w.bytes);
    }
    free(first.bytes);
}

// Loss and gradients of two texts of n tokens; gives how many bytes.
static size_t loss_and_gradients(ct_lm *model, const int32_t *ids, int64_t n, bool dynamic,
                                 char *to) {
    CT_SCOPE;
    enum { MOST = 64 };
    ct_ints dims = CT_DIMS(2, dynamic ? CT_DYN(n) : n);
    ct_tensor x = ct_from(ids, CT_I32, dims), y = ct_from(ids + 1, CT_I32, dims);
    ct_tensor out[MOST], wrt[MOST];
    const ct_params *params = ct_lm_params(model);
    size_t count = ct_params_count(params), at = 0;
    assert_true(count < MOST);
    for (size_t i = 0; i < count; i++) wrt[i] = ct_params_get(params, i);
    out[0] = ct_lm_loss(model, x, y, NULL);
    ct_grad(out[0], wrt, count, out + 1);
    if (!ct_eval(out, count + 1)) fail_msg("%s", ct_error_text());
    for (size_t i = 0; i <= count; i++) {
        size_t bytes = (size_t)ct_size(out[i]) * sizeof(float);
        const void *data = ct_data(out[i]);
        good("a gradient");
        if (to) memcpy(to + at, data, bytes);
        at += bytes;
    }
    return at;
}
// After the first length no other one needs a kernel, whether from the compiler or from disk.
static void a_training_step_of_any_length_compiles_nothing(void **state) {
    (void)state;
    static const int64_t length[] = {100, 1, 64, 33, 65, 130};
    int32_t ids[2 * CONTEXT + 1];
    setenv("COTAN_COMPILE", "wait", 1); // kernels are counted when a plan is made,
    assert_true(ct_shutdown());         // and none that an earlier test has queued
    for (int fuse = 1; fuse >= 0; fuse--) {
        ct_ctx *ctx = enter(fuse ? "1" : "0", 2);
        ct_lm *model = model_of(6);
        random_state = 41;
        tokens(ids, 2 * CONTEXT + 1);
        size_t n = loss_and_gradients(model, ids, length[0], true, NULL);
        ct_stats before = ct_get_stats();
        for (int i = 1; i < 6; i++) {
            assert_true(length[i] <= CONTEXT);
            loss_and_gradients(model, ids, length[i], true, NULL);
            ct_stats now = ct_get_stats();
            if (now.kernels_compiled + now.kernels_loaded !=
                before.kernels_compiled + before.kernels_loaded)
                fail_msg("COTAN_FUSE=%d: length %d needs other kernels", fuse, (int)length[i]);
        }
        char *a = malloc(n), *b = malloc(n);
        assert_true(a && b);
        // The bits of a static length; unfused, where each node is a kernel to compile, if COTAN_TEST_ALL is set.
        const int compared = getenv("COTAN_TEST_ALL") ? 2 : fuse;
        for (int i = 0; i < compared; i++) {
            assert_int_equal(loss_and_gradients(model, ids, length[i], true, a), n);
            assert_int_equal(loss_and_gradients(model, ids, length[i], false, b), n);
            assert_memory_equal(a, b, n);
        }
        free(a);
        free(b);
        ct_lm_free(model);
        leave(ctx);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_do_not_see_their_batch),
        cmocka_unit_test(texts_do_not_see_their_batch),
        cmocka_unit_test(decode_equals_prefill),
        cmocka_unit_test(weights_do_not_see_threads_or_fusion),
        cmocka_unit_test(a_training_step_of_any_length_compiles_nothing),
    };
    return cmocka_run_group_tests_name("bits", tests, NULL, NULL);
}

// Language models from files, for test_language_models.py and tests/parity:
//     test_language_models MODE DIR IN.npz OUT.npz [SAVED]
// IN has tokens ids (B, T). MODE "logits" writes the logits of all, and saves the model where it is asked to;
// "grads" logits, loss, and its gradients by name; "steps" what steps with a cache say of each token: one text at a
// time in pieces, then all together token by token; "kept" the loss of each text's tokens where keys and values are kept as f32, f16,
// bf16 and codes of 8 bits; "write" 64 tokens behind the first text, the likeliest each time, "generate" the
// same by ct_lm_generate, "generate3" drawn by the seed 3, "generateb47" by four beams, which token 7 ends, "generateb47m5" after five others; "process", of which DIR is nothing, what ct_lm_process_logits does. Of a model that reads one text and
// writes another, ids are read and IN's "written" (B, U) begin what is written.
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
#include "models/stack.h"

enum { MOST = 512, PIECE = 7, WRITTEN = 64 };

static ct_tensor ids,
    written; // (B, T) and (B, U) i32; written: CT_NONE where the model has one text

static ct_tensor logits_of(const ct_lm *lm) {
    return written.bits ? ct_lm_seq2seq_logits(lm, ids, written, NULL)
                        : ct_lm_logits(lm, ids, NULL);
}

static bool logits(ct_lm *lm, const char *to) {
    ct_named_tensor out = {"logits", logits_of(lm)};
    return ct_save_npz(to, &out, 1);
}

static bool grads(ct_lm *lm, const char *to) {
    ct_params *params = ct_lm_params(lm);
    const size_t n = ct_params_count(params);
    ct_tensor wrt[MOST], got[MOST], y = logits_of(lm);
    ct_tensor own = written.bits ? written : ids;
    ct_named_tensor out[MOST + 2];
    if (n > MOST) return false;
    const int64_t batch = ct_dim(own, 0), time = ct_dim(own, 1), vocab = ct_dim(y, 2);
    ct_tensor seen = ct_slice(y, .axes = CT_AXES(1), .stop = CT_INTS(-1)),
              next = ct_slice(own, .axes = CT_AXES(1), .start = CT_INTS(1));
    ct_tensor loss = ct_cross_entropy(ct_reshape(seen, CT_DIMS(batch * (time - 1), vocab)),
                                      ct_reshape(next, CT_DIMS(batch * (time - 1))));
    for (size_t i = 0; i < n; i++) wrt[i] = ct_params_get(params, i);
    ct_grad(loss, wrt, n, got);
    for (size_t i = 0; i < n; i++) out[i] = (ct_named_tensor){ct_params_name(params, i), got[i]};
    out[n] = (ct_named_tensor){"logits", y};
    out[n + 1] = (ct_named_tensor){"loss", loss};
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

static ct_tensor places(int64_t first, int64_t n) { // of states
    int32_t at[MOST];
    for (int64_t i = 0; i < n; i++) at[i] = (int32_t)(first + i);
    return ct_from(at, CT_I32, CT_DIMS(n));
}

// Tokens `from` to `to` of n texts.
static ct_lm_part part_of(ct_tensor tokens, int64_t first, int64_t n, int64_t from, int64_t to,
                          int64_t pages) {
    return (ct_lm_part){.tokens = columns(tokens, first, n, from, to),
                        .position = at(from, n),
                        .table = table(first, n, ct_dim(tokens, 0), pages),
                        .state = places(first, n)};
}

// What is known of pieces is behind their last tokens alone.
static bool steps(ct_lm *lm, const char *to) {
    const int64_t n = ct_dim(ids, 0), time = ct_dim(ids, 1), pages = time / CT_LM_PAGE + 1;
    ct_lm_cache *cache = ct__lm_cache_new(lm, n * pages, n, CT_F32, CT_HERE);
    ct_tensor one[MOST], piece[MOST];
    int64_t pieces = 0;
    bool ok = cache != NULL;
    for (int64_t i = 0; ok && i < n; i++)
        for (int64_t t = 0; ok && t < time; t += PIECE) {
            const int64_t end = t + PIECE < time ? t + PIECE : time;
            const ct_lm_part part = part_of(ids, i, 1, t, end, pages);
            piece[pieces] = ct__lm_step(lm, cache, &part, 1, time, CT_HERE); // (1, vocab)
            ok = ct_eval(&piece[pieces++], 1);
        }
    // The first text is one part of each step, the others the other part.
    for (int64_t t = 0; ok && t < time; t++) {
        const ct_lm_part part[2] = {part_of(ids, 0, 1, t, t + 1, pages),
                                    part_of(ids, 1, n - 1, t, t + 1, pages)};
        one[t] = ct__lm_step(lm, cache, part, 2, time, CT_HERE); // (B, vocab)
        ok = ct_eval(&one[t], 1);
    }
    ct_named_tensor out[2] = {{"pieces", CT_NONE}, {"tokens", CT_NONE}};
    if (ok) {
        out[0].tensor = ct_concat(piece, (int)pieces, 0);
        out[1].tensor = ct_concat(one, (int)time, 0);
    }
    ok = ok && ct_save_npz(to, out, 2);
    ct__lm_cache_free(cache);
    return ok;
}

// The loss of all texts where keys and values of what came before are kept as `dtype`.
static double loss_kept(const ct_lm *lm, ct_dtype dtype) {
    enum { AT_ONCE = 32 };
    const int64_t n = ct_dim(ids, 0), time = ct_dim(ids, 1) - 1, pages = time / CT_LM_PAGE + 1;
    ct_lm_cache *cache = ct__lm_cache_new(lm, n * pages, n, dtype, CT_HERE);
    double sum = 0;
    for (int64_t t = 0; cache && t < time; t += AT_ONCE) {
        CT_SCOPE;
        const int64_t end = t + AT_ONCE < time ? t + AT_ONCE : time, rows = n * (end - t);
        ct_lm_part part = part_of(ids, 0, n, t, end, pages);
        part.every = true;
        ct_tensor next = ct_reshape(columns(ids, 0, n, t + 1, end + 1), CT_DIMS(rows));
        sum += (double)rows *
               ct_item(ct_cross_entropy(ct__lm_step(lm, cache, &part, 1, time, CT_HERE), next));
    }
    ct__lm_cache_free(cache);
    return sum / (double)(n * time);
}

static bool kept(const ct_lm *lm, const char *to) {
    static const ct_dtype dtypes[] = {CT_F32, CT_F16, CT_BF16, CT_I8};
    double losses[4];
    for (int i = 0; i < 4; i++) losses[i] = loss_kept(lm, dtypes[i]);
    ct_named_tensor out = {"losses", ct_from(losses, CT_F64, CT_DIMS(4))};
    return ct_save_npz(to, &out, 1);
}

static bool write(ct_lm *lm, const char *to) {
    ct_tensor begun = written.bits ? written : ids;
    const int64_t time = ct_dim(begun, 1), all = time + WRITTEN, pages = all / CT_LM_PAGE + 1;
    ct_lm_cache *cache = ct__lm_cache_new(lm, pages, 1, CT_F32, CT_HERE);
    int32_t tokens[WRITTEN];
    ct_tensor memory = CT_NONE;
    if (written.bits) {
        memory = ct_lm_hidden(lm->reader, columns(ids, 0, 1, 0, ct_dim(ids, 1)), NULL);
        if (!ct_eval(&memory, 1)) return false;
    }
    for (int64_t t = 0; cache && t < WRITTEN; t++) {
        CT_SCOPE;
        ct_lm_part part = part_of(begun, 0, 1, 0, time, pages);
        part.table = table(0, 1, 1, pages);
        part.memory = memory;
        if (t) part.tokens = ct_from(&tokens[t - 1], CT_I32, CT_DIMS(1, 1));
        if (t) part.position = at(time + t - 1, 1);
        ct_tensor best = ct_argmax(ct__lm_step(lm, cache, &part, 1, all, CT_HERE), .axis = 1);
        tokens[t] = (int32_t)ct_item(best);
    }
    ct_named_tensor out = {"tokens", ct_from(tokens, CT_I32, CT_DIMS(WRITTEN))};
    bool ok = cache && ct_save_npz(to, &out, 1);
    ct__lm_cache_free(cache);
    return ok;
}

// IN: scores (vocab) f32, text (n) i32, options (10) f64, bias_tokens and banned i32, bias f32.
static bool process(const char *from, const char *to) {
    ct_npz *in = ct_npz_open(from);
    ct_tensor x = ct_npz_get(in, "scores"), text = ct_npz_get(in, "text");
    const double *o = ct_data(ct_npz_get(in, "options"));
    ct_tensor banned = ct_npz_get(in, "banned"), tokens = ct_npz_get(in, "bias_tokens");
    const float *add = ct_data(ct_npz_get(in, "bias")), *given = ct_data(x);
    const int32_t *of = ct_data(tokens), *seen = ct_data(text);
    const ct_lm_tokens sequence = {ct_data(banned), (size_t)ct_size(banned)};
    ct_npz_close(in);
    static float scores[1 << 16];
    ct_lm_logit_bias bias[MOST];
    if (!o || !add || !given || !of || !seen || !sequence.v || ct_size(x) > 1 << 16) return false;
    memcpy(scores, given, (size_t)ct_size(x) * sizeof *scores);
    for (int64_t i = 0; i < ct_size(tokens); i++) bias[i] = (ct_lm_logit_bias){of[i], add[i]};
    const ct_lm_sampling s = {.repetition_penalty = CT_F(o[0]),
                              .frequency_penalty = o[1],
                              .presence_penalty = o[2],
                              .temperature = CT_F(o[3]),
                              .top_k = (int64_t)o[4],
                              .top_p = CT_F(o[5]),
                              .min_p = o[6],
                              .typical_p = CT_F(o[7]),
                              .no_repeat_ngram_size = (int64_t)o[8],
                              .logit_bias = bias,
                              .n_logit_bias = (size_t)ct_size(tokens),
                              .banned = &sequence,
                              .n_banned = sequence.n ? 1 : 0};
    if (!ct_lm_process_logits(scores, ct_size(x), seen, (size_t)ct_size(text), (size_t)o[9], &s))
        return false;
    ct_named_tensor out = {"scores", ct_from(scores, CT_F32, CT_DIMS(ct_size(x)))};
    return ct_save_npz(to, &out, 1);
}

typedef struct told {
    int32_t token[WRITTEN];
    double log_probability[WRITTEN];
    int64_t n;
} told;
static bool hear(int32_t token, double log_probability, void *user) {
    told *t = user;
    t->token[t->n] = token;
    t->log_probability[t->n++] = log_probability;
    return true;
}

// Tokens that ct_lm_generate writes behind the first text, at a temperature of 1 by the seed of the name.
static bool generate(ct_lm *lm, const char *seed, const char *to) {
    int64_t beams = *seed == 'b' ? seed[1] - '0' : 0;
    char *least = "";
    const int32_t end = beams ? (int32_t)strtol(seed + 2, &least, 10) : 0;
    if (beams) seed = "";
    told t = {.n = 0};
    // "-" is a temperature that there is not.
    ct_lm_sampling sampling = {.temperature = CT_F(*seed == '-' ? -1
                                                   : *seed      ? 1
                                                                : 0),
                               .min_new_tokens = *least ? least[1] - '0' : 0,
                               .seed = (uint64_t)(*seed ? *seed - '0' : 0)};
    const int32_t *prompt = ct_data(ids);
    if (!prompt ||
        !ct_lm_generate(.lm = lm, .prompt = prompt, .n_prompt = (size_t)ct_dim(ids, 1),
                        .max_tokens = beams ? 12 : WRITTEN, .beams = beams, .eos_ids = &end,
                        .n_eos_ids = beams > 0, .sampling = sampling, .on_token = hear, .user = &t))
        return false;
    ct_named_tensor out[2] = {
        {"tokens", ct_from(t.token, CT_I32, CT_DIMS(t.n))},
        {"log_probabilities", ct_from(t.log_probability, CT_F64, CT_DIMS(t.n))}};
    return ct_save_npz(to, out, 2);
}

static int run(int argc, char **argv) {
    const char *mode = argv[1], *to = argv[4];
    const bool train = strcmp(mode, "grads") == 0, in_place = strncmp(mode, "in_place_", 9) == 0,
               exact = strncmp(mode, "f32_", 4) == 0; // products of quantised weights
    mode += in_place ? 9 : exact ? 4 : 0;
    CT_SCOPE;
    if (strcmp(mode, "process") == 0) {
        if (process(argv[3], to)) return 0;
        return fprintf(stderr, "%s\n", ct_error_text()), 1;
    }
    ct_npz *in = ct_npz_open(argv[3]);
    ids = ct_npz_get(in, "ids");
    for (size_t i = 0; i < ct_npz_count(in); i++)
        if (strcmp(ct_npz_name(in, i), "written") == 0) written = ct_npz_get(in, "written");
    ct_npz_close(in);
    ct_lm *lm = ct_lm_load(argv[2], .trainable = train, .no_repack = in_place,
                           .activations = exact ? CT_F32 : CT_DEFAULT);
    bool ok = lm != NULL;
    if (ok && strcmp(mode, "logits") == 0) ok = logits(lm, to);
    if (ok && train) ok = grads(lm, to);
    if (ok && strcmp(mode, "steps") == 0) ok = steps(lm, to);
    if (ok && strcmp(mode, "kept") == 0) ok = kept(lm, to);
    if (ok && strcmp(mode, "write") == 0) ok = write(lm, to);
    if (ok && strncmp(mode, "generate", 8) == 0) ok = generate(lm, mode + 8, to);
    if (ok && argc == 6) ok = ct_lm_save(lm, argv[5]);
    ct_lm_free(lm);
    if (!ok) fprintf(stderr, "%s\n", ct_error_text());
    return ok ? 0 : 1;
}

static void of_other_activations(void **state) {
    (void)state;
    const ct_dtype others[] = {CT_F16, CT_BF16, CT_U8};
    const char *const said[] = {"activations of f16: they are i8 or f32",
                                "activations of bf16: they are i8 or f32",
                                "activations of u8: they are i8 or f32"};
    for (int i = 0; i < 3; i++) {
        assert_null(ct_lm_load("no-such-folder", .activations = others[i]));
        assert_int_equal(ct_error_code(), CT_E_ARGUMENT);
        assert_string_equal(strstr(ct_error_text(), "lm_load: ") + 9, said[i]);
        ct_error_clear();
    }
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_is_whole),
                                       cmocka_unit_test(of_other_activations)};
    return cmocka_run_group_tests_name("language_models", tests, NULL, NULL);
}

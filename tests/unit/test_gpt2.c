// GPT-2: names and sizes, first values, files, decoding with a cache, training.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cotan/cotan.h"
#include "cotan/lm.h"
#include "cotan/optim.h"
#include "base/os.h"
#include "io/config.h"
#include "io/safetensors.h"
#include "models/lm.h"
#include "models/stack.h"

enum { V = 11, C = 10, L = 2, H = 2, W = 12, B = 3 };

static ct_lm_config tiny(void) {
    return (ct_lm_config){.vocab = V, .context = C, .layers = L, .heads = H, .width = W};
}

static ct_lm *make(ct_lm_config config, uint64_t seed) {
    ct_lm *model = ct_lm_new(&config, seed);
    assert_string_equal(ct_error_text(), "");
    assert_non_null(model);
    return model;
}

// Text `row` is 3 t^2 + 5 t + 2 row, modulo V.
static ct_tensor tokens(int64_t rows, int64_t time, int64_t first_row, int64_t shift) {
    int32_t ids[B * C];
    for (int64_t r = 0; r < rows; r++)
        for (int64_t t = 0; t < time; t++) {
            int64_t at = t + shift;
            ids[r * time + t] = (int32_t)((3 * at * at + 5 * at + 2 * (r + first_row)) % V);
        }
    return ct_from(ids, CT_I32, CT_DIMS(rows, time));
}

// A folder of its own for a test's files.
static const char *folder(void) {
    static char name[64];
    snprintf(name, sizeof name, "/tmp/cotan_gpt2_XXXXXX");
    assert_non_null(mkdtemp(name));
    return name;
}
static const char *in_folder(const char *dir, const char *file) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    return path;
}
static void remove_folder(const char *dir) {
    unlink(in_folder(dir, "model.safetensors"));
    unlink(in_folder(dir, "config.json"));
    assert_int_equal(rmdir(dir), 0);
}

// The whole error of the context, the folder written as DIR; then it is cleared.
static void expect_error(const char *dir, const char *want) {
    const char *text = ct_error_text();
    size_t n = strlen(dir);
    char shown[2048];
    size_t k = 0;
    for (const char *p = text; *p && k < sizeof shown - 4; p++) {
        if (n && strncmp(p, dir, n) == 0) {
            k += (size_t)sprintf(shown + k, "DIR");
            p += n - 1;
        } else {
            shown[k++] = *p;
        }
    }
    shown[k] = '\0';
    assert_string_equal(shown, want);
    ct_error_clear();
}

// -------------------------------------------------------------------------------------------------

static void names_and_shapes_are_those_of_the_files(void **state) {
    (void)state;
    ct_lm *model = make(tiny(), 1);
    const struct {
        const char *name;
        int rows, cols;
    } want[] = {
        {"wte.weight", V, W},
        {"wpe.weight", C, W},
        {"h.0.ln_1.weight", W, 0},
        {"h.0.ln_1.bias", W, 0},
        {"h.0.attn.c_attn.weight", W, 3 * W},
        {"h.0.attn.c_attn.bias", 3 * W, 0},
        {"h.0.attn.c_proj.weight", W, W},
        {"h.0.attn.c_proj.bias", W, 0},
        {"h.0.ln_2.weight", W, 0},
        {"h.0.ln_2.bias", W, 0},
        {"h.0.mlp.c_fc.weight", W, 4 * W},
        {"h.0.mlp.c_fc.bias", 4 * W, 0},
        {"h.0.mlp.c_proj.weight", 4 * W, W},
        {"h.1.mlp.c_proj.bias", W, 0},
        {"ln_f.weight", W, 0},
        {"ln_f.bias", W, 0},
    };
    ct_params *params = ct_lm_params(model);
    assert_int_equal(ct_params_count(params), 2 + 12 * L + 2);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        ct_tensor t = ct_params_find(params, want[i].name);
        assert_int_equal(ct_rank(t), want[i].cols ? 2 : 1);
        assert_int_equal(ct_dim(t, 0), want[i].rows);
        if (want[i].cols) assert_int_equal(ct_dim(t, 1), want[i].cols);
        assert_int_equal(ct_dtype_of(t), CT_F32);
    }
    ct_lm_free(model);
}

static int64_t size_of(const ct_lm_config *c) {
    const ct_lm_sizes sizes = {.op = "test",
                               .arch = "gpt2",
                               .vocab = c->vocab,
                               .context = c->context,
                               .layers = c->layers,
                               .heads = c->heads,
                               .width = c->width,
                               .begin = -1,
                               .end = -1,
                               .no_bias = c->no_bias};
    ct_arena arena = {0};
    ct_spec spec;
    ct_err err = {0};
    assert_true(ct__lm_spec_of(&sizes, &arena, &spec, NULL, &err));
    const int64_t n = ct__stack_size(&spec);
    ct__arena_free(&arena);
    return n;
}

static void the_size_is_known_before_the_model(void **state) {
    (void)state;
    ct_lm_config config = {
        .vocab = 50257, .context = 1024, .layers = 12, .heads = 12, .width = 768};
    assert_int_equal(size_of(&config), 124439808); // as published
    config = (ct_lm_config){
        .vocab = INT32_MAX, .context = INT32_MAX, .layers = 10000, .heads = 16, .width = 1 << 24};
    assert_true(size_of(&config) == INT64_MAX); // each in its range
    for (int no_bias = 0; no_bias < 2; no_bias++) {
        config = tiny();
        config.no_bias = no_bias;
        ct_lm *model = make(config, 1);
        assert_int_equal(size_of(&config), ct_params_size(ct_lm_params(model)));
        assert_int_equal(size_of(&config), ct_lm_info(model).parameters);
        ct_lm_free(model);
    }
}

static double deviation(ct_tensor t) {
    CT_SCOPE;
    const float *x = ct_data(t);
    assert_non_null(x);
    double sum = 0;
    for (int64_t i = 0; i < ct_size(t); i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum / (double)ct_size(t));
}

static bool same(ct_tensor a, ct_tensor b) {
    CT_SCOPE;
    const void *x = ct_data(a), *y = ct_data(b);
    assert_non_null(x);
    assert_non_null(y);
    return memcmp(x, y, (size_t)ct_size(a) * 4) == 0;
}

static void first_values_follow_seed_and_name(void **state) {
    (void)state;
    ct_lm_config config = tiny(), deeper = tiny();
    config.width = deeper.width = 64;
    deeper.layers = 3;
    ct_lm *a = make(config, 7), *b = make(config, 7), *c = make(config, 8), *d = make(deeper, 7);
    ct_params *p = ct_lm_params(a);
    for (size_t i = 0; i < ct_params_count(p); i++) {
        const char *name = ct_params_name(p, i);
        ct_tensor t = ct_params_get(p, i);
        assert_true(same(t, ct_params_find(ct_lm_params(b), name)));
        bool drawn = ct_rank(t) == 2;
        assert_int_equal(same(t, ct_params_find(ct_lm_params(c), name)), !drawn);
        if (!drawn) {
            assert_true(deviation(t) == (strstr(name, "bias") ? 0 : 1));
            continue;
        }
        bool residual = strstr(name, "c_proj") != NULL;
        double want = residual ? 0.02 / sqrt(2.0 * L) : 0.02;
        assert_true(fabs(deviation(t) / want - 1) < 5 / sqrt(2.0 * (double)ct_size(t)));
        // Another depth leaves the values of what both have alone, but for the scale.
        if (!residual) assert_true(same(t, ct_params_find(ct_lm_params(d), name)));
    }
    assert_false(
        same(ct_params_find(p, "h.0.mlp.c_fc.weight"), ct_params_find(p, "h.1.mlp.c_fc.weight")));
    ct_lm_free(a);
    ct_lm_free(b);
    ct_lm_free(c);
    ct_lm_free(d);
}

static void a_model_that_cannot_be_is_refused(void **state) {
    (void)state;
    ct_lm_config config = tiny();
    config.heads = 5;
    assert_null(ct_lm_new_at(&config, 1, (ct_loc){"main.c", 3}));
    expect_error("", "main.c:3: lm_new: width 12 is no multiple of 5 heads");
    config = tiny();
    config.layers = 0;
    assert_null(ct_lm_new_at(&config, 1, (ct_loc){"main.c", 3}));
    expect_error("", "main.c:3: lm_new: layers is 0, it must be 1 to 2147483647");
    config = tiny();
    config.layers = 10001;
    assert_null(ct_lm_new_at(&config, 1, (ct_loc){"main.c", 3}));
    expect_error("", "main.c:3: lm_new: gpt2: layers is 10001, it must be 1 to 10000");
    config = tiny();
    config.arch = "lama";
    assert_null(ct_lm_new_at(&config, 1, (ct_loc){"main.c", 3}));
    expect_error(
        "", "main.c:3: lm_new: lama: key \"model_type\" is \"lama\", an architecture that is not "
            "known\n  hint: the nearest that is known is \"llama\"");
    config = tiny();
    config.dropout = 1;
    assert_null(ct_lm_new_at(&config, 1, (ct_loc){"main.c", 3}));
    expect_error("", "main.c:3: lm_new: dropout is 1, it must be from 0 to below 1");
    ct_lm *model = make(tiny(), 1);
    CT_SCOPE;
    assert_false(ct_ok(ct_lm_logits_at(model, tokens(1, C, 0, 0), NULL, CT_NOWHERE)) == false);
    int32_t ids[C + 1] = {0};
    ct_tensor longer = ct_from(ids, CT_I32, CT_DIMS(1, C + 1));
    assert_false(ct_ok(ct_lm_logits_at(model, longer, NULL, (ct_loc){"main.c", 4})));
    expect_error("",
                 "main.c:4: lm_logits: the tokens have 2 axes, the last of size 11; they must be "
                 "(batch, time) with a time of 1 to 10");
    ct_lm_free(model);
}

// -------------------------------------------------------------------------------------------------
// files

static ct_lm *load(const char *dir) {
    return ct_lm_load_with(dir, (ct_lm_load_options){.trainable = true, .here = {"main.c", 9}});
}

// The sizes of the model, and the keys of its vocabulary.
static void check_tiny(const ct_lm *model, int no_bias, const char *characters) {
    const ct_spec *s = &model->spec;
    const char *text = NULL;
    size_t n = 0;
    ct_err err = {0};
    assert_true(s->vocab == V && s->context == C && s->layers == L && s->heads == H);
    assert_true(s->width == W && s->eps == 1e-5 && s->bias == !no_bias && s->tied);
    assert_true(ct__config_string(&model->config, "tokenizer", &text, &n, &err));
    assert_string_equal(text, "chars");
    assert_true(ct__config_string(&model->config, "vocabulary", &text, &n, &err));
    assert_int_equal(n, strlen(characters));
    assert_memory_equal(text, characters, n);
}

// The config.json of tiny() with `layers` and what else is to stand in it.
static void write_config(const char *dir, int64_t layers, const char *more) {
    FILE *out = fopen(in_folder(dir, "config.json"), "w");
    assert_non_null(out);
    fprintf(out,
            "{\"model_type\": \"gpt2\", \"vocab_size\": %d, \"n_positions\": %d, \"n_embd\": %d, "
            "\"n_layer\": %lld, \"n_head\": %d%s}",
            V, C, W, (long long)layers, H, more);
    assert_int_equal(fclose(out), 0);
}

static void what_this_model_does_not_compute_is_refused(void **state) {
    (void)state;
    static const char *const refused[][2] = {
        {"\"scale_attn_weights\": false",
         "/config.json: \"scale_attn_weights\" is false, which is not computed: it must be true"},
        {"\"scale_attn_by_inverse_layer_idx\": true",
         "/config.json: \"scale_attn_by_inverse_layer_idx\" is true, which is not computed: it "
         "must "
         "be false"},
        {"\"add_cross_attention\": true",
         "/config.json: \"add_cross_attention\" is true, which is not computed: it must be false"},
        {"\"tie_word_embeddings\": false",
         ": 1 of the weights that gpt2 has do not fit: \"lm_head.weight\" is missing"},
        {"\"layer_norm_epsilon\": 0", "/config.json: eps is 0, it must be above 0"},
        {"\"layer_norm_epsilon\": -1", "/config.json: eps is -1, it must be above 0"},
    };
    const char *dir = folder();
    char more[512], want[512];
    ct_lm *model = make(tiny(), 3);
    assert_true(ct_lm_save(model, dir));
    ct_lm_free(model);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        snprintf(more, sizeof more, ", %s", refused[i][0]);
        write_config(dir, L, more);
        assert_null(load(dir));
        snprintf(want, sizeof want, "main.c:9: lm_load: DIR%s", refused[i][1]);
        expect_error(dir, want);
    }
    write_config(dir, L,
                 ", \"activation_function\": \"gelu_new\", \"architectures\": "
                 "[\"GPT2LMHeadModel\"], \"attn_pdrop\": 0.1, \"bos_token_id\": 50256, "
                 "\"embd_pdrop\": 0.1, \"eos_token_id\": 50256, \"initializer_range\": 0.02, "
                 "\"layer_norm_epsilon\": 1e-05, \"n_ctx\": 10, \"resid_pdrop\": 0.1, "
                 "\"summary_use_proj\": true, \"n_inner\": null, \"scale_attn_weights\": true, "
                 "\"scale_attn_by_inverse_layer_idx\": false, \"add_cross_attention\": false, "
                 "\"tie_word_embeddings\": true"); // as published, and its defaults
    model = load(dir);
    assert_string_equal(ct_error_text(), "");
    ct_lm_free(model);
    write_config(dir, L, ", \"n_inner\": 48");
    model = load(dir);
    assert_string_equal(ct_error_text(), "");
    ct_lm_free(model);
    remove_folder(dir);
}

static bool sealed(ct_config *config, void *user, ct_err *err) {
    const char *characters = user;
    (void)err;
    ct__config_set_string(config, "tokenizer", "chars", 5);
    ct__config_set_string(config, "vocabulary", characters, strlen(characters));
    ct__config_seal(config);
    return true;
}
// Whichever bit of config.json flips, the model that loads is the one that was saved.
static void no_flipped_bit_of_the_config_is_taken(void **state) {
    (void)state;
    const char *dir = folder();
    ct_lm *model = make(tiny(), 3);
    assert_true(ct__lm_save(model, dir, sealed, (char[]){"abcdefghijk"}, (ct_loc){"main.c", 9}));
    ct_lm_free(model);
    char path[256], *bytes;
    snprintf(path, sizeof path, "%s", in_folder(dir, "config.json"));
    size_t n, taken = 0;
    ct_err err = {0};
    assert_true(ct__file_read(path, &bytes, &n, &err));
    for (size_t bit = 0; bit < n * 8; bit += getenv("COTAN_TEST_ALL") ? 1 : 11) {
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
        FILE *out = fopen(path, "w");
        assert_true(out && fwrite(bytes, 1, n, out) == n && fclose(out) == 0);
        bytes[bit / 8] = (char)(bytes[bit / 8] ^ 1 << bit % 8);
        model = ct__lm_load_run(dir, true);
        ct_error_clear();
        if (!model) continue;
        taken++;
        check_tiny(model, false, "abcdefghijk");
        ct_lm_free(model);
    }
    print_message("%zu of %zu flipped bits change nothing\n", taken, n * 8);
    assert_true(taken < 100); // white space, and the name of the checksum's key
    ct__free(bytes);
    remove_folder(dir);
}

// As transformers 4 writes a folder's config.json anew: keys that it does not know kept, the checksum
// among them, keys sorted, numbers as Python prints them, some of its own, its defaults left out.
static void a_config_that_hugging_face_wrote_is_read(void **state) {
    (void)state;
    static const char format[] =
        "{\n  \"activation_function\": \"gelu_new\",\n  \"attn_pdrop\": 0.0,\n  \"bias\": true,\n"
        "  \"bos_token_id\": 50256,\n  \"crc32c\": \"%s\",\n  \"embd_pdrop\": 0.25,\n"
        "  \"eos_token_id\": 50256,\n  \"initializer_range\": 0.02,\n"
        "  \"layer_norm_epsilon\": 1e-05,\n  \"model_type\": \"gpt2\",\n  \"n_embd\": %d,\n"
        "  \"n_head\": %d,\n  \"n_inner\": null,\n  \"n_layer\": %d,\n  \"n_positions\": %d,\n"
        "  \"reorder_and_upcast_attn\": false,\n  \"resid_pdrop\": 0.25,\n"
        "  \"scale_attn_by_inverse_layer_idx\": false,\n  \"scale_attn_weights\": true,\n"
        "  \"summary_activation\": null,\n  \"summary_first_dropout\": 0.1,\n"
        "  \"summary_proj_to_labels\": true,\n  \"summary_type\": \"cls_index\",\n"
        "  \"summary_use_proj\": true,\n  \"tokenizer\": \"chars\",\n"
        "  \"transformers_version\": \"4.46.3\",\n  \"use_cache\": true,\n  \"vocab_size\": %d,\n"
        "  \"vocabulary\": \"abcdefghij\\u00e9\"\n}\n";
    const char *dir = folder(), *sum;
    ct_lm *model = make(tiny(), 3);
    static char characters[] = "abcdefghij\xc3\xa9";
    assert_true(ct__lm_save(model, dir, sealed, characters, (ct_loc){"main.c", 9}));
    ct_lm_free(model);
    ct_config written;
    size_t n;
    ct_err err = {0};
    assert_true(ct__config_read(in_folder(dir, "config.json"), &written, &err));
    assert_true(ct__config_string(&written, "crc32c", &sum, &n, &err));
    FILE *out = fopen(in_folder(dir, "config.json"), "w");
    assert_non_null(out);
    fprintf(out, format, sum, W, H, L, C, V);
    assert_int_equal(fclose(out), 0);
    ct__config_close(&written);
    model = ct__lm_load_run(dir, true);
    assert_string_equal(ct_error_text(), "");
    check_tiny(model, false, characters);
    ct_lm_free(model);
    remove_folder(dir);
}

// Of ten thousand layers as of three: no layer is made before the weights are seen to have it.
static void layers_that_the_weights_lack_are_not_made(void **state) {
    (void)state;
    const char *dir = folder();
    ct_lm *model = make(tiny(), 3);
    assert_true(ct_lm_save(model, dir));
    ct_lm_free(model);
    static const char *const missing[] = {"12", "119976"};
    char want[128];
    const int64_t layers[] = {L + 1, 10000};
    for (int i = 0; i < 2; i++) {
        write_config(dir, layers[i], "");
        ct__fail_alloc_after(1000);
        assert_null(load(dir));
        ct__fail_alloc_after(-1);
        snprintf(want, sizeof want,
                 ": %s of the weights that gpt2 has do not fit: \"h.2.ln_1.weight\" is missing; ",
                 missing[i]);
        assert_non_null(strstr(ct_error_text(), want));
        ct_error_clear();
    }
    write_config(dir, 10001, "");
    assert_null(load(dir));
    expect_error(dir, "main.c:9: lm_load: DIR/config.json: layers is 10001, it must be 1 to 10000");
    remove_folder(dir);
}

static void files_round_trip(void **state) {
    (void)state;
    static char text[] = "\n abc\xc3\xa9";
    for (int no_bias = 0; no_bias < 2; no_bias++) {
        ct_lm_config config = tiny();
        config.no_bias = no_bias;
        config.dropout = 0.25;
        ct_lm *a = make(config, 3);
        const char *dir = folder();
        double dropout = 0;
        ct_err err = {0};
        assert_true(ct__lm_save(a, dir, sealed, text, CT_HERE));
        ct_lm *b = load(dir);
        assert_string_equal(ct_error_text(), "");
        check_tiny(b, no_bias, text);
        assert_int_equal(ct_params_count(ct_lm_params(b)), ct_params_count(ct_lm_params(a)));
        assert_true(ct__config_real(&b->config, "resid_pdrop", 0, 1, &dropout, &err));
        assert_true(dropout == 0.25);
        {
            CT_SCOPE;
            ct_tensor x = tokens(B, C, 0, 0);
            assert_true(same(ct_lm_logits(a, x, NULL), ct_lm_logits(b, x, NULL)));
        }
        ct_st file; // whole, with biases or without
        assert_true(ct__st_open(in_folder(dir, "model.safetensors"), &file, &err));
        assert_int_equal(file.n, 4 + 12 * L);
        assert_string_equal(ct__st_metadata(&file, "format"), "pt");
        ct__st_close(&file);
        ct_lm_free(a);
        ct_lm_free(b);
        remove_folder(dir);
    }
}

// Writes the model's variables under prefix + name, but for the one named `without`, and `also`
// with `n` zeros.
static void write_file(ct_lm *model, const char *path, const char *prefix, const char *without,
                       const char *also, int64_t n) {
    CT_SCOPE;
    ct_params *p = ct_lm_params(model);
    static char names[64][80];
    static int64_t shapes[64][2];
    ct_st_out out[64];
    size_t k = 0;
    for (size_t i = 0; i < ct_params_count(p); i++) {
        ct_tensor t = ct_params_get(p, i);
        if (without && strcmp(ct_params_name(p, i), without) == 0) continue;
        snprintf(names[k], sizeof names[k], "%s%s", prefix, ct_params_name(p, i));
        for (int a = 0; a < ct_rank(t); a++) shapes[k][a] = ct_dim(t, a);
        out[k] = (ct_st_out){names[k], CT_F32, (size_t)ct_rank(t), shapes[k], ct_data(t)};
        k++;
    }
    static float zeros[4096];
    if (also) out[k++] = (ct_st_out){also, CT_F32, 1, &n, zeros};
    ct_err err = {0};
    assert_true(ct__st_write(path, out, k, NULL, 0, &err));
}

static void old_names_and_masks_are_accepted(void **state) {
    (void)state;
    ct_lm *a = make(tiny(), 3);
    const char *dir = folder();
    char path[256];
    snprintf(path, sizeof path, "%s", in_folder(dir, "model.safetensors"));
    write_config(dir, L, "");
    for (int i = 0; i < 2; i++) {
        if (i)
            write_file(a, path, "", NULL, "h.1.attn.masked_bias", 1);
        else
            write_file(a, path, "transformer.", NULL, "transformer.h.0.attn.bias", 100);
        ct_lm *b = load(dir);
        assert_string_equal(ct_error_text(), "");
        ct_params *p = ct_lm_params(a), *q = ct_lm_params(b);
        assert_int_equal(ct_params_count(p), ct_params_count(q));
        for (size_t k = 0; k < ct_params_count(p); k++) {
            assert_true(same(ct_params_get(p, k), ct_params_get(q, k)));
            // named as in the file
            const char *name = ct_params_name(q, k);
            assert_string_equal(ct_params_name(p, k), name + (i ? 0 : strlen("transformer.")));
        }
        ct_lm_free(b);
    }
    ct_lm_free(a);
    remove_folder(dir);
}

static void another_architecture_is_a_sentence(void **state) {
    (void)state;
    ct_lm_config wide = tiny();
    wide.width = 16;
    ct_lm *a = make(tiny(), 3), *b = make(wide, 4);
    const char *dir = folder();
    char path[256];
    snprintf(path, sizeof path, "%s", in_folder(dir, "model.safetensors"));
    write_config(dir, L, "");
    write_file(b, path, "", NULL, NULL, 0);
    assert_null(load(dir));
    assert_non_null(strstr(ct_error_text(), ": 28 of the weights that gpt2 has do not fit: "
                                            "\"wte.weight\" is (11, 16) F32, (11, 12) f32 is "
                                            "expected; "));
    ct_error_clear();
    write_file(a, path, "", "h.1.ln_2.weight", NULL, 0);
    assert_null(load(dir));
    expect_error(dir, "main.c:9: lm_load: DIR: 1 of the weights that gpt2 has do not fit: "
                      "\"h.1.ln_2.weight\" is missing");
    write_file(a, path, "", NULL, "h.1.ln_3.weight", 4);
    assert_null(load(dir));
    expect_error(dir, "main.c:9: lm_load: DIR: 1 of the weights that gpt2 has do not fit: "
                      "\"h.1.ln_3.weight\" has no place in it");
    {
        CT_SCOPE;
        ct_tensor bias = ct_params_find(ct_lm_params(a), "ln_f.bias");
        ct_assign(bias, ct_ones(CT_F32, CT_DIMS(W)));
    }
    write_file(a, path, "", NULL, NULL, 0);
    write_config(dir, L, ", \"bias\": false");
    assert_null(load(dir));
    expect_error(dir, "main.c:9: lm_load: DIR: 1 of the weights that gpt2 has do not fit: "
                      "\"ln_f.bias\" is not zero, but the model has no biases");
    assert_int_equal(unlink(in_folder(dir, "config.json")), 0);
    assert_null(ct__lm_load_run(dir, true));
    expect_error(dir, "DIR/config.json: cannot open: No such file or directory\n"
                      "  hint: a model's folder has it; that of a run gets it with the first save");
    assert_false(ct_lm_save_at(a, "/dev/null", (ct_loc){"main.c", 9}));
    expect_error("", "main.c:9: lm_save: /dev/null: exists and is not a folder");
    ct_lm_free(a);
    ct_lm_free(b);
    remove_folder(dir);
}

// -------------------------------------------------------------------------------------------------
// running

static void a_row_does_not_see_its_batch(void **state) {
    (void)state;
    ct_lm *model = make(tiny(), 5);
    CT_SCOPE;
    const float *all = ct_data(ct_lm_logits(model, tokens(B, C, 0, 0), NULL));
    assert_non_null(all);
    for (int64_t r = 0; r < B; r++) {
        const float *one = ct_data(ct_lm_logits(model, tokens(1, C, r, 0), NULL));
        assert_non_null(one);
        assert_memory_equal(one, all + r * C * V, C * V * sizeof *one);
    }
    ct_lm_free(model);
}

static void a_token_does_not_see_what_follows(void **state) {
    (void)state;
    ct_lm *model = make(tiny(), 5);
    CT_SCOPE;
    int32_t ids[C] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    const float *a = ct_data(ct_lm_logits(model, ct_from(ids, CT_I32, CT_DIMS(1, C)), NULL));
    ids[6] = 0;
    const float *b = ct_data(ct_lm_logits(model, ct_from(ids, CT_I32, CT_DIMS(1, C)), NULL));
    assert_non_null(a);
    assert_non_null(b);
    assert_memory_equal(a, b, 6 * V * sizeof *a);
    assert_true(memcmp(a + 6 * V, b + 6 * V, V * sizeof *a) != 0);
    ct_lm_free(model);
}

static void decoding_gives_the_bits_of_prefill(void **state) {
    (void)state;
    ct_lm *model = make(tiny(), 5);
    float want[C][B * V]; // behind each position, from the whole text at once
    for (int64_t t = 0; t < C; t++) {
        CT_SCOPE;
        const float *x = ct_data(ct_lm_logits(model, tokens(B, t + 1, 0, 0), NULL));
        assert_non_null(x);
        for (int64_t r = 0; r < B; r++)
            memcpy(want[t] + r * V, x + (r * (t + 1) + t) * V, V * sizeof *x);
    }
    const int64_t first[] = {1, 4, C}; // tokens taken at once in the beginning
    for (int i = 0; i < 3; i++) {
        ct_lm_cache *cache = ct__lm_decode_cache(model, B, C, CT_HERE);
        assert_non_null(cache);
        uint64_t plans = 0;
        for (int64_t t = 0; t < C;) {
            CT_SCOPE;
            int64_t n = t ? 1 : first[i];
            ct_tensor logits = ct__lm_decode(model, cache, tokens(B, n, 0, t), ct_i(t), C, CT_HERE);
            const float *x = ct_data(logits);
            assert_string_equal(ct_error_text(), "");
            assert_memory_equal(x, want[t + n - 1], sizeof *want);
            // Behind the first single step nothing is made anew.
            if (t > first[i]) assert_int_equal(ct_get_stats().plans_made, plans);
            plans = ct_get_stats().plans_made;
            t += n;
        }
        ct__lm_cache_free(cache);
    }
    ct_lm_free(model);
}

static void dropout_follows_its_key(void **state) {
    (void)state;
    ct_lm *model = make(tiny(), 5);
    double loss[4];
    for (int i = 0; i < 4; i++) {
        CT_SCOPE;
        ct_nn_mode mode = {
            .training = i < 3, .dropout = 0.5f, .key = ct_random_key(i == 1 ? 2 : 1)};
        loss[i] = ct_item(ct_lm_loss(model, tokens(B, C, 0, 0), tokens(B, C, 0, 1), &mode));
        assert_int_equal(mode.n_dropouts, i < 3 ? 1 + 2 * L : 0);
    }
    CT_SCOPE;
    double plain = ct_item(ct_lm_loss(model, tokens(B, C, 0, 0), tokens(B, C, 0, 1), NULL));
    assert_true(loss[0] == loss[2] && loss[0] != loss[1] && loss[0] != plain);
    assert_true(loss[3] == plain);
    assert_true(fabs(plain - log(V)) < 0.1);
    ct_lm_free(model);
}

static void training_learns_a_text_by_heart(void **state) {
    (void)state;
    ct_lm *model = make(tiny(), 5);
    ct_optim *optim = ct_adamw(ct_lm_params(model), .lr = 0.01, .clip = 1.0);
    double loss = 0;
    uint64_t plans = 0;
    for (int step = 0; step < 60; step++) {
        CT_SCOPE;
        ct_tensor l = ct_lm_loss(model, tokens(B, C - 1, 0, 0), tokens(B, C - 1, 0, 1), NULL);
        ct_optim_step(optim, l);
        ct_metric("loss", l);
        if (step == 2) plans = ct_get_stats().plans_made;
    }
    loss = ct_metric_value("loss");
    assert_string_equal(ct_error_text(), "");
    assert_true(loss < 0.5);
    assert_int_equal(ct_get_stats().plans_made, plans);
    ct_optim_free(optim);
    ct_lm_free(model);
}

static void gradients_that_are_read_take_their_own_room_alone(void **state) {
    (void)state;
    ct_lm *model = make(tiny(), 5);
    ct_params *params = ct_lm_params(model);
    size_t n = ct_params_count(params);
    ct_tensor wrt[64], grads[64];
    assert_true(n <= 64);
    for (size_t i = 0; i < n; i++) wrt[i] = ct_params_get(params, i);
    uint64_t before = ct_get_stats().live_bytes;
    CT_SCOPE;
    ct_grad(ct_lm_loss(model, tokens(B, C, 0, 0), tokens(B, C, 0, 1), NULL), wrt, n, grads);
    assert_true(ct_eval(grads, n));
    uint64_t room = ct_get_stats().live_bytes - before;
    assert_true(room < 2 * 4 * (uint64_t)ct_params_size(params));
    uint64_t plans = ct_get_stats().plans_run;
    for (size_t i = 0; i < n; i++) assert_non_null(ct_data(grads[i]));
    assert_int_equal(ct_get_stats().plans_run, plans);
    ct_lm_free(model);
}

static int fresh(void **state) {
    (void)state;
    ct_error_clear();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(names_and_shapes_are_those_of_the_files, fresh),
        cmocka_unit_test_setup(the_size_is_known_before_the_model, fresh),
        cmocka_unit_test_setup(first_values_follow_seed_and_name, fresh),
        cmocka_unit_test_setup(a_model_that_cannot_be_is_refused, fresh),
        cmocka_unit_test_setup(what_this_model_does_not_compute_is_refused, fresh),
        cmocka_unit_test_setup(no_flipped_bit_of_the_config_is_taken, fresh),
        cmocka_unit_test_setup(a_config_that_hugging_face_wrote_is_read, fresh),
        cmocka_unit_test_setup(layers_that_the_weights_lack_are_not_made, fresh),
        cmocka_unit_test_setup(files_round_trip, fresh),
        cmocka_unit_test_setup(old_names_and_masks_are_accepted, fresh),
        cmocka_unit_test_setup(another_architecture_is_a_sentence, fresh),
        cmocka_unit_test_setup(a_row_does_not_see_its_batch, fresh),
        cmocka_unit_test_setup(a_token_does_not_see_what_follows, fresh),
        cmocka_unit_test_setup(decoding_gives_the_bits_of_prefill, fresh),
        cmocka_unit_test_setup(dropout_follows_its_key, fresh),
        cmocka_unit_test_setup(gradients_that_are_read_take_their_own_room_alone, fresh),
        cmocka_unit_test_setup(training_learns_a_text_by_heart, fresh),
    };
    const char *asked = getenv("COTAN_TEST_DEVICES");
    char devices[100], *rest;
    int failed = 0;
    snprintf(devices, sizeof devices, "%s", asked ? asked : "ref,cpu");
    for (char *d = strtok_r(devices, ",", &rest); d; d = strtok_r(NULL, ",", &rest)) {
        print_message("on %s\n", d);
        failed += ct_set_device(d) ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
    }
    return failed;
}

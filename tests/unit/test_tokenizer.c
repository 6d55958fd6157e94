// Tokenizers: what the reference libraries say of some lines (tests/unit/tokenizers/make.py), streams, the
// time of long texts, memory that runs out, and training.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/os.h"
#include "cotan/tokenizer.h"

#define FOLDER "tests/unit/tokenizers/"
static const char *const files[] = {"gpt2.json",     "llama3.json", "llama2.json",  "t5.json",
                                    "bert.json",     "words.json",  "clip.json",    "deepseek.json",
                                    "unigram.model", "bpe.model",   "unknown.model"};
enum { FILES = sizeof files / sizeof *files };

static ct_tokenizer *load(const char *name) {
    char path[256];
    snprintf(path, sizeof path, FOLDER "%s", name);
    ct_tokenizer *t = ct_tokenizer_load(path);
    if (!t) fail_msg("%s", ct_error_text());
    return t;
}

static void same_ids(const char *name, const char *text, const json_t *want, const ct_encoding *e) {
    for (size_t i = 0; i < e->n && i < json_array_size(want); i++)
        if (e->ids[i] != json_integer_value(json_array_get(want, i)))
            fail_msg("%s: token %zu of \"%s\" is %d", name, i, text, e->ids[i]);
    if (e->n != json_array_size(want))
        fail_msg("%s: \"%s\" has %zu tokens, not %zu", name, text, e->n, json_array_size(want));
}

static void same_text(const char *name, const ct_tokenizer *t, const ct_encoding *e, bool skip,
                      const json_t *want) {
    ct_decoder *d = ct_decoder_new(t, skip);
    size_t n;
    const char *text = ct_decoder_all(d, e->ids, e->n, &n);
    assert_non_null(text);
    if (n != json_string_length(want) || memcmp(text, json_string_value(want), n))
        fail_msg("%s: \"%s\" is not \"%s\"", name, text, json_string_value(want));
    ct_decoder_free(d);
}

static void one_line(const char *name, const ct_tokenizer *t, const json_t *said) {
    const json_t *spans = json_object_get(said, "spans"), *text = json_object_get(said, "text");
    const char *s = json_string_value(text);
    size_t n = json_string_length(text);
    ct_encoding e = {0};
    assert_true(ct_tokenizer_encode(t, s, n, &e));
    same_ids(name, s, json_object_get(said, "plain"), &e);
    if (!spans) same_text(name, t, &e, false, json_object_get(said, "decoded"));
    if (spans) {
        assert_true(ct_tokenizer_encode(t, s, n, &e, .add_special = true, .offsets = true));
        same_ids(name, s, json_object_get(said, "ids"), &e);
        for (size_t i = 0; i < e.n; i++) {
            assert_int_equal(e.chars[i].begin, json_integer_value(json_array_get(spans, 2 * i)));
            assert_int_equal(e.chars[i].end, json_integer_value(json_array_get(spans, 2 * i + 1)));
            assert_true(e.bytes[i].begin <= e.bytes[i].end && e.bytes[i].end <= n);
        }
        same_text(name, t, &e, false, json_object_get(said, "decoded"));
        same_text(name, t, &e, true, json_object_get(said, "skipped"));
    }
    ct_encoding_free(&e);
}

static void what_the_references_say(void **state) {
    (void)state;
    json_error_t where;
    json_t *all = json_load_file(FOLDER "said.json", JSON_ALLOW_NUL, &where);
    assert_non_null(all);
    for (int i = 0; i < FILES; i++) {
        const json_t *lines = json_object_get(all, files[i]);
        ct_tokenizer *t = load(files[i]);
        assert_true(json_array_size(lines) > 8);
        for (size_t k = 0; k < json_array_size(lines); k++)
            one_line(files[i], t, json_array_get(lines, k));
        ct_tokenizer_free(t);
    }
    json_decref(all);
    assert_false(ct_failed());
}

static void vocabulary(void **state) {
    (void)state;
    ct_tokenizer *t = load("bert.json");
    size_t n;
    assert_int_equal(ct_tokenizer_size(t), 401);
    assert_string_equal(ct_tokenizer_piece(t, 1, &n), "[CLS]");
    assert_int_equal(n, 5);
    assert_null(ct_tokenizer_piece(t, 401, &n));
    assert_null(ct_tokenizer_piece(t, -1, NULL));
    assert_int_equal(ct_tokenizer_id(t, "[MASK]", 6), 400);
    assert_int_equal(ct_tokenizer_id(t, "nothing", 7), -1);
    assert_true(ct_tokenizer_is_special(t, 400) && !ct_tokenizer_is_special(t, 100));
    assert_int_equal(ct_tokenizer_special(t, CT_UNK), 0);
    assert_int_equal(ct_tokenizer_special(t, CT_EOS), -1);
    ct_tokenizer_free(t);
}

// As tokens come, characters are whole, and all together they are the text.
static void streams(void **state) {
    (void)state;
    static const char text[] =
        "don't 漢字 \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa9 <s> e\xcc\x81 end";
    for (int i = 0; i < 3; i++) {
        ct_tokenizer *t = load(files[i]);
        ct_decoder *d = ct_decoder_new(t, true), *whole = ct_decoder_new(t, true);
        ct_encoding e = {0};
        char all[512] = "";
        size_t n;
        assert_true(ct_tokenizer_encode(t, text, strlen(text), &e));
        for (size_t k = 0; k < e.n; k++) {
            const char *said = ct_decoder_next(d, e.ids[k], &n);
            assert_non_null(said);
            assert_null(strstr(said, "\xef\xbf\xbd"));
            strcat(all, said);
        }
        strcat(all, ct_decoder_end(d, &n));
        assert_string_equal(all, ct_decoder_all(whole, e.ids, e.n, NULL));
        ct_encoding_free(&e);
        ct_decoder_free(d);
        ct_decoder_free(whole);
        ct_tokenizer_free(t);
    }
}

// A character that never becomes whole is not waited for.
static void streams_of_broken_characters(void **state) {
    (void)state;
    ct_tokenizer *t = load("gpt2.json");
    ct_decoder *d = ct_decoder_new(t, true);
    int32_t lead = (int32_t)ct_tokenizer_id(t, "\xc3\xb0", 2); // byte 0xf0
    size_t n, said = 0, empty = 0;
    for (int i = 0; i < 100; i++) {
        assert_non_null(ct_decoder_next(d, lead, &n));
        said += n, empty += n == 0;
        assert_true(n % 3 == 0);
    }
    assert_true(said > 200 && empty > 50);
    ct_decoder_end(d, &n);
    assert_int_equal(said + n, 300);
    ct_decoder_free(d);
    ct_tokenizer_free(t);
}

static void what_is_no_utf8(void **state) {
    (void)state;
    ct_tokenizer *t = load("gpt2.json");
    ct_encoding a = {0}, b = {0};
    static const char broken[] = "a\xff\xe2\x96z", mended[] = "a\xef\xbf\xbd\xef\xbf\xbdz";
    assert_true(ct_tokenizer_encode(t, broken, 5, &a, .offsets = true));
    assert_true(ct_tokenizer_encode(t, mended, 8, &b, .offsets = true));
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.ids, b.ids, a.n * sizeof *a.ids);
    assert_memory_equal(a.chars, b.chars, a.n * sizeof *a.chars);
    assert_int_equal(a.bytes[a.n - 1].begin, 4);
    assert_int_equal(a.bytes[a.n - 1].end, 5);
    ct_encoding_free(&a);
    ct_encoding_free(&b);
    ct_tokenizer_free(t);
}

static double seconds(const ct_tokenizer *t, const char *text, size_t n) {
    double best = 1e9;
    for (int i = 0; i < 2; i++) {
        ct_encoding e = {0};
        double begin = ct__now();
        if (!ct_tokenizer_encode(t, text, n, &e)) fail_msg("%s", ct_error_text());
        double took = ct__now() - begin;
        best = took < best ? took : best;
        ct_encoding_free(&e);
    }
    return best;
}

// No text takes more than its length asks for: long runs of one character, or of two by turns.
static void time_is_linear(void **state) {
    (void)state;
    static const char *const parts[] = {"a",
                                        " ",
                                        "\n",
                                        "1",
                                        "!",
                                        "\xcc\x81",
                                        "\xe4\xb8\xad",
                                        "a ",
                                        "\xcc\xa3\xcc\x81",
                                        "\xe2\x96\x81",
                                        "<"};
    size_t n = 1 << 16;
    char *text = malloc(2 * n);
    assert_non_null(text);
    for (int i = 0; i < FILES; i++) {
        ct_tokenizer *t = load(files[i]);
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            size_t size = strlen(parts[k]), half = n / size * size;
            for (size_t at = 0; at + size <= 2 * half; at += size)
                memcpy(text + at, parts[k], size);
            double once = seconds(t, text, half), twice = seconds(t, text, 2 * half);
            // Machines that do other things at the same time are given some room; what is not linear is far beyond.
            if (twice > 4 * once + 0.1)
                fail_msg("%s: \"%s\" takes %g s, and twice as much %g s", files[i], parts[k], once,
                         twice);
        }
        ct_tokenizer_free(t);
    }
    free(text);
}

static void memory_runs_out(void **state) {
    (void)state;
    static const char text[] = "Hello don't 漢字 ①② \xcc\x81 <extra> Fox 123";
    for (int i = 0; i < FILES; i++) {
        char path[256];
        snprintf(path, sizeof path, FOLDER "%s", files[i]);
        for (int64_t after = 1;; after += after / 8 + 1) {
            ct_encoding e = {0};
            ct__fail_alloc_after(after);
            ct_tokenizer *t = ct_tokenizer_load(path);
            bool ok = t && ct_tokenizer_encode(t, text, strlen(text), &e, .add_special = true,
                                               .offsets = true);
            ct_decoder *d = ok ? ct_decoder_new(t, true) : NULL;
            ok = d && ct_decoder_all(d, e.ids, e.n, NULL);
            ct__fail_alloc_after(-1);
            if (!ok) assert_int_equal(ct_error_code(), CT_E_MEMORY);
            ct_error_clear();
            ct_decoder_free(d);
            ct_encoding_free(&e);
            ct_tokenizer_free(t);
            if (ok) break;
        }
    }
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static bool stop_at_once(void *user) {
    ++*(int *)user;
    return true;
}

static void training(void **state) {
    (void)state;
    char folder[] = "/tmp/cotan-bpe-XXXXXX", path[64], made[64], beside[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/text", folder);
    snprintf(made, sizeof made, "%s/tokenizer.json", folder);
    snprintf(beside, sizeof beside, "%s/tokenizer_config.json", folder);
    write_text(path, "low low low lower lowest new newer newest\nwider wide wide\n");
    const char *const paths[] = {path};
    int calls = 0;
    assert_false(ct_train_bpe(folder, paths, 1, .should_stop = stop_at_once, .user = &calls));
    assert_int_equal(ct_error_code(), CT_E_INTERRUPTED);
    ct_error_clear();
    assert_int_equal(calls, 1);
    assert_int_equal(access(made, F_OK), -1);
    assert_true(ct_train_bpe(folder, paths, 1, .vocab_size = 262));
    ct_tokenizer *t = ct_tokenizer_load(folder);
    assert_non_null(t);
    // As tokenizers' trainer has them.
    static const char *const tokens[] = {"lo", "low", "\xc4\xa0low", "de", "ew"};
    for (int i = 0; i < 5; i++)
        assert_string_equal(ct_tokenizer_piece(t, 257 + i, NULL), tokens[i]);
    assert_int_equal(ct_tokenizer_size(t), 262);
    assert_int_equal(ct_tokenizer_special(t, CT_EOS), 0);
    ct_encoding e = {0};
    assert_true(ct_tokenizer_encode(t, "low<|endoftext|>", 16, &e));
    assert_int_equal(e.ids[e.n - 1], 0);
    ct_encoding_free(&e);
    ct_tokenizer_free(t);
    unlink(path), unlink(made), unlink(beside), rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_the_references_say),
        cmocka_unit_test(vocabulary),
        cmocka_unit_test(streams),
        cmocka_unit_test(streams_of_broken_characters),
        cmocka_unit_test(what_is_no_utf8),
        cmocka_unit_test(time_is_linear),
        cmocka_unit_test(memory_runs_out),
        cmocka_unit_test(training),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

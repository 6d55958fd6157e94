// src/io: JSON output, metrics.jsonl, config.json and loss.svg.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/atomic.h"
#include "base/os.h"
#include "io/config.h"
#include "io/json.h"
#include "io/metrics.h"
#include "io/svg.h"

static char folder[64], path[80];

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/cotan-io-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

static int remove_folder(void **state) {
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void put_bytes(const char *bytes, size_t n) {
    ct_err err = {0};
    assert_true(ct__file_write(path, bytes, n, &err));
}
static void put(const char *text) { put_bytes(text, strlen(text)); }

static void check_file(const char *expected) {
    ct_err err = {0};
    char *text;
    size_t n;
    assert_true(ct__file_read(path, &text, &n, &err));
    assert_string_equal(text, expected);
    ct__free(text);
}

// Error texts begin with the path, which differs from run to run.
static void check_error(const ct_err *err, ct_code code, const char *sentence) {
    char whole[CT_ERROR_TEXT];
    snprintf(whole, sizeof whole, "%s: %s", path, sentence);
    assert_string_equal(err->text, whole);
    assert_int_equal(err->code, code);
}

// -------------------------------------------------------------------------------------------- JSON

static void reals_are_short_and_exact(void **state) {
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0, "0.0"},
        {-0.0, "-0.0"},
        {1, "1.0"},
        {0.1, "0.1"},
        {3.3, "3.3"},
        {0.001, "0.001"},
        {1e-4, "0.0001"},
        {6.25e-05, "6.25e-05"},
        {1e300, "1e+300"},
        {1.0 / 3, "0.3333333333333333"},
        {-2.5, "-2.5"},
        {123456, "123456.0"},
        {NAN, "\"nan\""},
        {INFINITY, "\"inf\""},
        {-INFINITY, "\"-inf\""},
        {(double)1.9f, "1.899999976158142"},
        {5e-324, "5e-324"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ct_text text = {0};
        ct__json_real(&text, cases[i].value);
        assert_string_equal(text.s, cases[i].text);
        if (isfinite(cases[i].value)) assert_true(strtod(text.s, NULL) == cases[i].value);
        ct__text_free(&text);
    }
}

static void trees_keep_their_order(void **state) {
    (void)state;
    json_t *root =
        json_pack("{s:i, s:[i,i,f], s:[[i],{}], s:{s:n, s:b}, s:[], s:s}", "z", 1, "a", 1, 2, 0.5,
                  "b", 3, "c", "x", "y", 1, "empty", "text", "\"\\\n\x01\xc3\xa9/");
    assert_non_null(root);
    ct_text text = {0};
    ct__json_tree(&text, root);
    assert_string_equal(text.s, "{\n"
                                "  \"z\": 1,\n"
                                "  \"a\": [1, 2, 0.5],\n"
                                "  \"b\": [\n"
                                "    [3],\n"
                                "    {}\n"
                                "  ],\n"
                                "  \"c\": {\n"
                                "    \"x\": null,\n"
                                "    \"y\": true\n"
                                "  },\n"
                                "  \"empty\": [],\n"
                                "  \"text\": \"\\\"\\\\\\n\\u0001\xc3\xa9/\"\n"
                                "}\n");
    json_t *back = json_loads(text.s, 0, NULL);
    assert_true(json_equal(root, back));
    json_decref(back);
    json_decref(root);
    ct__text_free(&text);
}

// ----------------------------------------------------------------------------------------- metrics

static void metrics_are_lines(void **state) {
    (void)state;
    ct_err err = {0};
    ct_metrics metrics;
    put("old\n");
    assert_true(ct__metrics_open(path, false, &metrics, &err));
    ct_metric_field first[] = {CT_FIELD_INT("step", 0), CT_FIELD_REAL("loss", 4.5),
                               CT_FIELD_REAL("val_loss", 4.25)};
    assert_true(ct__metrics_add(&metrics, first, 3, &err));
    check_file("{\"step\": 0, \"loss\": 4.5, \"val_loss\": 4.25}\n"); // there before it is closed
    ct__metrics_close(&metrics);
    assert_true(ct__metrics_open(path, true, &metrics, &err));
    ct_metric_field second[] = {CT_FIELD_INT("step", 1), CT_FIELD_REAL("loss", NAN)};
    assert_true(ct__metrics_add(&metrics, second, 2, &err));
    ct__metrics_close(&metrics);
    check_file(
        "{\"step\": 0, \"loss\": 4.5, \"val_loss\": 4.25}\n{\"step\": 1, \"loss\": \"nan\"}\n");
    static const char *const names[] = {"loss", "val_loss", "absent"};
    ct_series series[3] = {0};
    assert_true(ct__metrics_read(path, names, 3, series, &err));
    assert_int_equal(series[0].n, 2);
    assert_true(series[0].x[1] == 1 && isnan(series[0].y[1]));
    assert_int_equal(series[1].n, 1);
    assert_true(series[1].x[0] == 0 && series[1].y[0] == 4.25);
    assert_int_equal(series[2].n, 0);
    for (int i = 0; i < 3; i++) ct__series_free(&series[i]);
}

static void a_torn_line_goes(void **state) {
    (void)state;
    static const char *const names[] = {"loss"};
    ct_err err = {0};
    ct_metrics metrics;
    ct_series series = {0};
    put("{\"step\": 0, \"loss\": 2}\n{\"step\": 1, \"lo");
    assert_true(ct__metrics_read(path, names, 1, &series, &err));
    assert_int_equal(series.n, 1);
    ct__series_free(&series);
    assert_true(ct__metrics_open(path, true, &metrics, &err));
    ct_metric_field field = CT_FIELD_INT("step", 1);
    assert_true(ct__metrics_add(&metrics, &field, 1, &err));
    ct__metrics_close(&metrics);
    check_file("{\"step\": 0, \"loss\": 2}\n{\"step\": 1}\n");
    char *noise = malloc(10001); // a torn line longer than what is read at once, and no other
    assert_non_null(noise);
    memset(noise, 'x', 10000);
    noise[10000] = '\0';
    put(noise);
    free(noise);
    assert_true(ct__metrics_open(path, true, &metrics, &err));
    ct__metrics_close(&metrics);
    check_file("");
}

static void later_steps_go(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int64_t first;
        const char *left;
    } cases[] = {
        {"{\"step\": 0}\n{\"step\": 1}\n{\"step\": 2}\n", 1, "{\"step\": 0}\n"},
        {"{\"step\": 0}\n{\"step\": 1}\n", 2, "{\"step\": 0}\n{\"step\": 1}\n"},
        {"{\"step\": 0}\n{\"step\": 1}\n{\"st", 2, "{\"step\": 0}\n{\"step\": 1}\n"},
        {"{\"step\": 3}\n", 3, ""},
        {"", 3, ""},
        {"{\"st", 0, ""},
    };
    ct_err err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put(cases[i].text);
        assert_true(ct__metrics_truncate(path, cases[i].first, &err));
        check_file(cases[i].left);
    }
    static const char *const bad[] = {"no\n", "{\"loss\": 0}\n", "[1]\n", "{\"step\": 0.5}\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[64];
        snprintf(text, sizeof text, "{\"step\": 0}\n%s", bad[i]);
        put(text);
        assert_false(ct__metrics_truncate(path, 5, &err));
        check_error(&err, CT_E_FORMAT,
                    "line 2 has no whole number \"step\"\n"
                    "  hint: move the file away to continue without it");
        err = (ct_err){0};
        check_file(text);
    }
    assert_true(ct__metrics_truncate("/nonexistent/m", 1, &err));
}

// The last line's end alone, as a file that is replaced whole.
static void the_last_line_is_amended(void **state) {
    (void)state;
    static const struct {
        const char *text, *without, *left;
        bool with;
    } cases[] = {
        {"{\"step\": 0}\n{\"step\": 1}\n", NULL, "{\"step\": 0}\n{\"step\": 1, \"v\": 2.5}\n",
         true},
        {"{\"step\": 1, \"ended\": \"x\"}\n", "ended", "{\"step\": 1}\n", false},
        {"{\"step\": 1, \"ended\": \"x\"}\n", "ended", "{\"step\": 1, \"v\": 2.5}\n", true},
        {"{\"step\": 1, \"ended\": \"x\", \"b\": 1}\n", "ended",
         "{\"step\": 1, \"ended\": \"x\", \"b\": 1}\n", false},
        {"{\"step\": 1, \"ended2\": \"x\"}\n", "ended", "{\"step\": 1, \"ended2\": \"x\"}\n",
         false},
        {"{\"step\": 1, \"end\": \"x\"}\n", "ended", "{\"step\": 1, \"end\": \"x\"}\n", false},
        {"{\"step\": 1, \"e\": 1}\n", "ended", "{\"step\": 1, \"e\": 1}\n", false},
        {"{\"step\": 1}\n", "ended", "{\"step\": 1}\n", false},
        {"", "ended", "", true},
    };
    ct_err err = {0};
    ct_metrics metrics;
    ct_metric_field field = CT_FIELD_REAL("v", 2.5), step = CT_FIELD_INT("step", 9);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put(cases[i].text);
        assert_true(ct__metrics_open(path, true, &metrics, &err));
        assert_true(
            ct__metrics_amend(&metrics, cases[i].without, cases[i].with ? &field : NULL, &err));
        check_file(cases[i].left);
        char more[256]; // and lines follow
        snprintf(more, sizeof more, "%s{\"step\": 9}\n", cases[i].left);
        assert_true(ct__metrics_add(&metrics, &step, 1, &err));
        check_file(more);
        ct__metrics_close(&metrics);
    }
    char *many = malloc(10064); // more than what is read at once
    assert_non_null(many);
    memset(many, ' ', 10000);
    strcpy(many + 10000, "\n{\"step\": 1, \"ended\": \"x\"}\n");
    put(many);
    assert_true(ct__metrics_open(path, true, &metrics, &err));
    assert_true(ct__metrics_amend(&metrics, "ended", NULL, &err));
    ct__metrics_close(&metrics);
    strcpy(many + 10000, "\n{\"step\": 1}\n");
    check_file(many);
    free(many);
}

static void lines_before_a_step_are_read_alone(void **state) {
    (void)state;
    static const char *const names[] = {"loss"};
    ct_err err = {0};
    ct_series series = {0};
    put("{\"step\": 0, \"loss\": 2}\n{\"step\": 1, \"loss\": \"low\"}\nno\n");
    assert_true(ct__metrics_read_before(path, 1, names, 1, &series, &err));
    assert_int_equal(series.n, 1);
    ct__series_free(&series);
    assert_false(ct__metrics_read_before(path, 2, names, 1, &series, &err));
    check_error(
        &err, CT_E_FORMAT,
        "line 3 has no whole number \"step\"\n  hint: move the file away to continue without it");
    err = (ct_err){0};
    put("{\"step\": 0, \"loss\": 2}\n{\"step\": 1, \"loss\": \"low\"}\n{\"step\": 2}\n");
    assert_false(ct__metrics_read_before(path, 2, names, 1, &series, &err));
    check_error(&err, CT_E_FORMAT, "line 2: \"loss\" is no number");
    assert_int_equal(series.n, 0);
    err = (ct_err){0};
    assert_true(ct__metrics_read_before("/nonexistent/m", 1, names, 1, &series, &err));
    assert_int_equal(series.n, 0);
}

// Longer than is read at once, with a line that is longer than that by itself.
static void metrics_are_read_in_pieces(void **state) {
    (void)state;
    static const char *const names[] = {"loss"};
    enum { LINES = 40000, LONG = 300000 };
    ct_err err = {0};
    ct_series series = {.keep_all = true};
    ct_text text = {0};
    for (int i = 0; i < LINES; i++) {
        ct__textf(&text, "{\"step\": %d, \"loss\": %d", i, i % 7);
        if (i == 1234) ct__textf(&text, ", \"note\": \"%0*d\"", LONG, 0);
        ct__text_add(&text, "}\n");
    }
    put(text.s);
    ct__text_free(&text);
    assert_true(ct__metrics_read(path, names, 1, &series, &err));
    assert_int_equal(series.n, LINES);
    for (int i = 0; i < LINES; i++)
        assert_true(series.x[i] == i && series.y[i] == i % 7 && series.last_step == LINES - 1);
    ct__series_free(&series);
    assert_true(ct__metrics_truncate(path, 30000, &err));
    series.keep_all = true;
    assert_true(ct__metrics_read_before(path, 20000, names, 1, &series, &err));
    assert_int_equal(series.n, 20000);
    ct__series_free(&series);
    series.keep_all = true;
    assert_true(ct__metrics_read(path, names, 1, &series, &err));
    assert_int_equal(series.n, 30000);
    ct__series_free(&series);
}

// However long the run was.
static void a_curve_has_so_many_points(void **state) {
    (void)state;
    enum { VALUES = 5 * CT_SERIES_MAX + 3 };
    ct_series series = {0};
    for (int i = 0; i < VALUES; i++) {
        assert_true(ct__series_add(&series, i, i % 2 ? 3 * i : i));
        assert_true(series.n <= CT_SERIES_MAX && series.last_step == i);
        assert_int_equal(2 * series.cap * sizeof *series.y, ct__series_bytes(i + 1)); // both arrays
    }
    assert_int_equal(series.n, VALUES / 8 + 1); // eight values a point
    for (size_t i = 0; i + 1 < series.n; i++) {
        double mean = 0;
        for (size_t k = 8 * i; k < 8 * i + 8; k++) mean += (double)(k % 2 ? 3 * k : k) / 8;
        assert_true(series.x[i] == (double)(8 * i));
        assert_true(fabs(series.y[i] - mean) <= 1e-9 * mean);
    }
    size_t last = 8 * (series.n - 1); // three values so far, the first of an even step
    assert_true(series.x[series.n - 1] == (double)last);
    assert_true(fabs(series.y[series.n - 1] - (double)(5 * last + 5) / 3) < 1e-3);
    ct__series_free(&series);
}

static void metrics_with_a_zero_byte(void **state) {
    (void)state;
    static const char *const names[] = {"loss"};
    static const char text[] = "{\"step\": 0}\n{\"step\": 1}\0 junk\n";
    ct_err err = {0};
    ct_series series = {0};
    char sentence[200];
    put_bytes(text, sizeof text - 1);
    assert_false(ct__metrics_read(path, names, 1, &series, &err));
    snprintf(sentence, sizeof sentence, "%s: line 2 is not a JSON object", path);
    assert_string_equal(err.text, sentence);
}

static void metrics_that_cannot_be_read(void **state) {
    (void)state;
    static const struct {
        const char *text, *sentence;
    } cases[] = {
        {"{\"step\": 0}\nno\n", "line 2 is not a JSON object"},
        {"{\"loss\": 0}\n", "line 1 has no number \"step\""},
        {"[1]\n", "line 1 has no number \"step\""},
        {"{\"step\": \"nan\"}\n", "line 1 has no number \"step\""},
        {"{\"step\": 0}\n{\"step\": 1, \"loss\": \"low\"}\n", "line 2: \"loss\" is no number"},
    };
    static const char *const names[] = {"loss"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ct_err err = {0};
        ct_series series = {0};
        put(cases[i].text);
        assert_false(ct__metrics_read(path, names, 1, &series, &err));
        check_error(&err, CT_E_FORMAT, cases[i].sentence);
    }
    ct_err err = {0};
    ct_metrics metrics;
    assert_false(ct__metrics_open("/nonexistent/m", false, &metrics, &err));
    assert_string_equal(err.text, "/nonexistent/m: cannot open: No such file or directory");
    ct__metrics_close(&metrics);
    err = (ct_err){0};
    assert_true(ct__metrics_open("/dev/full", false, &metrics, &err));
    ct_metric_field field = CT_FIELD_INT("step", 1);
    assert_false(ct__metrics_add(&metrics, &field, 1, &err));
    assert_string_equal(err.text, "/dev/full: cannot write: No space left on device");
    ct__metrics_close(&metrics);
}

// ------------------------------------------------------------------------------------------ config

static void config_is_written_and_read(void **state) {
    (void)state;
    static const char *const kinds[] = {"bytes", "chars", NULL};
    ct_err err = {0};
    ct_config config;
    int64_t layers;
    double rate;
    bool bias;
    const char *vocab;
    size_t n;
    int kind;
    assert_true(ct__config_new(path, &config, &err));
    ct__config_set_int(&config, "n_layer", 12);
    ct__config_set_real(&config, "rate", 0.99);
    ct__config_set_bool(&config, "bias", false);
    ct__config_set_string(&config, "vocab", "\n a\xc3\xa9", 5);
    ct__config_set_string(&config, "tokens", "chars", 5);
    assert_true(ct__config_write(&config, &err));
    ct__config_close(&config);
    check_file("{\n  \"n_layer\": 12,\n  \"rate\": 0.99,\n  \"bias\": false,\n"
               "  \"vocab\": \"\\n a\xc3\xa9\",\n  \"tokens\": \"chars\"\n}\n");
    assert_true(ct__config_read(path, &config, &err));
    assert_true(ct__config_int(&config, "n_layer", 1, 12, &layers, &err) && layers == 12);
    assert_true(ct__config_real(&config, "rate", 0, 1, &rate, &err) && rate == 0.99);
    assert_true(ct__config_real(&config, "n_layer", 0, 100, &rate, &err) && rate == 12);
    assert_true(ct__config_bool(&config, "bias", &bias, &err) && !bias);
    assert_true(ct__config_string(&config, "vocab", &vocab, &n, &err));
    assert_int_equal(n, 5);
    assert_string_equal(vocab, "\n a\xc3\xa9");
    assert_true(ct__config_choice(&config, "tokens", kinds, &kind, &err) && kind == 1);
    assert_true(ct__config_has(&config, "bias"));
    assert_false(ct__config_has(&config, "dropout"));
    ct__config_close(&config);
}

static void config_errors(void **state) {
    (void)state;
    static const char *const kinds[] = {"bytes", "chars", NULL};
    ct_config config;
    ct_err err = {0};
    int64_t i;
    double d;
    bool b;
    const char *s;
    size_t n;
    int k;
    put("{\"int\": 3, \"real\": 1.5, \"word\": \"wo\\u001brd\", \"flag\": true, \"none\": null, "
        "\"list\": [1], \"object\": {}}");
    assert_true(ct__config_read(path, &config, &err));
#define FAILS(call, sentence)                                                                      \
    do {                                                                                           \
        err = (ct_err){0};                                                                         \
        assert_false(call);                                                                        \
        check_error(&err, CT_E_FORMAT, sentence);                                                  \
    } while (0)
    FAILS(ct__config_int(&config, "gone", 0, 1, &i, &err), "key \"gone\" is missing");
    FAILS(ct__config_real(&config, "gone", 0, 1, &d, &err), "key \"gone\" is missing");
    FAILS(ct__config_bool(&config, "gone", &b, &err), "key \"gone\" is missing");
    FAILS(ct__config_string(&config, "gone", &s, &n, &err), "key \"gone\" is missing");
    FAILS(ct__config_choice(&config, "gone", kinds, &k, &err), "key \"gone\" is missing");
    FAILS(ct__config_int(&config, "real", 0, 1, &i, &err),
          "key \"real\" is a number, not an integer");
    FAILS(ct__config_int(&config, "word", 0, 1, &i, &err),
          "key \"word\" is a string, not an integer");
    FAILS(ct__config_int(&config, "int", 4, 9, &i, &err), "key \"int\" is 3, not from 4 to 9");
    FAILS(ct__config_int(&config, "int", 0, 2, &i, &err), "key \"int\" is 3, not from 0 to 2");
    FAILS(ct__config_real(&config, "flag", 0, 1, &d, &err),
          "key \"flag\" is true or false, not a number");
    FAILS(ct__config_real(&config, "real", 0, 1, &d, &err),
          "key \"real\" is 1.5, not from 0.0 to 1.0");
    FAILS(ct__config_bool(&config, "none", &b, &err), "key \"none\" is null, not true or false");
    FAILS(ct__config_string(&config, "list", &s, &n, &err),
          "key \"list\" is an array, not a string");
    FAILS(ct__config_choice(&config, "object", kinds, &k, &err),
          "key \"object\" is an object, not a string");
    FAILS(ct__config_choice(&config, "word", kinds, &k, &err),
          "key \"word\" is \"wo\\u001brd\", not one of: bytes, chars");
    ct__config_close(&config);
    put("[1]");
    FAILS(ct__config_read(path, &config, &err), "the file holds an array, not an object");
    put("{\"a\": 1,}");
    FAILS(ct__config_read(path, &config, &err),
          "not JSON: line 1, column 9: string or '}' expected near '}'");
    put("{\"a\": 1, \"a\": 2}");
    FAILS(ct__config_read(path, &config, &err),
          "not JSON: line 1, column 12: duplicate object key near '\\\"a\\\"'");
    put_bytes("{\"a\":\n 1}\0junk", 14);
    FAILS(ct__config_read(path, &config, &err), "not JSON: line 2, column 4: a zero byte");
    put("");
    FAILS(ct__config_read(path, &config, &err),
          "not JSON: line 1, column 0: unexpected token near end of file");
    ct__config_close(&config);
    err = (ct_err){0};
    assert_true(ct__config_new(path, &config, &err));
    ct__config_set_real(&config, "rate", NAN);
    assert_false(ct__config_write(&config, &err));
    check_error(
        &err, CT_E_ARGUMENT,
        "a value cannot be written: a number that is not finite, text that is not UTF-8, or "
        "no memory");
    ct__config_close(&config);
}

// Objects and lists inside; a checksum that sees values and not how they are written.
static void config_is_sealed(void **state) {
    (void)state;
    ct_err err = {0};
    ct_config config, child;
    const char *list[] = {"a", "b c"}, *text;
    int64_t steps;
    size_t n;
    assert_true(ct__config_new(path, &config, &err) && ct__config_new(path, &child, &err));
    ct__config_set_int(&child, "steps", 7);
    ct__config_set_list(&child, "data", list, 2);
    ct__config_set_real(&child, "dropout", 0);
    ct__config_set_real(&child, "rate", 3e-5);
    ct__config_set_child(&config, "training", &child);
    ct__config_seal(&config);
    assert_true(ct__config_write(&config, &err));
    ct__config_close(&config);
    ct__config_close(&child);
    check_file("{\n  \"training\": {\n    \"steps\": 7,\n    \"data\": [\"a\", \"b c\"],\n"
               "    \"dropout\": 0.0,\n    \"rate\": 3e-05\n  },\n  \"crc32c\": \"4c805be0\"\n}\n");
    assert_true(ct__config_read(path, &config, &err) && ct__config_verify(&config, true, &err));
    ct__config_close(&config);

    put("{\"crc32c\": \"4c805be0\", \"training\": {\"data\": [\"a\", \"b c\"], \"dropout\": 0, "
        "\"rate\": 0.00003, \"steps\": 7.0}}");
    assert_true(ct__config_read(path, &config, &err) && ct__config_verify(&config, true, &err));
    ct__config_close(&config);

    put("{\"training\": {\"steps\": 7, \"data\": [\"a\", \"b c\"], \"dropout\": -0.0, "
        "\"rate\": 3e-5}, \"crc32c\": \"4c805be0\"}");
    assert_true(ct__config_read(path, &config, &err) && ct__config_verify(&config, true, &err));
    assert_true(ct__config_child(&config, "training", &child, &err));
    assert_true(ct__config_int(&child, "steps", 1, 10, &steps, &err) && steps == 7);
    assert_true(ct__config_list(&child, "data", &n, &err) && n == 2);
    assert_true(ct__config_list_text(&child, "data", 1, &text, &err));
    assert_string_equal(text, "b c");
    assert_false(ct__config_list_text(&child, "data", 2, &text, &err));
    check_error(&err, CT_E_FORMAT, "key \"data\": entry 2 is no string");
    err = (ct_err){0};
    assert_false(ct__config_list(&child, "steps", &n, &err));
    check_error(&err, CT_E_FORMAT, "key \"steps\" is a number, not a list");
    ct__config_close(&child);
    err = (ct_err){0};
    assert_false(ct__config_child(&config, "crc32c", &child, &err));
    check_error(&err, CT_E_FORMAT, "key \"crc32c\" is a string, not an object");
    ct__config_close(&config);

    err = (ct_err){0};
    put("{\"training\": {\"steps\": 8, \"data\": [\"a\", \"b c\"], \"dropout\": 0.0, "
        "\"rate\": 3e-5}, \"crc32c\": \"4c805be0\"}");
    assert_true(ct__config_read(path, &config, &err));
    assert_false(ct__config_verify(&config, true, &err));
    check_error(&err, CT_E_FORMAT,
                "the file is damaged or was changed: the CRC-32C of its values is 1f48163a, not "
                "4c805be0");
    err = (ct_err){0};
    assert_false(ct__config_verify(&config, false, &err));
    check_error(&err, CT_E_FORMAT,
                "the file is damaged or was changed: the CRC-32C of its values is 1f48163a, not "
                "4c805be0; where the change is meant, remove the key \"crc32c\"");
    ct__config_close(&config);
    err = (ct_err){0};
    put("{\"training\": {}}");
    assert_true(ct__config_read(path, &config, &err));
    assert_false(ct__config_verify(&config, true, &err));
    check_error(&err, CT_E_FORMAT, "key \"crc32c\" is missing");
    err = (ct_err){0};
    assert_true(ct__config_verify(&config, false, &err));
    ct__config_close(&config);
}

// JSON nested 100,000 deep is refused, not followed down the stack.
static void config_depth_is_bounded(void **state) {
    (void)state;
    enum { DEEP = 100000 };
    char *text = malloc(DEEP + 1);
    assert_non_null(text);
    memset(text, '[', DEEP);
    text[DEEP] = '\0';
    put(text);
    free(text);
    ct_err err = {0};
    ct_config config;
    assert_false(ct__config_read(path, &config, &err));
    check_error(&err, CT_E_FORMAT,
                "not JSON: line 1, column 2049: maximum parsing depth reached near '['");
}

// -------------------------------------------------------------------------------------------- plot

static size_t count(const char *text, const char *piece) {
    size_t n = 0;
    for (; (text = strstr(text, piece)); text++) n++;
    return n;
}

static void fill(ct_series *train, ct_series *val, int n) {
    for (int i = 0; i < n; i++) {
        double y = 1.5 + 3 * exp(-i * 10.0 / n) + 0.1 * sin(i * 12.9898);
        assert_true(ct__series_add(train, i, y));
        if (i % (n / 8) == 0) assert_true(ct__series_add(val, i, y + 0.1));
    }
}

static void check_svg(const char *text) {
    assert_memory_equal(text, "<svg xmlns=\"http://www.w3.org/2000/svg\"", 39);
    assert_string_equal(text + strlen(text) - 7, "</svg>\n");
    assert_null(strstr(text, "nan"));
    assert_null(strstr(text, "inf"));
    assert_int_equal(count(text, "<g"), count(text, "</g>"));
    assert_int_equal(count(text, "<text"), count(text, "</text>"));
    assert_int_equal(count(text, "<"), count(text, ">"));
}

static void plots_are_deterministic_and_bounded(void **state) {
    (void)state;
    ct_series train = {0}, val = {0};
    ct_text one = {0}, two = {0};
    ct_err err = {0};
    fill(&train, &val, 300000);
    ct__svg_loss(&one, "a run <1> & \"2\"\x1b", &train, &val);
    check_svg(one.s);
    assert_true(one.n < 100000);
    assert_non_null(strstr(one.s, "<title>a run &lt;1&gt; &amp; \\&quot;2\\&quot;\\u001b</title>"));
    assert_non_null(strstr(one.s, ">300,000</text>"));
    assert_int_equal(count(one.s, "<circle r=\"4\""), val.n);
    // Locales with another decimal point, where the system has one.
    if (!setlocale(LC_ALL, "de_DE.UTF-8")) setlocale(LC_ALL, "fr_FR.UTF-8");
    ct__svg_loss(&two, "a run <1> & \"2\"\x1b", &train, &val);
    setlocale(LC_ALL, "C");
    assert_string_equal(one.s, two.s);
    assert_true(ct__svg_loss_write(path, "a run <1> & \"2\"\x1b", &train, &val, &err));
    check_file(one.s);
    ct__text_free(&one);
    ct__text_free(&two);
    ct__series_free(&train);
    ct__series_free(&val);
}

// Positions computed by hand: 3 steps over 732 pixels, losses 3, 2, 1 over 376 pixels, with the
// vertical range ending at ticks of 0.5.
static void points_lie_where_they_belong(void **state) {
    (void)state;
    ct_series train = {0}, val = {0};
    ct_text text = {0};
    for (int i = 0; i < 3; i++) assert_true(ct__series_add(&train, i, 3 - i));
    assert_true(ct__series_add(&val, 2, 1.5));
    ct__svg_loss(&text, "t", &train, &val);
    check_svg(text.s);
    assert_non_null(strstr(text.s, "d=\"M72.0 86.0h0L438.0 274.0L804.0 462.0\"/>"));
    assert_int_equal(count(text.s, "d=\"M72.0 86.0h0L438.0 274.0L804.0 462.0\"/>"), 2);
    assert_non_null(strstr(text.s, "cx=\"804.0\" cy=\"368.0\""));
    assert_non_null(strstr(text.s, ">1.5000</text>"));
    assert_non_null(strstr(text.s, "\" y=\"90.5\" text-anchor=\"end\">3.0</text>"));
    ct__text_free(&text);
    ct__series_free(&train);
    ct__series_free(&val);
}

static void plots_of_odd_series(void **state) {
    (void)state;
    static const double odd[][4] = {
        {NAN, NAN, NAN, NAN}, {1, NAN, INFINITY, 2}, {5, 5, 5, 5},
        {0, 0, 0, 0},         {1e30, 1, 1, 1},       {1e308, -1e308, 1, 2},
        {1e-30, 2e-30, 0, 0}, {-3, -1, -2, -1},      {1e15, 1e15 + 1, 1e15, 1e15},
    };
    for (size_t k = 0; k < sizeof odd / sizeof odd[0]; k++)
        for (size_t n = 0; n <= 4; n++) {
            ct_series train = {0}, val = {0};
            ct_text text = {0};
            for (size_t i = 0; i < n; i++) {
                assert_true(ct__series_add(&train, (double)i, odd[k][i]));
                assert_true(ct__series_add(&val, i == 3 ? NAN : (double)i, odd[k][i]));
            }
            ct__svg_loss(&text, "", &train, &val);
            check_svg(text.s);
            assert_true(count(text.s, "text-anchor=\"end\"") < 20); // ticks
            ct__text_free(&text);
            ct__series_free(&train);
            ct__series_free(&val);
        }
}

static void allocations_may_fail(void **state) {
    (void)state;
    static const char *const names[] = {"loss"};
    put("{\"step\": 0, \"loss\": 2}\n{\"step\": 1, \"loss\": 1}\n");
    ct_series val = {0};
    for (int failures = 0, done = 0; !done; failures++) {
        ct_err err = {0};
        ct_series series = {0};
        ct__fail_alloc_after(failures);
        done = ct__metrics_read(path, names, 1, &series, &err) &&
               ct__svg_loss_write(path, "t", &series, &val, &err);
        ct__fail_alloc_after(-1);
        assert_int_equal(err.code, done ? CT_OK : CT_E_MEMORY);
        ct__series_free(&series);
        assert_true(done || failures < 50);
    }
}

// Runs last.
static void no_temporary_file_is_left(void **state) {
    (void)state;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (entry->d_name[0] != '.') assert_string_equal(entry->d_name, "file");
    closedir(dir);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reals_are_short_and_exact),
        cmocka_unit_test(trees_keep_their_order),
        cmocka_unit_test(metrics_are_lines),
        cmocka_unit_test(a_torn_line_goes),
        cmocka_unit_test(later_steps_go),
        cmocka_unit_test(the_last_line_is_amended),
        cmocka_unit_test(lines_before_a_step_are_read_alone),
        cmocka_unit_test(metrics_are_read_in_pieces),
        cmocka_unit_test(a_curve_has_so_many_points),
        cmocka_unit_test(metrics_with_a_zero_byte),
        cmocka_unit_test(metrics_that_cannot_be_read),
        cmocka_unit_test(config_is_written_and_read),
        cmocka_unit_test(config_errors),
        cmocka_unit_test(config_is_sealed),
        cmocka_unit_test(config_depth_is_bounded),
        cmocka_unit_test(plots_are_deterministic_and_bounded),
        cmocka_unit_test(points_lie_where_they_belong),
        cmocka_unit_test(plots_of_odd_series),
        cmocka_unit_test(allocations_may_fail),
        cmocka_unit_test(no_temporary_file_is_left),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

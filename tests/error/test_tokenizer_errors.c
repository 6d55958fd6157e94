// What is wrong with a tokenizer's file is said in a sentence, whole.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"

typedef bool (*read_fn)(ct_tokenizer *t, char *bytes, size_t n, ct_err *err);

static void refuses(read_fn read, const char *bytes, size_t n, const char *sentence) {
    ct_err err = {0};
    ct_tokenizer *t = ct__tokenizer_new("f", &err);
    char *copy = malloc(n + 1);
    assert_true(t && copy);
    memcpy(copy, bytes, n);
    copy[n] = '\0';
    assert_false(read(t, copy, n, &err) && ct__tokenizer_finish(t, &err));
    assert_string_equal(err.text, sentence);
    ct__tokenizer_free(t);
    free(copy);
}

#define BPE(more)                                                                                  \
    "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, " more "}}"
#define WITH(part)                                                                                 \
    "{" part ", \"model\": {\"type\": \"WordLevel\", \"vocab\": {\"a\": 0}, \"unk_token\": "       \
    "\"a\"}}"

static void json_files(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"{", "f: not JSON: line 1, column 1: string or '}' expected near end of file"},
        {"{}", "f: model: there is none"},
        {"{\"model\": {\"type\": \"Other\"}}", "f: model: this type is not known: \"Other\""},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": [], \"merges\": []}}",
         "f: model: \"vocab\" is no object"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 16777216}, \"merges\": []}}",
         "f: model: an id is no number from 0 to 16777215"},
        {BPE("\"merges\": [[\"a\", \"c\"]]"),
         "f: model: merge 1 of 1 has \"c\", which is in no vocabulary"},
        {BPE("\"merges\": [\"b a\"]"),
         "f: model: merge 1 of 1 has \"ba\", which is in no vocabulary"},
        {BPE("\"merges\": [\"a b c\"]"), "f: model: merge 1 of 1 is no pair of tokens"},
        {BPE("\"merges\": [], \"dropout\": 0.5"),
         "f: model: dropout is 0.5: its tokens would be drawn at random"},
        {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", -1]], \"unk_id\": 1}}",
         "f: model: unk_id is 1, and there are 1 tokens"},
        {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\"]]}}",
         "f: model: token 0 of 1 is no pair of a text and a score"},
        {WITH("\"normalizer\": {\"type\": \"Other\"}"),
         "f: normalizer: this type is not known: \"Other\""},
        {WITH("\"normalizer\": {\"type\": \"Sequence\"}"),
         "f: normalizer: a Sequence has no list of what is in it"},
        {WITH("\"normalizer\": {\"type\": \"Precompiled\", \"precompiled_charsmap\": \"!\"}"),
         "f: normalizer: \"precompiled_charsmap\" is not base64"},
        {WITH("\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(\"}}"),
         "f: pre_tokenizer: the pattern is not understood: byte 1: missing closing parenthesis"},
        {WITH("\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"x[a[b]\"}}"),
         "f: pre_tokenizer: the pattern has a class that does not end, at byte 1 of 6"},
        {WITH("\"pre_tokenizer\": {\"type\": \"Punctuation\", \"behavior\": \"Other\"}"),
         "f: pre_tokenizer: this behavior is not known: \"Other\""},
        {WITH("\"pre_tokenizer\": {\"type\": \"FixedLength\", \"length\": 0}"),
         "f: pre_tokenizer: \"length\" is 0"},
        {WITH("\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": []}"),
         "f: post_processor: \"single\" has no Sequence"},
        {WITH("\"decoder\": {\"type\": \"Strip\", \"content\": \"\"}"),
         "f: decoder: \"content\" is empty"},
        {WITH("\"added_tokens\": [{\"id\": -1, \"content\": \"x\"}]"),
         "f: added_tokens: an id is no number from 0 to 16777215"},
        {WITH("\"added_tokens\": [{\"id\": 1}]"), "f: added_tokens: \"content\" is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuses(ct__tokenizer_read_json, cases[i][0], strlen(cases[i][0]), cases[i][1]);
}

static bool pieces(ct_tokenizer *t, char *bytes, size_t n, ct_err *err) {
    return ct__tokenizer_read_sentencepiece(t, bytes, n, err);
}

static void sentencepiece_files(void **state) {
    (void)state;
#define REFUSES(bytes, sentence) refuses(pieces, bytes, sizeof bytes - 1, sentence)
    REFUSES("", "f: sentencepiece: there are no pieces");
    REFUSES("\x0a\x7f", "f: sentencepiece: the file is broken at byte 2");
    REFUSES("\x0a\x02\x0a\x05", "f: sentencepiece: a piece is broken at byte 4");
    REFUSES(
        "\x0a\x00",
        "f: sentencepiece: piece 0 is empty, no UTF-8, of no finite score, or of no known type");
    REFUSES("\x0a\x03\x0a\x01"
            "a",
            "f: there is no unknown piece");
    REFUSES(
        "\x0a\x05\x0a\x01"
        "a\x18\x02\x12\x02\x18\x03",
        "f: sentencepiece: the model is of kind 3; known are 1 (unigram), 2 (BPE), 4 (characters)");
    REFUSES("\x0a\x05\x0a\x01"
            "a\x18\x02\x1a\x03\x12\x01x",
            "f: the table of replacements declares 0 bytes of states; it has 1 bytes in all");
}

static bool ranks(ct_tokenizer *t, char *bytes, size_t n, ct_err *err) {
    return ct__tokenizer_read_tiktoken(t, bytes, n, &(ct_tiktoken_options){.name = "gpt2"}, err);
}

static void tiktoken_files(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"YQ==\n", "f: tiktoken: line 1 is no token and a rank"},
        {"\n?? 1\n", "f: tiktoken: line 2 has a token that is not base64"},
        {"YQ== x\n", "f: tiktoken: line 1 has a rank that is no number from 0 to 16777215"},
        {"YQ== 0\nYQ== 1\n", "f: tiktoken: line 2 has a token that was there before"},
        {"YQ== 0\nYg== 0\n", "f: tiktoken: line 2 has a rank that was there before"},
        {"YQ== 0\n", "f: tiktoken: there is no token of the single byte 0x00"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuses(ranks, cases[i][0], strlen(cases[i][0]), cases[i][1]);
}

// A pattern that would try everything ends, and says so.
static void hostile_patterns(void **state) {
    (void)state;
    static char file[] =
        WITH("\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(a|a|aa)+$\"}}");
    static char text[200];
    ct_err err = {0};
    ct_tokenizer *t = ct__tokenizer_new("f", &err);
    assert_true(ct__tokenizer_read_json(t, file, strlen(file), &err) &&
                ct__tokenizer_finish(t, &err));
    memset(text, 'a', sizeof text);
    text[sizeof text - 1] = '!';
    ct_encoding e = {0};
    assert_false(ct_tokenizer_encode(t, text, sizeof text, &e));
    assert_non_null(strstr(
        ct_error_text(),
        "f: pre_tokenizer: the pattern takes too long on this text, of 200 bytes (at byte 0)"));
    ct_error_clear();
    ct_encoding_free(&e);
    ct__tokenizer_free(t);
}

static void folders(void **state) {
    (void)state;
    assert_null(ct_tokenizer_load("tests/error"));
    assert_non_null(strstr(ct_error_text(),
                           "tests/error: the folder has no tokenizer: neither tokenizer.json, "
                           "nor tokenizer.model, nor a .tiktoken file"));
    ct_error_clear();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_files), cmocka_unit_test(sentencepiece_files),
        cmocka_unit_test(tiktoken_files), cmocka_unit_test(hostile_patterns),
        cmocka_unit_test(folders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

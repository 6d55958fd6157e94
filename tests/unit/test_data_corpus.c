// src/data/corpus: what is read from files, folders and globs, tokens of both kinds, prompts,
// streaming text, and the whole sentence of each error.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "data/corpus.h"
#include "io/utf8.h"

static char folder[64];

static const char *at(const char *name) {
    static char paths[4][256];
    static int next;
    char *path = paths[next++ & 3];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const char *text, size_t n) {
    FILE *f = fopen(at(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
}

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/cotan-corpus-XXXXXX");
    if (!mkdtemp(folder)) return -1;
    chmod(folder, 0755);
    mkdir(at("tree"), 0755);
    mkdir(at("tree/b"), 0755);
    mkdir(at("tree/.git"), 0755);
    mkdir(at("void"), 0755);
    put("tree/z.txt", "last\n", 5);
    put("tree/a.txt", "first\n", 6);
    put("tree/B.txt", "capital\n", 8); // before "a" by bytes, not in most locales
    put("tree/b/c.txt", "caf\xc3\xa9\n", 6);
    put("tree/empty", "", 0);
    put("tree/.hidden", "hidden\n", 7);
    put("tree/.git/x", "hidden too\n", 11);
    put("tree/image.png", "\x89PNG\r\n\x1a\n\0\0\0", 11);
    put("void/.x", "x", 1);
    put("empty", "", 0);
    put("latin1", "caf\xe9 au lait", 12);
    put("nul", "abc\0def", 7);
    put("noise", "\x81\x82\x83\x84\x85 \x86\x87\x88\x89", 10);
    put("a[1].txt", "bracket", 7);
    return symlink("/etc", at("tree/link")) + symlink("tree/a.txt", at("named-link"));
}

static int remove_folder(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static void check_text(const ct_corpus *corpus, const char *text) {
    char out[CT_DECODE_ROOM], whole[256];
    size_t n = 0;
    ct_byte_decoder decoder = {0};
    for (size_t i = 0; i < corpus->n; i++) {
        size_t m = ct__decode(&corpus->vocab, &decoder, corpus->tokens[i], out);
        memcpy(whole + n, out, m);
        n += m;
    }
    whole[n] = '\0';
    assert_string_equal(whole, text);
    assert_int_equal(corpus->bytes, strlen(text));
}

static void read_ok(const char *const *paths, size_t n, ct_tokens kind, const char *text,
                    size_t files, size_t skipped) {
    ct_corpus corpus;
    ct_err err = {0};
    bool ok = ct__corpus_read(paths, n, kind, NULL, &corpus, &err);
    if (!ok) print_error("%s\n", err.text);
    assert_true(ok);
    check_text(&corpus, text);
    assert_int_equal(corpus.files, files);
    assert_int_equal(corpus.skipped, skipped);
    ct__corpus_free(&corpus);
}

static void read_fails(const char *path, ct_tokens kind, ct_code code, const char *sentence) {
    ct_corpus corpus;
    ct_err err = {0};
    char whole[CT_ERROR_TEXT];
    assert_false(ct__corpus_read(&path, 1, kind, NULL, &corpus, &err));
    snprintf(whole, sizeof whole, "%s: %s", path, sentence);
    assert_string_equal(err.text, whole);
    assert_int_equal(err.code, code);
}

#define TREE "capital\nfirst\ncaf\xc3\xa9\nlast\n"

static void folders_are_read_by_name(void **state) {
    (void)state;
    const char *path = at("tree");
    for (ct_tokens kind = CT_TOKENS_BYTES; kind <= CT_TOKENS_CHARS; kind++)
        read_ok(&path, 1, kind, TREE, 5, 4); // .git, .hidden, image.png and the link are skipped
    path = at("tree/");
    read_ok(&path, 1, CT_TOKENS_BYTES, TREE, 5, 4);
}

static void several_paths_and_globs(void **state) {
    (void)state;
    const char *paths[] = {at("tree/z.txt"), at("tree/[Ba]*"), at("named-link")};
    read_ok(paths, 3, CT_TOKENS_CHARS, "last\ncapital\nfirst\nfirst\n", 4, 0);
    const char *all = at("tree/*"); // a folder that matches is read, a binary file skipped
    ct_corpus corpus;
    ct_err err = {0};
    put("tree/link.txt", "", 0);
    unlink(at("tree/link.txt"));
    unlink(at("tree/link"));
    assert_true(ct__corpus_read(&all, 1, CT_TOKENS_CHARS, NULL, &corpus, &err));
    check_text(&corpus, TREE);
    assert_int_equal(corpus.skipped, 1);
    ct__corpus_free(&corpus);
    assert_int_equal(symlink("/etc", at("tree/link")), 0);
    const char *named = at("a[1].txt"); // the very name wins over the pattern
    read_ok(&named, 1, CT_TOKENS_CHARS, "bracket", 1, 0);
}

// What a run writes while it trains on the folder that it writes into; elsewhere such names are
// those of text.
static void what_runs_write_is_no_text(void **state) {
    (void)state;
    static const char line[] = "{\"step\": 0, \"loss\": 4.4}\n";
    char folder_itself[100], all[100], file[100];
    snprintf(folder_itself, sizeof folder_itself, "%s", at("home"));
    snprintf(all, sizeof all, "%s", at("home/*"));
    snprintf(file, sizeof file, "%s", at("home/config.json"));
    const char *both[] = {folder_itself, all}, *named = file;
    mkdir(at("home"), 0755);
    mkdir(at("home/best"), 0755);
    put("home/best/config.json", "B", 1);
    put("home/config.json", "C", 1);
    put("home/loss.svg", "L", 1);
    put("home/loss.svg.12-3.tmp", "T", 1);
    put("home/metrics.jsonl", "M", 1);
    put("home/mine.txt", "mine", 4);
    put("home/loss.svg.txt", "too", 3);
    put("home/best/poem.txt", "P", 1);
    mkdir(at("home/checkpoints"), 0755);
    mkdir(at("home/checkpoints/step-2"), 0755);
    put("home/checkpoints/step-2/config.json", "S", 1);
    mkdir(at("home/checkpoints/step-4.2.tmp"), 0755); // as a save is called that is being removed
    put("home/checkpoints/step-4.2.tmp/config.json", "R", 1);
    put("home/checkpoints/step-by-step.txt", "steps", 5);
    put("home/loss.svg.of.mine.tmp", "kept", 4);
    read_ok(both, 1, CT_TOKENS_BYTES, "BPSRstepsCLTkepttooMmine", 12, 0);
    put("home/metrics.jsonl", line, sizeof line - 1);
    for (int i = 0; i < 2; i++) read_ok(&both[i], 1, CT_TOKENS_BYTES, "Pstepskepttoomine", 5, 7);
    read_ok(&named, 1, CT_TOKENS_BYTES, "C", 1, 0); // who names a file means it
    unlink(at("home/metrics.jsonl"));
    put("home/model.safetensors", "\0", 1);
    read_ok(both, 1, CT_TOKENS_BYTES, "Pstepskepttoomine", 5, 7); // a saved model
}

// Whoever opens one to read waits until somebody writes.
static void a_pipe_is_no_file_of_a_run(void **state) {
    (void)state;
    char folder_itself[100];
    snprintf(folder_itself, sizeof folder_itself, "%s", at("piped"));
    const char *path = folder_itself;
    mkdir(at("piped"), 0755);
    put("piped/mine.txt", "mine", 4);
    assert_int_equal(mkfifo(at("piped/metrics.jsonl"), 0600), 0);
    assert_int_equal(mkfifo(at("piped/config.json"), 0600), 0);
    alarm(20); // not for ever
    read_ok(&path, 1, CT_TOKENS_BYTES, "mine", 1, 2);
    alarm(0);
}

static void characters_are_numbered_in_order(void **state) {
    (void)state;
    const char *path = at("tree/b/c.txt");
    ct_corpus corpus;
    ct_err err = {0};
    assert_true(ct__corpus_read(&path, 1, CT_TOKENS_CHARS, NULL, &corpus, &err));
    static const uint32_t chars[] = {'\n', 'a', 'c', 'f', 0xe9};
    static const int32_t tokens[] = {2, 1, 3, 4, 0};
    assert_int_equal(corpus.vocab.n, 5);
    assert_memory_equal(corpus.vocab.chars, chars, sizeof chars);
    assert_int_equal(corpus.n, 5);
    assert_memory_equal(corpus.tokens, tokens, sizeof tokens);
    ct_text text = {0};
    ct_vocab back;
    ct__vocab_text(&corpus.vocab, &text);
    assert_string_equal(text.s, "\nacf\xc3\xa9");
    assert_true(ct__vocab_parse("config.json", CT_TOKENS_CHARS, text.s, text.n, &back, &err));
    assert_int_equal(back.n, 5);
    assert_memory_equal(back.chars, chars, sizeof chars);
    ct__vocab_free(&back);
    ct__text_free(&text);
    ct__corpus_free(&corpus);
}

static void bytes_take_any_named_file(void **state) {
    (void)state;
    const char *path = at("nul");
    ct_corpus corpus;
    ct_err err = {0};
    assert_true(ct__corpus_read(&path, 1, CT_TOKENS_BYTES, NULL, &corpus, &err));
    assert_int_equal(corpus.n, 7);
    assert_int_equal(corpus.vocab.n, 256);
    assert_int_equal(corpus.tokens[3], 0);
    ct__corpus_free(&corpus);
    path = at("latin1");
    assert_true(ct__corpus_read(&path, 1, CT_TOKENS_BYTES, NULL, &corpus, &err));
    assert_int_equal(corpus.tokens[3], 0xe9);
    ct__corpus_free(&corpus);
}

static void corpora_that_cannot_be_read(void **state) {
    (void)state;
    read_fails(at("missing"), CT_TOKENS_CHARS, CT_E_FILE, "cannot open: No such file or directory");
    read_fails(at("*.none"), CT_TOKENS_CHARS, CT_E_FILE, "no file matches this pattern");
    read_fails(at("empty"), CT_TOKENS_BYTES, CT_E_DATA, "the file is empty");
    read_fails(at("void"), CT_TOKENS_CHARS, CT_E_DATA,
               "there is no text here (1 hidden, binary or irregular files, or a run's own, were "
               "skipped)");
    read_fails(at("tree/emp*"), CT_TOKENS_CHARS, CT_E_DATA,
               "there is no text here (0 hidden, binary or irregular files, or a run's own, were "
               "skipped)");
    read_fails("/dev/null", CT_TOKENS_BYTES, CT_E_FILE, "neither a regular file nor a folder");
    read_fails(
        at("nul"), CT_TOKENS_CHARS, CT_E_DATA,
        "the file is not text: byte 3 of 7 is 0\n  hint: .tokenizer \"bytes\" accepts any file");
    read_fails(at("noise"), CT_TOKENS_CHARS, CT_E_DATA,
               "the file is not text: most of its 10 bytes are no characters\n"
               "  hint: .tokenizer \"bytes\" accepts any file");
    read_fails(at("latin1"), CT_TOKENS_CHARS, CT_E_DATA,
               "the file is not UTF-8: byte 3 of 12 is 0xe9\n"
               "  hint: convert it with iconv, or use .tokenizer \"bytes\"");
    ct_corpus corpus;
    ct_err err = {0};
    assert_false(ct__corpus_read(NULL, 0, CT_TOKENS_CHARS, NULL, &corpus, &err));
    assert_string_equal(err.text, "corpus: no path is given");
}

// The superuser may read anything, so the test steps down for the moment of the attempt.
static void unreadable_files(void **state) {
    (void)state;
    put("secret", "text", 4);
    mkdir(at("closed"), 0755);
    put("closed/x", "text", 4);
    assert_int_equal(chmod(at("secret"), 0), 0);
    assert_int_equal(chmod(at("closed"), 0), 0);
    bool root = geteuid() == 0;
    if (root) assert_int_equal(seteuid(65534), 0);
    ct_corpus corpus;
    ct_err one = {0}, two = {0};
    const char *secret = at("secret"), *closed = at("closed");
    bool first = ct__corpus_read(&secret, 1, CT_TOKENS_CHARS, NULL, &corpus, &one);
    bool second = ct__corpus_read(&closed, 1, CT_TOKENS_CHARS, NULL, &corpus, &two);
    if (root) assert_int_equal(seteuid(0), 0);
    char whole[300];
    assert_false(first);
    snprintf(whole, sizeof whole, "%s: cannot open: Permission denied", secret);
    assert_string_equal(one.text, whole);
    assert_false(second);
    snprintf(whole, sizeof whole, "%s: cannot open the folder: Permission denied", closed);
    assert_string_equal(two.text, whole);
    chmod(at("closed"), 0755);
}

static void too_short_for_the_context(void **state) {
    (void)state;
    ct_err err = {0};
    ct_corpus corpus = {.n = 650};
    assert_true(ct__corpus_check(&corpus, 64, &err)); // 585 and 65
    corpus.n = 640;
    assert_false(ct__corpus_check(&corpus, 64, &err));
    assert_string_equal(err.text, "corpus: 640 tokens are too few for context 64: 576 to train on "
                                  "and 64 to validate on, each must be at least 65\n"
                                  "  hint: use more text or a smaller .context");
    assert_int_equal(err.code, CT_E_DATA);
}

static void prompts(void **state) {
    (void)state;
    ct_vocab vocab, bytes = {CT_TOKENS_BYTES, 256, NULL};
    ct_err err = {0};
    int32_t *tokens;
    size_t n;
    assert_true(ct__vocab_parse("v", CT_TOKENS_CHARS, "ab\xc3\xa9", 4, &vocab, &err));
    assert_true(ct__encode(&vocab, "prompt",
                           "\xc3\xa9"
                           "ba",
                           4, &tokens, &n, &err));
    static const int32_t expected[] = {2, 1, 0};
    assert_int_equal(n, 3);
    assert_memory_equal(tokens, expected, sizeof expected);
    ct__free(tokens);
    assert_true(ct__encode(&vocab, "prompt", "", 0, &tokens, &n, &err));
    assert_int_equal(n, 0);
    ct__free(tokens);
    assert_false(ct__encode(&vocab, "prompt", "ab\xe2\x82\xac", 5, &tokens, &n, &err));
    assert_string_equal(err.text, "prompt: character \"\xe2\x82\xac\" (U+20AC) at byte 2 is not "
                                  "among the 3 characters of the model");
    err = (ct_err){0};
    assert_false(ct__encode(&vocab, "prompt", "a\x1b", 2, &tokens, &n, &err));
    assert_string_equal(err.text, "prompt: character \"\\u001b\" (U+001B) at byte 1 is not among "
                                  "the 3 characters of the model");
    err = (ct_err){0};
    assert_false(ct__encode(&vocab, "prompt", "a\xff", 2, &tokens, &n, &err));
    assert_string_equal(err.text, "prompt: byte 1 is 0xff, which is not UTF-8");
    err = (ct_err){0};
    assert_true(ct__encode(&bytes, "prompt", "a\xff", 2, &tokens, &n, &err));
    assert_int_equal(tokens[1], 255);
    ct__free(tokens);
    ct__vocab_free(&vocab);
}

static void vocabularies_that_are_none(void **state) {
    (void)state;
    static const struct {
        ct_tokens kind;
        const char *text, *sentence;
    } cases[] = {
        {CT_TOKENS_CHARS, "", "c.json: vocabulary: it is empty"},
        {CT_TOKENS_CHARS, "ba",
         "c.json: vocabulary: U+0061 follows U+0062, but characters must "
         "ascend"},
        {CT_TOKENS_CHARS, "aa",
         "c.json: vocabulary: U+0061 follows U+0061, but characters must "
         "ascend"},
        {CT_TOKENS_CHARS, "a\xff", "c.json: vocabulary: byte 1 is not UTF-8"},
        {CT_TOKENS_BYTES, "ab",
         "c.json: vocabulary: bytes as tokens have none, but it has 2 bytes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ct_vocab vocab;
        ct_err err = {0};
        assert_false(ct__vocab_parse("c.json", cases[i].kind, cases[i].text, strlen(cases[i].text),
                                     &vocab, &err));
        assert_string_equal(err.text, cases[i].sentence);
    }
}

// Feeds bytes one by one; every piece that comes out must be whole UTF-8.
static void streams(const char *bytes, size_t n, const char *expected) {
    ct_vocab vocab = {CT_TOKENS_BYTES, 256, NULL};
    ct_byte_decoder decoder = {0};
    char whole[128], out[CT_DECODE_ROOM];
    size_t m = 0;
    for (size_t i = 0; i <= n; i++) {
        size_t k = i < n ? ct__decode(&vocab, &decoder, (unsigned char)bytes[i], out)
                         : ct__decode_end(&decoder, out);
        assert_true(k <= CT_DECODE_ROOM);
        memcpy(whole + m, out, k);
        m += k;
    }
    whole[m] = '\0';
    assert_string_equal(whole, expected);
}

#define FFFD "\xef\xbf\xbd"
static void streaming_text(void **state) {
    (void)state;
    streams("plain", 5, "plain");
    streams("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80!", 10, "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80!");
    streams("\xff\xfe"
            "a",
            3, FFFD FFFD "a");
    streams("\xf0\x9f\x98"
            "a",
            4, FFFD "a"); // one mark for the longest part that began well
    streams("\xe2\x82\xe2\x82\xac", 5, FFFD "\xe2\x82\xac");
    streams("\xed\xa0\x80", 3, FFFD FFFD FFFD);
    streams("\xe2\x82", 2, FFFD);
    streams("\xf0\xff", 2, FFFD FFFD);
    ct_vocab vocab = {CT_TOKENS_BYTES, 256, NULL};
    ct_byte_decoder decoder = {0};
    char out[CT_DECODE_ROOM];
    assert_int_equal(ct__decode(&vocab, &decoder, 0xe2, out), 0);
    assert_int_equal(ct__decode(&vocab, &decoder, 256, out), 6);
    assert_memory_equal(out, FFFD FFFD, 6);
    assert_int_equal(ct__decode(&vocab, &decoder, -1, out), 3);
}

// Random bytes, the lead and continuation bytes favoured: what comes out is UTF-8 after each token,
// and, where the bytes were UTF-8, the same bytes. Seed 1.
static void streaming_random_bytes(void **state) {
    (void)state;
    ct_vocab vocab = {CT_TOKENS_BYTES, 256, NULL};
    uint64_t draw = 1;
    size_t valid = 0;
    for (int run = 0; run < 20000; run++) {
        ct_byte_decoder decoder = {0};
        char in[8], out[8 * CT_DECODE_ROOM];
        size_t n = 0;
        for (int i = 0; i <= 8; i++) {
            draw = draw * 6364136223846793005u + 1442695040888963407u;
            unsigned byte = (unsigned)(draw >> 33) & 0xff;
            if (draw >> 60 < 10)
                byte = (byte & 0x3f) | 0x80;
            else if (draw >> 60 < 14)
                byte |= 0xc0;
            if (i < 8) in[i] = (char)byte;
            n += i < 8 ? ct__decode(&vocab, &decoder, (int32_t)byte, out + n)
                       : ct__decode_end(&decoder, out + n);
            if (ct__utf8_bad(out, n) != n) fail_msg("run %d", run);
        }
        if (ct__utf8_bad(in, 8) < 8) continue;
        valid++;
        assert_int_equal(n, 8);
        assert_memory_equal(in, out, 8);
    }
    assert_true(valid > 5);
}

static void allocations_may_fail(void **state) {
    (void)state;
    const char *path = at("tree");
    int failures = 0;
    for (bool done = false; !done; failures++) {
        ct_corpus corpus;
        ct_err err = {0};
        ct__fail_alloc_after(failures);
        done = ct__corpus_read(&path, 1, CT_TOKENS_CHARS, NULL, &corpus, &err);
        ct__fail_alloc_after(-1);
        assert_int_equal(err.code, done ? CT_OK : CT_E_MEMORY);
        ct__corpus_free(&corpus);
    }
    assert_true(failures > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folders_are_read_by_name),
        cmocka_unit_test(several_paths_and_globs),
        cmocka_unit_test(what_runs_write_is_no_text),
        cmocka_unit_test(a_pipe_is_no_file_of_a_run),
        cmocka_unit_test(characters_are_numbered_in_order),
        cmocka_unit_test(bytes_take_any_named_file),
        cmocka_unit_test(corpora_that_cannot_be_read),
        cmocka_unit_test(unreadable_files),
        cmocka_unit_test(too_short_for_the_context),
        cmocka_unit_test(prompts),
        cmocka_unit_test(vocabularies_that_are_none),
        cmocka_unit_test(streaming_text),
        cmocka_unit_test(streaming_random_bytes),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

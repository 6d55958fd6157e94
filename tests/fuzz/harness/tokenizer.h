// What the harnesses of tokenizers ask of one that was read.
#ifndef COTAN_FUZZ_TOKENIZER_H
#define COTAN_FUZZ_TOKENIZER_H

#include "fuzz/harness/harness.h"
#include "text/tokenizer.h"

// Texts become tokens whose spans lie in them, and tokens become UTF-8; or there is an error in words.
static inline void harness_tokenize(const ct_tokenizer *t, const char *text, size_t n) {
    ct_encoding e = {0};
    size_t size;
    if (ct_tokenizer_encode(t, text, n, &e, .add_special = true, .offsets = true)) {
        for (size_t i = 0; i < e.n; i++) {
            EXPECT(e.bytes[i].begin <= n && e.bytes[i].end <= n);
            EXPECT(e.chars[i].begin <= e.bytes[i].begin && e.chars[i].end <= e.bytes[i].end);
            EXPECT(e.ids[i] >= 0);
        }
        ct_decoder *d = ct_decoder_new(t, true);
        const char *said = ct_decoder_all(d, e.ids, e.n, &size);
        EXPECT(!said || ct__utf8_bad(said, size) == size);
        for (size_t i = 0; i < e.n; i++) (void)ct_decoder_next(d, e.ids[i], NULL);
        (void)ct_decoder_end(d, NULL);
        ct_decoder_free(d);
    }
    EXPECT(!ct_failed() || ct_error_code() == CT_E_DATA || ct_error_code() == CT_E_MEMORY);
    ct_error_clear();
    ct_encoding_free(&e);
}

// Reads the bytes by `read`, and uses what comes of it.
static inline void harness_tokenizer(const uint8_t *bytes, size_t n,
                                     bool (*read)(ct_tokenizer *t, char *bytes, size_t n,
                                                  ct_err *err)) {
    static const char text[] = "Don't stop 漢字 ①\xcc\x81 <s> 123\n\n  end \xff";
    ct_err err = {0};
    char *copy = malloc(n + 1);
    EXPECT(copy);
    if (n) memcpy(copy, bytes, n);
    copy[n] = '\0';
    ct_tokenizer *t = ct__tokenizer_new("f", &err);
    EXPECT(t);
    if (read(t, copy, n, &err) && ct__tokenizer_finish(t, &err))
        harness_tokenize(t, text, sizeof text - 1);
    else
        EXPECT(err.code && strncmp(err.text, "f: ", 3) == 0);
    ct__tokenizer_free(t);
    free(copy);
}

#endif

// Any bytes as text: the first says which tokenizer reads the others.
#include "fuzz/harness/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static const char *const files[] = {
        "gpt2.json",  "llama3.json", "llama2.json",   "t5.json",       "bert.json",
        "words.json", "clip.json",   "deepseek.json", "unigram.model", "bpe.model"};
    enum { FILES = sizeof files / sizeof *files };
    static ct_tokenizer *known[FILES]; // as long as the process
    if (!n) return 0;
    size_t which = bytes[0] % FILES;
    const char *text = (const char *)bytes + 1;
    if (!known[which]) {
        char path[128];
        snprintf(path, sizeof path, "tests/unit/tokenizers/%s", files[which]);
        known[which] = ct_tokenizer_load(path);
        EXPECT(known[which]);
    }
    harness_tokenize(known[which], text, n - 1);
    if (which > 1 || ct__utf8_bad(text, n - 1) < n - 1) return 0;
    // A tokenizer of bytes loses nothing.
    ct_encoding e = {0};
    size_t size;
    ct_decoder *d = ct_decoder_new(known[which], false);
    EXPECT(ct_tokenizer_encode(known[which], text, n - 1, &e));
    const char *said = ct_decoder_all(d, e.ids, e.n, &size);
    EXPECT(said && size == n - 1 && memcmp(said, text, n - 1) == 0);
    ct_decoder_free(d);
    ct_encoding_free(&e);
    return 0;
}

#include "fuzz/harness/tokenizer.h"

static bool read_pieces(ct_tokenizer *t, char *bytes, size_t n, ct_err *err) {
    return ct__tokenizer_read_sentencepiece(t, bytes, n, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    harness_tokenizer(bytes, n, read_pieces);
    return 0;
}

#include "fuzz/harness/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    harness_tokenizer(bytes, n, ct__tokenizer_read_json);
    return 0;
}

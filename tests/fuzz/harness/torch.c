#include "fuzz/harness/harness.h"
#include "io/torch.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    const char *path = harness_file(bytes, n);
    const ct_weights_file file = {path, bytes, n};
    ct_arena arena = {0};
    ct_weight *entries;
    ct_err err = {0};
    size_t count;
    if (!ct__torch_read(&file, &arena, &entries, &count, &err)) {
        EXPECT((err.code == CT_E_FORMAT || err.code == CT_E_UNSUPPORTED) &&
               harness_said(err.text, path, "pytorch: "));
        count = 0;
    }
    for (size_t i = 0; i < count; i++) { // what each byte is makes no difference, but it is there
        const uint8_t *data = entries[i].data;
        EXPECT(!entries[i].bytes || entries[i].at + entries[i].bytes <= n + entries[i].bytes);
        for (uint64_t k = 0; k < entries[i].bytes; k++) (void)*(const volatile uint8_t *)(data + k);
    }
    ct__arena_free(&arena);
    return 0;
}

#include "fuzz/harness/harness.h"
#include "io/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    ct_st st;
    ct_err err = {0};
    uint64_t total = 0;
    char what[128];
    if (!ct__st_parse("f", bytes, n, &st, &err)) {
        EXPECT(err.code == CT_E_FORMAT &&
               (strncmp(err.text, "f: safetensors: ", 16) == 0 ||
                strncmp(err.text, "f: this is no safetensors file: ", 32) == 0));
        return 0;
    }
    EXPECT(ct__st_verify(&st, "f", false, &err) || strncmp(err.text, "f: safetensors: ", 16) == 0);
    for (size_t i = 0; i < st.n; i++) {
        const ct_st_entry *e = &st.entries[i];
        const uint8_t *data = e->data;
        EXPECT(data >= bytes + 8 && e->bytes <= (size_t)(bytes + n - data));
        EXPECT(e->begin == total); // no hole and no overlap
        total += e->bytes;
        EXPECT(strlen(ct__st_describe(e, what, sizeof what)) < sizeof what);
        EXPECT(strlen(e->name) != e->name_n || ct__st_find(&st, e->name) == e);
    }
    ct__st_close(&st);
    return 0;
}

#include "fuzz/harness/harness.h"
#include "io/npz.h"

// An array's bytes fill its entry, and no entry asks for more than deflate can give.
static void use_entry(struct ct_npz *npz, const ct_npz_entry *e, size_t n) {
    ct_err err = {0};
    ct_npy head, npy;
    void *data;
    EXPECT(e->begin <= n && e->packed <= n - e->begin && e->bytes / 1032 <= e->packed);
    EXPECT(ct__npz_find(npz, e->name) == e);
    bool known = ct__npz_head(npz, e, &head, &err);
    EXPECT(known || strncmp(err.text, "f: npz: array \"", 15) == 0);
    err = (ct_err){0};
    if (!ct__npz_read(npz, e, &npy, &data, &err)) {
        EXPECT(!data && strncmp(err.text, "f: npz: array \"", 15) == 0);
        return;
    }
    EXPECT(known && npy.begin + npy.bytes == e->bytes && npy.bytes == head.bytes);
    uint8_t *copy = malloc(npy.bytes + 1);
    EXPECT(copy);
    ct__npy_convert(&npy, data, copy);
    free(copy);
    ct__free(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct ct_npz npz;
    ct_err err = {0};
    if (!ct__npz_parse("f", bytes, n, &npz, &err)) {
        EXPECT((err.code == CT_E_FORMAT || err.code == CT_E_UNSUPPORTED) &&
               strncmp(err.text, "f: npz: ", 8) == 0);
        return 0;
    }
    for (size_t i = 0; i < npz.n; i++) use_entry(&npz, &npz.entries[i], n);
    ct__npz_close(&npz);
    return 0;
}

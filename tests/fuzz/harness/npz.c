#include "fuzz/harness/harness.h"
#include "io/npz.h"

// An array's bytes fill its entry, and no entry asks for more than deflate can give.
static void use_entry(struct ct_npz *npz, const ct_npz_entry *e, size_t n) {
    ct_err err = {0};
    ct_npy head, npy;
    void *data;
    EXPECT(e->zip.local < e->zip.begin && e->zip.begin <= n && e->zip.packed <= n - e->zip.begin);
    EXPECT(e->zip.bytes / 1032 <= e->zip.packed && ct__npz_find(npz, e->name) == e);
    bool known = ct__npz_read_header(npz, e, &head, &err);
    EXPECT(known || harness_said(err.text, npz->label, "npz: array \""));
    err = (ct_err){0};
    if (!ct__npz_read(npz, e, &npy, &data, &err)) {
        EXPECT(!data && harness_said(err.text, npz->label, "npz: array \""));
        return;
    }
    EXPECT(known && npy.begin + npy.bytes == e->zip.bytes && npy.bytes == head.bytes);
    uint8_t *copy = malloc(npy.bytes + 1);
    EXPECT(copy);
    ct__npy_convert(&npy, data, copy);
    free(copy);
    ct__free(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    const char *path = harness_file(bytes, n);
    struct ct_npz npz;
    ct_err err = {0};
    if (!ct__npz_open(path, &npz, &err)) {
        EXPECT((err.code == CT_E_FORMAT || err.code == CT_E_UNSUPPORTED) &&
               harness_said(err.text, path, "npz: "));
        return 0;
    }
    for (size_t i = 0; i < npz.n; i++) use_entry(&npz, &npz.entries[i], n);
    ct__npz_close(&npz);
    return 0;
}

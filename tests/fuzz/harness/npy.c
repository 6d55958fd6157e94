#include "fuzz/harness/harness.h"
#include "io/npy.h"

// Everything a program can ask of an accepted array.
static void use_array(const uint8_t *bytes, size_t n, const ct_npy *npy) {
    static const ct_npy_name name = {"f", "npy"};
    ct_text head = {0};
    ct_err err = {0};
    ct_npy again;
    char what[64];
    EXPECT(npy->begin + npy->bytes == n && npy->count * npy->size == npy->bytes);
    EXPECT(strlen(ct__npy_describe(npy, what, sizeof what)) < sizeof what);
    if (!ct__npy_check_dtype(name, npy, &err)) return;
    uint8_t *copy = malloc(npy->bytes + 1);
    EXPECT(copy);
    (void)ct__npy_is_native(npy, bytes + npy->begin);
    ct__npy_convert(npy, bytes + npy->begin, copy);
    for (size_t i = 0; npy->dtype == CT_BOOL && i < npy->bytes; i++) EXPECT(copy[i] <= 1);
    // What is written for it is read as the same array.
    EXPECT(ct__npy_header(name, npy->dtype, npy->rank, npy->shape, &head, &err));
    EXPECT(ct__npy_parse(name, head.s, head.n, head.n + npy->bytes, &again, &err));
    EXPECT(again.dtype == npy->dtype && again.rank == npy->rank && !again.swapped);
    for (int a = 0; a < npy->rank; a++) EXPECT(again.shape[a] == npy->shape[a]);
    ct__text_free(&head);
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static const ct_npy_name name = {"f", "npy"};
    ct_err err = {0};
    ct_npy npy;
    size_t prefix;
    bool ok = ct__npy_prefix(name, bytes, n < CT_NPY_FIXED ? n : CT_NPY_FIXED, &prefix, &err) &&
              ct__npy_parse(name, bytes, prefix < n ? prefix : n, n, &npy, &err);
    if (ok)
        use_array(bytes, n, &npy);
    else
        EXPECT(err.code == CT_E_FORMAT && strncmp(err.text, "f: npy: ", 8) == 0);
    return 0;
}

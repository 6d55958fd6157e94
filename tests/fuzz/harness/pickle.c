#include "fuzz/harness/harness.h"
#include "io/pickle.h"

// Tensors are of at most so many axes, none of them negative.
static void use(const ct_pickle_value *v) {
    if (v->kind != CT_PICKLE_TENSOR) return;
    const ct_pickle_tensor *t = v->tensor;
    EXPECT(t->rank <= CT_MAX_RANK && t->offset >= 0 && t->storage->elements >= 0 && t->type->dtype);
    for (size_t i = 0; i < t->rank; i++) EXPECT(t->dim[i] >= 0 && t->stride[i] >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    ct_pickle p = {.label = "f", .part = "p"};
    ct_pickle_value *v;
    ct_err err = {0};
    size_t used;
    if (ct__pickle_read(&p, bytes, n, &v, &used, &err)) {
        EXPECT(used <= n && bytes[used - 1] == '.');
        use(v);
        bool has =
            v->kind == CT_PICKLE_TUPLE || v->kind == CT_PICKLE_LIST || v->kind == CT_PICKLE_DICT;
        for (size_t i = 0; has && i < v->count; i++) use(v->items[i]);
    } else {
        EXPECT(err.code == CT_E_FORMAT && strncmp(err.text, "f: p: byte ", 11) == 0);
    }
    EXPECT(p.arena.bytes <= 200 * n);
    ct__arena_free(&p.arena);
    return 0;
}

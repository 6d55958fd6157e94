#include "fuzz/harness/harness.h"
#include "io/pickle.h"

// Tensors are of at most so many axes, none of them negative.
static void use(const ct_pickle_value *v) {
    if (v->kind != CT_PICKLE_TENSOR) return;
    const ct_pickle_tensor *t = v->tensor;
    EXPECT(t->rank <= CT_MAX_RANK && t->offset >= 0 && t->storage->elements >= 0 && t->type->dtype);
    for (size_t i = 0; i < t->rank; i++) EXPECT(t->dim[i] >= 0 && t->stride[i] >= 0);
    EXPECT(t->elements == 0 || t->offset < t->storage->elements);
}

// The record of a storage has a size of its key, or none.
static int64_t record_bytes(void *user, const char *key) {
    (void)user;
    return *key == '9' ? -1 : 24 * (1 + (*key - '0'));
}

// Each pickle is read as by cotan.load (strict) and as weights, with and without records.
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    for (int mode = 0; mode < 4; mode++) {
        ct_pickle p = {.label = "f", .strict = mode & 1, .budget = 100 * n};
        if (mode & 2) p.record_bytes = record_bytes;
        ct_pickle_value *v;
        ct_err err = {0};
        size_t at = 0;
        if (ct__pickle_read(&p, bytes, n, &at, &v, &err)) {
            EXPECT(at <= n && bytes[at - 1] == '.');
            use(v);
            bool has = v->kind == CT_PICKLE_TUPLE || v->kind == CT_PICKLE_LIST ||
                       v->kind == CT_PICKLE_DICT;
            for (size_t i = 0; has && i < v->count; i++) use(v->items[i]);
        } else {
            EXPECT(err.code == CT_E_FORMAT && strncmp(err.text, "f, byte ", 8) == 0);
        }
        EXPECT(p.arena.bytes <= 300 * n);
        ct__arena_free(&p.arena);
    }
    return 0;
}

#include "fuzz/harness/harness.h"
#include "io/ggml_blocks.h"
#include "io/gguf.h"

// Lists hold as many values as they say, inside of the file.
static void use_pair(const ct_gguf *g, const ct_gguf_pair *p, const uint8_t *bytes, size_t n) {
    ct_gguf_list list = p->value;
    ct_gguf_text text;
    uint64_t seen = 0;
    EXPECT((const uint8_t *)p->key.s >= bytes && p->key.n <= n);
    EXPECT(list.at >= bytes && list.end <= bytes + n && list.at <= list.end);
    if (list.type == CT_GGUF_STRING) {
        while (ct__gguf_next(&list, &text)) seen++;
        EXPECT(seen == p->value.n && list.at == list.end);
    } else if (list.n) {
        (void)ct__gguf_list_real(&list, list.n - 1);
        (void)ct__gguf_list_int(&list, 0);
    }
    if (!memchr(p->key.s, '\0', p->key.n)) {
        char key[2048];
        if (p->key.n >= sizeof key) return;
        memcpy(key, p->key.s, p->key.n);
        key[p->key.n] = '\0';
        EXPECT(ct__gguf_find(g, key) == p);
    }
}

// Its bytes are whole blocks in the file, of which the first and the last become numbers.
static void use_tensor(const ct_gguf_tensor *t, const uint8_t *bytes, size_t n) {
    float numbers[256];
    uint64_t size = (uint64_t)t->type->bytes;
    EXPECT(t->at <= n && t->bytes <= n - t->at && t->bytes % size == 0 && t->type->elements <= 256);
    if (!t->bytes) return;
    ct__ggml_dequantize(t->type, bytes + t->at, 1, numbers);
    ct__ggml_dequantize(t->type, bytes + t->at + t->bytes - size, 1, numbers);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    ct_gguf g;
    ct_err err = {0};
    if (!ct__gguf_parse("f", bytes, n, &g, &err)) {
        EXPECT(err.code == CT_E_FORMAT &&
               (strncmp(err.text, "f: gguf: ", 9) == 0 ||
                strncmp(err.text, "f: this is no GGUF file: ", 25) == 0));
        return 0;
    }
    EXPECT(g.arena.bytes <= 8 * n + 1024);
    for (size_t i = 0; i < g.n_pairs; i++) use_pair(&g, &g.pairs[i], bytes, n);
    for (size_t i = 0; i < g.n; i++) use_tensor(&g.tensors[i], bytes, n);
    ct__gguf_close(&g);
    return 0;
}

// Helper of the tests of weights: `weights_dump PATH OUT` prints a line a tensor, its name, the file's name of its
// type, Cotan's dtype and its sizes, and writes the bytes of all to OUT: blocks as f32, the rest as it is.
#include <stdio.h>
#include <stdlib.h>

#include "io/ggml_blocks.h"
#include "io/weights.h"

static bool write_floats(const ct_weight *t, FILE *out) {
    const ct_ggml_type *type = ct__ggml_type((uint32_t)t->block);
    size_t n = t->bytes / (size_t)type->bytes, count = n * (size_t)type->elements;
    float *numbers = malloc(count * sizeof *numbers + 1);
    ct__ggml_dequantize(type, t->data, n, numbers);
    bool ok = fwrite(numbers, sizeof *numbers, count, out) == count;
    free(numbers);
    return ok;
}

int main(int argc, char **argv) {
    ct_weights w;
    ct_err err = {0};
    if (argc != 3 || !ct__weights_open(argv[1], &w, &err)) {
        printf("no %s\n", err.text);
        return 1;
    }
    FILE *out = fopen(argv[2], "wb");
    bool ok = out != NULL;
    for (size_t i = 0; i < w.n && ok; i++) {
        const ct_weight *t = &w.entries[i];
        printf("%s\t%s\t%s\t", t->name, t->kind, t->block >= 0 ? "f32" : ct_dtype_name(t->dtype));
        for (size_t k = 0; k < t->rank; k++) printf("%s%lld", k ? "," : "", (long long)t->dim[k]);
        printf("\n");
        ok = t->block >= 0 ? write_floats(t, out) : fwrite(t->data, 1, t->bytes, out) == t->bytes;
    }
    ok = ok && fclose(out) == 0;
    ct__weights_close(&w);
    return !ok;
}

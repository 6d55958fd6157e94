// Helper of test_safetensors_diff.py. Without arguments: reads files from standard input, each
// preceded by its length (8 bytes), and prints one line a file: "no SENTENCE" or "ok" and its
// tensors. `safetensors_verdict IN OUT` reads one file and writes its tensors to another.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/safetensors.h"

static void print_verdict(const char *bytes, size_t n) {
    ct_st st;
    ct_err err = {0};
    if (!ct__st_parse("m", bytes, n, &st, &err)) {
        printf("no %s\n", err.text);
        return;
    }
    printf("ok");
    for (size_t i = 0; i < st.n; i++) {
        const ct_st_entry *e = st.by_name[i];
        printf(" ");
        for (size_t k = 0; k < e->name_n; k++) printf("%02x", (unsigned char)e->name[k]);
        printf("/%s/", e->kind);
        for (size_t k = 0; k < e->rank; k++)
            printf("%s%llu", k ? "," : "", (unsigned long long)e->shape[k]);
        printf("/%llu", (unsigned long long)e->bytes);
    }
    printf("\n");
    ct__st_close(&st);
}

static int copy(const char *from, const char *to) {
    ct_st st = {0};
    ct_err err = {0};
    const void *map = NULL;
    size_t n = 0;
    bool ok = ct__file_map(from, &map, &n, &err) && ct__st_parse(from, map, n, &st, &err);
    ct_st_out *outs = calloc(st.n + 1, sizeof *outs);
    ok = ok && outs;
    for (size_t i = 0; i < st.n && ok; i++) {
        const ct_st_entry *e = &st.entries[i];
        outs[i] = (ct_st_out){e->name, e->dtype, e->rank, (const int64_t *)e->shape, e->data};
    }
    ok = ok && ct__st_write(to, outs, st.n, st.metadata, st.n_metadata, &err);
    if (!ok) fprintf(stderr, "%s\n", err.text);
    free(outs);
    ct__st_close(&st);
    ct__file_unmap(map, n);
    return !ok;
}

int main(int count, char **words) {
    if (count == 3) return copy(words[1], words[2]);
    unsigned char length[8];
    while (fread(length, 1, 8, stdin) == 8) {
        size_t n = 0;
        for (int i = 7; i >= 0; i--) n = n << 8 | length[i];
        char *bytes = malloc(n ? n : 1);
        if (!bytes || fread(bytes, 1, n, stdin) != n) return 1;
        print_verdict(bytes, n);
        free(bytes);
    }
    return 0;
}

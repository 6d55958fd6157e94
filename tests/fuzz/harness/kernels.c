#include "backend/cpu/pack.h"
#include "fuzz/harness/harness.h"

static void is_damaged(const ct_err *err) {
    EXPECT(err->code == CT_E_FORMAT && strncmp(err->text, "kernels: f: ", 12) == 0);
}

// All that loading follows leads to bytes of the section, and into the span.
static void use_section(const uint8_t *section, size_t n) {
    ct_pack_tables t;
    ct_err err = {0};
    uint64_t sum = 0, end = 0;
    if (!ct__pack_check_tables(section, n, "f", &t, &err)) {
        is_damaged(&err);
        return;
    }
    for (uint64_t i = 0; i < t.section->n_segments; i++) {
        const ct_pack_segment *p = &t.segments[i];
        EXPECT(p->at >= end && p->at + p->bytes <= t.section->span && p->bytes);
        end = p->at + p->bytes;
        sum += section[p->from] + section[p->from + p->bytes - 1];
    }
    EXPECT(sum <= 510 * t.section->n_segments);
    for (uint64_t i = 0; i < t.section->n_kernels; i++)
        EXPECT(t.kernels[i].at < t.section->span &&
               (!i || memcmp(&t.kernels[i - 1].key, &t.kernels[i].key, 16)));
    for (uint64_t i = 0; i < t.section->n_relocations; i++)
        EXPECT(t.relocations[i].at + 8 <= t.section->span &&
               t.relocations[i].value <= t.section->span);
    for (uint64_t i = 0; i < t.section->n_imports; i++) {
        EXPECT(t.imports[i].at + 8 <= t.section->span);
        (void)ct__pack_import_address(t.imports[i].name);
    }
}

// The hashes are put in, which no mutation would hit.
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    const ct_pack_level *levels;
    size_t n_levels;
    ct_err err = {0};
    uint8_t *copy = malloc(n + 1);
    EXPECT(copy);
    memcpy(copy, bytes, n);
    ct_pack_header *h = (ct_pack_header *)(void *)copy;
    if (n >= sizeof *h) {
        const uint64_t kept = h->n_levels;
        ct__pack_identity(h);
        h->bytes = n;
        h->n_levels = kept;
        if (kept <= CT_PACK_LEVELS && n >= sizeof *h + kept * sizeof *levels)
            h->hash = ct__pack_header_hash(h);
    }
    if (ct__pack_check_header(copy, n, "f", &levels, &n_levels, &err))
        for (size_t i = 0; i < n_levels; i++) use_section(copy + levels[i].begin, levels[i].bytes);
    else
        is_damaged(&err);
    free(copy);
    return 0;
}

// Weights as codes. Rows are read one by one, by all cores: a row's codes as bytes, and its scales and offsets; then put
// where the layout has them, in groups of 16 rows word by word.
#include "models/lm_codes.h"

#include <stdio.h>
#include <string.h>

#include "backend/backend.h"
#include "base/mem.h"
#include "base/os.h"
#include "io/ggml_blocks.h"
#include "ops/rules.h"

enum { GROUP = 16, STAGE = 4 << 20 }; // rows of a group; bytes that are made before they are copied

static bool is_grouped(ct_layout layout) { return layout & CT_LAYOUT_GROUPED; }
static bool is_wide(ct_layout layout) { // of 8 bits
    const int plain = layout & ~CT_LAYOUT_GROUPED;
    return plain == CT_LAYOUT_INT8_32 || plain == CT_LAYOUT_INT8_16;
}
static int64_t codes_of_word(ct_layout layout) { return is_wide(layout) ? 4 : 8; }

bool ct__lm_codes_of(const ct_weight *w, int64_t width, ct_layout *layout) {
    if (w->block < 0) return false;
    const ct_ggml_type *type = ct__ggml_type((uint32_t)w->block);
    // In rows that the product of codes of 4 bits does not take these have 8.
    const bool wide = type->bits == 8 || width % CT_LM_CODES_STEP;
    if (type->group == 16)
        *layout = wide ? CT_LAYOUT_INT8_16 : CT_LAYOUT_INT4_16;
    else
        *layout = wide ? CT_LAYOUT_INT8_32 : CT_LAYOUT_INT4_32;
    return type->bits > 0;
}

bool ct__lm_codes_make(ct_lm *lm, const char *name, ct_ints dims, int64_t groups, bool offsets,
                       bool grouped, ct_weight_pair *w, ct_loc here) {
    char one[CT_NN_PATH + 24];
    int64_t codes[CT_MAX_RANK], scales[CT_MAX_RANK], rank = dims.n;
    const int64_t last = dims.n - 1, rows = dims.v[last - 1];
    const ct_dtype dtype = is_wide(w->layout) ? CT_I8 : CT_I4;
    const size_t first = ct_params_count(lm->params);
    memcpy(codes, dims.v, (size_t)dims.n * sizeof *codes);
    memcpy(scales, dims.v, (size_t)dims.n * sizeof *scales);
    if (grouped && rows % GROUP == 0) {
        w->layout = (ct_layout)(w->layout | CT_LAYOUT_GROUPED);
        const int64_t each = codes_of_word(w->layout);
        codes[last - 1] = scales[last - 1] = rows / GROUP;
        codes[last] /= each;
        codes[last + 1] = GROUP * each;
        scales[last + 1] = GROUP;
        rank++;
    }
    scales[last] = groups;
    w->weight = ct_param_at(lm->params, name, dtype, (ct_ints){rank, codes}, here);
    snprintf(one, sizeof one, "%s.scales", name);
    w->scales = ct_param_at(lm->params, one, CT_F16, (ct_ints){rank, scales}, here);
    scales[last - 1] = rows;
    snprintf(one, sizeof one, "%s.offsets", name);
    if (offsets) w->offsets = ct_param_at(lm->params, one, CT_F16, (ct_ints){dims.n, scales}, here);
    if (!CT_GROW(lm->codes, lm->codes_cap, lm->n_codes + 1))
        return ct__err_memory(&ct__ctx()->err, here, "lm", sizeof *lm->codes);
    ct_codes *c = &lm->codes[lm->n_codes++];
    *c = (ct_codes){.w = *w, .first = first, .variables = offsets ? 3 : 2, .rank = dims.n};
    memcpy(c->dim, dims.v, (size_t)dims.n * sizeof *c->dim);
    return true;
}

void ct__lm_codes_sizes(const ct_weight_pair *w, int64_t *out, int64_t *in) {
    const int last = ct_rank(w->weight) - 1;
    const bool grouped = is_grouped(w->layout);
    *out = grouped ? ct_dim(w->weight, last - 2) * GROUP : ct_dim(w->weight, last - 1);
    *in =
        grouped ? ct_dim(w->weight, last - 1) * codes_of_word(w->layout) : ct_dim(w->weight, last);
}

// -------------------------------------------------------------------------------------- where they lie

static bool layout_in_place(const ct_weight *w, ct_layout *layout) {
    static const struct {
        const char *type;
        ct_layout layout;
    } known[] = {{"Q4_0", CT_LAYOUT_Q4_0},
                 {"Q8_0", CT_LAYOUT_Q8_0},
                 {"Q4_K", CT_LAYOUT_Q4_K},
                 {"Q5_K", CT_LAYOUT_Q5_K},
                 {"Q6_K", CT_LAYOUT_Q6_K}};
    const char *name = ct__ggml_type((uint32_t)w->block)->name;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        *layout = known[i].layout;
        if (!strcmp(known[i].type, name)) return true;
    }
    return false;
}

static uint64_t bytes_of_blocks(const ct_lm *lm) {
    uint64_t n = 0;
    for (size_t i = 0; i < lm->files->n; i++)
        if (lm->files->entries[i].block >= 0) n += lm->files->entries[i].bytes;
    return n;
}
bool ct__lm_is_too_large(const ct_lm *lm) {
    const size_t memory = ct__memory_bytes();
    return memory && bytes_of_blocks(lm) > memory / 4 * 3;
}

bool ct__lm_blocks_make(ct_lm *lm, const char *name, ct_ints dims, const ct_weight *weight,
                        ct_weight_pair *w, ct_loc here) {
    const ct_ggml_type *type = ct__ggml_type((uint32_t)weight->block);
    int64_t own[CT_MAX_RANK];
    if (!layout_in_place(weight, &w->layout))
        return ct__err(&ct__ctx()->err, CT_E_MEMORY, CT_NOWHERE, weight->path,
                       "\"%.150s\" is %s, which is not read where it lies, as it has to be of a "
                       "model of %.1f GB where there are %.1f GB of memory",
                       name, type->name, (double)bytes_of_blocks(lm) / 1e9,
                       (double)ct__memory_bytes() / 1e9);
    memcpy(own, dims.v, (size_t)dims.n * sizeof *own);
    own[dims.n - 1] = own[dims.n - 1] / type->elements * type->bytes;
    w->blocks = true;
    w->weight = ct_param_at(lm->params, name, CT_U8, (ct_ints){dims.n, own}, here);
    return true;
}

// --------------------------------------------------------------------------------------------- values

// Where a weight's codes go, as many rows of them as are made before they are copied; scales and offsets go where all
// of the variable's are.
typedef struct codes_job {
    const ct_codes_source *from;
    const ct_ggml_type *type; // NULL: it is packed
    int64_t n, width, groups; // rows, and codes and scales of one
    bool wide, grouped;
    int64_t first; // of the groups of rows that are made now
    char *codes;   // theirs
    uint16_t *scales, *offsets;
    char *scratch; // (threads, row_bytes)
    size_t row_bytes;
    int threads;
} codes_job;

static size_t codes_bytes(const codes_job *j, int64_t rows) {
    return (size_t)(rows * j->width) / (j->wide ? 1 : 2);
}

// To nearest, ties to even; what is too large becomes infinite.
static uint16_t to_half(float value) {
    uint32_t bits, sign, size;
    memcpy(&bits, &value, sizeof bits);
    sign = bits >> 16 & 0x8000;
    size = bits & 0x7fffffff;
    if (size > 0x7f800000) return (uint16_t)(sign | 0x7e00);
    if (size >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
    if (size < 0x38800000) { // below 2^-14: units of 2^-24
        const float least = __builtin_fabsf(value) * 0x1p24f;
        return (uint16_t)(sign | (uint32_t)__builtin_rintf(least));
    }
    return (uint16_t)(sign | (size - 0x38000000 + 0xfff + (size >> 13 & 1)) >> 13);
}

static void read_row(const codes_job *j, int64_t row, int8_t *codes, float *scales,
                     float *offsets) {
    const ct_packed *p = &j->from->packed;
    if (!j->type) {
        ct__lm_packed_codes(p, row, codes);
        for (int64_t g = 0; g < j->groups; g++)
            ct__lm_packed_group(p, row, g, &scales[g], &offsets[g]);
        return;
    }
    const int64_t blocks = j->width / j->type->elements;
    const int each = j->type->elements / j->type->group;
    const uint8_t *block = (const uint8_t *)j->from->weight->data + row * blocks * j->type->bytes;
    for (int64_t b = 0; b < blocks; b++, block += j->type->bytes) {
        j->type->parts(block, codes, scales, offsets);
        codes += j->type->elements;
        scales += each;
        offsets += each;
    }
}

// Words of a row so many bytes apart: four codes, or eight of their low halves.
static void put_wide(const int8_t *codes, int64_t n, size_t apart, char *to) {
    for (int64_t i = 0; i < n; i += 4, to += apart) memcpy(to, codes + i, 4);
}
static void put_narrow(const int8_t *codes, int64_t n, size_t apart, char *to) {
    for (int64_t i = 0; i < n; i += 8, to += apart) {
        uint64_t x;
        memcpy(&x, codes + i, sizeof x);
        x &= 0x0f0f0f0f0f0f0f0f;
        x = (x | x >> 4) & 0x00ff00ff00ff00ff;
        x = (x | x >> 8) & 0x0000ffff0000ffff;
        const uint32_t word = (uint32_t)(x | x >> 16);
        memcpy(to, &word, sizeof word);
    }
}

// Groups of 16 rows from `begin` on of those that are made now.
static void make_groups(void *arg, int64_t begin, int64_t end, int worker) {
    const codes_job *j = arg;
    int8_t *codes = (int8_t *)(j->scratch + (size_t)worker * j->row_bytes);
    float *scales = (float *)(void *)(codes + (j->width + 63) / 64 * 64);
    float *offsets = scales + j->groups;
    for (int64_t g = begin; g < end; g++)
        for (int64_t r = 0; r < GROUP && (j->first + g) * GROUP + r < j->n; r++) {
            const int64_t row = (j->first + g) * GROUP + r;
            const int64_t at = j->grouped ? (row - r) * j->groups + r : row * j->groups,
                          apart = j->grouped ? GROUP : 1;
            char *to = j->codes + codes_bytes(j, g * GROUP) +
                       (j->grouped ? (size_t)r * 4 : codes_bytes(j, r));
            read_row(j, row, codes, scales, offsets);
            (j->wide ? put_wide : put_narrow)(codes, j->width, (size_t)apart * 4, to);
            for (int64_t i = 0; i < j->groups; i++) {
                j->scales[at + i * apart] = to_half(scales[i]);
                if (j->offsets) j->offsets[row * j->groups + i] = to_half(offsets[i]);
            }
        }
}

typedef struct pieces {
    const ct_lm *lm;
    const ct_codes_source *from, *end;
    codes_job job;
    bool begun; // with the weight
} pieces;

static void begin_weight(pieces *p) {
    codes_job *j = &p->job;
    j->from = p->from;
    j->type = p->from->packed.kind ? NULL : ct__ggml_type((uint32_t)p->from->weight->block);
    j->first = 0;
    p->begun = true;
}
static void end_weight(pieces *p) {
    codes_job *j = &p->job;
    ct__weights_forget(p->lm->files,
                       p->from->packed.kind ? p->from->packed.codes : p->from->weight);
    j->scales += j->n * j->groups;
    if (j->offsets) j->offsets += j->n * j->groups;
    p->from++;
    p->begun = false;
}

static bool next_codes(void *user, const void **bytes, size_t *n, ct_err *err) {
    pieces *p = user;
    codes_job *j = &p->job;
    (void)err;
    *n = 0;
    *bytes = j->codes;
    if (p->begun && j->first * GROUP >= j->n) end_weight(p);
    if (p->from == p->end) return true;
    if (!p->begun) begin_weight(p);
    const int64_t all = (j->n + GROUP - 1) / GROUP - j->first,
                  most = (int64_t)(STAGE / codes_bytes(j, GROUP)) + 1,
                  groups = all < most ? all : most;
    ct__cpu_each(make_groups, j, groups, 1, j->threads);
    const int64_t rows = j->n - j->first * GROUP;
    *n = codes_bytes(j, rows < groups * GROUP ? rows : groups * GROUP);
    j->first += groups;
    return true;
}

typedef struct one_piece {
    const void *bytes;
    size_t n;
} one_piece;
static bool next_whole(void *user, const void **bytes, size_t *n, ct_err *err) {
    one_piece *p = user;
    (void)err;
    *bytes = p->bytes;
    *n = p->n;
    p->n = 0;
    return true;
}

static bool fill_whole(ct_tensor var, const void *bytes, size_t n, ct_loc here) {
    one_piece p = {bytes, n};
    return !var.bits || ct__var_fill(ct__ctx(), var, next_whole, &p, here);
}

bool ct__lm_codes_fill(ct_lm *lm, const ct_weight_pair *w, const ct_codes_source *from, int64_t n,
                       ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    pieces p = {.lm = lm, .from = from, .end = from + n};
    codes_job *j = &p.job;
    ct__lm_codes_sizes(w, &j->n, &j->width);
    j->n = ct_size(w->weight) / j->width / n; // also where experts are one weight
    j->threads = ct__cpu_threads();
    j->wide = is_wide(w->layout);
    j->grouped = is_grouped(w->layout);
    j->groups = ct_size(w->scales) / (n * j->n);
    j->row_bytes = (size_t)((j->width + 63) / 64 * 64 + (j->groups * 8 + 63) / 64 * 64);
    const size_t scales = (size_t)(n * j->n * j->groups) * 2,
                 scratch = j->row_bytes * (size_t)j->threads,
                 stage = codes_bytes(j, GROUP) + STAGE + codes_bytes(j, GROUP);
    uint16_t *own_scales = ct__malloc(scales),
             *own_offsets = w->offsets.bits ? ct__malloc(scales) : NULL;
    j->scratch = ct__aligned(64, scratch);
    j->codes = ct__malloc(stage);
    j->scales = own_scales;
    j->offsets = own_offsets;
    bool ok = own_scales && j->scratch && j->codes && (own_offsets || !w->offsets.bits);
    if (!ok) ct__err_memory(&ctx->err, here, "lm", stage + scratch + 2 * scales);
    ok = ok && ct__var_fill(ctx, w->weight, next_codes, &p, here) &&
         fill_whole(w->scales, own_scales, scales, here) &&
         fill_whole(w->offsets, own_offsets, scales, here);
    ct__free(own_scales);
    ct__free(own_offsets);
    ct__free(j->scratch);
    ct__free(j->codes);
    return ok;
}

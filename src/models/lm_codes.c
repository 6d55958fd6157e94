// Quantised weights. All cores convert rows one by one: a row's values to bytes, and its scales and
// offsets. The values are then written in the layout's order, which is interleaved in groups of 16 rows
// word by word.
#include "models/lm_codes.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/os.h"
#include "graph/plans.h"
#include "io/ggml_blocks.h"

// rows of a group; bytes that are converted before they are copied
enum { QUANT_GROUP_ROWS = 16, QUANT_STAGE_BYTES = 4 << 20 };

static bool quant_is_interleaved(ct_layout layout) { return layout & CT_LAYOUT_INTERLEAVED; }
static bool quant_is_8bit(ct_layout layout) { // of 8 bits
    const int plain = layout & ~CT_LAYOUT_INTERLEAVED;
    return plain == CT_LAYOUT_INT8_32 || plain == CT_LAYOUT_INT8_16;
}
static int64_t quant_values_per_word(ct_layout layout) { return quant_is_8bit(layout) ? 4 : 8; }

bool ct__lm_codes_of(const ct_weight *w, int64_t width, ct_layout *layout) {
    if (w->block < 0) return false;
    const ct_ggml_type *type = ct__ggml_type((uint32_t)w->block);
    // Rows whose length the 4-bit product does not take get 8 bits.
    const bool is_8bit = type->bits == 8 || width % CT_LM_CODES_STEP;
    if (type->group == 16)
        *layout = is_8bit ? CT_LAYOUT_INT8_16 : CT_LAYOUT_INT4_16;
    else
        *layout = is_8bit ? CT_LAYOUT_INT8_32 : CT_LAYOUT_INT4_32;
    return type->bits > 0;
}

static ct_dtype quant_dtype(const ct_weight_pair *w, bool is_unsigned) {
    return quant_is_8bit(w->layout) ? is_unsigned ? CT_U8 : CT_I8 : is_unsigned ? CT_U4 : CT_I4;
}

bool ct__lm_codes_make(ct_lm *lm, const char *name, ct_ints dims, ct_codes_form form,
                       ct_weight_pair *w, ct_loc here) {
    char full_name[CT_NN_MAX_PATH + 24];
    int64_t quant_dims[CT_MAX_RANK], scale_dims[CT_MAX_RANK], rank = dims.n;
    const int64_t last = dims.n - 1, rows = dims.v[last - 1];
    w->exact = lm->exact;
    const ct_dtype dtype = quant_dtype(w, form.offsets && w->exact),
                   scale_dtype = w->exact ? form.scales : CT_F16;
    const size_t first = ct_params_count(lm->params);
    memcpy(quant_dims, dims.v, (size_t)dims.n * sizeof *quant_dims);
    memcpy(scale_dims, dims.v, (size_t)dims.n * sizeof *scale_dims);
    if (form.interleaved && !w->exact && rows % QUANT_GROUP_ROWS == 0) {
        w->layout = (ct_layout)(w->layout | CT_LAYOUT_INTERLEAVED);
        const int64_t per_word = quant_values_per_word(w->layout);
        quant_dims[last - 1] = scale_dims[last - 1] = rows / QUANT_GROUP_ROWS;
        quant_dims[last] /= per_word;
        quant_dims[last + 1] = QUANT_GROUP_ROWS * per_word;
        scale_dims[last + 1] = QUANT_GROUP_ROWS;
        rank++;
    }
    scale_dims[last] = form.n_blocks;
    w->weight = ct_param_at(lm->params, name, dtype, (ct_ints){rank, quant_dims}, here);
    snprintf(full_name, sizeof full_name, "%s.scales", name);
    w->scales = ct_param_at(lm->params, full_name, scale_dtype, (ct_ints){rank, scale_dims}, here);
    scale_dims[last - 1] = rows;
    snprintf(full_name, sizeof full_name, "%s.offsets", name);
    if (form.offsets)
        w->offsets =
            ct_param_at(lm->params, full_name, scale_dtype, (ct_ints){dims.n, scale_dims}, here);
    if (!CT_GROW(lm->quant, lm->quant_cap, lm->n_quant + 1))
        return ct__err_memory(&ct__ctx()->err, here, "lm", sizeof *lm->quant);
    ct_codes *quant = &lm->quant[lm->n_quant++];
    *quant = (ct_codes){
        .w = *w, .first_variable = first, .n_variables = form.offsets ? 3 : 2, .rank = dims.n};
    memcpy(quant->dims, dims.v, (size_t)dims.n * sizeof *quant->dims);
    return true;
}

void ct__lm_codes_sizes(const ct_weight_pair *w, int64_t *out, int64_t *in) {
    const int last = ct_rank(w->weight) - 1;
    const bool interleaved = quant_is_interleaved(w->layout);
    *out =
        interleaved ? ct_dim(w->weight, last - 2) * QUANT_GROUP_ROWS : ct_dim(w->weight, last - 1);
    *in = interleaved ? ct_dim(w->weight, last - 1) * quant_values_per_word(w->layout)
                      : ct_dim(w->weight, last);
}

// ------------------------------------------------------------------------------ blocks read in place

static bool quant_in_place_layout(const ct_weight *w, ct_layout *layout) {
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

static uint64_t quant_block_bytes(const ct_lm *lm) {
    uint64_t n = 0;
    for (size_t i = 0; i < lm->files->n; i++)
        if (lm->files->entries[i].block >= 0) n += lm->files->entries[i].bytes;
    return n;
}
bool ct__lm_is_too_large(const ct_lm *lm) {
    const size_t memory = ct__memory_bytes();
    return memory && quant_block_bytes(lm) > memory / 4 * 3;
}

bool ct__lm_blocks_make(ct_lm *lm, const char *name, ct_ints dims, const ct_weight *weight,
                        ct_weight_pair *w, ct_loc here) {
    const ct_ggml_type *type = ct__ggml_type((uint32_t)weight->block);
    int64_t own[CT_MAX_RANK];
    if (!quant_in_place_layout(weight, &w->layout))
        return ct__err(&ct__ctx()->err, CT_E_MEMORY, CT_NOWHERE, weight->path,
                       "\"%.150s\" is %s, which cannot be read from the mapped file, as is needed "
                       "for a model of %.1f GB with %.1f GB of memory",
                       name, type->name, (double)quant_block_bytes(lm) / 1e9,
                       (double)ct__memory_bytes() / 1e9);
    memcpy(own, dims.v, (size_t)dims.n * sizeof *own);
    own[dims.n - 1] = own[dims.n - 1] / type->elements * type->bytes;
    w->is_blocks = true;
    w->weight = ct_param_at(lm->params, name, CT_U8, (ct_ints){dims.n, own}, here);
    return true;
}

// -------------------------------------------------------------------------------------------- values

// The conversion of a weight: a stage of quantised values that is copied whenever it is full, and the
// scales and offsets of the whole variable.
typedef struct quant_job {
    const ct_codes_source *from;
    const ct_ggml_type *type;            // NULL: the weight is packed (lm_packed.h)
    int64_t n_rows, n_columns, n_blocks; // rows, and values and blocks of a row
    bool is_8bit, interleaved;
    int zero;               // zero point: unsigned value minus signed value
    bool exact;             // true: values are written unsigned
    int64_t first_group;    // first group of rows in the stage
    char *stage;            // the stage
    ct_dtype scale_dtype;   // of the scales and offsets
    char *scales, *offsets; // where the next weight's go; offsets NULL: there are none
    char *scratch;          // (threads, row_bytes)
    size_t row_bytes;
    int threads;
} quant_job;

static size_t quant_value_bytes(const quant_job *j, int64_t rows) {
    return (size_t)(rows * j->n_columns) / (j->is_8bit ? 1 : 2);
}

// Rounds to nearest, ties to even; too large values become infinite.
static uint16_t quant_f32_to_f16(float value) {
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

static void quant_store_scale(const quant_job *j, char *to, int64_t at, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t half =
        j->scale_dtype == CT_BF16 ? (uint16_t)(bits >> 16) : quant_f32_to_f16(value);
    if (j->scale_dtype == CT_F32)
        memcpy(to + at * 4, &bits, 4);
    else
        memcpy(to + at * 2, &half, 2);
}

static void quant_read_stored_row(const quant_job *j, int64_t row, int8_t *quants, float *scales,
                                  float *offsets) {
    const ct_packed *p = &j->from->packed;
    if (!j->type) {
        ct__lm_packed_codes(p, row, quants);
        for (int64_t g = 0; g < j->n_blocks; g++)
            ct__lm_packed_group(p, row, g, &scales[g], &offsets[g]);
        return;
    }
    const int64_t blocks = j->n_columns / j->type->elements;
    const int scales_per_block = j->type->elements / j->type->group;
    const uint8_t *block = (const uint8_t *)j->from->weight->data + row * blocks * j->type->bytes;
    for (int64_t b = 0; b < blocks; b++, block += j->type->bytes) {
        j->type->unpack(block, quants, scales, offsets);
        quants += j->type->elements;
        scales += scales_per_block;
        offsets += scales_per_block;
    }
}

// Reads a row; where values are signed, the zero point moves into the offset.
static void quant_read_row(const quant_job *j, int64_t row, int8_t *quants, float *scales,
                           float *offsets) {
    quant_read_stored_row(j, row, quants, scales, offsets);
    for (int64_t i = 0; j->exact && j->zero && i < j->n_columns; i++)
        quants[i] = (int8_t)(quants[i] + j->zero);
    for (int64_t g = 0; !j->exact && j->zero && g < j->n_blocks; g++)
        offsets[g] += (float)j->zero * scales[g];
}

// Write the words of a row with a distance of `stride` bytes: four values, or the low halves of eight.
static void quant_store_words_8bit(const int8_t *quants, int64_t n, size_t stride, char *to) {
    for (int64_t i = 0; i < n; i += 4, to += stride) memcpy(to, quants + i, 4);
}
static void quant_store_words_4bit(const int8_t *quants, int64_t n, size_t stride, char *to) {
    for (int64_t i = 0; i < n; i += 8, to += stride) {
        uint64_t x;
        memcpy(&x, quants + i, sizeof x);
        x &= 0x0f0f0f0f0f0f0f0f;
        x = (x | x >> 4) & 0x00ff00ff00ff00ff;
        x = (x | x >> 8) & 0x0000ffff0000ffff;
        const uint32_t word = (uint32_t)(x | x >> 16);
        memcpy(to, &word, sizeof word);
    }
}

// Converts the groups begin to end - 1 of the stage.
static void quant_convert_groups(void *arg, int64_t begin, int64_t end, int worker) {
    const quant_job *j = arg;
    int8_t *quants = (int8_t *)(j->scratch + (size_t)worker * j->row_bytes);
    float *scales = (float *)(void *)(quants + (j->n_columns + 63) / 64 * 64);
    float *offsets = scales + j->n_blocks;
    for (int64_t g = begin; g < end; g++)
        for (int64_t r = 0;
             r < QUANT_GROUP_ROWS && (j->first_group + g) * QUANT_GROUP_ROWS + r < j->n_rows; r++) {
            const int64_t row = (j->first_group + g) * QUANT_GROUP_ROWS + r;
            const int64_t at = j->interleaved ? (row - r) * j->n_blocks + r : row * j->n_blocks,
                          stride = j->interleaved ? QUANT_GROUP_ROWS : 1;
            char *to = j->stage + quant_value_bytes(j, g * QUANT_GROUP_ROWS) +
                       (j->interleaved ? (size_t)r * 4 : quant_value_bytes(j, r));
            quant_read_row(j, row, quants, scales, offsets);
            (j->is_8bit ? quant_store_words_8bit : quant_store_words_4bit)(quants, j->n_columns,
                                                                           (size_t)stride * 4, to);
            for (int64_t i = 0; i < j->n_blocks; i++) {
                quant_store_scale(j, j->scales, at + i * stride, scales[i]);
                if (j->offsets) quant_store_scale(j, j->offsets, row * j->n_blocks + i, offsets[i]);
            }
        }
}

typedef struct quant_stream {
    const ct_lm *lm;
    const ct_codes_source *from, *end;
    quant_job job;
    bool begun; // whether the current weight is begun
} quant_stream;

static void quant_begin_weight(quant_stream *p) {
    quant_job *j = &p->job;
    j->from = p->from;
    j->type = p->from->packed.kind ? NULL : ct__ggml_type((uint32_t)p->from->weight->block);
    j->zero = j->type ? j->type->zero_point : ct__lm_packed_zero(&p->from->packed);
    j->first_group = 0;
    p->begun = true;
}
static void quant_end_weight(quant_stream *p) {
    quant_job *j = &p->job;
    ct__weights_release_pages(p->lm->files,
                              p->from->packed.kind ? p->from->packed.quants : p->from->weight);
    const size_t scale_bytes = (size_t)(j->n_rows * j->n_blocks) * ct_dtype_size(j->scale_dtype);
    j->scales += scale_bytes;
    if (j->offsets) j->offsets += scale_bytes;
    p->from++;
    p->begun = false;
}

static bool quant_next_chunk(void *user, const void **bytes, size_t *n, ct_err *err) {
    quant_stream *p = user;
    quant_job *j = &p->job;
    (void)err;
    *n = 0;
    *bytes = j->stage;
    if (p->begun && j->first_group * QUANT_GROUP_ROWS >= j->n_rows) quant_end_weight(p);
    if (p->from == p->end) return true;
    if (!p->begun) quant_begin_weight(p);
    const int64_t left = (j->n_rows + QUANT_GROUP_ROWS - 1) / QUANT_GROUP_ROWS - j->first_group,
                  max_groups =
                      (int64_t)(QUANT_STAGE_BYTES / quant_value_bytes(j, QUANT_GROUP_ROWS)) + 1,
                  groups = left < max_groups ? left : max_groups;
    ct__parallel_for(quant_convert_groups, j, groups, 1, j->threads);
    const int64_t rows = j->n_rows - j->first_group * QUANT_GROUP_ROWS;
    *n = quant_value_bytes(j, rows < groups * QUANT_GROUP_ROWS ? rows : groups * QUANT_GROUP_ROWS);
    j->first_group += groups;
    return true;
}

typedef struct quant_buffer {
    const void *bytes;
    size_t n;
} quant_buffer;
static bool quant_next_buffer(void *user, const void **bytes, size_t *n, ct_err *err) {
    quant_buffer *p = user;
    (void)err;
    *bytes = p->bytes;
    *n = p->n;
    p->n = 0;
    return true;
}

static bool quant_fill_variable(ct_tensor var, const void *bytes, size_t n, ct_loc here) {
    quant_buffer p = {bytes, n};
    return !var.bits || ct__var_fill(ct__ctx(), var, quant_next_buffer, &p, here);
}

bool ct__lm_codes_fill(ct_lm *lm, const ct_weight_pair *w, const ct_codes_source *from, int64_t n,
                       ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    quant_stream p = {.lm = lm, .from = from, .end = from + n};
    quant_job *j = &p.job;
    ct__lm_codes_sizes(w, &j->n_rows, &j->n_columns);
    j->n_rows = ct_size(w->weight) / j->n_columns / n; // also if all experts are one variable
    j->threads = ct_threads();
    j->is_8bit = quant_is_8bit(w->layout);
    j->interleaved = quant_is_interleaved(w->layout);
    j->n_blocks = ct_size(w->scales) / (n * j->n_rows);
    j->row_bytes = (size_t)((j->n_columns + 63) / 64 * 64 + (j->n_blocks * 8 + 63) / 64 * 64);
    j->exact = w->exact;
    j->scale_dtype = ct_dtype_of(w->scales);
    const size_t scale_bytes =
                     (size_t)(n * j->n_rows * j->n_blocks) * ct_dtype_size(j->scale_dtype),
                 scratch_bytes = j->row_bytes * (size_t)j->threads,
                 stage_bytes = quant_value_bytes(j, QUANT_GROUP_ROWS) + QUANT_STAGE_BYTES +
                               quant_value_bytes(j, QUANT_GROUP_ROWS);
    char *all_scales = ct__malloc(scale_bytes),
         *all_offsets = w->offsets.bits ? ct__malloc(scale_bytes) : NULL;
    j->scratch = ct__aligned(64, scratch_bytes);
    j->stage = ct__malloc(stage_bytes);
    j->scales = all_scales;
    j->offsets = all_offsets;
    bool ok = all_scales && j->scratch && j->stage && (all_offsets || !w->offsets.bits);
    if (!ok) ct__err_memory(&ctx->err, here, "lm", stage_bytes + scratch_bytes + 2 * scale_bytes);
    ok = ok && ct__var_fill(ctx, w->weight, quant_next_chunk, &p, here) &&
         quant_fill_variable(w->scales, all_scales, scale_bytes, here) &&
         quant_fill_variable(w->offsets, all_offsets, scale_bytes, here);
    ct__free(all_scales);
    ct__free(all_offsets);
    ct__free(j->scratch);
    ct__free(j->stage);
    return ok;
}

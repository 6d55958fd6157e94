// The cache of keys and values, or of recurrent states, and the step that advances sequences with it.
#include <math.h>
#include <string.h>

#include "cotan/nn.h"
#include "models/stack.h"
#include "ops/rules.h"

// Computes the sizes of a layer's pools: one or two of them.
static void lm_cache_pool_sizes(const ct_spec *s, int64_t slots, int64_t sequences,
                                int64_t sizes[6], ct_ints *first, ct_ints *second) {
    const int64_t keys[6] = {slots, s->kv_heads, s->head, slots, s->kv_heads, s->value_head},
                  latent[6] = {slots, 1, s->kv_lora_rank + s->head - s->nope_head},
                  mamba[6] = {sequences, s->conv - 1, s->hidden, sequences, s->hidden, s->state},
                  rwkv[6] = {sequences, 5, s->width};
    const bool is_rwkv = s->family == CT_FAMILY_RWKV, is_mamba = s->family == CT_FAMILY_MAMBA;
    memcpy(sizes, is_mamba ? mamba : is_rwkv ? rwkv : s->kv_lora_rank ? latent : keys, sizeof keys);
    *first = (ct_ints){3, sizes};
    *second = (ct_ints){is_rwkv || s->kv_lora_rank ? 0 : 3, sizes + 3};
}

uint64_t ct__lm_cache_page_bytes(const ct_lm *lm, ct_dtype dtype) {
    int64_t sizes[6], n = 0;
    ct_ints pool[2];
    lm_cache_pool_sizes(&lm->spec, CT_LM_PAGE, 1, sizes, &pool[0], &pool[1]);
    for (int i = 0; i < 2; i++)
        if (pool[i].n)
            n += pool[i].v[0] * pool[i].v[1] *
                 (pool[i].v[2] * (int64_t)ct_dtype_size(dtype) + (dtype == CT_I8 ? 4 : 0));
    return (uint64_t)(n * lm->spec.layers);
}

// Leaves the variable without first values: memory that is never written takes none from the system. Pages
// of a pool that no sequence holds are never read, so they need no values (the engine's tests put NaN
// there).
static bool lm_cache_fill_nothing(void *user, const void **bytes, size_t *n, ct_err *err) {
    (void)user, (void)bytes, (void)err;
    *n = 0;
    return true;
}
static ct_tensor lm_cache_make_pool(ct_nn_builder builder, const char *name, ct_ints dims,
                                    bool zeros, ct_loc here) {
    builder.skip_init = !zeros;
    ct_tensor pool = ct_nn_param_at(builder, name, dims, CT_NN_ZEROS, here);
    // the kernels do not depend on the size of the pool
    if (ct_ok(pool)) ct__var_of(pool)->open = true;
    if (!zeros && ct_ok(pool) && !ct__var_fill(ct__ctx(), pool, lm_cache_fill_nothing, NULL, here))
        return CT_NONE;
    return pool;
}

static ct_lm_cache *lm_cache_make(const ct_lm *lm, int64_t pages, int64_t sequences, ct_dtype dtype,
                                  bool zeros, ct_loc here) {
    const ct_spec *s = &lm->spec;
    ct_ctx *ctx = ct__ctx();
    const bool is_recurrent = s->family >= CT_FAMILY_MAMBA,
               is_quantised = dtype == CT_I8 && !is_recurrent;
    ct_lm_cache *cache = ct__calloc(1, sizeof *cache);
    if (cache) {
        cache->layers = s->layers;
        cache->pages = pages;
        cache->params = ct_params_new();
        cache->layer = ct__calloc((size_t)s->layers, sizeof *cache->layer);
        if (is_quantised) cache->scales = ct__calloc((size_t)s->layers, sizeof *cache->scales);
    }
    if (!cache || !cache->params || !cache->layer || (is_quantised && !cache->scales)) {
        ct__err_memory(&ctx->err, here, "lm_cache", (size_t)s->layers * sizeof *cache->layer);
        ct__lm_cache_free(cache);
        return NULL;
    }
    ct_nn_builder top = ct_nn_builder_for(cache->params, 0);
    top.dtype = is_recurrent ? CT_F32 : dtype;
    ct_ints first, second;
    int64_t sizes[6];
    lm_cache_pool_sizes(s, pages * CT_LM_PAGE, sequences, sizes, &first, &second);
    CT_SCOPE; // its end gives the pools their first values
    for (int64_t i = 0; i < s->layers; i++) {
        ct_nn_builder builder = ct_nn_builder_child(top, "layer.%lld", (long long)i);
        cache->layer[i].weight = lm_cache_make_pool(builder, "keys", first, zeros, here);
        if (second.n)
            cache->layer[i].bias = lm_cache_make_pool(builder, "values", second, zeros, here);
        if (!cache->scales) continue;
        builder.dtype = CT_F32;
        cache->scales[i].weight = lm_cache_make_pool(
            builder, "key_scales", CT_DIMS(first.v[0], first.v[1], 1), false, here);
        if (second.n)
            cache->scales[i].bias = lm_cache_make_pool(
                builder, "value_scales", CT_DIMS(second.v[0], second.v[1], 1), false, here);
    }
    if (!ctx->err.code) return cache;
    ct__lm_cache_free(cache);
    return NULL;
}

ct_lm_cache *ct__lm_cache_new(const ct_lm *lm, int64_t pages, int64_t sequences, ct_dtype dtype,
                              ct_loc here) {
    return lm_cache_make(lm, pages, sequences, dtype, lm->spec.family >= CT_FAMILY_MAMBA, here);
}

ct_lm_cache *ct__lm_decode_cache(const ct_lm *lm, int64_t batch, int64_t capacity, ct_loc here) {
    const int64_t pages = (capacity + CT_LM_PAGE - 1) / CT_LM_PAGE;
    return lm_cache_make(lm, batch * pages, batch, CT_F32, true, here);
}

void ct__lm_cache_free(ct_lm_cache *cache) {
    if (!cache) return;
    ct_params_free(cache->params);
    ct__free(cache->layer);
    ct__free(cache->scales);
    ct__free(cache);
}

static void lm_cache_copy_slots(ct_tensor pool, ct_tensor from, ct_tensor to, ct_loc here) {
    ct_tensor rows =
        from.bits ? ct_gather_with((ct_gather_args){.x = pool, .indices = from, .here = here})
        : ct_dtype_of(pool) == CT_I8
            ? ct_full_at(ct_cast_at(ct_i(127), CT_I8, here),
                         CT_DIMS(CT_LM_PAGE, ct_dim(pool, 1), ct_dim(pool, 2)), here)
            : ct_full_at(ct_cast_at(ct_f((double)NAN), ct_dtype_of(pool), here),
                         CT_DIMS(CT_LM_PAGE, ct_dim(pool, 1), ct_dim(pool, 2)), here);
    ct_tensor updated =
        ct_scatter_with((ct_scatter_args){.x = pool, .indices = to, .updates = rows, .here = here});
    ct_assign_at(pool, updated, here);
}

void ct__lm_cache_copy(ct_lm_cache *cache, int32_t from, int32_t to, ct_loc here) {
    CT_SCOPE; // has a plan of its own
    int32_t slots[2][CT_LM_PAGE];
    for (int32_t i = 0; i < CT_LM_PAGE; i++) {
        slots[0][i] = from * CT_LM_PAGE + i;
        slots[1][i] = to * CT_LM_PAGE + i;
    }
    ct_tensor rows[2] = {CT_NONE, ct_from_at(slots[1], CT_I32, CT_DIMS(CT_LM_PAGE), here)};
    if (from >= 0) rows[0] = ct_from_at(slots[0], CT_I32, CT_DIMS(CT_LM_PAGE), here);
    for (int64_t i = 0; i < cache->layers; i++) {
        const ct_weight_pair none = {0},
                             pools[2] = {cache->layer[i], cache->scales ? cache->scales[i] : none};
        for (int k = 0; k < 2; k++) {
            if (pools[k].weight.bits) lm_cache_copy_slots(pools[k].weight, rows[0], rows[1], here);
            if (pools[k].bias.bits) lm_cache_copy_slots(pools[k].bias, rows[0], rows[1], here);
        }
    }
}

void ct__lm_cache_pick(ct_lm_cache *cache, const int32_t *from, int64_t n, ct_loc here) {
    CT_SCOPE;
    ct_tensor index = ct_from_at(from, CT_I32, CT_DIMS(n), here);
    for (int64_t i = 0; i < cache->layers; i++) {
        const ct_tensor pool[2] = {cache->layer[i].weight, cache->layer[i].bias};
        for (int k = 0; k < 2; k++)
            if (pool[k].bits)
                ct_assign_at(
                    pool[k],
                    ct_gather_with((ct_gather_args){.x = pool[k], .indices = index, .here = here}),
                    here);
    }
}

// (B, 1) -> (B * T): the positions of each sequence's tokens
static ct_tensor lm_cache_positions(const ct_lm_segment *g, ct_loc here) {
    ct_tensor at = ct_iota_at(CT_I32, CT_DIMS(1, g->time), 1, here); // (1, T)
    return ct_reshape_at(ct_add_at(g->position, at, here), CT_DIMS(-1), here);
}

// Returns the pool slots of the tokens: (B * T). A token beyond its sequence's length is written nowhere.
static ct_tensor lm_cache_slots(const ct_lm_segment *g, ct_loc here) {
    ct_tensor at =
        ct_add_at(g->position, ct_iota_at(CT_I32, CT_DIMS(1, g->time), 1, here), here); // (B, T)
    ct_tensor page = ct_take_along_with(
        (ct_take_along_args){.x = g->table,
                             .indices = ct_floor_divide_at(at, ct_i(CT_LM_PAGE), here),
                             .axis = 1,
                             .here = here});
    ct_tensor slot = ct_add_at(ct_mul_at(page, ct_i(CT_LM_PAGE), here),
                               ct_remainder_at(at, ct_i(CT_LM_PAGE), here), here);
    return ct_reshape_at(slot, CT_DIMS(-1), here);
}

static ct_tensor lm_cache_concat(const ct_tensor *part, int n, ct_loc here) {
    return n == 1 ? part[0] : ct_concat_at(part, n, 0, here);
}

ct_tensor ct__lm_step(const ct_lm *lm, ct_lm_cache *cache, const ct_lm_part *parts, int n,
                      int64_t max_length, ct_loc here) {
    ct_lm_pass pass = {
        .lm = lm, .segments = n, .cache = cache, .max_length = max_length, .here = here};
    ct_tensor tokens[2] = {0}, positions[2] = {0}, slots[2] = {0}, last[2] = {0};
    for (int i = 0; i < n; i++) {
        const ct_lm_part *p = &parts[i];
        ct_lm_segment *g = &pass.segment[i];
        *g = (ct_lm_segment){.batch = ct__size_like(p->tokens, 0),
                             .time = ct__size_like(p->tokens, 1),
                             .row_template = ct_reshape_at(p->tokens, CT_DIMS(-1), here),
                             .position = p->position,
                             .table = p->table,
                             .state = p->state};
        tokens[i] = g->row_template;
        positions[i] = lm_cache_positions(g, here);
        if (lm->spec.family < CT_FAMILY_MAMBA) slots[i] = lm_cache_slots(g, here);
    }
    pass.positions = lm_cache_concat(positions, n, here);
    if (lm->spec.family < CT_FAMILY_MAMBA) pass.slots = lm_cache_concat(slots, n, here);
    pass.memory = parts->memory;
    ct_tensor x = ct__stack_hidden(&pass, lm_cache_concat(tokens, n, here)); // (N, width)
    for (int i = 0; i < n; i++) { // keeps only the last token of each sequence
        ct_tensor rows = ct__stack_rows(&pass, i, x);
        last[i] = rows;
        if (parts[i].every) continue;
        rows = ct_reshape_at(
            rows, CT_DIMS(pass.segment[i].batch, pass.segment[i].time, lm->spec.width), here);
        rows = ct_slice_with((ct_slice_args){
            .x = rows, .axes = CT_AXES(1), .start = CT_INTS(-1), .here = here}); // (B, 1, width)
        last[i] = ct_reshape_at(rows, CT_DIMS(-1, lm->spec.width), here);
    }
    return ct__stack_logits(&pass, lm_cache_concat(last, n, here));
}

ct_tensor ct__lm_decode(const ct_lm *lm, ct_lm_cache *cache, ct_tensor tokens, ct_tensor position,
                        int64_t max_length, ct_loc here) {
    if (!ct_ok(tokens)) return tokens;
    const int64_t batch = ct_dim(tokens, 0), pages = cache->pages / batch;
    ct_tensor first =
        ct_mul_at(ct_iota_at(CT_I32, CT_DIMS(batch, 1), 0, here), ct_i(pages), here); // (B, 1)
    const ct_lm_part part = {
        .tokens = tokens,
        .position = ct_add_at(ct_zeros_at(CT_I32, CT_DIMS(batch, 1), here), position, here),
        .table = ct_add_at(first, ct_iota_at(CT_I32, CT_DIMS(1, pages), 1, here), here),
        .state = ct_iota_at(CT_I32, CT_DIMS(batch), 0, here)};
    return ct__lm_step(lm, cache, &part, 1, max_length, here);
}

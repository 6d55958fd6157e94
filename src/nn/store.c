// Parameter sets in safetensors files: a load is complete, or fails with an error that names the mismatch.
#include "nn/store.h"

#include <stdio.h>
#include <string.h>

#include "base/fp_env.h"
#include "cotan/nn.h"
#include "graph/graph.h"

// ----------------------------------------------------------------------------------------- writing

bool ct__store_put(ct_store *store, const char *prefix, const char *name, ct_dtype dtype,
                   ct_ints dims, const void *data, ct_err *err) {
    size_t rank = (size_t)dims.n;
    int64_t *shape = ct__arena(&store->arena, rank * sizeof *shape);
    char *full = ct__arena_printf(&store->arena, "%s%s", prefix, name);
    if (!shape || !full || !CT_GROW(store->out, store->cap, store->n + 1))
        return ct__err_memory(err, CT_NOWHERE, "safetensors", rank * sizeof *shape);
    if (rank) memcpy(shape, dims.v, rank * sizeof *shape);
    store->out[store->n++] =
        (ct_st_out){.name = full, .dtype = dtype, .rank = rank, .shape = shape, .data = data};
    return true;
}

bool ct__store_add(ct_store *store, const ct_params *params, const char *prefix, ct_err *err,
                   ct_loc here) {
    for (size_t i = 0; i < ct_params_count(params); i++) {
        ct_tensor var = ct_params_get(params, i);
        int64_t dim[CT_MAX_RANK];
        ct_ints dims = {ct_rank(var), dim};
        for (int a = 0; a < dims.n; a++) dim[a] = ct_dim(var, a);
        const void *data = ct_data_at(var, here);
        if (!data) {
            ct_ctx *ctx = ct__ctx();
            if (ctx && err != &ctx->err && !err->code) *err = ctx->err;
            return false;
        }
        if (!ct__store_put(store, prefix, ct_params_name(params, i), ct_dtype_of(var), dims, data,
                           err))
            return false;
    }
    return true;
}

void ct__store_free(ct_store *store) {
    ct__free(store->out);
    ct__arena_free(&store->arena);
    *store = (ct_store){0};
}

bool ct_params_save_at(const ct_params *params, const char *path, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, params, here, "params_save", "the parameter set") ||
        !ct__given(ctx, path, here, "params_save", "the path") || ctx->err.code)
        return false;
    CT_SCOPE;
    ct_store store = {0};
    const char *numerics = ct_numerics();
    ct_st_pair made_by = {"cotan.numerics", numerics, 14, strlen(numerics)};
    bool ok = ct__store_add(&store, params, "", &ctx->err, here) &&
              ct__st_write_checked(path, store.out, store.n, &made_by, 1, &ctx->err);
    ct__store_free(&store);
    return ok || ct__err_locate(&ctx->err, here, "params_save");
}

// ----------------------------------------------------------------------------------------- reading

static const char store_architecture_hint[] =
    "this is a checkpoint of another architecture, or of other sizes";

static bool store_report_missing(const ct_st *file, const char *path, const char *name,
                                 ct_err *err) {
    ct__err(err, CT_E_FORMAT, CT_NOWHERE, "safetensors",
            "%s: tensor \"%.200s\" is missing: the file holds %zu tensors", path, name, file->n);
    return ct__err_hint(err, store_architecture_hint);
}

static bool store_check_entry(const ct_st_entry *entry, const char *name, ct_tensor var,
                              const ct_store_rules *rules, ct_err *err) {
    bool same_shape = entry->rank == (size_t)ct_rank(var);
    for (size_t a = 0; same_shape && a < entry->rank; a++)
        same_shape = entry->shape[a] == (uint64_t)ct_dim(var, (int)a);
    ct_dtype to = ct_dtype_of(var);
    bool converts =
        entry->dtype == to || (ct__is_differentiable(entry->dtype) && ct__is_differentiable(to) &&
                               ct__is_complex(entry->dtype) == ct__is_complex(to));
    if (same_shape && converts) return true;
    char have[256], want[256];
    int64_t dim[CT_MAX_RANK];
    for (int a = 0; a < ct_rank(var); a++) dim[a] = ct_dim(var, a);
    ct_type type = {.dtype = (uint8_t)to, .rank = (uint8_t)ct_rank(var), .dim = dim};
    snprintf(want, sizeof want, "%s", ct__type_text(&type).s);
    ct__err(err, same_shape ? CT_E_DTYPE : CT_E_SHAPE, CT_NOWHERE, "safetensors",
            "%s: tensor \"%.200s\" is %s in the file, %s is expected", rules->path, name,
            ct__st_describe(entry, have, sizeof have), want);
    if (!same_shape) ct__err_hint(err, store_architecture_hint);
    return false;
}

static bool store_check_others(const ct_params *params, const ct_st *file,
                               const ct_store_rules *rules, ct_err *err) {
    for (size_t i = 0; i < file->n; i++) {
        const char *name = file->entries[i].name;
        if (ct_params_find(params, name).bits) continue;
        if (rules->ignored && rules->ignored(name, rules->user)) continue;
        char kind[256];
        ct__err(err, CT_E_FORMAT, CT_NOWHERE, "safetensors",
                "%s: holds a tensor \"%.200s\", %s, that has no place in the model", rules->path,
                name, ct__st_describe(&file->entries[i], kind, sizeof kind));
        return ct__err_hint(err, store_architecture_hint);
    }
    return true;
}

// A file's tensor as the bytes of a variable, chunk by chunk: neither the file nor the plan of an assignment
// is in memory in addition to the variable.
enum { MAX_CONVERTED = 1024 };
typedef struct store_source {
    const ct_st *file;
    const ct_st_entry *entry;
    ct_dtype to;
    ct_st_chunk piece;
    size_t given; // bytes of the piece that were converted
    double in[MAX_CONVERTED], out[MAX_CONVERTED];
} store_source;

static bool source_next_converted(store_source *s, size_t *bytes, ct_err *err) {
    size_t from = ct_dtype_size(s->entry->dtype);
    if (s->given == s->piece.n) {
        if (!ct__st_next_chunk(s->file, s->entry, &s->piece, err)) return false;
        s->given = 0;
    }
    size_t n = (s->piece.n - s->given) / from;
    if (n > MAX_CONVERTED) n = MAX_CONVERTED;
    memcpy(s->in, (const char *)s->piece.bytes + s->given, n * from); // unaligned in the file
    for (size_t i = 0; i < n; i++)
        ct__store_f64(s->to, s->out, (int64_t)i, ct__load_f64(s->entry->dtype, s->in, (int64_t)i));
    s->given += n * from;
    *bytes = n * ct_dtype_size(s->to);
    return true;
}

static bool source_next_chunk(void *user, const void **bytes, size_t *n, ct_err *err) {
    store_source *s = user;
    bool same = s->entry->dtype == s->to;
    bool ok = same ? ct__st_next_chunk(s->file, s->entry, &s->piece, err)
                   : source_next_converted(s, n, err);
    *bytes = same ? s->piece.bytes : s->out;
    if (same) *n = s->piece.n;
    return ok;
}

static bool store_load_variable(ct_ctx *ctx, ct_tensor var, const ct_st *file,
                                const ct_st_entry *entry) {
    CT_DEFAULT_ENV; // float conversions
    store_source s = {.file = file, .entry = entry, .to = ct_dtype_of(var)};
    return ct__var_fill(ctx, var, source_next_chunk, &s, CT_NOWHERE);
}

bool ct__store_check(const ct_params *params, const ct_st *file, const ct_store_rules *rules,
                     ct_err *err) {
    for (size_t i = 0; i < ct_params_count(params); i++) {
        const char *name = ct_params_name(params, i);
        const ct_st_entry *entry = ct__st_find(file, name);
        if (!entry) return store_report_missing(file, rules->path, name, err);
        if (!store_check_entry(entry, name, ct_params_get(params, i), rules, err)) return false;
    }
    return store_check_others(params, file, rules, err);
}

bool ct__store_load(ct_params *params, const ct_st *file, const ct_store_rules *rules,
                    ct_err *err) {
    ct_ctx *ctx = ct__ctx();
    size_t n = ct_params_count(params);
    if (!ctx) return ct__err_memory(err, CT_NOWHERE, "safetensors", 0);
    if (!ct__store_check(params, file, rules, err)) return false;
    bool ok = !ctx->err.code;
    for (size_t i = 0; i < n && ok; i++) {
        const ct_st_entry *entry = ct__st_find(file, ct_params_name(params, i));
        ok = store_load_variable(ctx, ct_params_get(params, i), file, entry);
    }
    if (!ok && err != &ctx->err && !err->code) *err = ctx->err;
    return ok;
}

bool ct_params_load_at(ct_params *params, const char *path, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx || !ct__given(ctx, params, here, "params_load", "the parameter set") ||
        !ct__given(ctx, path, here, "params_load", "the path") || ctx->err.code)
        return false;
    ct_st file;
    bool ok = ct__st_open(path, &file, &ctx->err) && ct__st_verify(&file, path, false, &ctx->err) &&
              ct__store_load(params, &file, &(ct_store_rules){.path = path}, &ctx->err);
    ct__st_close(&file);
    return ok || ct__err_locate(&ctx->err, here, "params_load");
}

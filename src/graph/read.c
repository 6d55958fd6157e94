// Reading: queries of a handle, and values copied to the host.
#include <math.h>
#include <string.h>

#include "cotan/binding.h"
#include "graph/handle.h"

_Atomic unsigned ct__faults;

ct_storage *ct__storage_ref(ct_storage *storage) {
    if (storage) atomic_fetch_add_explicit(&storage->refs, 1, memory_order_relaxed);
    return storage;
}
void ct__storage_unref(ct_storage *storage) {
    if (!storage || atomic_fetch_sub_explicit(&storage->refs, 1, memory_order_acq_rel) != 1) return;
    ct__free(atomic_load(&storage->mirror));
    storage->destroy(storage);
}

// The type of a tensor that is not poisoned, valid until ct__peek_unlock; NULL: none, and ct__peek_unlock
// must not be called.
static const ct_type *peek_type(ct_tensor t, ct_peeked *at) {
    if (!ct__peek_lock(t, at)) return NULL;
    if (!(ct__flags(at) & CT_NODE_POISON)) return &at->node->out[at->out];
    ct__peek_unlock(at);
    return NULL;
}
bool ct_ok(ct_tensor t) {
    ct_peeked at;
    if (!peek_type(t, &at)) return false;
    ct__peek_unlock(&at);
    return true;
}
int ct_rank(ct_tensor t) {
    ct_peeked at;
    const ct_type *type = peek_type(t, &at);
    if (!type) return 0;
    const int rank = type->rank;
    ct__peek_unlock(&at);
    return rank;
}
int64_t ct_dim(ct_tensor t, int axis) {
    ct_peeked at;
    const ct_type *type = peek_type(t, &at);
    if (!type) return 0;
    const int a = ct__axis(axis, type->rank);
    const int64_t dim = a < 0 ? 0 : type->dim[a];
    ct__peek_unlock(&at);
    return dim;
}
int64_t ct_size(ct_tensor t) {
    ct_peeked at;
    const ct_type *type = peek_type(t, &at);
    if (!type) return 0;
    const int64_t size = ct__count(type);
    ct__peek_unlock(&at);
    return size;
}
ct_dtype ct_dtype_of(ct_tensor t) {
    ct_peeked at;
    const ct_type *type = peek_type(t, &at);
    if (!type) return CT_DEFAULT;
    const ct_dtype dtype = (ct_dtype)type->dtype;
    ct__peek_unlock(&at);
    return dtype;
}
static const ct_type *type_copy(ct_arena *arena, const ct_type *type) {
    ct_type *copy = ct__arena(arena, sizeof *copy);
    int64_t *dim = copy ? ct__arena(arena, type->rank * sizeof *dim) : NULL;
    if (!dim) return NULL;
    *copy = *type;
    copy->dim = dim;
    for (int a = 0; a < type->rank; a++) dim[a] = type->dim[a];
    return copy;
}
const ct_type *ct__type_of(ct_tensor t) {
    // A rule may read any axis of a poisoned tensor's type, and divide by its size, before the poison is
    // detected.
    static const int64_t ones[CT_MAX_RANK] = {[0 ... CT_MAX_RANK - 1] = 1};
    static const ct_type nothing = {.dtype = CT_F32, .dim = ones};
    ct_peeked at;
    const ct_type *type = peek_type(t, &at);
    if (!type) return &nothing;
    if (at.lock) type = type_copy(ct__top(ct__ctx())->arena, type);
    ct__peek_unlock(&at);
    return type ? type : &nothing;
}

// True if the value is available. A variable's is, in whichever version it has when it is copied.
static bool value_is_available(ct_val v) {
    return v.node->op == &ct__op_scalar || v.node->value || v.node->var;
}

bool ct_is_evaluated(ct_tensor t) {
    ct_peeked at;
    if (!peek_type(t, &at)) return false;
    const bool there = at.node->op == &ct__op_scalar || ct__value(&at, (int)at.out);
    ct__peek_unlock(&at);
    return there;
}

static bool resolve_requested(ct_ctx *ctx, ct_tensor t, ct_val *v, const char *op, int argument,
                              ct_loc here) {
    if (!ct__resolve(ctx, t, v, op, argument, here)) return false;
    ct__request_value(ctx, v->node);
    return true;
}

static bool read_eval(ct_ctx *ctx, const ct_tensor *t, size_t n, bool turns, ct_loc here) {
    if (n && !ct__given(ctx, t, here, "eval", "the list of tensors")) return false;
    if (ctx->running && !ct__readable(ctx, here, "eval"))
        return false; // a rule runs: a plan is being built
    const bool rolling = ct__top(ctx)->rolling;
    if (rolling && turns && ctx->turn_due) ct__rolling_turn(ctx);
    if (rolling && !ct__rolling_roots(ctx)) return false;
    for (size_t i = 0; i < n; i++) {
        ct_val v;
        if (!resolve_requested(ctx, t[i], &v, "eval", (int)i, here)) return false;
        if (!ct__readable(ctx, here, "eval")) return false;
        if (!value_is_available(v) &&
            !ct__root_add(ctx, (ct_root){.kind = CT_ROOT_READ, .val = v, .here = here}))
            return false;
    }
    if (ctx->err.code) {
        ct__roots_abandon(ctx);
        return false;
    }
    if (ctx->n_roots == 0) return true;
    const bool ran = ct__hooks.run(ctx, here);
    if (rolling && turns) ct__rolling_turn(ctx);
    if (!ran) return false;
    if (++ct__top(ctx)->n_read_runs == CT_TURNS_BEFORE_HINT)
        ct__hint_scope(ctx, here, "%d reads ran something in one scope", CT_TURNS_BEFORE_HINT);
    return true;
}

bool ct_eval_at(const ct_tensor *t, size_t n, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    return ctx && read_eval(ctx, t, n, true, here);
}
bool ct_rolling_eval_at(const ct_tensor *t, size_t n, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    return ctx && read_eval(ctx, t, n, false, here);
}

// Resolves t to its evaluated value; false on failure. It is resolved again after a run, since t may be a
// variable that was assigned. In a rolling scope an available value is read without a run: it may be
// unreferenced, and would be freed after the run.
static bool read_resolve_value(ct_ctx *ctx, ct_tensor t, ct_val *v, const char *op, ct_loc here) {
    if (!resolve_requested(ctx, t, v, op, 0, here)) return false;
    const bool there = value_is_available(*v);
    if (there && (!ctx->n_roots || ((ctx->rolling || ctx->running) && !v->node->var))) return true;
    if ((!there || ctx->running) && !ct__readable(ctx, here, op)) return false;
    return ct_eval_at(&t, !there, here) && resolve_requested(ctx, t, v, op, 0, here);
}

static void scalar_copy_bytes(const ct_node *node, void *to) {
    memcpy(to, &node->number, ct_dtype_size(node->out->dtype));
}

// Copies the bytes of v; for a variable those of its current version.
static bool read_download(ct_ctx *ctx, ct_val *v, void *to, size_t n, ct_loc here) {
    ct_var *var = v->node->var;
    if (!var) return ct__hooks.download(ctx, v->node->value[v->out], to, n);
    if (ct__held_storage(v->node)) return ct__hooks.download(ctx, ct__held_storage(v->node), to, n);
    ct__rwlock_lock(var->lock, false, NULL);
    if (ct__version_of(v->node) != var->version && !var->freed && !var->broken) {
        ct_node *leaf = ct__read_leaf(ctx, var, here);
        if (leaf) v->node = leaf;
    }
    bool is_current = ct__version_of(v->node) == var->version;
    bool ok = is_current && ct__hooks.download(ctx, var->storage, to, n);
    ct__rwlock_unlock(var->lock, false);
    return is_current ? ok : ct__fail_stale_read(ctx, v->node, here);
}

double ct_item_at(ct_tensor t, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    ct_val v;
    char bytes[CT_MAX_ELEMENT_BYTES];
    if (!ctx || !read_resolve_value(ctx, t, &v, "item", here)) return NAN;
    const ct_type *type = ct__type(v);
    if (ct__count(type) != 1) {
        ct__fail(ctx, CT_E_SHAPE, here, "item", "the tensor must have one element, it is %s",
                 ct__type_text(type).s);
        return NAN;
    }
    if (ct__is_complex((ct_dtype)type->dtype)) {
        ct__fail(ctx, CT_E_DTYPE, here, "item", "the tensor is %s, a complex number",
                 ct__type_text(type).s);
        ct__err_hint(&ctx->err, "ct_item of its ct_real and ct_imag, or ct_data");
        return NAN;
    }
    if (v.node->op == &ct__op_scalar)
        scalar_copy_bytes(v.node, bytes);
    else if (!read_download(ctx, &v, bytes, ct__type_bytes(type), here))
        return NAN;
    return ct__load_f64(type->dtype, bytes, 0);
}

const void *ct_data_at(ct_tensor t, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    ct_val v;
    if (!ctx || !read_resolve_value(ctx, t, &v, "data", here)) return NULL;
    if (v.node->op == &ct__op_scalar) return &v.node->number;
    // The host copy of a variable belongs to the read, since the variable changes; that of a value belongs to
    // its storage, which other contexts may read concurrently: the first copy is kept.
    bool of_read = v.node->var != NULL;
    ct_storage *storage = of_read ? NULL : v.node->value[v.out];
    if (storage && ct__hooks.host(storage)) return ct__hooks.host(storage);
    void *have = of_read ? v.node->mirror : atomic_load(&storage->mirror);
    size_t bytes = ct__type_bytes(ct__type(v));
    if (have) return have;
    void *copy = ct__malloc(bytes);
    if (!copy) return ct__null_memory(&ctx->err, here, "data", bytes);
    if (!read_download(ctx, &v, copy, bytes, here)) {
        ct__free(copy);
        return NULL;
    }
    if (of_read) return v.node->mirror = copy;
    if (atomic_compare_exchange_strong(&storage->mirror, &have, copy)) return copy;
    ct__free(copy);
    return have;
}

const void *ct_current_data(ct_tensor t) {
    ct_peeked at;
    const ct_type *type = peek_type(t, &at);
    if (!type) return NULL;
    const ct_storage *value = ct__value(&at, (int)at.out);
    const bool plain = value && !at.node->var && !(ct__flags(&at) & CT_NODE_TRACKED);
    const bool here = plain && !type->device && !ct__lost(value);
    const void *bytes = here ? ct__hooks.host(value) : NULL;
    ct__peek_unlock(&at);
    return bytes;
}

// --------------------------------------------------------------------------------- borrowed memory

struct ct_borrowed {
    ct_storage *storage; // NULL: the bytes follow
    _Alignas(64) char bytes[];
};

const void *ct_borrow_at(ct_tensor t, ct_borrowed **borrowed, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    ct_val v;
    if (!ctx || !ct__given(ctx, borrowed, here, "borrow", "the pointer to the borrow")) return NULL;
    *borrowed = NULL;
    if (!read_resolve_value(ctx, t, &v, "borrow", here)) return NULL;
    const bool scalar = v.node->op == &ct__op_scalar;
    ct_storage *storage = scalar || v.node->var ? NULL : v.node->value[v.out];
    const void *at = storage ? ct__hooks.host(storage) : NULL;
    const size_t bytes = ct__type_bytes(ct__type(v)), align = _Alignof(ct_borrowed);
    ct_borrowed *made =
        ct__aligned(align, sizeof *made + (at ? 0 : (bytes + align - 1) & ~(align - 1)));
    if (!made) return ct__null_memory(&ctx->err, here, "borrow", bytes);
    made->storage = at ? ct__storage_ref(storage) : NULL;
    if (scalar) scalar_copy_bytes(v.node, made->bytes);
    if (!at && !scalar && !read_download(ctx, &v, made->bytes, bytes, here)) {
        ct__free(made);
        return NULL;
    }
    *borrowed = made;
    return at ? at : made->bytes;
}

void ct_borrow_end(ct_borrowed *borrowed) {
    if (!borrowed || ct__forked()) return;
    ct__storage_unref(borrowed->storage);
    ct__free(borrowed);
}

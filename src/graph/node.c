// Recording: operands are resolved, shapes checked, and a node is added to the innermost frame.
#include <stdio.h>
#include <string.h>

#include "graph/handle.h"
#include "graph/symbols.h"

static void *node_attr_at(const ct_field *f, const void *attrs) {
    return (char *)(uintptr_t)attrs + f->offset;
}

void *ct__attrs_copy(ct_arena *arena, const ct_opdef *op, const void *attrs) {
    char *copy = ct__arena(arena, op->attr_size);
    if (!copy) return NULL;
    memcpy(copy, attrs, op->attr_size);
    for (size_t i = 0; i < op->n_fields; i++) {
        void *at = node_attr_at(&op->fields[i], copy);
        if (op->fields[i].kind == CT_FIELD_ints) {
            ct_ints *list = at;
            int64_t *v = ct__arena(arena, (size_t)list->n * sizeof *v);
            if (!v) return NULL;
            for (int64_t k = 0; k < list->n; k++) v[k] = list->v[k]; // lists are short
            list->v = v;
        } else if (op->fields[i].kind == CT_FIELD_bodies) {
            ct_bodies *bodies = at;
            ct_body **v = ct__arena(arena, bodies->n * sizeof *v);
            if (!v) return NULL;
            for (size_t k = 0; k < bodies->n; k++) v[k] = bodies->v[k];
            bodies->v = v;
        } else if (op->fields[i].kind == CT_FIELD_data) {
            ct_data_bytes *data = at;
            void *bytes = ct__arena(arena, data->n);
            if (!bytes) return NULL;
            if (data->n) memcpy(bytes, data->bytes, data->n);
            data->bytes = bytes;
        } else if (op->fields[i].kind == CT_FIELD_type) {
            ct_type *type = at;
            int64_t *dim = ct__arena(arena, type->rank * sizeof *dim);
            if (!dim) return NULL;
            if (type->rank) memcpy(dim, type->dim, type->rank * sizeof *dim);
            type->dim = dim;
        }
    }
    return copy;
}

static bool attr_ints_equal(const ct_ints *a, const ct_ints *b) {
    return a->n == b->n && (a->n == 0 || memcmp(a->v, b->v, (size_t)a->n * sizeof *a->v) == 0);
}

static bool attr_same_body(const ct_body *a, const ct_body *b) {
    return a == b || (a && b && a->n_words == b->n_words && ct__hash_equal(a->hash, b->hash) &&
                      memcmp(a->words, b->words, a->n_words * sizeof *a->words) == 0);
}

bool ct__field_equal(const ct_field *f, const void *a, const void *b) {
    const void *x = node_attr_at(f, a), *y = node_attr_at(f, b);
    switch (f->kind) {
    case CT_FIELD_i64: return *(const int64_t *)x == *(const int64_t *)y;
    case CT_FIELD_f64: return memcmp(x, y, sizeof(double)) == 0;
    case CT_FIELD_num: {
        const ct_num *p = x, *q = y;
        return p->given == q->given && memcmp(&p->value, &q->value, sizeof p->value) == 0;
    }
    case CT_FIELD_bool: return *(const bool *)x == *(const bool *)y;
    case CT_FIELD_dtype: return *(const ct_dtype *)x == *(const ct_dtype *)y;
    case CT_FIELD_ints: return attr_ints_equal(x, y);
    case CT_FIELD_body: return attr_same_body(*(ct_body *const *)x, *(ct_body *const *)y);
    case CT_FIELD_bodies: {
        const ct_bodies *p = x, *q = y;
        bool same = p->n == q->n;
        for (size_t i = 0; i < p->n && same; i++) same = attr_same_body(p->v[i], q->v[i]);
        return same;
    }
    case CT_FIELD_data: {
        const ct_data_bytes *p = x, *q = y;
        return p->n == q->n && (p->n == 0 || memcmp(p->bytes, q->bytes, p->n) == 0);
    }
    case CT_FIELD_type: {
        const ct_type *p = x, *q = y;
        return p->dtype == q->dtype && p->weak == q->weak && ct__same_shape(p, q);
    }
    }
    return false;
}

bool ct__attrs_equal(const ct_opdef *op, const void *a, const void *b) {
    for (size_t i = 0; i < op->n_fields; i++)
        if (!ct__field_equal(&op->fields[i], a, b)) return false;
    return true;
}

static void attr_print_body(ct_text *text, const ct_body *body) {
    char hex[33];
    ct__hash_hex(body->hash, hex);
    ct__textf(text, "body %.8s", hex);
}

void ct__attr_print(ct_text *text, ct_field_kind kind, const void *at) {
    switch (kind) {
    case CT_FIELD_i64: ct__textf(text, "%lld", (long long)*(const int64_t *)at); break;
    case CT_FIELD_f64: ct__textf(text, "%.17g", *(const double *)at); break;
    case CT_FIELD_num: {
        const ct_num *num = at;
        if (num->given)
            ct__textf(text, "%.17g", num->value);
        else
            ct__text_add(text, "default");
        break;
    }
    case CT_FIELD_bool: ct__text_add(text, *(const bool *)at ? "true" : "false"); break;
    case CT_FIELD_dtype: ct__text_add(text, ct_dtype_name(*(const ct_dtype *)at)); break;
    case CT_FIELD_ints: {
        const ct_ints *list = at;
        ct__text_add(text, "[");
        for (int64_t k = 0; k < list->n; k++) {
            int64_t v = list->v[k];
            ct__text_add(text, k ? ", " : "");
            if (v == CT_END)
                ct__text_add(text, "end");
            else
                ct__textf(text, "%s%lld", ct__marked(v) ? "n=" : "", (long long)ct__unmarked(v));
        }
        ct__text_add(text, "]");
        break;
    }
    case CT_FIELD_body: attr_print_body(text, *(ct_body *const *)at); break;
    case CT_FIELD_bodies: {
        const ct_bodies *list = at;
        for (size_t k = 0; k < list->n; k++) {
            ct__text_add(text, k ? ", " : "");
            attr_print_body(text, list->v[k]);
        }
        break;
    }
    case CT_FIELD_data: ct__textf(text, "%zu bytes", ((const ct_data_bytes *)at)->n); break;
    case CT_FIELD_type: ct__print_type(text, at); break;
    }
}

void ct__attrs_print(ct_text *text, const ct_opdef *op, const void *attrs) {
    for (size_t i = 0; i < op->n_fields; i++) {
        ct__textf(text, "%s%s=", i ? ", " : "", op->fields[i].name);
        ct__attr_print(text, op->fields[i].kind, node_attr_at(&op->fields[i], attrs));
    }
}

ct_along ct__along(const ct_node *node) {
    ct_along along = {0};
    for (size_t i = 0; i < node->op->n_fields; i++) {
        const ct_field *f = &node->op->fields[i];
        const void *at = node_attr_at(f, node->attrs);
        switch (f->means) {
        case CT_MEANS_axis:
            along.axis = (int)*(const int64_t *)at;
            along.axes |= 1u << along.axis;
            break;
        case CT_MEANS_axes: {
            const ct_ints *axes = at;
            for (int64_t k = 0; k < axes->n; k++) along.axes |= 1u << axes->v[k];
            break;
        }
        case CT_MEANS_leading: along.leading = (int)*(const int64_t *)at; break;
        case CT_MEANS_reverse: along.reverse = *(const bool *)at; break;
        case CT_MEANS_unique: along.unique = *(const bool *)at; break;
        case CT_MEANS_sorted: along.sorted = *(const bool *)at; break;
        case CT_MEANS_mode: along.mode = (ct_index_mode) * (const int64_t *)at; break;
        case CT_MEANS_count: along.count = *(const int64_t *)at; break;
        default: break;
        }
    }
    return along;
}

// ------------------------------------------------------------------------------------------ leaves

// Initialises a new node of a frame, without operands and outputs. Field by field: compilers clear a
// struct with a string instruction, which takes longer than recording a leaf.
static inline void node_init(ct_node *node, const ct_opdef *op, ct_ctx *ctx, ct_frame *frame,
                             const ct_loc *here) {
    node->op = op;
    node->ctx = ctx;
    node->out = NULL;
    node->number = 0;
    node->value = NULL;
    node->epoch = 0;
    node->index = node->users = 0;
    node->n_in = node->n_out = 0;
    node->flags = 0;
    node->region = ctx->region;
    node->slot = 0;
    node->attrs = NULL;
    node->frame = frame;
    node->next = frame->nodes;
    node->here = *here;
    node->var = NULL;
    node->mirror = NULL;
    frame->nodes = node;
    frame->n_nodes++;
}

enum { LEAF_UNIT = 64, MIN_FREED = 16 };

// The free list of leaves of about this size; the last list has all larger ones.
static ct_node **leaf_spare_list(ct_frame *frame, size_t bytes) {
    size_t i = (bytes - sizeof(ct_node)) / LEAF_UNIT;
    return &frame->spare[i < CT_SPARE_SIZES ? i : CT_SPARE_SIZES - 1];
}

// Reuses the memory of a dropped leaf, so that loops that carry state do not grow. In a free leaf,
// `number` is its size.
static ct_node *leaf_alloc(ct_frame *frame, size_t bytes) {
    bytes = (bytes + LEAF_UNIT - 1) & ~(size_t)(LEAF_UNIT - 1);
    for (ct_node **at = leaf_spare_list(frame, bytes); *at; at = &(*at)->next)
        if ((*at)->number == bytes) {
            ct_node *node = *at;
            *at = node->next;
            return node;
        }
    return ct__arena(frame->arena, bytes);
}

static ct_node *leaf_make(ct_ctx *ctx, ct_frame *frame, const ct_opdef *op, const void *attrs,
                          const ct_type *types, int n_out, ct_loc here) {
    size_t dims = 0;
    for (int i = 0; i < n_out; i++) dims += types[i].rank;
    size_t bytes = sizeof(ct_node) + (size_t)n_out * (sizeof(ct_type) + sizeof(ct_storage *)) +
                   dims * sizeof(int64_t);
    ct_node *node = leaf_alloc(frame, bytes);
    if (!node) return NULL;
    node_init(node, op, ctx, frame, &here);
    ct_type *out = (ct_type *)(node + 1);
    ct_storage **value = (ct_storage **)(out + n_out);
    int64_t *dim = (int64_t *)(value + n_out);
    for (int i = 0; i < n_out; i++) {
        value[i] = NULL;
        out[i] = types[i];
        out[i].dim = dim;
        for (int a = 0; a < types[i].rank; a++) *dim++ = types[i].dim[a];
    }
    node->out = out;
    node->n_out = (uint16_t)n_out;
    node->attrs = attrs;
    if (op == &ct__op_data) node->value = value;
    return node;
}

ct_node *ct__leaf_quiet(ct_ctx *ctx, const ct_opdef *op, const void *attrs, ct_type type,
                        ct_loc here) {
    ct_frame *frame = ct__top(ctx);
    const void *copy = NULL;
    if (attrs && !(copy = ct__attrs_copy(frame->arena, op, attrs))) return NULL;
    return leaf_make(ctx, frame, op, copy, &type, 1, here);
}

ct_node *ct__leaf(ct_ctx *ctx, const ct_opdef *op, const void *attrs, ct_type type, ct_loc here) {
    ct_node *node = ct__leaf_quiet(ctx, op, attrs, type, here);
    if (!node) ct__err_memory(&ctx->err, here, op->name, sizeof *node);
    return node;
}

ct_node *ct__leaf_like(ct_ctx *ctx, ct_frame *frame, const ct_node *like) {
    const ct_opdef *op = like->op == &ct__op_scalar ? &ct__op_scalar : &ct__op_data;
    ct_node *node = leaf_make(ctx, frame, op, NULL, like->out, like->n_out, like->here);
    if (!node) ct__err_memory(&ctx->err, like->here, "keep", sizeof *node);
    return node;
}

// The size in bytes that leaf_make and leaf_make_read allocated for it.
static size_t leaf_bytes(const ct_node *leaf) {
    size_t bytes = sizeof *leaf;
    for (int i = 0; i < leaf->n_out && leaf->op != &ct__op_read; i++) // not a read's type
        bytes +=
            sizeof(ct_type) + sizeof(ct_storage *) + (size_t)leaf->out[i].rank * sizeof(int64_t);
    return (bytes + LEAF_UNIT - 1) & ~(size_t)(LEAF_UNIT - 1);
}

// Freed leaves are removed from the frame's list when they are half of it: removing them one by one would
// take a search of the list each.
void ct__leaf_recycle(ct_node *leaf) {
    ct_frame *frame = leaf->frame;
    const size_t bytes = leaf_bytes(leaf);
    leaf->flags = CT_NODE_FREED;
    leaf->number = bytes;
    if (++frame->n_gone < MIN_FREED || frame->n_gone < frame->n_nodes / 2) return;
    for (ct_node **at = &frame->nodes; *at;) {
        ct_node *freed = *at;
        if (!(freed->flags & CT_NODE_FREED)) {
            at = &freed->next;
            continue;
        }
        *at = freed->next;
        ct_node **to = leaf_spare_list(frame, freed->number);
        freed->next = *to;
        *to = freed;
    }
    frame->n_nodes -= frame->n_gone;
    frame->n_gone = 0;
}

// --------------------------------------------------------------------------------------- resolving

typedef struct argument_name {
    char s[24];
} argument_name;
static argument_name argument_text(int argument) { // "operand 1"
    argument_name name;
    if (argument >= 0)
        snprintf(name.s, sizeof name.s, "operand %d", argument + 1);
    else
        snprintf(name.s, sizeof name.s, "output %d", -argument);
    return name;
}

static __attribute__((noinline)) bool resolve_fail_handle(ct_ctx *ctx, ct_tensor t, const char *op,
                                                          int argument, ct_loc here) {
    static const char *const why[] = {
        [CT_PAST_SCOPE] = "its scope ended",
        [CT_PAST_TRACE] = "the traced function that recorded it had returned",
        [CT_PAST_DROP] = "it was dropped",
        [CT_PAST_PARAMS] = "its parameter set was freed",
        [CT_PAST_CONTEXT] = "its context was freed",
    };
    ct_slot_past past;
    if (!t.bits)
        return ct__refuse(ctx, CT_E_ARGUMENT, here, op, "%s is no tensor",
                          argument_text(argument).s);
    if (!ct__stale_past(t, &past)) {
        return ct__refuse(
            ctx, CT_E_STALE, here, op,
            "%s is stale: it ended with its scope or function, or was dropped, too long ago "
            "to know where",
            argument_text(argument).s);
    }
    ct_loc made = past.made, ended = past.ended;
    bool scope = past.kind == CT_PAST_SCOPE, drop = past.kind == CT_PAST_DROP;
    char lines[2][300] = {"", ""};
    if (made.file) snprintf(lines[0], sizeof lines[0], ": made at %s:%u", made.file, made.line);
    if (ended.file && (scope || drop))
        snprintf(lines[1], sizeof lines[1], "%s %s %s:%u", made.file ? "," : ":",
                 scope ? "the scope of" : "dropped at", ended.file, ended.line);
    ct__fail(ctx, CT_E_STALE, here, op, "%s was used after %s%s%s", argument_text(argument).s,
             why[past.kind], lines[0], lines[1]);
    if (scope)
        ct__err_hint(&ctx->err, "carry it out of its scope with ct_keep");
    else if (past.kind == CT_PAST_TRACE)
        ct__err_hint(&ctx->err, "return it as a result of the function");
    return false;
}

// A leaf's ancestry is reduced to whether it was computed from a variable.
static void leaf_mark_from_variable(unsigned flags, ct_node *leaf) {
    if (flags & CT_NODE_FROM_VARIABLE && leaf->op == &ct__op_data)
        leaf->flags |= CT_NODE_FROM_VARIABLE | CT_NODE_FROM_LEAF;
}

static uint16_t var_read_flags(const ct_var *var) {
    return (uint16_t)(CT_NODE_FROM_VARIABLE | (var->tracked ? CT_NODE_TRACKED : 0));
}

// `here` is passed by address on hot paths: by value it is copied each time.
static ct_node *leaf_make_read(ct_ctx *ctx, ct_var *var, uint64_t version, const ct_loc *here) {
    ct_frame *frame = ctx->frames[ct__outside_depth(ctx) - 1];
    ct_node *leaf = leaf_alloc(frame, sizeof *leaf);
    if (!leaf) return ct__null_memory(&ctx->err, *here, "read", sizeof *leaf);
    ct__var_ref(var, ctx);
    node_init(leaf, &ct__op_read, ctx, frame, here);
    leaf->out = &var->type; // exists as long as the leaf does
    leaf->n_out = 1;
    leaf->var = var;
    leaf->flags = var_read_flags(var);
    leaf->number = version;
    return leaf;
}
ct_node *ct__read_leaf(ct_ctx *ctx, ct_var *var, ct_loc here) {
    return leaf_make_read(ctx, var, atomic_load_explicit(&var->version, memory_order_acquire),
                          &here);
}

// Under the lock, since the storage may be moved to another device and the old one freed.
static __attribute__((noinline)) bool var_is_lost(const ct_var *var) {
    ct__rwlock_lock(var->lock, false, NULL);
    bool lost = ct__lost(var->storage);
    ct__rwlock_unlock(var->lock, false);
    return lost;
}

static __attribute__((noinline)) bool resolve_fail_var(ct_ctx *ctx, const ct_var *var,
                                                       const char *op, ct_loc here) {
    ct__rwlock_lock(var->lock, false, NULL);
    const ct_loc ran = var->ran;
    ct__rwlock_unlock(var->lock, false);
    if (var->freed) {
        ct__fail(ctx, CT_E_STALE, here, op, "variable \"%s\" was freed", var->name);
    } else if (!var->storage) {
        ct__fail(ctx, CT_E_UNSET, here, op, "variable \"%s\" is read before its first assignment",
                 var->name);
        ct__err_hint(&ctx->err, "ct_assign gives it a value, ct_params_load those of a whole set");
    } else {
        if (ran.file)
            ct__fail(ctx, CT_E_DEVICE, here, op,
                     "variable \"%s\" is poisoned: the plan that was updating it for %s:%u failed",
                     var->name, ran.file, ran.line);
        else
            ct__fail(ctx, CT_E_DEVICE, here, op,
                     "variable \"%s\" is poisoned: what was giving it its value failed", var->name);
        ct__err_hint(&ctx->err, "assign it again");
    }
    return false;
}

void ct__hold_version(const ct_ctx *ctx, ct_node *node) {
    ct_storage *storage = node->var->storage;
    if (!ctx->rolling || !storage || storage->version != ct__version_of(node)) return;
    node->held = ct__storage_ref(storage);
    if (storage->assigner == ctx->id)
        storage->assigner_holds++;
    else
        node->value = &node->held;
}
static void node_hold_latest_version(const ct_ctx *ctx, ct_node *node) {
    ct_var *var = node->var;
    if (!ctx->rolling) return;
    const bool touched = ct__rwlock_try_read_briefly(var->lock);
    if (!touched) ct__rwlock_lock(var->lock, false, NULL);
    if (!node->n_in) node->number = atomic_load_explicit(&var->version, memory_order_relaxed);
    ct__hold_version(ctx, node);
    if (touched)
        ct__rwlock_end_read(var->lock);
    else
        ct__rwlock_unlock(var->lock, false);
}

// Makes the node of a version whose assignment's frame exists: a copy of the value, since one value may
// be assigned to several variables. The usual training step needs none.
static __attribute__((noinline)) ct_node *
node_make_version(ct_ctx *ctx, ct_var *var, const ct_current *now, bool ran, const ct_loc *here) {
    ct_frame *frame = ctx->frames[now->depth];
    ct_version_node *version = ct__arena(frame->arena, sizeof *version);
    if (!version) return ct__null_memory(&ctx->err, *here, "read", sizeof *version);
    ct__var_ref(var, ctx);
    ct_node *node = &version->node;
    node_init(node, &ct__op_same, ctx, frame, here);
    node->out = &var->type; // exists as long as the node does
    node->in = &version->value;
    node->n_in = node->n_out = 1;
    node->var = var;
    node->flags = (uint16_t)(var_read_flags(var) | (ran ? CT_NODE_STORED : 0));
    version->value = now->value;
    version->version = now->version;
    ct__use(now->value.node);
    frame->has_ops = true;
    ctx->nodes++;
    if (ran) node_hold_latest_version(ctx, node);
    return node;
}

static bool current_is_valid(const ct_ctx *ctx, const ct_current *now) {
    return now->carried ||
           (now->depth < ctx->depth && ctx->frames[now->depth]->serial == now->serial);
}

void ct__current_replaced(const ct_ctx *ctx, const ct_current *now) {
    ct_node *leaf = current_is_valid(ctx, now) && !now->carried ? now->node : NULL;
    if (leaf && !leaf->n_in && !leaf->mirror && !leaf->slot) ct__leaf_drop(leaf);
}

static void current_set_leaf(ct_current *now, ct_node *leaf) {
    now->version = leaf->number;
    now->value.node = NULL;
    now->node = leaf;
    now->depth = leaf->frame->depth;
    now->serial = leaf->frame->serial;
    now->carried = false;
}

// Makes another read of the current version, since tracking of the variable was switched after the first one.
// The tracked read is recorded for the version, so that a gradient finds it.
static bool resolve_var_retrack(ct_ctx *ctx, ct_var *var, ct_current *now, ct_val *val,
                                const ct_loc *here) {
    ct_node *leaf = leaf_make_read(ctx, var, now->version, here);
    if (!leaf) return false;
    node_hold_latest_version(ctx, leaf);
    *val = (ct_val){leaf, 0};
    if (!var->tracked) return true;
    current_set_leaf(now, leaf);
    return true;
}

static bool resolve_var(ct_ctx *ctx, ct_var *var, ct_val *val, const char *op, const ct_loc *here) {
    const bool pending = atomic_load_explicit(&var->writer, memory_order_relaxed) == ctx;
    // Loaded before the state is checked: if another context frees or breaks the variable meanwhile, the
    // leaf has a version that is detected as overwritten.
    const uint64_t version = atomic_load_explicit(&var->version, memory_order_acquire);
    if (!pending && (!var->storage || var->broken ||
                     (atomic_load_explicit(&ct__faults, memory_order_relaxed) && var_is_lost(var))))
        return resolve_fail_var(ctx, var, op, *here);
    ct_current *now = ct__current(ctx, var);
    if (!now) return ct__err_memory(&ctx->err, *here, "read", sizeof *now);
    if (!pending && (!current_is_valid(ctx, now) || now->version != version)) {
        ct_node *leaf = leaf_make_read(ctx, var, version, here);
        if (!leaf) return false;
        node_hold_latest_version(ctx, leaf);
        ct__current_replaced(ctx, now);
        current_set_leaf(now, leaf);
    } else if (!now->node && !(now->node = node_make_version(ctx, var, now, !pending, here))) {
        return false;
    }
    if (ctx->rolling && !pending && !(now->node->flags & CT_NODE_TRACKED) != !var->tracked)
        return resolve_var_retrack(ctx, var, now, val, here);
    *val = (ct_val){now->node, 0};
    return true;
}

// Outer tensors used by a traced function become parameters of its body, through each nested body in
// turn.
static __attribute__((noinline)) bool body_capture(ct_ctx *ctx, ct_val *val, ct_loc here) {
    for (size_t d = 0; d < ctx->depth; d++) {
        ct_frame *frame = ctx->frames[d];
        if (frame->kind != CT_FRAME_BODY || val->node->frame->serial >= frame->serial) continue;
        ct_body *body = frame->body;
        size_t i = 0;
        while (i < body->n_captured &&
               (body->captured_from[i].node != val->node || body->captured_from[i].out != val->out))
            i++;
        if (i == body->n_captured) {
            if (!CT_GROW(body->captured, body->captured_cap, i + 1) ||
                !CT_GROW(body->captured_from, body->captured_from_cap, i + 1))
                return ct__err_memory(&ctx->err, here, "capture", sizeof *val);
            size_t depth = ctx->depth;
            ctx->depth = d + 1; // the parameter belongs to the body's own frame
            ct_node *param = ct__leaf(ctx, &ct__op_param, NULL, *ct__type(*val), here);
            ctx->depth = depth;
            if (!param) return false;
            param->number = body->n_params + i;
            body->captured_from[i] = *val;
            body->captured[i] = param;
            body->n_captured++;
        }
        *val = (ct_val){body->captured[i], 0};
    }
    return true;
}

typedef enum foreign_state {
    FOREIGN_VALUE,
    FOREIGN_POISON,
    FOREIGN_LOST,
    FOREIGN_PENDING,
    FOREIGN_VARIABLE
} foreign_state;
static foreign_state foreign_get_state(const ct_peeked *at) {
    const unsigned flags = ct__flags(at);
    if (flags & CT_NODE_POISON) return FOREIGN_POISON;
    if (flags & CT_NODE_VARIABLE) return FOREIGN_VARIABLE;
    if (at->node->op == &ct__op_scalar) return FOREIGN_VALUE;
    const ct_storage *value = ct__value(at, (int)at->out);
    return !value ? FOREIGN_PENDING : ct__lost(value) ? FOREIGN_LOST : FOREIGN_VALUE;
}

// Makes a leaf in this context with the values of another context's node. NULL: out of memory, and no
// error is set.
static ct_node *leaf_copy_foreign(ct_ctx *ctx, const ct_peeked *at) {
    const ct_node *node = at->node;
    const ct_opdef *op = node->op == &ct__op_scalar ? node->op : &ct__op_data;
    ct_frame *frame = ctx->frames[ct__outside_depth(ctx) - 1];
    ct_node *leaf = leaf_make(ctx, frame, op, NULL, node->out, node->n_out, node->here);
    if (!leaf) return NULL;
    if (op == &ct__op_scalar) {
        leaf->number = node->number;
        leaf->precise = node->precise;
    }
    for (int i = 0; i < node->n_out && op != &ct__op_scalar; i++)
        leaf->value[i] = ct__storage_ref(ct__value(at, i));
    leaf_mark_from_variable(ct__flags(at), leaf);
    return leaf;
}

static bool resolve_fail_state(ct_ctx *ctx, foreign_state what, ct_loc made, const char *op,
                               int argument, ct_loc here) {
    if (what == FOREIGN_POISON && !ctx->err.code)
        ct__fail(ctx, CT_E_STALE, here, op, "%s is poisoned by an error that was cleared",
                 argument_text(argument).s);
    if (what == FOREIGN_LOST)
        ct__fail(ctx, CT_E_DEVICE, here, op,
                 "%s is poisoned: the device failed while it was computed",
                 argument_text(argument).s);
    if (what == FOREIGN_PENDING)
        ct__fail(ctx, CT_E_CONTEXT, here, op,
                 "%s was recorded at %s:%u in another context and is not evaluated there yet",
                 argument_text(argument).s, made.file ? made.file : "?", made.line);
    return false;
}

// A value that another context evaluated, which may be running, becomes a leaf of this one.
static __attribute__((noinline)) bool resolve_foreign(ct_ctx *ctx, ct_tensor t, ct_val *val,
                                                      const char *op, int argument, ct_loc here) {
    ct_peeked at;
    if (!ct__peek_lock(t, &at)) return resolve_fail_handle(ctx, t, op, argument, here);
    const foreign_state what = foreign_get_state(&at);
    const ct_loc made = at.node->here;
    if (what == FOREIGN_VALUE) *val = (ct_val){leaf_copy_foreign(ctx, &at), at.out};
    ct__peek_unlock(&at);
    if (what == FOREIGN_VALUE)
        return val->node || ct__err_memory(&ctx->err, made, "keep", sizeof *val->node);
    if (what != FOREIGN_VARIABLE) return resolve_fail_state(ctx, what, made, op, argument, here);
    ct_var *var = ct__var_acquire(t, ctx);
    if (!var) return resolve_fail_handle(ctx, t, op, argument, here);
    const bool ok = resolve_var(ctx, var, val, op, &here);
    ct__var_unref(var, ctx);
    return ok;
}

bool ct__resolve(ct_ctx *ctx, ct_tensor t, ct_val *val, const char *op, int argument, ct_loc here) {
    const ct_node *node = val->node = ct__peek_fast(ctx, t, &val->out);
    if (!node) {
        if (!resolve_foreign(ctx, t, val, op, argument, here)) return false;
    } else if (node->flags & CT_NODE_POISON) {
        return resolve_fail_state(ctx, FOREIGN_POISON, node->here, op, argument, here);
    } else if (node->value && ct__lost(node->value[val->out])) {
        return resolve_fail_state(ctx, FOREIGN_LOST, node->here, op, argument, here);
    } else if (node->flags & CT_NODE_VARIABLE) {
        if (!resolve_var(ctx, node->var, val, op, &here)) return false;
    }
    return !ctx->tracing || body_capture(ctx, val, here);
}

// --------------------------------------------------------------------------------------- recording

bool ct__call_err(ct_call *call, ct_code code, const char *format, ...) {
    va_list args;
    va_start(args, format);
    ct__err_v(call->err, code, call->here, call->op->name, format, args);
    va_end(args);
    return false;
}

bool ct__call_hint(ct_call *call, const char *format, ...) {
    char text[CT_ERROR_TEXT];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return ct__err_hint(call->err, "%s", text);
}

int64_t *ct__call_dims(ct_call *call, int rank) {
    if (rank > CT_MAX_RANK) {
        ct__call_err(call, CT_E_SHAPE, "the result would have %d axes, at most %d are possible",
                     rank, CT_MAX_RANK);
        return NULL;
    }
    int64_t *dim = ct__arena(call->arena, (size_t)rank * sizeof *dim);
    if (!dim) ct__err_memory(call->err, call->here, call->op->name, (size_t)rank * sizeof *dim);
    return dim;
}

bool ct__call_outs(ct_call *call, int n) {
    call->out = ct__arena_zero(call->arena, (size_t)n * sizeof *call->out);
    if (!call->out)
        return ct__err_memory(call->err, call->here, call->op->name, (size_t)n * sizeof *call->out);
    call->n_out = n;
    return true;
}

// True if the output has the sizes array of one of the first operands, which was checked already.
static bool call_shares_operand_dims(const ct_call *call, const ct_type *out) {
    for (int i = 0; i < 2 && i < call->n_in && out->dtype != CT_C128; i++)
        if (out->dim == call->in[i]->dim && out->rank == call->in[i]->rank) return true;
    return false;
}

// Checks the limits of a node: the numbers of operands and outputs, and the sizes.
static bool call_outputs_fit(ct_call *call) {
    if (call->n_in > UINT16_MAX || call->n_out > CT_MAX_OUTPUTS)
        return ct__call_err(call, CT_E_ARGUMENT,
                            "%d operands and %d outputs; at most %d and %d are possible",
                            call->n_in, call->n_out, UINT16_MAX, CT_MAX_OUTPUTS);
    for (int i = 0; i < call->n_out; i++)
        if (!call_shares_operand_dims(call, &call->out[i]) &&
            !ct__type_fits(&call->out[i], call->err, call->here, call->op->name))
            return false;
    return true;
}

// A mark without a symbol means that the plan fits only the sizes for which it is made.
static int64_t record_canonical_size(ct_symbols *symbols, int64_t size) {
    if (ct__marked(size) && !ct__is_symbol(size)) ct__symbols_incomplete(symbols);
    return ct__size_canonical(symbols, size);
}
static void record_canonical_attrs(ct_symbols *symbols, const ct_opdef *op, void *attrs) {
    for (size_t f = 0; f < op->n_fields; f++) {
        void *at = (char *)attrs + op->fields[f].offset;
        if (op->fields[f].kind == CT_FIELD_i64)
            *(int64_t *)at = record_canonical_size(symbols, *(int64_t *)at);
        if (op->fields[f].kind != CT_FIELD_ints) continue;
        int64_t *v = (int64_t *)(uintptr_t)((ct_ints *)at)->v; // the node's own copy
        for (int64_t i = 0; i < ((ct_ints *)at)->n; i++)
            v[i] = record_canonical_size(symbols, v[i]);
    }
}

static bool op_keeps_operands(const ct_opdef *op);

#define CT_CAST_FLOATS (CT_MASK(CT_F16) | CT_MASK(CT_BF16) | CT_MASK(CT_F32))

// In a plan every dynamic size has a symbol: a new one if the shape rule gave none. When the rule runs
// again in a later run it knows only that run's sizes of what a body computes.
static bool record_name_sizes(ct_ctx *ctx, ct_node *node, ct_call *call) {
    record_canonical_attrs(ctx->symbols, call->op, call->attrs);
    for (int i = 0; i < call->n_out; i++) {
        ct_type *type = &call->out[i];
        if (!type->dyn || type->mark) continue;
        if (op_keeps_operands(call->op)) ct__symbols_incomplete(ctx->symbols);
        int64_t *mark = ct__arena(call->arena, type->rank * sizeof *mark);
        if (!mark) return ct__err_memory(call->err, call->here, call->op->name, type->rank * 8u);
        for (int a = 0; a < type->rank; a++)
            mark[a] = ct__is_dyn(type, a)
                          ? ct__symbol_axis(ctx->symbols, node, (uint32_t)i, a, type->dim[a])
                          : type->dim[a];
        type->mark = mark;
    }
    return true;
}

enum { FEW_OPERANDS = 16 };
// Integer dtypes narrower than i64.
#define BELOW_I64 (CT_INTEGERS & ~CT_MASK(CT_I64))

// The node, its operands and its outputs are contiguous; the shape rule fills the outputs in place.
ct_node *ct__number_leaf(ct_ctx *ctx, ct_type type) {
    size_t depth = ctx->depth;
    // Outside of traced functions, which take it as a parameter: another value does not need another
    // body.
    ctx->depth = ct__outside_depth(ctx);
    ct_node *node = ct__leaf(ctx, &ct__op_scalar, NULL, type, CT_NOWHERE);
    ctx->depth = depth;
    return node;
}

// True if no dtype promotion applies among the operands. Those of a body are its parameters, with the
// dtypes it was traced with; a gradient is with respect to its operands themselves.
static bool op_keeps_operands(const ct_opdef *op) {
    for (size_t i = 0; i < op->n_fields; i++)
        if (op->fields[i].kind == CT_FIELD_body || op->fields[i].kind == CT_FIELD_bodies)
            return true;
    return op->kind == &ct__kind_transform;
}

// The value of a parameter while its function is being traced; NULL: unknown.
static ct_node *param_source(const ct_node *param) {
    if (param->op != &ct__op_param || param->frame->kind != CT_FRAME_BODY) return NULL;
    const ct_body *body = param->frame->body;
    if (param->number >= body->n_params)
        return body->captured_from[param->number - body->n_params].node;
    return param->number < body->n_operands ? body->operands[param->number].node : NULL;
}

bool ct__is_number(const ct_node *node) {
    while (node->op == &ct__op_param && node->frame->kind == CT_FRAME_BODY &&
           node->number >= node->frame->body->n_params)
        node = node->frame->body->captured_from[node->number - node->frame->body->n_params].node;
    return node->op == &ct__op_scalar;
}

// The bare number (ct_f) of a tensor, also if it is the operand of a traced function; NULL: it is not
// one. It and its parameters are flagged: a gradient will not find it among the ancestors.
static const ct_node *number_find_wide(ct_node *node) {
    ct_node *number = node;
    while (number->op == &ct__op_param && (number = param_source(number))) {
    }
    if (!number || number->op != &ct__op_scalar || !number->out->weak ||
        number->out->dtype != CT_F32)
        return NULL;
    for (ct__flag(number, CT_NODE_WIDENED); node != number; node = param_source(node))
        ct__flag(node, CT_NODE_WIDENED);
    return number;
}

// Bare numbers combined with an f64 are used in the precision in which they were written, not rounded to
// f32. In a plan they have no values: those combined with an f64 were f64 when recorded.
static ct_tensor number_in_f64(ct_ctx *ctx, ct_node *node) { // CT_NONE: not a bare number
    if (node->op == &ct__op_complex && node->out->weak) {
        const ct_tensor part[2] = {number_in_f64(ctx, node->in[0].node),
                                   number_in_f64(ctx, node->in[1].node)};
        return part[0].bits && part[1].bits ? ct__record(node->op, NULL, part, 2, node->here)
                                            : CT_NONE;
    }
    const ct_node *number = number_find_wide(node);
    if (!number) return CT_NONE;
    ct_node *wide = ct__number_leaf(ctx, (ct_type){.dtype = CT_F64});
    if (!wide) return ct__poison(ctx, CT_NOWHERE);
    ct__store_f64(CT_F64, &wide->number, 0, number->precise);
    return ct__handle(wide, 0);
}
static bool call_numbers_in_f64(ct_ctx *ctx, const ct_opdef *op, int n_in, ct_val *val,
                                const ct_type **types, ct_loc here) {
    if (ct__in_plan(ctx) || op_keeps_operands(op)) return true;
    for (int i = 0; i < n_in; i++) {
        const ct_tensor wide = number_in_f64(ctx, val[i].node);
        ct_val to;
        if (!wide.bits) continue;
        if (!ct__resolve(ctx, wide, &to, op->name, i, here)) return false;
        ct__unuse(val[i].node);
        val[i] = to;
        types[i] = ct__type(to);
        ct__use(to.node);
    }
    return true;
}

// Handles bare numbers among the operands, of the dtypes in seen[1], with tensors of the dtypes in
// seen[0].
static __attribute__((noinline)) bool call_widen_numbers(ct_ctx *ctx, ct_call *call,
                                                         const ct_dtypes seen[2],
                                                         const ct_tensor *in, ct_val *val,
                                                         const ct_type **types) {
    const ct_dtypes wide = CT_MASK(CT_F64) | CT_MASK(CT_C128);
    if (seen[1] & CT_INTEGERS && seen[0] & BELOW_I64) call->whole = in;
    if (!(seen[1] & (CT_MASK(CT_F32) | CT_MASK(CT_C64)) && seen[0] & wide)) return true;
    return call_numbers_in_f64(ctx, call->op, call->n_in, val, types, call->here);
}

// The number from which a tensor is made, through movement ops and parameters of traced functions.
static const ct_node *number_origin(const ct_node *node) {
    for (;;) {
        const ct_node *source =
            node->op->map && node->n_in == 1 ? node->in->node : param_source(node);
        if (!source) return node;
        node = source;
    }
}

static bool number_is_bare_int(const ct_peeked *at, int64_t *value) { // ct_i, or an integer scalar
    const ct_node *node = at->lock ? at->node : number_origin(at->node);
    const bool whole =
        node->op == &ct__op_scalar && node->out->weak && !ct__is_float(node->out->dtype);
    if (whole) *value = ct__load_i64(node->out->dtype, &node->number, 0);
    return whole;
}

bool ct__bare_fits(ct_tensor t, ct_dtype dtype, int argument, bool compared, ct_err *err,
                   ct_loc here, const char *op) {
    ct_peeked at;
    int64_t value;
    if (!ct__is_int(dtype) || !ct__peek_lock(t, &at)) return true;
    const bool whole = number_is_bare_int(&at, &value);
    ct__peek_unlock(&at);
    if (!whole) return true;
    int64_t least = ct__int_min(dtype), most = ct__int_max(dtype); // for u64 `most` is -1
    if (value >= least && (dtype == CT_U64 || value <= most)) return true;
    const char *name = ct_dtype_name(dtype);
    ct__err(err, CT_E_ARGUMENT, here, op,
            dtype == CT_U64 ? "operand %d is %lld, which does not fit %s (%lld to %llu)"
                            : "operand %d is %lld, which does not fit %s (%lld to %lld)",
            argument + 1, (long long)value, name, (long long)least, (long long)most);
    if (compared)
        ct__err_hint(err, "ct_cast the tensor to a wider dtype: ct_cast(x, CT_%s)",
                     dtype == CT_U64 ? "F64" : "I64");
    else
        ct__err_hint(err,
                     "ct_cast the tensor to a dtype that holds it, or the number to %s: that wraps",
                     name);
    return false;
}

bool ct__call_bare_fits(ct_call *call, int operand, ct_dtype dtype) {
    return ct__bare_fits(call->whole[operand], dtype, operand, call->compares, call->err,
                         call->here, call->op->name);
}

// Checks lists of the caller's: their lengths are checked before they are read.
static bool record_check_lists(ct_ctx *ctx, const ct_opdef *op, const void *attrs, ct_loc here) {
    for (size_t i = 0; i < op->n_fields; i++) {
        const ct_field *field = &op->fields[i];
        if (field->kind != CT_FIELD_ints || field->means == CT_MEANS_positions) continue;
        const ct_ints *list = node_attr_at(field, attrs);
        if (list->n >= 0 && list->n <= CT_MAX_RANK && (list->v || !list->n)) continue;
        if (list->n < 0 || list->n > CT_MAX_RANK)
            ct__fail(ctx, CT_E_SHAPE, here, op->name,
                     "%s has %lld numbers, at most %d are possible", op->fields[i].name,
                     (long long)list->n, CT_MAX_RANK);
        else
            ct__fail(ctx, CT_E_ARGUMENT, here, op->name, "the %lld numbers of %s are NULL",
                     (long long)list->n, op->fields[i].name);
        if (!list->v) // a number instead of a list, which NumPy allows
            ct__err_hint(&ctx->err, "%s is a list: %s(%lld)", op->fields[i].name,
                         strcmp(op->fields[i].name, "axes") == 0 ? "CT_AXES" : "CT_INTS",
                         (long long)list->n);
        return false;
    }
    return true;
}

static __attribute__((noinline)) bool
record_check_operands(ct_ctx *ctx, const ct_opdef *op, const ct_tensor *in, int n_in, ct_loc here) {
    if (n_in < 0 || n_in > UINT16_MAX)
        return ct__refuse(ctx, CT_E_ARGUMENT, here, op->name, "%d operands, 0 to %d are possible",
                          n_in, UINT16_MAX);
    return ct__given(ctx, in, here, op->name, "the list of operands");
}

// ----------------------------------------------------------------------------------------- devices

static bool type_is_random_key(const ct_type *type) { // fits any tensor
    return type->dtype == CT_U32 && type->rank == 1 && type->dim[0] == 2;
}
// True if the node is computed from numbers only, which exist on all devices, and was not sent to one.
static bool node_is_from_numbers(const ct_node *node) {
    enum { MAX_NODES = 64 }; // limit; zeros, ranges and random keys take fewer nodes
    const ct_node *stack[MAX_NODES];
    int n = 1, visited = 0;
    for (stack[0] = node; n && visited < MAX_NODES; visited++) {
        node = stack[--n];
        if (!node->out->rank || type_is_random_key(node->out) || node->op == &ct__op_const)
            continue;
        if (node->value || node->op->kind == &ct__kind_leaf || node->op->moves ||
            node->out->device || node->n_in > MAX_NODES - n)
            return false;
        for (int i = 0; i < node->n_in; i++) stack[n++] = node->in[i].node;
    }
    return !n;
}
static bool loc_same_line(const ct_loc *a, const ct_loc *b) {
    return a->line == b->line &&
           (a->file == b->file || (a->file && b->file && !strcmp(a->file, b->file)));
}
bool ct__fits_any_device(ct_val v, const ct_loc *here) {
    const ct_type *type = ct__type(v);
    if (type->rank == 0 || type_is_random_key(type) || v.node->op == &ct__op_const) return true;
    return !type->device && loc_same_line(&v.node->here, here) && node_is_from_numbers(v.node);
}

// The operand that determines the results' device; -1: none, all may be used on any.
static int call_device_operand(const ct_call *call) {
    for (int i = 0; i < call->n_in; i++)
        if (!ct__fits_any_device(call->vals[i], &call->here)) return i;
    return -1;
}

// True if the shape rule determines the results' devices: a traced function, in which tensors may be
// moved, or a transform of one.
static bool op_chooses_devices(const ct_opdef *op) {
    bool says = op->kind == &ct__kind_transform || op->scattered;
    for (size_t i = 0; i < op->n_fields && !says; i++) says = op->fields[i].kind == CT_FIELD_body;
    return says;
}

static const char *device_name_of(ct_ctx *ctx, const ct_type *type) {
    return ct__hooks.device_name(ctx, type->device);
}

// Checks that the operands of an op are on one device. Rules in a plan may mix: their inputs were
// checked.
static __attribute__((noinline)) bool call_check_devices(ct_ctx *ctx, ct_call *call) {
    const int first = call_device_operand(call);
    if (ct__in_plan(ctx) || first < 0 || op_chooses_devices(call->op)) return true;
    for (int i = first + 1; i < call->n_in; i++) {
        if (ct__fits_any_device(call->vals[i], &call->here) ||
            call->in[i]->device == call->in[first]->device)
            continue;
        const ct_loc a = call->vals[first].node->here, b = call->vals[i].node->here;
        ct__call_err(call, CT_E_DEVICE,
                     "operands are on two devices: operand %d is %s on %s (%s:%u), operand %d is "
                     "%s on %s (%s:%u)",
                     first + 1, ct__type_text(call->in[first]).s,
                     device_name_of(ctx, call->in[first]), a.file ? a.file : "?", a.line, i + 1,
                     ct__type_text(call->in[i]).s, device_name_of(ctx, call->in[i]),
                     b.file ? b.file : "?", b.line);
        return ct__call_hint(call, "ct_to brings a tensor to another device");
    }
    return true;
}

// Results are on the operands' device. In a plan, another device has priority over the context's own,
// where rules make constants.
static __attribute__((noinline)) bool call_place_outputs(ct_call *call) {
    int device = 0;
    const int first = call_device_operand(call);
    if (op_chooses_devices(call->op)) return true;
    if (first >= 0) device = call->in[first]->device;
    for (int i = 0; i < call->n_in && !device; i++)
        if (first < 0 || !ct__fits_any_device(call->vals[i], &call->here))
            device = call->in[i]->device;
    for (int i = 0; i < call->n_out; i++) call->out[i].device = (uint8_t)device;
    return true;
}

enum { ANCESTRY = CT_NODE_FROM_VARIABLE | CT_NODE_FROM_LEAF | CT_NODE_TRACKED };
static void node_inherit_ancestry(ct_node *node, unsigned ancestry) {
    const bool none = node->op->jvp == CT_NO_GRAD && !node->op->expand;
    if (!none && ct__is_differentiable(node->out->dtype))
        node->flags = (uint16_t)(ancestry & ANCESTRY);
}

uint16_t ct__region_begin(ct_ctx *ctx) {
    if (ctx->region) return 0; // ends nothing
    if (++ctx->newest_region == 0) ctx->newest_region = 1;
    return ctx->region = ctx->newest_region;
}
void ct__region_end(ct_ctx *ctx, uint16_t begun) {
    if (begun) ctx->region = 0;
}

// Casts the operands to the dtype of the op's class. Equal casts of one step are shared, so a weight is
// cast once however often it is used. Anything but a float tensor is left to the op's checks. NULL: an
// error.
static __attribute__((noinline)) const ct_tensor *
record_autocast(ct_ctx *ctx, const ct_opdef *op, const ct_tensor *in, int n_in, ct_loc here) {
    ct_tensor *cast = ct__arena(ct__top(ctx)->arena, (size_t)n_in * sizeof *cast);
    ct_dtype to = op->autocast == CT_CAST_F32 ? CT_F32 : ctx->autocast;
    if (!cast) return ct__null_memory(&ctx->err, here, op->name, (size_t)n_in * sizeof *cast);
    for (int pass = op->autocast == CT_CAST_WIDEST ? 0 : 1; pass < 2; pass++)
        for (int i = 0; i < n_in; i++) {
            ct_peeked at;
            ct_dtype is = CT_DEFAULT; // CT_DEFAULT: not cast
            if (ct__peek_lock(in[i], &at)) {
                const ct_type *type = &at.node->out[at.out];
                const bool takes = !type->weak && CT_MASK(type->dtype) & CT_CAST_FLOATS;
                if (takes && !(ct__flags(&at) & CT_NODE_POISON)) is = (ct_dtype)type->dtype;
                ct__peek_unlock(&at);
            }
            const bool other = is != CT_DEFAULT && is != to;
            if (other && !pass) to = CT_F32;
            if (pass) cast[i] = other ? ct_cast_at(in[i], to, here) : in[i];
        }
    return cast;
}

ct_dtype ct_autocast_set_at(ct_dtype dtype, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_F32;
    const ct_dtype before = ct_autocast_dtype();
    if (dtype == CT_BF16 || dtype == CT_F16 || dtype == CT_F32)
        ctx->autocast = dtype == CT_F32 ? CT_DEFAULT : dtype;
    else
        ct__fail(ctx, CT_E_ARGUMENT, here, "autocast",
                 "the dtype is %s, it must be bf16 or f16, or f32, which casts nothing",
                 ct_dtype_name(dtype));
    return before;
}
ct_dtype ct_autocast_dtype(void) {
    const ct_ctx *ctx = ct__ctx();
    return ctx && ctx->autocast != CT_DEFAULT ? ctx->autocast : CT_F32;
}
void ct__autocast_cleanup(ct_dtype *before) { ct_autocast_set_at(*before, CT_NOWHERE); }

ct_tensor ct__record(const ct_opdef *op, const void *attrs, const ct_tensor *in, int n_in,
                     ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (((!in && n_in) || n_in < 0 || n_in > UINT16_MAX) &&
        !record_check_operands(ctx, op, in, n_in, here))
        return ct__poison(ctx, here);
    if (__builtin_expect(ctx->autocast != CT_DEFAULT, 0) && op->autocast && !ct__in_plan(ctx) &&
        !(in = record_autocast(ctx, op, in, n_in, here)))
        return ct__poison(ctx, here);
    if (op->n_fields && !record_check_lists(ctx, op, attrs, here)) return ct__poison(ctx, here);
    ct_frame *frame = ct__top(ctx);
    ct_arena *arena = frame->arena;
    size_t n_out = op->n_out < 0 ? 0 : (size_t)op->n_out;
    const ct_type *few_types[FEW_OPERANDS], **types = few_types;
    ct_node *node =
        ct__arena(arena, sizeof *node + (size_t)n_in * sizeof(ct_val) + n_out * sizeof(ct_type));
    if (n_in > FEW_OPERANDS) types = ct__arena(arena, (size_t)n_in * sizeof *types);
    void *own = op->n_fields ? ct__attrs_copy(arena, op, attrs) : NULL;
    if (!node || !types || (op->n_fields && !own))
        return ct__fail(ctx, CT_E_MEMORY, here, op->name, "out of memory while recording");
    ct_val *val = (ct_val *)(node + 1);
    ct_type *out = (ct_type *)(val + n_in);
    memset(out, 0, n_out * sizeof *out);
    ct_call call = {op,    own,       n_in, types, (int)n_out, n_out ? out : NULL,
                    arena, &ctx->err, here, NULL,  false,      ctx->symbols != NULL,
                    val};
    int used = 0;
    ct_dtypes seen[2] = {0}; // of tensors, and of bare numbers
    unsigned ancestry = 0, devices = 0;
    while (used < n_in && ct__resolve_fast(ctx, in[used], &val[used], op->name, used, here)) {
        const ct_type *type = types[used] = ct__type(val[used]);
        seen[type->weak] |= CT_MASK(type->dtype);
        devices |= type->device;
        ancestry |= val[used].node->flags;
        ct__use(val[used++].node);
    }
    bool ok = used == n_in && (!seen[1] || call_widen_numbers(ctx, &call, seen, in, val, types));
    ok = ok && (!devices || call_check_devices(ctx, &call));
    if (!ok || !op->infer(&call) || !call_outputs_fit(&call) ||
        (devices && !call_place_outputs(&call)) ||
        (ctx->symbols && !record_name_sizes(ctx, node, &call))) {
        while (used--) ct__unuse(val[used].node);
        return ct__poison(ctx, here);
    }
    node_init(node, op, ctx, frame, &here);
    node->attrs = own;
    node->in = val;
    node->out = call.out;
    node->n_in = (uint16_t)n_in;
    node->n_out = (uint16_t)call.n_out;
    if (ancestry & ANCESTRY) node_inherit_ancestry(node, ancestry);
    frame->has_ops = true;
    ctx->nodes++;
    ct_tensor t = ct__handle(node, 0);
    return t.bits ? t : ct__fail(ctx, CT_E_MEMORY, here, op->name, "out of memory while recording");
}

void ct__outputs(ct_tensor first, ct_tensor *out, size_t n) {
    uint32_t zero;
    const ct_node *node = ct__peek(first, &zero);
    bool good = node && !(node->flags & CT_NODE_POISON);
    for (size_t i = 0; i < n; i++) out[i].bits = first.bits + (good ? i : 0);
}
ct_tensor ct__output(ct_tensor t, uint32_t out) {
    uint32_t first;
    const ct_node *node = ct__peek(t, &first);
    if (!node || node->flags & CT_NODE_POISON) return t;
    return (ct_tensor){t.bits - first + out};
}

ct_var *ct__var_of(ct_tensor t) {
    ct_peeked at;
    if (!ct__peek_lock(t, &at)) return NULL;
    ct_var *var = ct__flags(&at) & CT_NODE_VARIABLE ? at.node->var : NULL;
    ct__peek_unlock(&at);
    return var;
}

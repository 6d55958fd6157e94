// Lowers TILE loops for a CPU: the iterations become registers of 16 lanes.
//
// The body is written for one iteration. A value that is equal for all iterations stays one scalar; an index
// that grows by a constant is represented by the scalar of the first of 16 iterations; all other values become
// one 16-lane value per 16 iterations. Memory accesses and registers keep the order of the body; other values
// are computed where they are used, so that the update of a register (get, multiply and add, set) stays
// together.
#include <string.h>

#include "kir/kir.h"

enum { TILE_MAX_VECTORS = CT_TILE_MAX / CT_LANES, TILE_MAX_PREFETCHES = 4 * CT_LANES };

typedef struct {
    ct_kir *k;
    const ct_kir *from;
    const ct_kshape *shape;   // (from->n)
    ct_kval *made;            // (from->n) scalars; of an affine index that of the first lane
    ct_kval *vectors;         // (from->n, TILE_MAX_VECTORS) 16 lanes each
    ct_kval tile;             // the open TILE loop; -1: none
    int n_vectors;            // number of its iterations, divided by 16
    bool defers_prefetches;   // the loop transposes lanes, and issues prefetches meanwhile
    int n_deferred, n_issued; // number of deferred prefetches, and of those that are issued
    struct {
        int buf;
        ct_kval at;
        bool write;
    } deferred[TILE_MAX_PREFETCHES];
} tile_state;

static ct_kval *tile_vector_at(const tile_state *b, ct_kval v, int vector) {
    return &b->vectors[(size_t)v * TILE_MAX_VECTORS + (size_t)vector];
}
static bool tile_varies(const tile_state *b, ct_kval v) { return b->shape[v].vary != CT_UNIFORM; }
static bool tile_is_index(const tile_state *b, ct_kval v) {
    return b->shape[v].vary == CT_AFFINE && b->from->ins[v].dtype == CT_I64;
}

// True if the value is in scope. An index is computed where it is first used, and again after the loop that
// contains it.
static bool tile_is_in_scope(const ct_kir *k, ct_kval v) {
    if (v < 0) return false;
    for (ct_kval l = k->open; l >= 0; l = k->ins[l].in)
        if (l == k->ins[v].in) return true;
    return k->ins[v].in < 0;
}

// The value of the first iteration of a vector, for a uniform value or an index.
static ct_kval tile_scalar(tile_state *b, ct_kval v) {
    if (v < 0) return -1;
    if (!tile_is_index(b, v) || tile_is_in_scope(b->k, b->made[v])) return b->made[v];
    const ct_kins *ins = &b->from->ins[v];
    ct_kval x = tile_scalar(b, ins->a), y = tile_scalar(b, ins->b), z = tile_scalar(b, ins->c);
    return b->made[v] = ct__kir_clone(b->k, ins, x, y, z);
}
static ct_kval tile_index_at(tile_state *b, ct_kval v, int vector) {
    return ct__kir_addi(b->k, tile_scalar(b, v), vector * CT_LANES * b->shape[v].stride);
}

// The values of the 16 iterations of a vector.
static ct_kval tile_vector(tile_state *b, ct_kval v, int vector) {
    if (v < 0) return -1;
    ct_kir *k = b->k;
    if (!tile_varies(b, v)) return ct__kir_splat(k, tile_scalar(b, v));
    ct_kval *at = tile_vector_at(b, v, vector);
    if (*at >= 0 && (!tile_is_index(b, v) || tile_is_in_scope(b->k, *at))) return *at;
    const ct_kins *ins = &b->from->ins[v];
    if (tile_is_index(b, v)) {
        ct_kval step = ct__kir_mul(k, ct__kir_iota(k), ct__kir_int(k, b->shape[v].stride));
        return *at = ct__kir_add(k, ct__kir_splat(k, tile_index_at(b, v, vector)), step);
    }
    if (ins->op == CT_K_GET) return *at = ct__kir_get(k, *tile_vector_at(b, ins->a, vector));
    ct_kval x = tile_vector(b, ins->a, vector), y = tile_vector(b, ins->b, vector),
            z = tile_vector(b, ins->c, vector);
    return *at = ct__kir_clone(k, ins, x, y, z);
}

// ---------------------------------------------------------------------------------------- memory

// A processor has few outstanding cache lines: many prefetches at once would delay loads from its caches.
// So they are issued one by one while lanes are transposed.
static void tile_add_prefetch(tile_state *b, int buf, ct_kval at, bool write) {
    if (!b->defers_prefetches || b->n_deferred == TILE_MAX_PREFETCHES) {
        ct__kir_prefetch(b->k, buf, at, write);
        return;
    }
    b->deferred[b->n_deferred].buf = buf;
    b->deferred[b->n_deferred].at = at;
    b->deferred[b->n_deferred++].write = write;
}
static void tile_issue_prefetch(tile_state *b) {
    if (b->n_issued == b->n_deferred) return;
    const int i = b->n_issued++;
    ct__kir_prefetch(b->k, b->deferred[i].buf, b->deferred[i].at, b->deferred[i].write);
}

// True if index y equals x plus a constant.
static bool tile_constant_distance(const ct_kir *k, ct_kval x, ct_kval y, int64_t *by) {
    int64_t more = 0, less = 0, other = 0;
    const ct_kins *a = &k->ins[x], *b = &k->ins[y];
    *by = 0;
    if (x == y) return true;
    const bool adds_x = a->op == CT_K_ADD && ct__kir_is_int(k, a->b, &less),
               adds_y = b->op == CT_K_ADD && ct__kir_is_int(k, b->b, &more);
    if (adds_x || adds_y) {
        bool is_constant = tile_constant_distance(k, adds_x ? a->a : x, adds_y ? b->a : y, &other);
        *by = other + more - less;
        return is_constant;
    }
    if (a->op != CT_K_ADD || b->op != CT_K_ADD) return false;
    bool is_constant = (tile_constant_distance(k, a->a, b->a, &more) &&
                        tile_constant_distance(k, a->b, b->b, &other)) ||
                       (tile_constant_distance(k, a->a, b->b, &more) &&
                        tile_constant_distance(k, a->b, b->a, &other));
    *by = more + other;
    return is_constant;
}

// True if `v` loads the r-th element after that of `first`, in every lane.
static bool tile_is_next_load(const tile_state *b, ct_kval first, ct_kval v, int64_t r) {
    const ct_kins *x = &b->from->ins[first], *y = &b->from->ins[v];
    int64_t by;
    return y->op == CT_K_LOAD && y->b < 0 && y->imm.i == x->imm.i &&
           tile_constant_distance(b->from, x->a, y->a, &by) && by == r;
}

// Loads sixteen adjacent elements of every lane, which the body loads one after the other while lanes are
// far apart: as contiguous loads per lane, and a transposition. False: the loads are not of this form.
static bool tile_load_transposed(tile_state *b, ct_kval first) {
    ct_kval load[CT_LANES], x[CT_LANES], y[CT_LANES];
    ct_kir *k = b->k;
    int n = 0;
    if (b->n_vectors != 1) return false;
    for (ct_kval v = first; v < b->from->ins[b->tile].end && n < CT_LANES; v++) {
        if (b->from->ins[v].op == CT_K_LOOP || b->from->ins[v].op == CT_K_STORE) break;
        if (tile_is_next_load(b, first, v, n)) load[n++] = v;
    }
    if (n < CT_LANES) return false;
    const ct_kins *ins = &b->from->ins[first];
    ct_kval at = tile_scalar(b, ins->a);
    for (int c = 0; c < CT_LANES; c++) {
        int64_t offset = c * b->shape[ins->a].stride;
        x[c] = ct__kir_vload(k, (int)ins->imm.i, ct__kir_addi(k, at, offset), -1);
    }
    for (int round = 0; round < 4; round++) {
        for (int c = 0; c < CT_LANES; c++) {
            y[c] = ct__kir_zip(k, x[c / 2], x[c / 2 + CT_LANES / 2], c & 1);
            if (c & 1) tile_issue_prefetch(b);
        }
        memcpy(x, y, sizeof x);
    }
    for (int r = 0; r < CT_LANES; r++) *tile_vector_at(b, load[r], 0) = x[r];
    return true;
}

static void tile_load(tile_state *b, ct_kval v) {
    const ct_kins *ins = &b->from->ins[v];
    ct_kir *k = b->k;
    int buf = (int)ins->imm.i;
    if (!tile_varies(b, v)) {
        b->made[v] = ct__kir_load_if(k, buf, tile_scalar(b, ins->a), tile_scalar(b, ins->b));
        return;
    }
    if (*tile_vector_at(b, v, 0) >= 0) return;
    const bool is_plain = tile_is_index(b, ins->a) && ins->b < 0;
    if (is_plain && b->shape[ins->a].stride != 1 && tile_load_transposed(b, v)) return;
    for (int p = 0; p < b->n_vectors; p++) {
        ct_kval *to = tile_vector_at(b, v, p);
        if (is_plain && b->shape[ins->a].stride == 1)
            *to = ct__kir_vload(k, buf, tile_index_at(b, ins->a, p), -1);
        else
            *to = ct__kir_load_if(k, buf, tile_vector(b, ins->a, p), tile_vector(b, ins->b, p));
    }
}

static void tile_store(tile_state *b, const ct_kins *ins) {
    ct_kir *k = b->k;
    int buf = (int)ins->imm.i;
    for (int p = 0; p < b->n_vectors; p++) {
        ct_kval value = tile_vector(b, ins->b, p);
        if (tile_is_index(b, ins->a) && b->shape[ins->a].stride == 1 && ins->c < 0)
            ct__kir_vstore(k, buf, tile_index_at(b, ins->a, p), value, -1);
        else
            ct__kir_store_if(k, buf, tile_vector(b, ins->a, p), value, tile_vector(b, ins->c, p));
    }
}

// True if an element of the same cache line, in every iteration, is prefetched before.
static bool tile_is_prefetched(const tile_state *b, ct_kval v) {
    const ct_kins *ins = &b->from->ins[v];
    int64_t by;
    for (ct_kval u = b->tile + 1; u < v; u++) {
        const ct_kins *x = &b->from->ins[u];
        if (x->op == CT_K_PREFETCH && x->imm.i == ins->imm.i && x->sub == ins->sub &&
            tile_constant_distance(b->from, x->a, ins->a, &by) && by >= 0 && by < CT_LANES)
            return true;
    }
    return false;
}

// Prefetches for all iterations: one line for each if they are far apart.
static void tile_prefetch(tile_state *b, ct_kval v) {
    const ct_kins *ins = &b->from->ins[v];
    ct_kir *k = b->k;
    const bool index = tile_is_index(b, ins->a);
    const int64_t step = index ? b->shape[ins->a].stride : 0;
    if ((tile_varies(b, ins->a) && !index) || tile_is_prefetched(b, v)) return;
    for (int p = 0; p < (index ? b->n_vectors : 1); p++)
        for (int c = 0; c < (step > 1 ? CT_LANES : 1); c++) {
            ct_kval at = index ? tile_index_at(b, ins->a, p) : tile_scalar(b, ins->a);
            tile_add_prefetch(b, (int)ins->imm.i, ct__kir_addi(k, at, c * step), ins->sub);
        }
}

// ------------------------------------------------------------------------------------- registers

static void tile_make_register(tile_state *b, ct_kval v) {
    const ct_kins *ins = &b->from->ins[v];
    if (!tile_varies(b, v)) {
        b->made[v] = ct__kir_reg(b->k, tile_scalar(b, ins->a));
        return;
    }
    for (int p = 0; p < b->n_vectors; p++)
        *tile_vector_at(b, v, p) = ct__kir_reg(b->k, tile_vector(b, ins->a, p));
}

// Makes a value now if it is used after instruction `at`, where it could no longer be made.
static void tile_make_now(tile_state *b, ct_kval v, ct_kval at) {
    const ct_kir *from = b->from;
    bool used = false;
    if (!tile_varies(b, v) || b->made[v] >= 0 || *tile_vector_at(b, v, 0) >= 0) return;
    for (ct_kval u = at + 1; u < from->ins[b->tile].end && !used; u++) {
        const ct_kins *x = &from->ins[u];
        used = x->a == v || x->b == v || x->c == v;
    }
    if (used && tile_is_index(b, v)) (void)tile_scalar(b, v);
    for (int p = 0; used && !tile_is_index(b, v) && p < b->n_vectors; p++)
        (void)tile_vector(b, v, p);
}

// Values read from the register before it changes are made first, from its old value.
static void tile_set_register(tile_state *b, ct_kval v) {
    const ct_kins *ins = &b->from->ins[v];
    const bool lanes = tile_varies(b, ins->a);
    for (ct_kval u = ins->a; lanes && u < v; u++)
        if (b->from->ins[u].op == CT_K_GET && b->from->ins[u].a == ins->a) tile_make_now(b, u, v);
    for (int p = 0; lanes && p < b->n_vectors; p++)
        ct__kir_set(b->k, *tile_vector_at(b, ins->a, p), tile_vector(b, ins->b, p));
    if (!lanes) ct__kir_set(b->k, tile_scalar(b, ins->a), tile_scalar(b, ins->b));
}

// ----------------------------------------------------------------------------------------- loops

static void tile_fail(tile_state *b, const char *what) {
    ct__err(&b->k->err, CT_E_INTERNAL, CT_NOWHERE, "kernel", "a TILE loop %s", what);
}

static bool tile_has_loops(const tile_state *b, ct_kval tile) {
    for (ct_kval v = tile + 1; v < b->from->ins[tile].end; v++)
        if (b->from->ins[v].op == CT_K_LOOP) return true;
    return false;
}

static void tile_open_loop(tile_state *b, ct_kval v) {
    const ct_kins *ins = &b->from->ins[v];
    int64_t n = 0;
    if (ins->sub != CT_BIND_TILE) {
        if (b->tile >= 0 && ins->sub != CT_BIND_SEQ)
            tile_fail(b, "has a loop in it that is not SEQ");
        for (ct_kval u = b->tile + 1; b->tile >= 0 && u < v; u++)
            if (ct__kir_is_pure(&b->from->ins[u]) || b->from->ins[u].op == CT_K_GET)
                tile_make_now(b, u, v);
        b->made[v] = ct__kir_loop(b->k, ins->sub, tile_scalar(b, ins->a), ins->name);
        return;
    }
    if (b->tile >= 0 || !ct__kir_is_int(b->from, ins->a, &n) || n <= 0 || n % CT_LANES ||
        n > CT_TILE_MAX) {
        tile_fail(b, "needs a constant extent of 16 to 128, a multiple of 16, and none around it");
        return;
    }
    b->tile = v;
    b->defers_prefetches = !tile_has_loops(b, v);
    b->n_deferred = b->n_issued = 0;
    b->n_vectors = (int)(n / CT_LANES);
    b->made[v] = ct__kir_int(b->k, 0); // the first iteration
}

static void tile_close_loop(tile_state *b, ct_kval v) {
    const ct_kval loop = b->from->ins[v].a;
    if (loop == b->tile) {
        while (b->n_issued < b->n_deferred) tile_issue_prefetch(b);
        b->tile = -1;
        return;
    }
    ct__kir_end(b->k);
}

// ---------------------------------------------------------------------------------- instructions

static void tile_write_instruction(tile_state *b, ct_kval v) {
    const ct_kins *ins = &b->from->ins[v];
    switch (ins->op) {
    case CT_K_LOAD: tile_load(b, v); break;
    case CT_K_STORE: tile_store(b, ins); break;
    case CT_K_REG: tile_make_register(b, v); break;
    case CT_K_SET: tile_set_register(b, v); break;
    case CT_K_PREFETCH: tile_prefetch(b, v); break;
    case CT_K_GET:
        if (!tile_varies(b, v)) b->made[v] = ct__kir_get(b->k, tile_scalar(b, ins->a));
        break;
    default:
        if (!ct__kir_is_pure(ins))
            tile_fail(b, "holds scalar loads, stores, registers and arithmetic alone");
        else if (!tile_varies(b, v))
            b->made[v] = ct__kir_clone(b->k, ins, tile_scalar(b, ins->a), tile_scalar(b, ins->b),
                                       tile_scalar(b, ins->c));
    }
}

static void tile_copy_instruction(tile_state *b, ct_kval v) {
    const ct_kins *ins = &b->from->ins[v];
    ct_kir *k = b->k;
    ct_kval x = tile_scalar(b, ins->a), y = tile_scalar(b, ins->b), z = tile_scalar(b, ins->c);
    switch (ins->op) {
    case CT_K_LOAD: b->made[v] = ct__kir_load_if(k, (int)ins->imm.i, x, y); break;
    case CT_K_VLOAD: b->made[v] = ct__kir_vload(k, (int)ins->imm.i, x, y); break;
    case CT_K_STORE: ct__kir_store_if(k, (int)ins->imm.i, x, y, z); break;
    case CT_K_VSTORE: ct__kir_vstore(k, (int)ins->imm.i, x, y, z); break;
    case CT_K_SET: ct__kir_set(k, x, y); break;
    case CT_K_BREAK: ct__kir_break(k, x); break;
    case CT_K_PREFETCH: ct__kir_prefetch(k, (int)ins->imm.i, x, ins->sub); break;
    case CT_K_ARG: b->made[v] = ct__kir_arg(k); break;
    default: b->made[v] = ct__kir_clone(k, ins, x, y, z);
    }
}

static void tile_copy_buffers(ct_kir *k, const ct_kir *from) {
    for (size_t i = 0; i < from->nbufs; i++) {
        const ct_kbuf *buf = &from->bufs[i];
        if (buf->flags & CT_KIR_LOCAL)
            ct__kir_local(k, buf->dtype, buf->count);
        else
            ct__kir_buffer(k, buf->dtype, buf->flags);
    }
}

static bool tile_exists(const ct_kir *k) {
    for (size_t i = 0; i < k->n; i++)
        if (k->ins[i].op == CT_K_LOOP && k->ins[i].sub == CT_BIND_TILE) return true;
    return false;
}

void ct__kir_lower_tiles(ct_kir *kernel) {
    const ct_kir from = *kernel;
    ct_arena arena = {0};
    tile_state b = {.k = kernel, .from = &from, .tile = -1};
    if (kernel->err.code || kernel->open >= 0 || !tile_exists(kernel)) return;
    ct__kir_init(kernel);
    ct_kshape *shape = ct__arena(&arena, from.n * sizeof *shape);
    b.made = ct__arena(&arena, from.n * sizeof *b.made);
    b.vectors = ct__arena(&arena, from.n * TILE_MAX_VECTORS * sizeof *b.vectors);
    if (shape && b.made && b.vectors) {
        memset(b.made, -1, from.n * sizeof *b.made);
        memset(b.vectors, -1, from.n * TILE_MAX_VECTORS * sizeof *b.vectors);
        ct__kir_shapes(&from, CT_LANES, shape);
        b.shape = shape;
        tile_copy_buffers(kernel, &from);
    } else {
        ct__err_memory(&kernel->err, CT_NOWHERE, "kernel", from.n * sizeof *shape);
    }
    for (ct_kval v = 0; v < (ct_kval)from.n && !kernel->err.code; v++) {
        if (from.ins[v].op == CT_K_LOOP)
            tile_open_loop(&b, v);
        else if (from.ins[v].op == CT_K_END)
            tile_close_loop(&b, v);
        else if (b.tile >= 0)
            tile_write_instruction(&b, v);
        else
            tile_copy_instruction(&b, v);
    }
    ct__arena_free(&arena);
    ct_kir old = from;
    ct__kir_free(&old);
}

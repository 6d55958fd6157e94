// Binds a kernel to a CPU: the iterations of a TILE loop become registers of 16 lanes.
//
// The body is written for one iteration. What is equal for all of them stays one scalar; an index that
// moves on by a constant stays the scalar of the first of 16 iterations; all else becomes a value of 16
// lanes for each 16 iterations. Memory and registers are touched in the order of the body; what differs is
// computed where it is used, so that a register's step (get, multiply and add, set) stands together.
#include <string.h>

#include "kir/kir.h"

enum { MOST_PIECES = CT_TILE_MOST / CT_LANES, MOST_WAITING = 4 * CT_LANES };

typedef struct {
    ct_kir *k;
    const ct_kir *from;
    const ct_kshape *shape; // (from->n)
    ct_kval *made;          // (from->n) scalars; of an affine index that of the first lane
    ct_kval *wide;          // (from->n, MOST_PIECES) 16 lanes each
    ct_kval tile;           // the TILE loop that is open; -1: none
    int pieces;             // its iterations by 16
    bool spreads;           // the loop turns lanes, and prefetches wait until it does
    int waiting, waited;    // how many, and how many of them are made
    struct {
        int buf;
        ct_kval at;
        bool write;
    } wait[MOST_WAITING];
} binding;

static ct_kval *wide_at(const binding *b, ct_kval v, int piece) {
    return &b->wide[(size_t)v * MOST_PIECES + (size_t)piece];
}
static bool differs(const binding *b, ct_kval v) { return b->shape[v].vary != CT_UNIFORM; }
static bool is_index(const binding *b, ct_kval v) {
    return b->shape[v].vary == CT_AFFINE && b->from->ins[v].dtype == CT_I64;
}

// Does a loop that is open, or none, hold the value? An index is made where it is first wanted, and again
// behind the loop that this was in.
static bool in_sight(const ct_kir *k, ct_kval v) {
    if (v < 0) return false;
    for (ct_kval l = k->open; l >= 0; l = k->ins[l].in)
        if (l == k->ins[v].in) return true;
    return k->ins[v].in < 0;
}

// The value of the first of a piece's iterations, of what is uniform or an index.
static ct_kval scalar(binding *b, ct_kval v) {
    if (v < 0) return -1;
    if (!is_index(b, v) || in_sight(b->k, b->made[v])) return b->made[v];
    const ct_kins *ins = &b->from->ins[v];
    ct_kval x = scalar(b, ins->a), y = scalar(b, ins->b), z = scalar(b, ins->c);
    return b->made[v] = ct__kir_again(b->k, ins, x, y, z);
}
static ct_kval index_at(binding *b, ct_kval v, int piece) {
    return ct__kir_addi(b->k, scalar(b, v), piece * CT_LANES * b->shape[v].stride);
}

// A piece's 16 iterations.
static ct_kval lanes_of(binding *b, ct_kval v, int piece) {
    if (v < 0) return -1;
    ct_kir *k = b->k;
    if (!differs(b, v)) return ct__kir_splat(k, scalar(b, v));
    ct_kval *at = wide_at(b, v, piece);
    if (*at >= 0 && (!is_index(b, v) || in_sight(b->k, *at))) return *at;
    const ct_kins *ins = &b->from->ins[v];
    if (is_index(b, v)) {
        ct_kval step = ct__kir_mul(k, ct__kir_iota(k), ct__kir_int(k, b->shape[v].stride));
        return *at = ct__kir_add(k, ct__kir_splat(k, index_at(b, v, piece)), step);
    }
    if (ins->op == CT_K_GET) return *at = ct__kir_get(k, *wide_at(b, ins->a, piece));
    ct_kval x = lanes_of(b, ins->a, piece), y = lanes_of(b, ins->b, piece),
            z = lanes_of(b, ins->c, piece);
    return *at = ct__kir_again(k, ins, x, y, z);
}

// ---------------------------------------------------------------------------------------- memory

// A processor has few lines on their way at a time: asked for all at once, they would be in the way of
// loads from its caches. So they are asked for one by one while lanes are turned.
static void ask(binding *b, int buf, ct_kval at, bool write) {
    if (!b->spreads || b->waiting == MOST_WAITING) {
        ct__kir_prefetch(b->k, buf, at, write);
        return;
    }
    b->wait[b->waiting].buf = buf;
    b->wait[b->waiting].at = at;
    b->wait[b->waiting++].write = write;
}
static void ask_next(binding *b) {
    if (b->waited == b->waiting) return;
    const int i = b->waited++;
    ct__kir_prefetch(b->k, b->wait[i].buf, b->wait[i].at, b->wait[i].write);
}

// Is index y equal to x plus a constant?
static bool apart(const ct_kir *k, ct_kval x, ct_kval y, int64_t *by) {
    int64_t more = 0, less = 0, other = 0;
    const ct_kins *a = &k->ins[x], *b = &k->ins[y];
    *by = 0;
    if (x == y) return true;
    const bool adds_x = a->op == CT_K_ADD && ct__kir_is_int(k, a->b, &less),
               adds_y = b->op == CT_K_ADD && ct__kir_is_int(k, b->b, &more);
    if (adds_x || adds_y) {
        bool is = apart(k, adds_x ? a->a : x, adds_y ? b->a : y, &other);
        *by = other + more - less;
        return is;
    }
    if (a->op != CT_K_ADD || b->op != CT_K_ADD) return false;
    bool is = (apart(k, a->a, b->a, &more) && apart(k, a->b, b->b, &other)) ||
              (apart(k, a->a, b->b, &more) && apart(k, a->b, b->a, &other));
    *by = more + other;
    return is;
}

// Is `v` the load of the r-th element behind that of `first`, as all lanes see it?
static bool follows(const binding *b, ct_kval first, ct_kval v, int64_t r) {
    const ct_kins *x = &b->from->ins[first], *y = &b->from->ins[v];
    int64_t by;
    return y->op == CT_K_LOAD && y->b < 0 && y->imm.i == x->imm.i &&
           apart(b->from, x->a, y->a, &by) && by == r;
}

// Sixteen neighbours of every lane, loaded one after the other while lanes are far from each other:
// they are read the other way round and turned. False: these are no such loads.
static bool load_turned(binding *b, ct_kval first) {
    ct_kval load[CT_LANES], x[CT_LANES], y[CT_LANES];
    ct_kir *k = b->k;
    int n = 0;
    if (b->pieces != 1) return false;
    for (ct_kval v = first; v < b->from->ins[b->tile].end && n < CT_LANES; v++) {
        if (b->from->ins[v].op == CT_K_LOOP || b->from->ins[v].op == CT_K_STORE) break;
        if (follows(b, first, v, n)) load[n++] = v;
    }
    if (n < CT_LANES) return false;
    const ct_kins *ins = &b->from->ins[first];
    ct_kval at = scalar(b, ins->a);
    for (int c = 0; c < CT_LANES; c++) {
        int64_t far = c * b->shape[ins->a].stride;
        x[c] = ct__kir_vload(k, (int)ins->imm.i, ct__kir_addi(k, at, far), -1);
    }
    for (int round = 0; round < 4; round++) {
        for (int c = 0; c < CT_LANES; c++) {
            y[c] = ct__kir_zip(k, x[c / 2], x[c / 2 + CT_LANES / 2], c & 1);
            if (c & 1) ask_next(b);
        }
        memcpy(x, y, sizeof x);
    }
    for (int r = 0; r < CT_LANES; r++) *wide_at(b, load[r], 0) = x[r];
    return true;
}

static void load(binding *b, ct_kval v) {
    const ct_kins *ins = &b->from->ins[v];
    ct_kir *k = b->k;
    int buf = (int)ins->imm.i;
    if (!differs(b, v)) {
        b->made[v] = ct__kir_load_if(k, buf, scalar(b, ins->a), scalar(b, ins->b));
        return;
    }
    if (*wide_at(b, v, 0) >= 0) return;
    const bool plain = is_index(b, ins->a) && ins->b < 0;
    if (plain && b->shape[ins->a].stride != 1 && load_turned(b, v)) return;
    for (int p = 0; p < b->pieces; p++) {
        ct_kval *to = wide_at(b, v, p);
        if (plain && b->shape[ins->a].stride == 1)
            *to = ct__kir_vload(k, buf, index_at(b, ins->a, p), -1);
        else
            *to = ct__kir_load_if(k, buf, lanes_of(b, ins->a, p), lanes_of(b, ins->b, p));
    }
}

static void store(binding *b, const ct_kins *ins) {
    ct_kir *k = b->k;
    int buf = (int)ins->imm.i;
    for (int p = 0; p < b->pieces; p++) {
        ct_kval value = lanes_of(b, ins->b, p);
        if (is_index(b, ins->a) && b->shape[ins->a].stride == 1 && ins->c < 0)
            ct__kir_vstore(k, buf, index_at(b, ins->a, p), value, -1);
        else
            ct__kir_store_if(k, buf, lanes_of(b, ins->a, p), value, lanes_of(b, ins->c, p));
    }
}

// Has an element of the same line, as every iteration sees it, been asked for before?
static bool is_asked_for(const binding *b, ct_kval v) {
    const ct_kins *ins = &b->from->ins[v];
    int64_t by;
    for (ct_kval u = b->tile + 1; u < v; u++) {
        const ct_kins *x = &b->from->ins[u];
        if (x->op == CT_K_PREFETCH && x->imm.i == ins->imm.i && x->sub == ins->sub &&
            apart(b->from, x->a, ins->a, &by) && by >= 0 && by < CT_LANES)
            return true;
    }
    return false;
}

// What all iterations ask for: a line for each that is far from the next.
static void prefetch(binding *b, ct_kval v) {
    const ct_kins *ins = &b->from->ins[v];
    ct_kir *k = b->k;
    const bool index = is_index(b, ins->a);
    const int64_t step = index ? b->shape[ins->a].stride : 0;
    if ((differs(b, ins->a) && !index) || is_asked_for(b, v)) return;
    for (int p = 0; p < (index ? b->pieces : 1); p++)
        for (int c = 0; c < (step > 1 ? CT_LANES : 1); c++) {
            ct_kval at = index ? index_at(b, ins->a, p) : scalar(b, ins->a);
            ask(b, (int)ins->imm.i, ct__kir_addi(k, at, c * step), ins->sub);
        }
}

// ------------------------------------------------------------------------------------- registers

static void make_register(binding *b, ct_kval v) {
    const ct_kins *ins = &b->from->ins[v];
    if (!differs(b, v)) {
        b->made[v] = ct__kir_reg(b->k, scalar(b, ins->a));
        return;
    }
    for (int p = 0; p < b->pieces; p++)
        *wide_at(b, v, p) = ct__kir_reg(b->k, lanes_of(b, ins->a, p));
}

// Makes what is wanted of a value behind instruction `at`, where it may not be made any more.
static void make_now(binding *b, ct_kval v, ct_kval at) {
    const ct_kir *from = b->from;
    bool used = false;
    if (!differs(b, v) || b->made[v] >= 0 || *wide_at(b, v, 0) >= 0) return;
    for (ct_kval u = at + 1; u < from->ins[b->tile].end && !used; u++) {
        const ct_kins *x = &from->ins[u];
        used = x->a == v || x->b == v || x->c == v;
    }
    if (used && is_index(b, v)) (void)scalar(b, v);
    for (int p = 0; used && !is_index(b, v) && p < b->pieces; p++) (void)lanes_of(b, v, p);
}

// What was read of the register before it changes is made with its old value.
static void set_register(binding *b, ct_kval v) {
    const ct_kins *ins = &b->from->ins[v];
    const bool lanes = differs(b, ins->a);
    for (ct_kval u = ins->a; lanes && u < v; u++)
        if (b->from->ins[u].op == CT_K_GET && b->from->ins[u].a == ins->a) make_now(b, u, v);
    for (int p = 0; lanes && p < b->pieces; p++)
        ct__kir_set(b->k, *wide_at(b, ins->a, p), lanes_of(b, ins->b, p));
    if (!lanes) ct__kir_set(b->k, scalar(b, ins->a), scalar(b, ins->b));
}

// ----------------------------------------------------------------------------------------- loops

static void wrong(binding *b, const char *what) {
    ct__err(&b->k->err, CT_E_INTERNAL, CT_NOWHERE, "kernel", "a TILE loop %s", what);
}

static bool has_loops(const binding *b, ct_kval tile) {
    for (ct_kval v = tile + 1; v < b->from->ins[tile].end; v++)
        if (b->from->ins[v].op == CT_K_LOOP) return true;
    return false;
}

static void open_loop(binding *b, ct_kval v) {
    const ct_kins *ins = &b->from->ins[v];
    int64_t n = 0;
    if (ins->sub != CT_BIND_TILE) {
        if (b->tile >= 0 && ins->sub != CT_BIND_SEQ) wrong(b, "has a loop in it that is not SEQ");
        for (ct_kval u = b->tile + 1; b->tile >= 0 && u < v; u++)
            if (ct__kir_is_pure(&b->from->ins[u]) || b->from->ins[u].op == CT_K_GET)
                make_now(b, u, v);
        b->made[v] = ct__kir_loop(b->k, ins->sub, scalar(b, ins->a), ins->name);
        return;
    }
    if (b->tile >= 0 || !ct__kir_is_int(b->from, ins->a, &n) || n <= 0 || n % CT_LANES ||
        n > CT_TILE_MOST) {
        wrong(b, "needs a constant extent of 16 to 128, a multiple of 16, and none around it");
        return;
    }
    b->tile = v;
    b->spreads = !has_loops(b, v);
    b->waiting = b->waited = 0;
    b->pieces = (int)(n / CT_LANES);
    b->made[v] = ct__kir_int(b->k, 0); // the first iteration
}

static void close_loop(binding *b, ct_kval v) {
    const ct_kval loop = b->from->ins[v].a;
    if (loop == b->tile) {
        while (b->waited < b->waiting) ask_next(b);
        b->tile = -1;
        return;
    }
    ct__kir_end(b->k);
}

// ---------------------------------------------------------------------------------- instructions

static void in_tile(binding *b, ct_kval v) {
    const ct_kins *ins = &b->from->ins[v];
    switch (ins->op) {
    case CT_K_LOAD: load(b, v); break;
    case CT_K_STORE: store(b, ins); break;
    case CT_K_REG: make_register(b, v); break;
    case CT_K_SET: set_register(b, v); break;
    case CT_K_PREFETCH: prefetch(b, v); break;
    case CT_K_GET:
        if (!differs(b, v)) b->made[v] = ct__kir_get(b->k, scalar(b, ins->a));
        break;
    default:
        if (!ct__kir_is_pure(ins))
            wrong(b, "holds scalar loads, stores, registers and arithmetic alone");
        else if (!differs(b, v))
            b->made[v] =
                ct__kir_again(b->k, ins, scalar(b, ins->a), scalar(b, ins->b), scalar(b, ins->c));
    }
}

static void again(binding *b, ct_kval v) {
    const ct_kins *ins = &b->from->ins[v];
    ct_kir *k = b->k;
    ct_kval x = scalar(b, ins->a), y = scalar(b, ins->b), z = scalar(b, ins->c);
    switch (ins->op) {
    case CT_K_LOAD: b->made[v] = ct__kir_load_if(k, (int)ins->imm.i, x, y); break;
    case CT_K_VLOAD: b->made[v] = ct__kir_vload(k, (int)ins->imm.i, x, y); break;
    case CT_K_STORE: ct__kir_store_if(k, (int)ins->imm.i, x, y, z); break;
    case CT_K_VSTORE: ct__kir_vstore(k, (int)ins->imm.i, x, y, z); break;
    case CT_K_SET: ct__kir_set(k, x, y); break;
    case CT_K_BREAK: ct__kir_break(k, x); break;
    case CT_K_PREFETCH: ct__kir_prefetch(k, (int)ins->imm.i, x, ins->sub); break;
    case CT_K_ARG: b->made[v] = ct__kir_arg(k); break;
    default: b->made[v] = ct__kir_again(k, ins, x, y, z);
    }
}

static void copy_buffers(ct_kir *k, const ct_kir *from) {
    for (size_t i = 0; i < from->nbufs; i++) {
        const ct_kbuf *buf = &from->bufs[i];
        if (buf->flags & CT_KIR_LOCAL)
            ct__kir_local(k, buf->dtype, buf->count);
        else
            ct__kir_buffer(k, buf->dtype, buf->flags);
    }
}

static bool has_tile(const ct_kir *k) {
    for (size_t i = 0; i < k->n; i++)
        if (k->ins[i].op == CT_K_LOOP && k->ins[i].sub == CT_BIND_TILE) return true;
    return false;
}

void ct__kir_bind(ct_kir *kernel) {
    const ct_kir from = *kernel;
    ct_arena arena = {0};
    binding b = {.k = kernel, .from = &from, .tile = -1};
    if (kernel->err.code || kernel->open >= 0 || !has_tile(kernel)) return;
    ct__kir_init(kernel);
    ct_kshape *shape = ct__arena(&arena, from.n * sizeof *shape);
    b.made = ct__arena(&arena, from.n * sizeof *b.made);
    b.wide = ct__arena(&arena, from.n * MOST_PIECES * sizeof *b.wide);
    if (shape && b.made && b.wide) {
        memset(b.made, -1, from.n * sizeof *b.made);
        memset(b.wide, -1, from.n * MOST_PIECES * sizeof *b.wide);
        ct__kir_shapes(&from, CT_LANES, shape);
        b.shape = shape;
        copy_buffers(kernel, &from);
    } else {
        ct__err_memory(&kernel->err, CT_NOWHERE, "kernel", from.n * sizeof *shape);
    }
    for (ct_kval v = 0; v < (ct_kval)from.n && !kernel->err.code; v++) {
        if (from.ins[v].op == CT_K_LOOP)
            open_loop(&b, v);
        else if (from.ins[v].op == CT_K_END)
            close_loop(&b, v);
        else if (b.tile >= 0)
            in_tile(&b, v);
        else
            again(&b, v);
    }
    ct__arena_free(&arena);
    ct_kir old = from;
    ct__kir_free(&old);
}

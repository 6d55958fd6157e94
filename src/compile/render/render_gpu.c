// Kernel IR to the C of GPUs. A group of 16 threads is the vector: every value is a scalar of a thread, and
// the prelude's functions fold, zip and meet.
#include "compile/render/render_gpu.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "compile/render/render_impl.h"
#include "compile/render/render_sync.h"
#include "kir/kir_math.h"

extern const char ct__gpu_prelude[]; // prelude_gpu.inc, made by the build

enum {
    MOST_THREADS = 128,                     // of a block
    SWAP = 2 * CT_LANES * sizeof(uint64_t), // bytes that a group of OpenCL exchanges values by
    LEAST_LOCAL = 1024
};

typedef struct {
    ct_render r;
    const bool *sync;     // (n) the group meets before this instruction
    const bool *everyone; // (n) no LANES loop is around it
    const int64_t
        *place;      // (nbufs) of a local in a group's part of scratch; -1: it is shared memory
    int64_t scratch; // bytes of it a group
    int groups;      // of a block
    int width;       // threads of a group: 16, or 1 where nothing goes by lanes
    bool folds;      // threads exchange values
    bool meets;      // they do, or wait for each other
    ct_gpu_language language;
} gpu;

static void line(const gpu *g) {
    for (int i = 0; i < g->r.depth; i++) ct__text_add(g->r.out, "    ");
}
static const char *type(const gpu *g, ct_kval v) { return ct__render_type(g->r.k->ins[v].dtype); }
static void value(const gpu *g, ct_kval v) { ct__render_scalar(&g->r, v); }

// ---------------------------------------------------------------------------------------- memory

// "in0[v5]", of a vector that of this lane
static void element(const gpu *g, const ct_kins *ins) {
    const bool vector = ins->op == CT_K_VLOAD || ins->op == CT_K_VSTORE;
    ct__render_buffer(&g->r, ins->imm.i);
    ct__text_add(g->r.out, "[");
    value(g, ins->a);
    ct__text_add(g->r.out, vector ? " + lane]" : "]");
}

static void load(const gpu *g, const ct_kins *ins) {
    const ct_converter c = ct__render_converter("up", g->r.k->bufs[ins->imm.i].dtype);
    if (ins->b >= 0) {
        if (ins->op == CT_K_VLOAD) ct__text_add(g->r.out, "lane < ");
        value(g, ins->b);
        ct__text_add(g->r.out, " ? ");
    }
    if (*c.s) ct__textf(g->r.out, "s_%s(", c.s);
    element(g, ins);
    if (*c.s) ct__text_add(g->r.out, ")");
    if (ins->b >= 0) ct__textf(g->r.out, " : (%s)0", ct__render_type(ins->dtype));
}

// What all threads would write alike, one does.
static void store(const gpu *g, ct_kval v, const ct_kins *ins) {
    const ct_dtype dtype = g->r.k->bufs[ins->imm.i].dtype;
    const ct_converter c = ct__render_converter("down", dtype);
    const bool vector = ins->op == CT_K_VSTORE, narrows = dtype != CT_BOOL && *c.s;
    const bool one = g->width > 1 && !vector && g->everyone[v] && g->r.k->ins[ins->a].lanes == 1;
    line(g);
    if (one) ct__text_add(g->r.out, "if (lane == 0) ");
    if (ins->c >= 0) {
        ct__text_add(g->r.out, vector ? "if (lane < " : "if (");
        value(g, ins->c);
        ct__text_add(g->r.out, ") ");
    }
    element(g, ins);
    ct__textf(g->r.out, narrows ? " = s_%s(" : " = ", c.s);
    value(g, ins->b);
    ct__text_add(g->r.out, narrows ? ");\n" : ";\n");
}

// ------------------------------------------------------------------------------------ reductions

typedef struct {
    ct_kval id;
    const ct_kins *ins;
    int dtype;    // of what is reduced
    bool lanes;   // its loop is one of lanes: each keeps an accumulator
    bool place;   // its value is an index
    bool ordered; // the order of its operations shows
    bool array;   // 16 accumulators by i mod 16
    const char *t, *op;
} reduction;

static reduction reduction_of(const gpu *g, ct_kval id) {
    const ct_kir *k = g->r.k;
    const ct_kins *ins = &k->ins[id];
    reduction d = {.id = id, .ins = ins, .dtype = k->ins[ins->a].dtype};
    d.lanes = k->ins[ins->in].sub == CT_BIND_LANES;
    d.place = ct__kred_is_place(ins->sub);
    d.ordered = ct__kred_is_ordered(ins->sub, d.dtype);
    d.array = !d.lanes && d.ordered;
    d.t = ct__render_suffix(d.dtype);
    d.op = ct__render_red_name(ins);
    return d;
}

static void start(const gpu *g, const reduction *d) {
    const ct_kins first = ct__kred_start(d->ins->sub, d->dtype);
    ct__render_literal(g->r.out, d->dtype, &first);
}

static void accumulator(const gpu *g, const reduction *d) {
    line(g);
    ct__textf(g->r.out,
              d->array ? "%s a%d[16]; EACH(a%d, " : "%s a%d = ", ct__render_type(d->dtype), d->id,
              d->id);
    start(g, d);
    ct__text_add(g->r.out, d->array ? ");\n" : ";\n");
    if (!d->place) return;
    line(g);
    ct__textf(g->r.out, "i64 m%d = 0;\n", d->id);
}

static void accumulate(const gpu *g, ct_kval id) {
    const reduction d = reduction_of(g, id);
    char a[48];
    snprintf(a, sizeof a, d.array ? "a%d[j%d & 15]" : "a%d", id, d.ins->in);
    line(g);
    if (d.place) {
        ct__textf(g->r.out, "if (s_better_%s_%s(", d.op, d.t);
        value(g, d.ins->a);
        ct__textf(g->r.out, ", %s)) %s = ", a, a);
        value(g, d.ins->a);
        ct__textf(g->r.out, ", m%d = j%d;\n", id, d.ins->in);
        return;
    }
    ct__textf(g->r.out, "%s = s_%s_%s(%s, ", a, d.op, d.t, a);
    value(g, d.ins->a);
    ct__text_add(g->r.out, ");\n");
}

// After a block, or a loop of one.
static void block_result(const gpu *g, const reduction *d) {
    if (d->lanes && d->place)
        ct__textf(g->r.out, "argfold_%s_%s(SELF, a%d, m%d)", d->op, d->t, d->id, d->id);
    else if (d->lanes)
        ct__textf(g->r.out, "fold_%s_%s(SELF, a%d)", d->op, d->t, d->id);
    else
        ct__textf(g->r.out, d->place ? "m%d" : d->array ? "a%d[0]" : "a%d", d->id);
}

static void result(const gpu *g, const reduction *d, bool blocks) {
    line(g);
    ct__textf(g->r.out, "const %s v%d = ", type(g, d->id), d->id);
    if (blocks && d->ordered) {
        ct__textf(g->r.out, "total_%s_%s(&t%d, ", d->op, d->t, d->id);
        start(g, d);
        ct__text_add(g->r.out, ")");
    } else {
        block_result(g, d);
    }
    ct__text_add(g->r.out, ";\n");
}

#define EACH_REDUCE(g, loop, d)                                                                    \
    CT_EACH_REDUCE((g)->r.k, loop, id_)                                                            \
    for (reduction d = reduction_of(g, id_), *once_ = &d; once_; once_ = NULL)

// ----------------------------------------------------------------------------------------- loops

// Where blocks have one row each, no thread is without one.
static void open_row(const gpu *g) {
    ct__text_add(g->r.out, g->groups > 1 ? "if (row < end) {\n" : "{\n");
}

static void open_rows(gpu *g, ct_kval v, const ct_kins *ins) {
    line(g);
    ct__textf(g->r.out, "const i64 j%d = row;", v);
    if (ins->name) ct__textf(g->r.out, " // %s", ins->name);
    ct__text_add(g->r.out, "\n");
    line(g);
    open_row(g);
    g->r.depth++;
}

static void open_blocks(gpu *g, ct_kval v, const ct_kins *ins) {
    line(g);
    ct__textf(g->r.out, "for (i64 h%d = 0; h%d < ", v, v);
    value(g, ins->a);
    ct__textf(g->r.out, "; h%d += 1024) {\n", v);
    g->r.depth++;
    line(g);
    ct__textf(g->r.out, "const i64 e%d = s_min_i64(h%d + 1024, ", v, v);
    value(g, ins->a);
    ct__text_add(g->r.out, ");\n");
    EACH_REDUCE(g, v, d) if (d.ordered) accumulator(g, &d);
}

static void open_loop(gpu *g, ct_kval v) {
    const ct_kins *ins = &g->r.k->ins[v];
    const bool blocks = ct__kir_in_blocks(g->r.k, v), lanes = ins->sub == CT_BIND_LANES;
    if (ins->sub == CT_BIND_ROWS) {
        open_rows(g, v, ins);
        return;
    }
    EACH_REDUCE(g, v, d) {
        if (!blocks || !d.ordered) {
            accumulator(g, &d);
            continue;
        }
        line(g);
        ct__textf(g->r.out, "tree_%s_%s t%d; CLEAR(t%d);\n", d.op, d.t, d.id, d.id);
    }
    if (blocks) open_blocks(g, v, ins);
    if (ins->sub == CT_BIND_UNROLL) {
        line(g);
        ct__text_add(g->r.out, "#pragma unroll\n");
    }
    line(g);
    ct__textf(g->r.out, "for (i64 j%d = ", v);
    if (blocks) ct__textf(g->r.out, lanes ? "h%d + " : "h%d", v);
    ct__textf(g->r.out, lanes ? "lane; j%d < " : blocks ? "; j%d < " : "0; j%d < ", v);
    if (blocks)
        ct__textf(g->r.out, "e%d", v);
    else
        value(g, ins->a);
    ct__textf(g->r.out, lanes ? "; j%d += 16) {" : "; j%d++) {", v);
    if (ins->name) ct__textf(g->r.out, " // %s", ins->name);
    ct__text_add(g->r.out, "\n");
    g->r.depth++;
}

static void close_loop(gpu *g, ct_kval v) {
    const bool blocks = ct__kir_in_blocks(g->r.k, v);
    g->r.depth--;
    line(g);
    ct__text_add(g->r.out, "}\n");
    EACH_REDUCE(g, v, d) {
        if (!d.array) continue;
        line(g);
        ct__textf(g->r.out, "FOLD_ARRAY(a%d, s_%s_%s);\n", d.id, d.op, d.t);
    }
    if (blocks) {
        EACH_REDUCE(g, v, d) {
            if (!d.ordered) continue;
            line(g);
            ct__textf(g->r.out, "push_%s_%s(&t%d, 0, ", d.op, d.t, d.id);
            block_result(g, &d);
            ct__text_add(g->r.out, ", ");
            start(g, &d);
            ct__text_add(g->r.out, ");\n");
        }
        g->r.depth--;
        line(g);
        ct__text_add(g->r.out, "}\n");
    }
    EACH_REDUCE(g, v, d) result(g, &d, blocks);
}

// ---------------------------------------------------------------------------------- instructions

static void define(const gpu *g, ct_kval v, const ct_kins *ins) {
    line(g);
    ct__textf(g->r.out, "const %s v%d = ", type(g, v), v);
    switch (ins->op) {
    case CT_K_LOAD:
    case CT_K_VLOAD: load(g, ins); break;
    case CT_K_GET: ct__textf(g->r.out, "r%d", ins->a); break;
    case CT_K_FOLD:
        ct__textf(g->r.out, "fold_%s_%s(SELF, ", ct__render_red_name(ins),
                  ct__render_suffix(ins->dtype));
        value(g, ins->a);
        ct__text_add(g->r.out, ")");
        break;
    case CT_K_ZIP:
        ct__textf(g->r.out, "zip_%s(SELF, ", ct__render_suffix(ins->dtype));
        value(g, ins->a);
        ct__text_add(g->r.out, ", ");
        value(g, ins->b);
        ct__text_add(g->r.out, ins->sub ? ", 8)" : ", 0)");
        break;
    default: ct__render_value(&g->r, v); break;
    }
    ct__text_add(g->r.out, ";\n");
}

static void assign(const gpu *g, const char *before, ct_kval v) {
    ct__text_add(g->r.out, before);
    value(g, v);
    ct__text_add(g->r.out, ";\n");
}

static void instruction(gpu *g, ct_kval v) {
    const ct_kins *ins = &g->r.k->ins[v];
    if (g->width > 1 && g->sync[v]) {
        line(g);
        ct__text_add(g->r.out, "SYNC;\n");
    }
    switch (ins->op) {
    case CT_K_CONST:
    case CT_K_ARG:
    case CT_K_PARAM:
    case CT_K_SPLAT:
    case CT_K_IOTA:
    case CT_K_PREFETCH: break; // there are other threads to run while one waits
    case CT_K_LOOP: open_loop(g, v); break;
    case CT_K_END: close_loop(g, ins->a); break;
    case CT_K_STORE:
    case CT_K_VSTORE: store(g, v, ins); break;
    case CT_K_REDUCE: accumulate(g, v); break;
    case CT_K_REG:
        line(g);
        ct__textf(g->r.out, "%s r%d", type(g, v), v);
        assign(g, " = ", ins->a);
        break;
    case CT_K_SET:
        line(g);
        ct__textf(g->r.out, "r%d", ins->a);
        assign(g, " = ", ins->b);
        break;
    case CT_K_BREAK:
        line(g);
        ct__text_add(g->r.out, "if (");
        value(g, ins->a);
        ct__text_add(g->r.out, ") break;\n");
        break;
    case CT_K_RET:
        line(g);
        assign(g, "return ", ins->a);
        break;
    default:
        if (!g->r.nested[v]) define(g, v, ins);
        break;
    }
}

static void body(gpu *g) {
    for (ct_kval i = 0; i < (ct_kval)g->r.k->n; i++) instruction(g, i);
}

// ----------------------------------------------------------------------------- what stands before

static void math_function(const ct_kir *k, ct_kmath f, ct_dtype dtype, ct_kshape *shape,
                          const uint8_t *nested, ct_text *out) {
    const char *t = ct__render_type(dtype);
    gpu g = {.r = {.k = k, .shape = shape, .nested = nested, .out = out, .depth = 1}};
    ct__textf(out, "%s %s s_%s_%s(%s x0) {\n", f > CT_MATH_ERF ? "SLOW" : "FN", t,
              ct__kir_math_name(f), t, t);
    body(&g);
    ct__text_add(out, "}\n");
}

static void trees_needed(const gpu *g, ct_text *out) {
    for (ct_kval i = 0; (size_t)i < g->r.k->n; i++) {
        if (g->r.k->ins[i].op != CT_K_REDUCE) continue;
        const reduction d = reduction_of(g, i);
        if (!d.ordered || !ct__kir_in_blocks(g->r.k, d.ins->in)) continue;
        char tree[24];
        snprintf(tree, sizeof tree, "%s_%s", d.op, d.t);
        ct__textf(out, "#ifndef TREE_%s\n#define TREE_%s\nTREE(%s, %s, s_%s)\n#endif\n", tree, tree,
                  tree, d.t, tree);
    }
}

// --------------------------------------------------------------------------------------- kernels

static void signature(const gpu *g, const char *name, ct_text *out) {
    const ct_kir *k = g->r.k;
    ct__textf(out, "KERNEL(%d) %s(", g->groups * g->width, name);
    for (int i = 0; i < k->nparams; i++) ct__textf(out, "GLOBAL u8 *b%d, ", i);
    for (int i = 0; i < k->nparams; i++) ct__textf(out, "i64 o%d, ", i);
    for (int i = 0; i < k->nargs; i++) ct__textf(out, "i64 n%d, ", i);
    ct__textf(out, "i64 begin, i64 end%s) {\n", g->scratch ? ", GLOBAL u8 *scratch" : "");
}

static void threads(const gpu *g) {
    ct_text *out = g->r.out;
    ct__text_add(out, g->width > 1 ? "    const i64 lane = THREAD & 15, group = THREAD >> 4;\n"
                                   : "    const i64 group = THREAD;\n");
    ct__textf(out, "    const i64 row = begin + BLOCK * %d + group;\n", g->groups);
    if (g->language == CT_GPU_CUDA && g->meets)
        ct__text_add(out, "    const u32 mask = 0xffffu << (THREAD & 16);\n");
    else if (g->folds)
        ct__textf(out, "    SHARED u64 swap[%d];\n", 2 * CT_LANES);
}

static void local_buffer(const gpu *g, int i, const char *t) {
    ct_text *out = g->r.out;
    const ct_kbuf *b = &g->r.k->bufs[i];
    if (g->place[i] < 0)
        ct__textf(out, "    SHARED %s s%d[%" PRId64 "]; LOCAL %s *", t, i, b->count * g->groups, t);
    else
        ct__textf(out, "    GLOBAL %s *", t);
    ct__render_buffer(&g->r, i);
    if (g->place[i] < 0)
        ct__textf(out, " = s%d + group * %" PRId64 ";\n", i, b->count);
    else
        ct__textf(out,
                  " = (GLOBAL %s *)(scratch + (BLOCK * %d + group) * %" PRId64 " + %" PRId64
                  "); // [%" PRId64 "]\n",
                  t, g->groups, g->scratch, g->place[i], b->count);
}

static void buffers(const gpu *g) {
    const ct_kir *k = g->r.k;
    int at = 0;
    for (int i = 0; i < (int)k->nbufs; i++) {
        const ct_kbuf *b = &k->bufs[i];
        const char *t = ct__render_storage(b->dtype), *c = b->flags & CT_KIR_WRITE ? "" : "const ";
        if (b->flags & CT_KIR_LOCAL) {
            local_buffer(g, i, t);
            continue;
        }
        ct__textf(g->r.out, "    GLOBAL %s%s *%s", c, t,
                  b->flags & CT_KIR_ALIAS ? "" : "restrict ");
        ct__render_buffer(&g->r, i);
        ct__textf(g->r.out, " = (GLOBAL %s%s *)(b%d + o%d); // %s\n", c, t, at, at,
                  ct_dtype_name(b->dtype));
        at++;
    }
}

static void kernel_body(gpu *g) {
    const ct_kir *k = g->r.k;
    threads(g);
    buffers(g);
    bool rows = false;
    for (size_t i = 0; i < k->n; i++)
        rows |= k->ins[i].op == CT_K_LOOP && k->ins[i].sub == CT_BIND_ROWS;
    if (!rows) {
        line(g);
        open_row(g);
        g->r.depth++;
    }
    body(g);
    ct__text_add(g->r.out, rows ? "}\n" : "    }\n}\n");
}

static bool render(gpu *g, ct_text *out, char name[40], ct_err *err) {
    ct_text inner = {0};
    if (!ct__render_math(g->r.k, math_function, out, err)) return false;
    trees_needed(g, out);
    g->r.out = &inner;
    kernel_body(g);
    char hex[33];
    ct__hash_hex(ct__hash_bytes(inner.s ? inner.s : "", inner.n, (ct_hash){0, 0}), hex);
    snprintf(name, 40, "k_%s", hex);
    signature(g, name, out);
    ct__text_bytes(out, inner.s ? inner.s : "", inner.n);
    const bool ok = !inner.failed && !out->failed;
    ct__text_free(&inner);
    return ok || ct__err_memory(err, CT_NOWHERE, "kernel", out->n);
}

// --------------------------------------------------------------------------------------- binding

static bool uses_f64(const ct_kir *k) {
    bool any = false;
    for (size_t i = 0; i < k->n; i++) any |= k->ins[i].dtype == CT_F64;
    for (size_t i = 0; i < k->nbufs; i++) any |= k->bufs[i].dtype == CT_F64;
    return any;
}

static void look(gpu *g, bool *everyone) {
    const ct_kir *k = g->r.k;
    for (size_t i = 0; i < k->n; i++) {
        const ct_kins *ins = &k->ins[i];
        everyone[i] = true;
        for (int32_t l = ins->in; l >= 0 && everyone[i]; l = k->ins[l].in)
            everyone[i] = k->ins[l].sub != CT_BIND_LANES;
        g->folds |= ins->op == CT_K_FOLD || ins->op == CT_K_ZIP ||
                    (ins->op == CT_K_REDUCE && k->ins[ins->in].sub == CT_BIND_LANES);
        g->meets |= g->sync[i];
        if (ins->lanes == CT_LANES || (ins->op == CT_K_LOOP && ins->sub == CT_BIND_LANES))
            g->width = CT_LANES;
    }
    g->meets = g->width > 1 && (g->meets || g->folds);
}

// Locals lie in shared memory as far as they fit there; the rest in global memory, 64-byte aligned.
static int64_t place_locals(gpu *g, int64_t room, int64_t *place) {
    const ct_kir *k = g->r.k;
    int64_t taken = 0;
    g->scratch = 0;
    for (size_t i = 0; i < k->nbufs; i++) {
        place[i] = -1;
        if (!(k->bufs[i].flags & CT_KIR_LOCAL)) continue;
        const int64_t size = (int64_t)ct_dtype_size(k->bufs[i].dtype);
        const int64_t bytes = (k->bufs[i].count * size + 63) / 64 * 64;
        if ((taken + bytes) * g->groups <= room) {
            taken += bytes;
        } else {
            place[i] = g->scratch;
            g->scratch += bytes;
        }
    }
    return taken * g->groups;
}

// OpenCL's threads meet by blocks, CUDA's by half warps: so a block of OpenCL is one group where a group meets. Groups
// share what locals need, as long as these fit.
static void bind(gpu *g, const ct_gpu_caps *caps, int64_t *place, ct_gpu_launch *launch) {
    const int64_t swap = g->language == CT_GPU_OPENCL && g->folds ? SWAP : 0;
    g->groups = g->language == CT_GPU_OPENCL && g->meets ? 1 : MOST_THREADS / g->width;
    while (g->groups * g->width > caps->max_threads) g->groups /= 2;
    int64_t taken = place_locals(g, caps->local_bytes - swap, place);
    for (; g->scratch && g->groups > 1; taken = place_locals(g, caps->local_bytes - swap, place))
        g->groups /= 2;
    launch->threads = g->groups * g->width;
    launch->rows = g->groups;
    launch->local_bytes = taken + swap;
    launch->scratch = g->scratch * g->groups;
}

void ct__render_gpu_prelude(const ct_gpu_caps *caps, ct_text *out) {
    if (caps->f64) ct__text_add(out, "#define F64\n");
    ct__text_add(out, ct__gpu_prelude);
}

bool ct__render_gpu(const ct_kir *k, ct_gpu_language language, const ct_gpu_caps *caps,
                    ct_text *out, char name[40], ct_gpu_launch *launch, ct_err *err) {
    if (!ct__kir_verify(k, err)) return false;
    if (k->ins[0].op == CT_K_PARAM)
        return ct__err(err, CT_E_INTERNAL, CT_NOWHERE, "kernel", "a function is not a kernel");
    if (caps->local_bytes < LEAST_LOCAL || caps->max_threads < CT_LANES)
        return ct__err(err, CT_E_DEVICE, CT_NOWHERE, "kernel",
                       "the device has %lld bytes of shared memory and %d threads a block: at "
                       "least %d and %d are needed",
                       (long long)caps->local_bytes, caps->max_threads, LEAST_LOCAL, CT_LANES);
    if (!caps->f64 && uses_f64(k))
        return ct__err(err, CT_E_DEVICE, CT_NOWHERE, "kernel",
                       "it computes in f64, which the device does not have");
    ct_arena arena = {0};
    ct_kshape *vary = ct__arena(&arena, k->n * sizeof *vary);
    ct_kshape *shape = ct__arena_zero(&arena, k->n * sizeof *shape); // a thread sees one value
    uint8_t *nested = ct__arena(&arena, k->n * 2);
    bool *flags = ct__arena(&arena, k->n * 3);
    int64_t *place = ct__arena(&arena, (k->nbufs + 1) * sizeof *place);
    bool ok = vary && shape && nested && flags && place;
    if (!ok) ct__err_memory(err, CT_NOWHERE, "kernel", k->n * sizeof *vary);
    if (ok) {
        ct__kir_shapes(k, CT_LANES, vary);
        ct__render_find_nested(k, shape, nested, nested + k->n);
        ct__render_find_indices(k, flags);
        ok = ct__render_find_sync(k, vary, flags + k->n, err);
    }
    if (ok) {
        gpu g = {.r = {.k = k, .shape = shape, .nested = nested, .index = flags, .out = out},
                 .sync = flags + k->n,
                 .everyone = flags + 2 * k->n,
                 .place = place,
                 .language = language};
        g.r.depth = 1;
        g.r.thread = true;
        g.width = 1;
        look(&g, flags + 2 * k->n);
        bind(&g, caps, place, launch);
        ok = render(&g, out, name, err);
    }
    ct__arena_free(&arena);
    return ok;
}

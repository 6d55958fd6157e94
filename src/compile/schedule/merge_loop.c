// Merges the kernels of a loop of small launches into one kernel.
//
// The kernels of the body are written into one kernel, one after the other, inside of a loop over
// iterations: a launch takes longer than the work of such a kernel. All kernels keep their bits and their
// buffers, so carried tensors are in memory as before. One core runs 1,024 iterations in each launch.
// Between launches the run can be cancelled, and an interpreted kernel can be replaced. So a plan has a
// LOOP over launches of one kernel, whose number arguments are the length and the index of the launch; so
// the kernel serves all lengths.

#include "compile/passes/env.h"
#include "compile/schedule/program.h"
#include "kinds/template.h"

enum {
    LAUNCH_ITERATIONS = 1024, // iterations of a launch
    MAX_LOOPS = 8,            // nested loops
    MAX_BUFFERS = 128,        // parameters of the kernel
    MAX_INSTRUCTIONS = 4000,  // of the kernel
};
// of an iteration: longer iterations are worth launches, which threads share
static const double MAX_NS = 10000;

typedef struct { // a part of a buffer that is a parameter of the kernel
    uint32_t buf;
    size_t offset;
    ct_dtype dtype;
    int id;
    bool write;
} param;

typedef struct { // the current iteration of a surrounding loop, from the outermost one
    ct_kval at, count;
} turn;

typedef struct {
    ct_program *p;
    ct_kir *k;
    param param[MAX_BUFFERS];
    size_t n_params;
    turn turn[MAX_LOOPS];
    uint32_t depth;
} merge_loop;

// ----------------------------------------------------------------------------------- size estimate

typedef struct { // of an iteration
    double ns, bytes, flops;
    size_t n_instructions, n_buffers;
} merge_loop_cost;

static bool merge_loop_is_static(const ct_launch *l) {
    for (uint32_t i = 0; i < l->n_numbers; i++)
        if (l->atoms[i] >= 0 || ct__marked(l->size)) return false;
    for (uint32_t i = 0; i < l->n_steps; i++)
        if (ct__marked(l->step_sizes[i])) return false;
    return l->kind != CT_LAUNCH_COPY || !ct__marked(l->size);
}

// Estimates the time of the launches from `at` to an END, each on one core. False: it is not known, or
// there is a launch that no kernel can replace.
static bool merge_loop_estimate(const ct_program *p, size_t *at, double times, int depth,
                                merge_loop_cost *w) {
    for (; *at < p->n_launches; ++*at) {
        const ct_launch *l = &p->launches[*at];
        double bytes = (double)l->bytes / 10, flops = l->flops / 20; // 10 GB/s, 20 GFLOP/s
        if (l->kind == CT_LAUNCH_END) return true;
        if (l->kind == CT_LAUNCH_NODE || !merge_loop_is_static(l)) return false;
        if (l->kind == CT_LAUNCH_KERNEL) w->n_instructions += p->kernels[l->kernel].ir->n;
        w->ns += times * (bytes > flops ? bytes : flops);
        w->bytes += times * (double)l->bytes;
        w->flops += times * l->flops;
        w->n_buffers += l->n_args;
        if (ct__launch_runs(l) || l->kind == CT_LAUNCH_BRANCH) continue;
        bool loop = l->kind == CT_LAUNCH_LOOP;
        if (loop && (l->n_args || ct__marked(l->size) || depth == MAX_LOOPS)) return false;
        ++*at;
        if (!merge_loop_estimate(p, at, times * (loop ? (double)l->count : 1), depth + loop, w))
            return false;
    }
    return true;
}

static bool merge_loop_is_small(const merge_loop_cost *w) {
    return w->ns <= MAX_NS && w->n_instructions <= MAX_INSTRUCTIONS &&
           w->n_buffers + 1 <= MAX_BUFFERS && w->n_instructions > 0;
}

// -------------------------------------------------------------------------------------- the kernel

static int merge_loop_buffer(merge_loop *m, const ct_arg *arg, ct_dtype dtype, int flags) {
    ct_kir *k = m->k;
    for (size_t i = 0; i < m->n_params; i++) {
        param *x = &m->param[i];
        if (x->buf != arg->buf || x->offset != arg->offset || x->dtype != dtype) continue;
        k->bufs[x->id].flags |= flags & (CT_KIR_READ | CT_KIR_WRITE);
        x->write |= (flags & CT_KIR_WRITE) != 0;
        return x->id;
    }
    int id = ct__kir_buffer(k, dtype, flags & (CT_KIR_READ | CT_KIR_WRITE));
    if (id >= 0)
        m->param[m->n_params++] =
            (param){arg->buf, arg->offset, dtype, id, (flags & CT_KIR_WRITE) != 0};
    return id;
}

// Returns the offset in elements of an argument in the current iteration; -1: none.
static ct_kval merge_loop_step_offset(const merge_loop *m, const ct_launch *l, uint32_t arg,
                                      ct_dtype dtype) {
    ct_kir *k = m->k;
    ct_kval offset = -1;
    for (uint32_t i = 0; i < l->n_steps; i++) {
        const ct_step *s = &l->steps[i];
        const turn *t = &m->turn[s->depth];
        if (s->arg != arg) continue;
        ct_kval at = s->reverse ? ct__kir_sub(k, ct__kir_addi(k, t->count, -1), t->at) : t->at;
        at = ct__kir_muli(k, at, s->bytes / (int64_t)ct_dtype_size(dtype));
        offset = offset < 0 ? at : ct__kir_add(k, offset, at);
    }
    return offset;
}

static void merge_loop_write_kernel(merge_loop *m, const ct_launch *l) {
    const ct_kir *from = m->p->kernels[l->kernel].ir;
    int buf[CT_KIR_MAX_BUFFERS];
    ct_kval offset[CT_KIR_MAX_BUFFERS], arg[8];
    uint32_t at = 0;
    for (size_t i = 0; i < from->nbufs; i++) {
        const ct_kbuf *b = &from->bufs[i];
        bool local = b->flags & CT_KIR_LOCAL;
        buf[i] = local ? -1 : merge_loop_buffer(m, &l->args[at], b->dtype, b->flags);
        offset[i] = local ? -1 : merge_loop_step_offset(m, l, at, b->dtype);
        at += !local;
    }
    for (uint32_t i = 0; i < l->n_numbers; i++)
        arg[i] = l->turn && i + 1 == l->n_numbers ? m->turn[l->turn - 1].at
                                                  : ct__kir_int(m->k, l->numbers[i]);
    ct__kir_inline(m->k, from, &(ct_kir_inlined){buf, offset, arg});
}

// Returns a dtype in which a copy moves bytes and changes none of them.
static ct_dtype merge_loop_copy_dtype(const merge_loop *m, const ct_launch *l) {
    for (size_t i = 0; i < m->n_params; i++) {
        ct_dtype dtype = m->param[i].dtype;
        bool same = m->param[i].buf == l->args[0].buf || m->param[i].buf == l->args[1].buf;
        if (same && ct__kir_compute_dtype(dtype) == dtype && l->bytes % ct_dtype_size(dtype) == 0)
            return dtype;
    }
    return CT_U8;
}

static void merge_loop_write_copy(merge_loop *m, const ct_launch *l) {
    ct_kir *k = m->k;
    ct_dtype dtype = merge_loop_copy_dtype(m, l);
    int from = merge_loop_buffer(m, &l->args[0], dtype, CT_KIR_READ);
    int to = merge_loop_buffer(m, &l->args[1], dtype, CT_KIR_WRITE);
    ct_kval from_offset = merge_loop_step_offset(m, l, 0, dtype),
            to_offset = merge_loop_step_offset(m, l, 1, dtype);
    int64_t n = (int64_t)(l->bytes / ct_dtype_size(dtype));
    ct_kval i = ct__kir_loop_n(k, CT_BIND_LANES, n, "copied");
    ct_kval value = ct__kir_load(k, from, from_offset < 0 ? i : ct__kir_add(k, i, from_offset));
    ct__kir_store(k, to, to_offset < 0 ? i : ct__kir_add(k, i, to_offset), value);
    ct__kir_end(k);
}

// Loads an integer that a launch reads.
static ct_kval merge_loop_load_scalar(merge_loop *m, const ct_launch *l, ct_dtype dtype) {
    int buf = merge_loop_buffer(m, &l->args[0], dtype, CT_KIR_READ);
    ct_kval at = merge_loop_step_offset(m, l, 0, dtype);
    return ct__kir_load(m->k, buf, at < 0 ? ct__kir_int(m->k, 0) : at);
}

static void merge_loop_write_list(merge_loop *m, size_t *at);

// Writes the branches one after the other, each under the condition that it is taken. An index out of range
// takes the nearest branch.
static void merge_loop_write_switch(merge_loop *m, size_t *at) {
    ct_kir *k = m->k;
    const ct_launch *l = &m->p->launches[*at];
    ct_kval index = ct__kir_cast(k, merge_loop_load_scalar(m, l, l->dtype), CT_I64);
    int64_t n = l->count, branch = 0;
    ++*at;
    for (; m->p->launches[*at].kind == CT_LAUNCH_BRANCH; branch++) {
        ct_kval number = ct__kir_int(k, branch), is_taken = ct__kir_bin(k, CT_K_EQ, index, number);
        if (branch == 0) is_taken = ct__kir_bin(k, CT_K_LE, index, number);
        if (branch == n - 1) is_taken = ct__kir_bin(k, CT_K_LE, number, index);
        if (n == 1) is_taken = ct__kir_const_int(k, CT_BOOL, 1);
        ++*at;
        ct__kir_if(k, is_taken);
        merge_loop_write_list(m, at);
        ct__kir_end(k);
    }
}

static void merge_loop_write_loop(merge_loop *m, size_t *at) {
    ct_kir *k = m->k;
    ct_kval count = ct__kir_int(k, m->p->launches[*at].count);
    ct_kval i = ct__kir_loop(k, CT_BIND_SEQ, count, "iteration");
    m->turn[m->depth++] = (turn){i, count};
    ++*at;
    merge_loop_write_list(m, at);
    m->depth--;
    ct__kir_end(k);
}

// Writes launches up to an END, or the next branch.
static void merge_loop_write_list(merge_loop *m, size_t *at) {
    for (;; ++*at) {
        const ct_launch *l = &m->p->launches[*at];
        switch (l->kind) {
        case CT_LAUNCH_KERNEL: merge_loop_write_kernel(m, l); break;
        case CT_LAUNCH_COPY: merge_loop_write_copy(m, l); break;
        case CT_LAUNCH_LOOP: merge_loop_write_loop(m, at); break;
        case CT_LAUNCH_SWITCH: merge_loop_write_switch(m, at); break;
        default: return;
        }
    }
}

// Marks parameters that are parts of one buffer as aliases where one of them is written, since they may
// overlap.
static void merge_loop_mark_aliases(merge_loop *m) {
    for (size_t i = 0; i < m->n_params; i++)
        for (size_t j = 0; j < m->n_params; j++) {
            const param *x = &m->param[i], *y = &m->param[j];
            if (i == j || x->buf != y->buf || !(x->write || y->write)) continue;
            m->k->bufs[x->id].flags |= CT_KIR_ALIAS;
            m->k->bufs[y->id].flags |= CT_KIR_ALIAS;
        }
}

static void merge_loop_write_body(merge_loop *m, size_t from) {
    ct_kir *k = m->k;
    const ct_launch *loop = &m->p->launches[from];
    ct_kval max_iterations = ct__kir_int(k, LAUNCH_ITERATIONS), length = -1, first = -1,
            n = max_iterations;
    size_t at = from + 1;
    if (!loop->n_args) {
        length = ct__kir_arg(k);
        first = ct__kir_mul(k, ct__kir_arg(k), max_iterations);
        n = ct__kir_min(k, max_iterations, ct__kir_sub(k, length, first));
    }
    ct_kval i = ct__kir_loop(k, CT_BIND_SEQ, n, "iteration");
    if (loop->n_args)
        ct__kir_break(k, ct__kir_un(k, CT_K_NOT, merge_loop_load_scalar(m, loop, CT_BOOL)));
    else
        i = ct__kir_add(k, first, i);
    m->turn[m->depth++] = (turn){i, length};
    merge_loop_write_list(m, &at);
    ct__kir_end(k);
    merge_loop_mark_aliases(m);
}

// ------------------------------------------------------------------------------------ its launches

static bool merge_loop_add_launches(const merge_loop *m, const ct_launch *loop,
                                    const merge_loop_cost *w, ct_kir **ir) {
    ct_program *p = m->p;
    const ct_launch end = {.kind = CT_LAUNCH_END, .node = loop->node};
    ct_launch outer = *loop,
              launch = {
                  .kind = CT_LAUNCH_KERNEL, .node = loop->node, .grid = 1, .size = loop->size};
    double times = LAUNCH_ITERATIONS; // iterations of a launch
    bool counted = !loop->n_args;
    if (counted) {
        outer.size = ct__size_div_up(loop->size, LAUNCH_ITERATIONS);
        outer.count = ct__unmarked(outer.size);
        launch.turn = 1;
        if (outer.count) times = (double)loop->count / (double)outer.count;
    }
    launch.flops = w->flops * times;
    launch.bytes = (size_t)(w->bytes * times);
    if (!ct__program_kernel(p, ir, &launch.kernel) || !ct__program_append(p, outer)) return false;
    ct_launch *l = ct__program_launch(p, launch, (uint32_t)m->n_params, counted ? 2 : 0);
    if (!l) return false;
    for (size_t i = 0; i < m->n_params; i++) {
        const param *x = &m->param[i];
        l->args[i] = (ct_arg){.buf = x->buf, .offset = x->offset, .write = x->write};
    }
    if (counted) {
        l->numbers[0] = loop->count;
        l->atoms[0] = l->atoms[1] = -1;
    }
    return ct__program_append(p, end);
}

static void merge_loop_drop_kernels(ct_program *p, size_t n) {
    for (size_t i = n; i < p->n_kernels; i++) {
        ct__kir_free(p->kernels[i].ir);
        ct__free(p->kernels[i].ir);
    }
    p->n_kernels = n;
}

bool ct__merge_loop(ct_program *p, size_t from, size_t n_kernels, ct_err *err) {
    merge_loop_cost w = {0};
    size_t at = from + 1;
    if (!ct__env_fuses() || !merge_loop_estimate(p, &at, 1, 1, &w) || !merge_loop_is_small(&w))
        return true;
    const ct_launch loop = p->launches[from];
    merge_loop *m = ct__calloc(1, sizeof *m);
    ct_kir *k = ct__malloc(sizeof *k);
    bool ok = m && k;
    if (k) ct__kir_init(k);
    if (ok) {
        m->p = p;
        m->k = k;
        merge_loop_write_body(m, from);
        ok = ct__kir_verify(k, err);
    }
    if (ok) {
        merge_loop_drop_kernels(p, n_kernels);
        p->n_launches = from;
        ok = merge_loop_add_launches(m, &loop, &w, &k);
    }
    if (!ok) ct__err_memory(err, loop.node->here, loop.node->op->name, sizeof *m);
    if (k) ct__kir_free(k);
    ct__free(k);
    ct__free(m);
    return ok;
}

#include "support/graph_gen.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/graph_build.h"

enum { GEN_LEAST_FREE = 56 }; // steps: an op may bring some more

uint64_t gen_bits(uint64_t *state) { // SplitMix64
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}
uint64_t gen_worth(uint64_t random, const char *name) {
    for (; *name; name++) random = gen_bits(&random) ^ (unsigned char)*name;
    return gen_bits(&random);
}
int gen_below(gen_graph *g, int64_t n) {
    return (int)(gen_bits(&g->random) % (uint64_t)(n < 1 ? 1 : n));
}
bool gen_chance(gen_graph *g, int percent) { return gen_below(g, 100) < percent; }
double gen_uniform(gen_graph *g, double lo, double hi) {
    return lo + (hi - lo) * ((double)(gen_bits(&g->random) >> 11) * 0x1p-53);
}

// ------------------------------------------------------------------------------------------------
// leaves

static double draw_float(gen_graph *g, int style, double lo, double hi) {
    static const double special[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 0.0, -0.0};
    if (style >= 96 && gen_chance(g, 10)) return special[gen_below(g, 5)];
    double v = gen_uniform(g, lo, hi);
    if (style >= 40) return v;
    v = nearbyint(v * 8) / 8; // with ties
    return v < lo ? lo : v > hi ? hi : v;
}

static void fill(gen_graph *g, gen_step *s, int64_t n, double lo, double hi) {
    int style = gen_below(g, 100);
    if (g->gradients && style >= 96) style = 50;
    for (int64_t i = 0; i < n; i++) {
        if (s->dtype == CT_BOOL)
            ct__store_i64(s->dtype, s->data, i, gen_below(g, 2));
        else if (ct__is_float(s->dtype))
            ct__store_f64(s->dtype, s->data, i, draw_float(g, style, lo, hi));
        else if (style < 85)
            ct__store_i64(s->dtype, s->data, i,
                          gen_below(g, 10) *
                              (CT_UNSIGNED & CT_MASK(s->dtype) || gen_chance(g, 50) ? 1 : -1));
        else
            ct__store_i64(s->dtype, s->data, i, (int64_t)gen_bits(&g->random));
    }
}

int64_t gen_count(ct_ints dims) {
    int64_t n = 1;
    for (int64_t i = 0; i < dims.n; i++) n *= ct__unmarked(dims.v[i]);
    return n;
}

ct_ints gen_dims(gen_graph *g, int64_t n, const int64_t *v) {
    int64_t *own = ct__arena(&g->arena, (size_t)(n + 1) * sizeof *own);
    if (n) memcpy(own, v, (size_t)n * sizeof *own);
    return (ct_ints){n, own};
}

static gen_step *open_step(gen_graph *g, gen_kind kind) {
    if (g->n_steps == GEN_STEPS) abort();
    gen_step *s = &g->step[g->n_steps];
    *s = (gen_step){.kind = kind};
    return s;
}

int gen_leaf(gen_graph *g, ct_dtype dtype, ct_ints dims, double lo, double hi) {
    int64_t n = gen_count(dims);
    gen_step *s =
        open_step(g, n <= 64 && !ct__is_float(dtype) && gen_chance(g, 20) ? GEN_CONST : GEN_DATA);
    s->dtype = dtype;
    s->dims = dims;
    s->data = ct__arena_zero(&g->arena, (size_t)n * ct_dtype_size(dtype) + 1);
    for (int64_t i = 0; s->kind == GEN_CONST && i < dims.n; i++)
        if (ct__marked(dims.v[i])) s->kind = GEN_DATA;
    fill(g, s, n, lo, hi);
    return gen_commit(g, s);
}

int gen_numbers(gen_graph *g, ct_dtype dtype, ct_ints dims, const int64_t *v) {
    gen_step *s = open_step(g, GEN_DATA);
    int64_t n = gen_count(dims);
    s->dtype = dtype;
    s->dims = dims;
    s->data = ct__arena_zero(&g->arena, (size_t)n * ct_dtype_size(dtype) + 1);
    for (int64_t i = 0; i < n; i++) ct__store_i64(dtype, s->data, i, v[i]);
    return gen_commit(g, s);
}

int gen_number(gen_graph *g, double value, bool is_int) {
    gen_step *s = open_step(g, GEN_WEAK);
    s->dtype = is_int ? CT_I32 : CT_F32;
    s->number = value;
    return gen_commit(g, s);
}

// ------------------------------------------------------------------------------------------------
// steps

// The body of a loop: two of a few functions; the carried tensor stays in range.
static void loop_body(const ct_tensor *in, ct_tensor *out, void *user) {
    const gen_step *s = user;
    int first = s->attrs[0], second = s->attrs[1];
    ct_tensor h = first == 0   ? ct_add(in[0], in[1])
                  : first == 1 ? ct_mul(in[0], in[1])
                               : ct_sub(in[1], in[0]);
    out[0] = second == 0 ? ct_tanh(h) : second == 1 ? ct_sin(h) : ct_div(h, ct_f(2));
    out[1] = ct_mul(out[0], h);
}

// Records a step over operands; returns output 0.
static ct_tensor record_step(const gen_step *s, const ct_tensor *in) {
    const ct_loc here = {"graph", 1};
    switch (s->kind) {
    case GEN_DATA: return ct_from_at(s->data, s->dtype, s->dims, here);
    case GEN_CONST: return ct_const_at(s->data, s->dtype, s->dims, here);
    case GEN_WEAK: return s->dtype == CT_I32 ? ct_i((int64_t)s->number) : ct_f(s->number);
    case GEN_OP: return ct__record(s->op, s->op->n_fields ? s->attrs : NULL, in, s->n_in, here);
    case GEN_LOOP: break;
    }
    ct_tensor carry, ys;
    ct_scan_with((ct_scan_args){.body = loop_body,
                                .user = (void *)(uintptr_t)s,
                                .carry = in,
                                .n_carry = 1,
                                .xs = in + 1,
                                .n_xs = 1,
                                .n_ys = 1,
                                .reverse = s->attrs[2],
                                .here = here},
                 &carry, &ys);
    return carry;
}

// Does its result jump where an operand moves a little?
bool gen_jumps(const gen_graph *g, const gen_step *s) {
    const ct_opdef *op = s->op;
    if (s->kind != GEN_OP || op->kind == &ct__kind_source) return false;
    if (op == &ct__op_cast) {
        const ct_dtype to = *(const ct_dtype *)(const void *)(s->attrs + op->fields[0].offset);
        return !(CT_FLOATS & CT_MASK(to));
    }
    if (g->gradients && op->samples.kinks) return true;
    return (op->jvp == CT_NO_GRAD && op != &ct__op_stop_gradient) || op->samples.jumps ||
           op->kind == &ct__kind_sort;
}

// Is the result the same number wherever it is computed, given the same operands?
static bool determined(const gen_step *s) {
    const ct_opdef *op = s->op;
    if (s->kind == GEN_LOOP) return false;
    if (s->kind != GEN_OP) return true;
    if (op->samples.ulp != 0) return false;
    if (op->kind == &ct__kind_composition) return op->infer == ct__infer_elementwise;
    bool ordered = !op->reduction || op->reduction == CT_RED_ADD || op->reduction == CT_RED_MUL;
    return !op->kind->roundings || !ordered;
}

static bool look(gen_value *v, ct_tensor t) {
    const void *data = ct_data(t);
    int64_t n = ct_size(t);
    if (!data && n) return false;
    v->lo = v->least = (double)INFINITY, v->hi = -(double)INFINITY;
    for (int64_t i = 0; i < n; i++) {
        double x = ct__load_f64((ct_dtype)v->type.dtype, data, i);
        if (!isfinite(x)) continue;
        v->lo = fmin(v->lo, x), v->hi = fmax(v->hi, x);
        if (x != 0) v->least = fmin(v->least, fabs(x));
    }
    return true;
}

static void note(gen_graph *g, gen_step *s, int out, ct_tensor t) {
    gen_value *v = &g->value[g->n_values];
    const ct_type *type = ct__type_of(t);
    *v = (gen_value){.step = g->n_steps, .out = out, .type = *type, .exact = true};
    ct_dims_buffer dims;
    v->dims = gen_dims(g, type->rank, ct__dims_of(t, &dims).v);
    int64_t *plain = ct__arena(&g->arena, (size_t)(type->rank + 1) * sizeof *plain);
    for (int a = 0; a < type->rank; a++) plain[a] = type->dim[a];
    v->type.dim = plain;
    bool is_float = ct__is_float((ct_dtype)type->dtype);
    for (int i = 0; i < s->n_in && is_float; i++) {
        const gen_value *in = &g->value[s->in[i]];
        v->exact = v->exact && in->exact;
        if (s->kind == GEN_LOOP || s->op->jvp != CT_NO_GRAD) v->behind |= in->behind;
    }
    if (is_float && s->kind != GEN_WEAK) v->exact = v->exact && determined(s);
    bool leaf = s->kind == GEN_DATA && (CT_FLOATS & CT_MASK(type->dtype));
    if (leaf && g->n_leaves < 64) {
        v->behind = 1ull << g->n_leaves;
        g->leaf[g->n_leaves++] = g->n_values;
    }
    g->live[g->n_values++] = t;
}

// True if a product over axes may leave the range of its dtype on the way in one order of the elements and not in
// another: infinity times 0 is NaN.
static bool may_overflow(const gen_graph *g, const gen_step *s, ct_tensor out) {
    if (s->kind != GEN_OP || s->op->reduction != CT_RED_MUL || !ct_size(out)) return false;
    const gen_value *in = &g->value[s->in[0]];
    if (!ct__is_float((ct_dtype)in->type.dtype) || isinf(in->least)) return false;
    double most = fmax(fabs(in->lo), fabs(in->hi)),
           n = (double)gen_count(in->dims) / (double)ct_size(out);
    double bits = in->type.dtype == CT_F64 ? 1000 : 120;
    return n * (fmax(log2(most), 0) + fmax(-log2(in->least), 0)) > bits;
}

int gen_commit(gen_graph *g, gen_step *step) {
    ct_tensor in[GEN_IN], out[2];
    gen_step *s = &g->step[g->n_steps];
    if (s != step) *s = *step;
    for (int i = 0; i < s->n_in; i++)
        if (s->in[i] < 0) return -1; // no value fits this operand
    for (int i = 0; i < s->n_in; i++) in[i] = g->live[s->in[i]];
    bool sorts =
        s->kind == GEN_OP && (s->op->kind == &ct__kind_sort || s->op == &ct__op_sort_pairs);
    s->n_out = sorts ? s->op->n_out : 1;
    if (s->kind == GEN_LOOP) s->n_out = 2;
    out[0] = record_step(s, in);
    if (s->n_out == 2) out[1] = ct__output(out[0], 1);
    bool ok = !ct_failed();
    for (int i = 0; i < s->n_out && ok; i++) ok = ct_size(out[i]) <= GEN_MOST * 2;
    ok = ok && !may_overflow(g, s, out[0]) && ct_eval(out, (size_t)s->n_out);
    if (!ok) {
        ct_error_clear();
        return -1;
    }
    s->first = g->n_values;
    for (int i = 0; i < s->n_out; i++) {
        note(g, s, i, out[i]);
        if (!look(&g->value[s->first + i], out[i])) abort();
    }
    for (int i = 0; i < s->n_in; i++) g->value[s->in[i]].uses++;
    if (s->kind == GEN_OP || s->kind == GEN_LOOP) g->n_ops++;
    g->n_steps++;
    return s->first;
}

// ------------------------------------------------------------------------------------------------
// graphs

static void choose_roots(gen_graph *g) {
    for (int i = g->n_values - 1; i >= 0 && g->n_roots < GEN_ROOTS - 2; i--) {
        bool op = g->step[g->value[i].step].kind >= GEN_OP;
        if (op && g->value[i].uses == 0) g->root[g->n_roots++] = i;
    }
    for (int k = 0; k < 2; k++) { // values in the middle of things
        int i = gen_below(g, g->n_values);
        if (g->step[g->value[i].step].kind >= GEN_OP && g->value[i].uses) g->root[g->n_roots++] = i;
    }
}

static void choose_loss(gen_graph *g) {
    g->loss = -1;
    if (!g->gradients) return;
    int most = 0;
    for (int i = 0; i < g->n_values; i++) {
        const gen_value *v = &g->value[i];
        int leaves = __builtin_popcountll(v->behind);
        if (!(CT_FLOATS & CT_MASK(v->type.dtype)) || v->type.weak) continue;
        if (g->step[v->step].kind < GEN_OP || leaves < most) continue;
        most = leaves;
        g->loss = i;
    }
    if (most == 0) g->loss = -1;
    for (int k = 0; g->loss >= 0 && k < g->n_leaves && g->n_wrt < GEN_WRT; k++)
        if (g->value[g->loss].behind >> k & 1) g->wrt[g->n_wrt++] = g->leaf[k];
}

void gen_begin(gen_graph *g, uint64_t random) {
    memset(g, 0, sizeof *g);
    g->random = random;
    g->live = malloc(GEN_VALUES * sizeof *g->live);
    if (!g->live) abort();
}

void gen_end(gen_graph *g) {
    choose_roots(g);
    choose_loss(g);
    free(g->live);
    g->live = NULL;
}

// Three of four are small, where there is most to see for the time; the others have up to 60 nodes.
void gen_make_without(gen_graph *g, uint64_t seed, uint64_t number, const ct_opdef *op) {
    CT_SCOPE;
    gen_begin(g, seed ^ number * 0xd1342543de82ef95u);
    g->without = op;
    g->empty = number >= GEN_EMPTY;
    g->gradients = number % 3 == 2;
    g->second = number % 12 == 2;
    bool large = gen_chance(g, 25);
    int wanted = 3 + gen_below(g, large ? 40 : 9), most = large ? GEN_LEAST_FREE : 30, tries = 0;
    while (g->n_ops < wanted && g->n_steps < most && tries++ < 300) gen_op(g);
    gen_end(g);
}

void gen_make(gen_graph *g, uint64_t seed, uint64_t number) {
    gen_make_without(g, seed, number, NULL);
}

// A composition of a user's function: it is what the function is.
static bool is_function(const ct_opdef *op) {
    bool body = false;
    for (size_t i = 0; i < op->n_fields; i++) body |= op->fields[i].kind == CT_FIELD_body;
    return body && op->kind == &ct__kind_composition;
}

// Does an op take or make dtypes of parts alone, of which no value is drawn?
static bool of_parts(const ct_opdef *op) {
    bool joins = false; // parts to a value
    for (size_t i = 0; i < ct__n_ops; i++) joins |= ct__ops[i]->undoes == op;
    return joins || !(op->accepts & (CT_NUMBERS | CT_MASK(CT_BOOL)));
}

bool gen_wants(const ct_opdef *op) {
    // Of the loops only scans have a builder; tests/unit/test_loops.c has the others.
    const bool apart = op == &ct__op_quantise || op == &ct__op_dequantise ||
                       op == &ct__op_quantised_matmul || op == &ct__op_quantised_product ||
                       op == &ct__op_chosen_product || op == &ct__op_dequantise_offset ||
                       op == &ct__op_offset_product ||
                       op == &ct__op_dequantised_product; // tests/ops/test_quantise.py
    // That have an inverse, or fit each other: tests/ops/test_linalg.py.
    const bool matrices = op->accepts == CT_LINALG || op->core[0] || op == &ct__op_multi_dot;
    const bool built = !apart && !matrices && (op->kind != &ct__kind_loop || op == &ct__op_scan);
    return built && op->kind != &ct__kind_leaf && op->kind != &ct__kind_transform &&
           !is_function(op) && !of_parts(op) && op != &ct__op_same && op != &ct__op_copy &&
           op != &ct__op_stored && op != &ct__op_control_dependency && op != &ct__op_record_hook &&
           op != &ct__op_surrogate_loss && !op->moves;
}

bool gen_make_op(gen_graph *g, uint64_t seed, const ct_opdef *op) {
    CT_SCOPE;
    for (uint64_t number = 0; number < 100; number++) {
        gen_begin(g, gen_worth(seed ^ number * 0xd1342543de82ef95u, op->name));
        g->gradients = true;
        if (op == &ct__op_scan) gen_leaf(g, CT_F32, gen_dims(g, 2, (int64_t[]){3, 4}), -1, 1);
        bool made = gen_this(g, op);
        gen_end(g);
        if (made && g->n_roots) return true;
        gen_free(g);
    }
    return false;
}

void gen_free(gen_graph *g) { ct__arena_free(&g->arena); }

// ------------------------------------------------------------------------------------------------
// recording

typedef struct {
    const gen_graph *g;
    uint64_t noise;
    ct_tensor clean[GEN_VALUES], noisy[GEN_VALUES];
} replay;

double gen_unit(ct_dtype d) {
    return d == CT_F64 ? 0x1p-53 : d == CT_F32 ? 0x1p-24 : d == CT_F16 ? 0x1p-11 : 0x1p-8;
}

double gen_tiny(ct_dtype d) { return d == CT_F64 ? 0x1p-1022 : d == CT_F16 ? 0x1p-14 : 0x1p-126; }

// A 16-bit float is rarely off by more than its last place: what it is computed from is rounded
// once.
double gen_noise(ct_dtype d) { return (ct_dtype_size(d) == 2 ? 4 : 64) * gen_unit(d); }

// A quarter of what a chain of rounded additions may be off by, as a part of what the sum has
// reached: results are compared with four times what the noise moves.
static double chain_noise(ct_tensor t) {
    uint32_t out;
    const ct_node *node = ct__peek(t, &out);
    if (!node->op->kind->roundings) return 0;
    ct_dtype d = (ct_dtype)node->out[out].dtype;
    bool once = ct_dtype_size(d) == 2 && !node->op->kind->rounds_each; // of a sum in f32
    double chain = node->op->kind->roundings(node, false);
    if (d == CT_F64) chain += node->op->kind->roundings(node, true); // the reference rounds as well
    return chain / 4 * gen_unit(once ? CT_F32 : d);
}

// t times numbers that differ from 1 in the last few bits.
static ct_tensor disturbed(replay *r, ct_tensor t, const gen_value *v) {
    if (!(CT_FLOATS & CT_MASK(v->type.dtype)) || v->type.weak) return t;
    int64_t n = gen_count(v->dims);
    double unit = fmax(gen_noise((ct_dtype)v->type.dtype), chain_noise(t));
    void *data = malloc((size_t)n * 8 + 1);
    if (!data) abort();
    for (int64_t i = 0; i < n; i++) {
        double by = ((double)(gen_bits(&r->noise) >> 11) * 0x1p-53 * 2 - 1) * unit;
        ct__store_f64((ct_dtype)v->type.dtype, data, i, 1 + by);
    }
    ct_tensor noise = ct_from(data, (ct_dtype)v->type.dtype, v->dims);
    free(data);
    return ct_mul(t, noise);
}

// An operand where the step is computed. Numbers go anywhere.
static ct_tensor sent(const replay *r, const gen_step *s, ct_tensor t) {
    const gen_graph *g = r->g;
    if (!g->n_devices || s->kind == GEN_WEAK || ct__type_of(t)->weak) return t;
    uint64_t state = g->placed + (uint64_t)(s - g->step);
    return ct_to(t, g->devices[gen_bits(&state) % (uint64_t)g->n_devices]);
}

static void replay_step(replay *r, const gen_step *s) {
    ct_tensor clean[GEN_IN], noisy[GEN_IN];
    const gen_value *value = r->g->value;
    bool exact = true, jumps = gen_jumps(r->g, s);
    for (int i = 0; i < s->n_in; i++) {
        // One that stands twice is sent once: what comes back of it is added up in the step's order.
        int before = 0;
        while (s->in[before] != s->in[i]) before++;
        clean[i] = before < i ? clean[before] : sent(r, s, r->clean[s->in[i]]);
        noisy[i] = r->noise ? r->noisy[s->in[i]] : clean[i];
        exact = exact && value[s->in[i]].exact;
    }
    bool same = !r->noise || jumps; // else a second, disturbed, copy
    ct_tensor plain = CT_NONE, moved = CT_NONE;
    if (exact || same) plain = record_step(s, clean);
    if (!same && s->n_in) moved = record_step(s, noisy);
    for (int i = 0; i < s->n_out; i++) {
        int v = s->first + i;
        ct_tensor other = same || !s->n_in ? plain : moved;
        ct_tensor out = i && other.bits ? ct__output(other, (uint32_t)i) : other;
        r->noisy[v] = r->noise ? disturbed(r, out, &value[v]) : out;
        r->clean[v] = plain.bits && i ? ct__output(plain, (uint32_t)i) : plain;
        if (!plain.bits) r->clean[v] = r->noisy[v];
    }
}

// A tensor like value v, of random numbers.
static ct_tensor weights_of(replay *r, const gen_value *v) {
    gen_graph weights = {.random = 1};
    int64_t count = gen_count(v->dims);
    double *w = malloc((size_t)count * sizeof *w + 1);
    if (!w) abort();
    for (int64_t i = 0; i < count; i++) w[i] = gen_uniform(&weights, -1, 1);
    ct_tensor weight = ct_cast(ct_from(w, CT_F64, v->dims), (ct_dtype)v->type.dtype);
    free(w);
    return r->noise ? disturbed(r, weight, v) : weight;
}

// Of the sum of all gradients times weights and the leaves themselves, on all of which it depends.
static void record_second(replay *r, const ct_tensor *wrt, const ct_tensor *slopes,
                          ct_tensor *results) {
    const gen_graph *g = r->g;
    ct_tensor all = CT_NONE;
    for (int i = 0; i < g->n_wrt; i++) {
        const gen_value *v = &g->value[g->wrt[i]];
        ct_tensor weight = ct_mul(weights_of(r, v), r->noisy[g->wrt[i]]);
        ct_tensor part = ct_sum(ct_mul(slopes[i], weight));
        if (CT_F8S & CT_MASK(v->type.dtype)) part = ct_cast(part, CT_F32); // they meet no other
        all = i ? ct_add(all, part) : part;
    }
    ct_grad(all, wrt, (size_t)g->n_wrt, results);
}

int gen_record(const gen_graph *g, uint64_t noise, ct_tensor *results) {
    static _Thread_local replay r;
    int n = 0;
    r.g = g;
    r.noise = noise;
    for (int i = 0; i < g->n_steps; i++) replay_step(&r, &g->step[i]);
    for (int i = 0; i < g->n_roots; i++) results[n++] = r.noisy[g->root[i]];
    if (g->loss < 0) return n;
    ct_tensor weight = weights_of(&r, &g->value[g->loss]);
    ct_tensor last = r.noisy[g->loss], wrt[GEN_WRT];
    if (g->n_devices) last = ct_to(last, g->devices[0]);
    ct_tensor loss = ct_sum(ct_mul(last, weight));
    results[n++] = loss;
    for (int i = 0; i < g->n_wrt; i++) wrt[i] = r.clean[g->wrt[i]];
    ct_grad(loss, wrt, (size_t)g->n_wrt, results + n);
    n += g->n_wrt;
    if (!g->second) return n;
    record_second(&r, wrt, results + n - g->n_wrt, results + n);
    return n + g->n_wrt;
}

bool gen_exact(const gen_graph *g, int result) {
    return result < g->n_roots && g->value[g->root[result]].exact;
}

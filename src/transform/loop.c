// What loops and branches share: their operands, and their reference evaluation.
#include "transform/loop.h"

#include <string.h>

#include "backend/backend.h"
#include "graph/symbols.h"
#include "ops/rules.h"

static size_t loop_captured_count(const ct_loop *loop, size_t body) { // that it captured
    const ct_body *b = loop->bodies.v[body];
    return b->n_params + b->n_captured - loop->n_shared;
}

size_t ct__loop_operand(const ct_loop *loop, size_t body, size_t param) {
    size_t at = loop->first + param;
    for (size_t i = 0; param >= loop->n_shared && i < body; i++) at += loop_captured_count(loop, i);
    return at;
}

void ct__loop_sizes(const ct_call *call) {
    const ct_node node = {.op = call->op, .attrs = call->attrs};
    const ct_loop l = ct__loop_of(&node);
    const bool carries = l.form != CT_LOOP_SWITCH;
    for (size_t i = 0; i < l.bodies.n && call->marks; i++) {
        const ct_body *b = l.bodies.v[i];
        const ct_type *const *in = call->in;
        for (size_t p = 0; p < b->n_params + b->n_captured; p++) {
            const ct_node *param = p < b->n_params ? b->params[p] : b->captured[p - b->n_params];
            const bool element = p >= l.n_carry && p < l.n_carry + l.n_xs;
            ct__sizes_equal(in[ct__loop_operand(&l, i, p)], element, param->out);
        }
        for (size_t k = 0; k < l.n_carry && carries && i + 1 == l.bodies.n; k++)
            ct__sizes_equal(in[k], 0, ct__type(b->outs[k]));
    }
}

// ---------------------------------------------------------------------------- reference evaluation

typedef struct { // a body that is being evaluated
    const ct_body *body;
    void ***slot; // (n_nodes) for each node, pointers to its outputs
    void **args;  // operands and outputs of one node
} frame;

static bool loop_make_frame(const ct_body *body, ct_arena *arena, frame *f) {
    size_t capacity = 0;
    f->body = body;
    f->slot = ct__arena(arena, (body->n_nodes + 1) * sizeof *f->slot);
    for (size_t i = 0; i < body->n_nodes && f->slot; i++) {
        ct_node *node = body->nodes[i];
        node->index = (uint32_t)i;
        if (node->n_in + node->n_out > capacity) capacity = node->n_in + node->n_out;
        if (!(f->slot[i] = ct__arena(arena, node->n_out * sizeof **f->slot))) return false;
        for (int k = 0; k < node->n_out; k++)
            if (!(f->slot[i][k] = ct__arena(arena, ct__type_bytes(&node->out[k]) + 8)))
                return false;
        if (node->op == &ct__op_const) {
            const ct_data_bytes *data = node->attrs;
            memcpy(f->slot[i][0], data->bytes, data->n);
        }
    }
    f->args = ct__arena(arena, (capacity + 1) * sizeof *f->args);
    return f->slot && f->args;
}

// memcpy that allows NULL, since values without elements may have no memory.
static void loop_copy(void *to, const void *from, size_t bytes) {
    if (bytes) memcpy(to, from, bytes);
}

// Evaluates a body. param: (n_params) pointers to the parameters. All of them are copied before a result is
// written, since a result may overwrite one.
static bool loop_run_body(const ct_ref *ref, frame *f, const void *const *param) {
    for (size_t i = 0; i < f->body->n_nodes; i++) {
        const ct_node *node = f->body->nodes[i];
        if (node->op == &ct__op_param)
            loop_copy(f->slot[i][0], param[node->number], ct__type_bytes(node->out));
        if (node->op->kind == &ct__kind_leaf) continue;
        for (int k = 0; k < node->n_in; k++)
            f->args[k] = f->slot[node->in[k].node->index][node->in[k].out];
        for (int k = 0; k < node->n_out; k++) f->args[node->n_in + k] = f->slot[i][k];
        if (!ct__ref_node(node, f->args, ref->stop, ref->err)) return false;
    }
    return true;
}
static const void *loop_result(const frame *f, size_t i) {
    ct_val v = f->body->outs[i];
    return f->slot[v.node->index][v.out];
}
static size_t loop_result_bytes(const frame *f, size_t i) {
    return ct__type_bytes(ct__type(f->body->outs[i]));
}

typedef struct {
    const ct_ref *ref;
    ct_loop loop;
    frame *frames;      // (bodies.n)
    const void **param; // space for the parameters of any body
    ct_arena arena;
} evaluation;

// Binds the parameters of a body: carried tensors from the results, element `at` of each x, the others whole.
static void loop_bind_params(evaluation *e, size_t body, int64_t at) {
    const ct_loop *l = &e->loop;
    const ct_body *b = l->bodies.v[body];
    bool carries = l->form != CT_LOOP_SWITCH;
    for (size_t p = 0; p < b->n_params; p++) {
        e->param[p] =
            carries && p < l->n_carry ? e->ref->out[p] : e->ref->in[ct__loop_operand(l, body, p)];
        if (p >= l->n_carry && p < l->n_carry + l->n_xs)
            e->param[p] =
                (const char *)e->param[p] + (size_t)at * ct__type_bytes(b->params[p]->out);
    }
}

static bool loop_eval_scan(evaluation *e) {
    const ct_loop *l = &e->loop;
    frame *f = &e->frames[0];
    int64_t length = ct__unmarked(l->length);
    for (int64_t step = 0; step < length; step++) {
        int64_t at = l->reverse ? length - 1 - step : step;
        loop_bind_params(e, 0, at);
        if (ct__stop_requested(e->ref->stop, e->ref->err) || !loop_run_body(e->ref, f, e->param))
            return false;
        for (size_t i = 0; i < f->body->n_outs; i++) {
            size_t bytes = loop_result_bytes(f, i);
            loop_copy((char *)e->ref->out[i] + (i < l->n_carry ? 0 : (size_t)at * bytes),
                      loop_result(f, i), bytes);
        }
    }
    return true;
}

static bool loop_eval_while(evaluation *e) {
    const ct_loop *l = &e->loop;
    frame *f = &e->frames[0];
    loop_bind_params(e, 0, 0);
    if (!loop_run_body(e->ref, f, e->param)) return false;
    bool holds = *(const bool *)loop_result(f, 0);
    for (f = &e->frames[1]; holds; holds = *(const bool *)loop_result(f, l->n_carry)) {
        loop_bind_params(e, 1, 0);
        if (ct__stop_requested(e->ref->stop, e->ref->err) || !loop_run_body(e->ref, f, e->param))
            return false;
        for (size_t i = 0; i < l->n_carry; i++)
            loop_copy(e->ref->out[i], loop_result(f, i), loop_result_bytes(f, i));
    }
    return true;
}

static bool loop_eval_switch(evaluation *e) {
    int64_t n = (int64_t)e->loop.bodies.n,
            branch = ct__load_i64(e->ref->in_type[0].dtype, e->ref->in[0], 0);
    size_t at = (size_t)(branch < 0 ? 0 : branch < n ? branch : n - 1);
    frame *f = &e->frames[at];
    loop_bind_params(e, at, 0);
    if (!loop_run_body(e->ref, f, e->param)) return false;
    for (size_t i = 0; i < f->body->n_outs; i++)
        loop_copy(e->ref->out[i], loop_result(f, i), loop_result_bytes(f, i));
    return true;
}

bool ct__loop_eval(const ct_ref *ref) {
    static bool (*const forms[])(evaluation *) = {loop_eval_scan, loop_eval_while,
                                                  loop_eval_switch};
    evaluation e = {.ref = ref, .loop = ct__loop_of(ref->node)};
    size_t n = e.loop.bodies.n, capacity = 0;
    e.frames = ct__arena_zero(&e.arena, n * sizeof *e.frames);
    bool ok = e.frames != NULL;
    for (size_t i = 0; i < n && ok; i++) {
        ok = loop_make_frame(e.loop.bodies.v[i], &e.arena, &e.frames[i]);
        if (e.loop.bodies.v[i]->n_params > capacity) capacity = e.loop.bodies.v[i]->n_params;
    }
    e.param = ct__arena(&e.arena, (capacity + 1) * sizeof *e.param);
    ok = ok && e.param;
    if (!ok)
        ct__err_memory(ref->err, ref->node->here, ref->node->op->name, capacity * sizeof *e.param);
    for (size_t i = 0; i < e.loop.n_carry && ok && e.loop.form != CT_LOOP_SWITCH; i++)
        loop_copy(ref->out[i], ref->in[i], ct__type_bytes(&ref->out_type[i]));
    ok = ok && forms[e.loop.form](&e);
    ct__arena_free(&e.arena);
    return ok;
}

// --------------------------------------------------------------------------------------- recording

bool ct__operands(ct_ctx *ctx, ct_operands *o, const char *op, const ct_tensor *carry,
                  size_t n_carry, const ct_tensor *more, size_t n_more, ct_loc here) {
    ct_arena *arena = ct__top(ctx)->arena;
    size_t n = n_carry + n_more;
    *o = (ct_operands){.n = n};
    o->t = ct__arena(arena, (n + 1) * sizeof *o->t);
    o->type = ct__arena(arena, (n + 1) * sizeof *o->type);
    o->types = ct__arena(arena, (n + 1) * sizeof *o->types);
    if (!o->t || !o->type || !o->types)
        return ct__err_memory(&ctx->err, here, op, n * sizeof *o->type);
    if (n_carry) memcpy(o->t, carry, n_carry * sizeof *o->t);
    if (n_more) memcpy(o->t + n_carry, more, n_more * sizeof *o->t);
    for (size_t i = 0; i < n; i++) {
        ct_val v;
        if (!ct__resolve(ctx, o->t[i], &v, op, (int)i, here)) return false;
        o->type[i] = *ct__type(v);
        if (i < n_carry) o->type[i].weak = false;
        o->types[i] = &o->type[i];
    }
    return true;
}

// Hints how a carried tensor keeps its type.
static void loop_hint_carried(ct_ctx *ctx, const char *op, const ct_type *is, const ct_type *was) {
    const bool is_int = CT_INTEGERS & CT_MASK(is->dtype);
    const bool is_index = strcmp(op, "fori") == 0 && is->rank == 0; // possibly the loop index
    if (is_index && (was->rank > 0 || (is_int && !(CT_INTEGERS & CT_MASK(was->dtype)))))
        ct__err_hint(
            &ctx->err,
            "in[0] of the body is the number of the iteration, in[1] the first carried tensor");
    else if (ct__same_shape(is, was))
        ct__err_hint(&ctx->err, "ct_cast it in the body, or before the loop");
    else if (ct__same_sizes(is, was))
        ct__err_hint(&ctx->err, CT_HINT_DYNAMIC);
    else
        ct__err_hint(&ctx->err,
                     strcmp(op, "scan") == 0
                         ? "it keeps its shape; what each iteration adds is returned as ys"
                         : "it keeps its shape; give it the size of all iterations, and "
                           "write one with ct_dynamic_update");
}

bool ct__carries_on(ct_ctx *ctx, const char *op, const ct_type *const *carry, size_t n_carry,
                    const ct_tensor *out, size_t n_out, ct_loc here) {
    for (size_t i = 0; i < n_out && !ctx->err.code; i++) {
        ct_val v;
        if (!out[i].bits)
            ct__fail(ctx, CT_E_ARGUMENT, here, op, "the body did not set output %zu", i + 1);
        if (i >= n_carry || !ct__resolve(ctx, out[i], &v, op, CT_OUTPUT((int)i), here)) continue;
        const ct_type *is = ct__type(v), *was = carry[i];
        if (is->dtype == was->dtype && ct__same_shape(is, was)) {
            for (int a = 0; a < is->rank; a++)
                ct__size_equal(ct__size_of(is, a), ct__size_of(was, a));
            continue;
        }
        ct__fail(ctx, CT_E_SHAPE, here, op, "carried tensor %zu is %s, the body makes it %s", i + 1,
                 ct__type_text(was).s, ct__type_text(is).s);
        loop_hint_carried(ctx, op, is, was);
    }
    return !ctx->err.code;
}

ct_tensor ct__record_loop(ct_ctx *ctx, const ct_opdef *op, const void *attrs, ct_tensor first,
                          const ct_operands *o, ct_bodies bodies, ct_loc here) {
    size_t n = o->n + 1, at = 0;
    for (size_t i = 0; i < bodies.n; i++) {
        if (!ct__stays_in_place(ctx, op->name, bodies.v[i])) return ct__poison(ctx, here);
        n += bodies.v[i]->n_captured;
    }
    ct_tensor *in = ct__arena(ct__top(ctx)->arena, n * sizeof *in);
    if (!in) return ct__fail(ctx, CT_E_MEMORY, here, op->name, "out of memory while recording");
    if (!ct__is_none(first)) in[at++] = first;
    if (o->n) memcpy(in + at, o->t, o->n * sizeof *in);
    at += o->n;
    for (size_t i = 0; i < bodies.n; i++)
        for (size_t k = 0; k < bodies.v[i]->n_captured; k++)
            in[at++] = ct__handle_of(bodies.v[i]->captured_from[k]);
    return ct__record(op, attrs, in, (int)at, here);
}

void ct__loop_results(ct_ctx *ctx, bool ok, ct_tensor node, uint32_t from, ct_tensor *out, size_t n,
                      ct_loc here) {
    for (size_t i = 0; i < n; i++)
        out[i] = ok ? ct__output(node, from + (uint32_t)i) : ct__poison(ctx, here);
}

// ---------------------------------------------------------------------------- dead results of loops

void ct__body_reach(const ct_body *body, const bool *wanted, bool *reached) {
    for (size_t i = 0; i < body->n_nodes; i++) {
        body->nodes[i]->index = (uint32_t)i;
        reached[i] = false;
    }
    for (size_t i = 0; i < body->n_outs; i++)
        if (!wanted || wanted[i]) reached[body->outs[i].node->index] = true;
    for (size_t i = body->n_nodes; i-- > 0;)
        for (int k = 0; reached[i] && k < body->nodes[i]->n_in; k++)
            reached[body->nodes[i]->in[k].node->index] = true;
}

// Values from which a wanted result is computed are wanted of the previous iteration.
bool ct__loop_wanted(ct_arena *arena, const ct_node *node, bool *wanted) {
    const ct_loop loop = ct__loop_of(node);
    const ct_body *body = loop.bodies.v[0];
    if (loop.form != CT_LOOP_SCAN) {
        memset(wanted, true, node->n_out);
        return true;
    }
    bool *reached = ct__arena(arena, body->n_nodes + 1), more = true;
    while (reached && more) {
        more = false;
        ct__body_reach(body, wanted, reached);
        for (size_t i = 0; i < body->n_nodes; i++) {
            const ct_node *param = body->nodes[i];
            if (!reached[i] || param->op != &ct__op_param || param->number >= loop.n_carry)
                continue;
            more = more || !wanted[param->number];
            wanted[param->number] = true;
        }
    }
    return reached;
}

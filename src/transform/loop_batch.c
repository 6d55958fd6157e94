// Batches of loops and branches: the same node, of bodies that take a batch.
//
// Of what a loop carries, that is batched which begins so or becomes so on the way; the rest stays one
// for all, such as the number of an iteration. A while loop of which each element has a predicate of
// its own turns until none holds, and an element whose predicate has failed stays as it is. A branch
// of which each element has a predicate of its own is a choice between what all branches give.
#include <string.h>

#include "kinds/batch.h"
#include "ops/rules.h"
#include "transform/loop.h"

typedef struct {
    const ct_batching *b;
    ct_loop loop;
    size_t body;     // of a branch: which
    bool *carried;   // (n_carry) are batched
    bool *results;   // (n_out of the node) are batched where they leave the body
    bool each_stops; // the predicate of a while loop is batched
} batched_loop;

static bool no_memory(const ct_batching *b, size_t n) {
    return ct__err_memory(&b->node->ctx->err, b->node->here, b->node->op->name,
                          n * sizeof(ct_tensor));
}
static size_t n_args(const ct_body *body) { return body->n_params + body->n_captured; }

// ---------------------------------------------------------------------------- which values have it

// Outputs of a body with the batch, where arguments have it: those behind which one of these lies.
static bool spread(const batched_loop *l, size_t body, const bool *args, bool *outs) {
    const ct_body *f = l->loop.bodies.v[body];
    ct_arena scratch = {0};
    bool *has = ct__arena_zero(&scratch, f->n_nodes + 1);
    if (!has) return no_memory(l->b, f->n_nodes);
    for (size_t i = 0; i < f->n_nodes; i++) {
        ct_node *node = f->nodes[i];
        node->index = (uint32_t)i; // no other walk visits them
        if (node->op == &ct__op_param) has[i] = args[node->number];
        for (int k = 0; k < node->n_in; k++) has[i] |= has[node->in[k].node->index];
    }
    for (size_t i = 0; i < f->n_outs; i++) outs[i] = has[f->outs[i].node->index];
    ct__arena_free(&scratch);
    return true;
}

// Which arguments of a body have it.
static void args_batched(const batched_loop *l, size_t body, bool *args) {
    const bool carries = l->loop.form != CT_LOOP_SWITCH;
    for (size_t p = 0; p < n_args(l->loop.bodies.v[body]); p++)
        args[p] = carries && p < l->loop.n_carry
                      ? l->carried[p]
                      : l->b->batched[ct__loop_operand(&l->loop, body, p)];
}

// Of one body: does what it makes add to what is known to have the batch?
static bool spread_body(batched_loop *l, size_t body, bool *changed) {
    const ct_body *f = l->loop.bodies.v[body];
    const size_t nc = l->loop.form == CT_LOOP_SWITCH ? 0 : l->loop.n_carry;
    const bool predicate = l->loop.form == CT_LOOP_WHILE;
    ct_arena scratch = {0};
    bool *args = ct__arena(&scratch, n_args(f) + 1), *outs = ct__arena(&scratch, f->n_outs + 1);
    bool ok = (args && outs) || no_memory(l->b, n_args(f));
    if (ok) args_batched(l, body, args);
    ok = ok && spread(l, body, args, outs);
    for (size_t i = 0; i < f->n_outs && ok; i++) {
        const bool last = predicate && i + 1 == f->n_outs;
        bool *to = last ? &l->each_stops : &l->results[i];
        if (!outs[i] || *to) continue;
        *to = *changed = true;
        if (i < nc && !last) l->carried[i] = true;
    }
    ct__arena_free(&scratch);
    return ok;
}

// What each turn gives depends on what the one before it gave, so it is asked until nothing changes.
static bool find_batched(batched_loop *l) {
    const size_t nc = l->loop.n_carry;
    bool ok = true;
    for (bool changed = true; changed && ok;) {
        changed = false;
        for (size_t i = 0; i < l->loop.bodies.n && ok; i++) ok = spread_body(l, i, &changed);
        for (size_t i = 0; i < nc && l->each_stops; i++) {
            changed |= !l->carried[i];
            l->carried[i] = l->results[i] = true;
        }
    }
    return ok;
}

static bool begin(batched_loop *l, ct_batching *b, ct_arena *scratch) {
    *l = (batched_loop){.b = b, .loop = ct__loop_of(b->node)};
    const size_t nc = l->loop.n_carry;
    l->carried = ct__arena_zero(scratch, nc + 1);
    l->results = ct__arena_zero(scratch, (size_t)b->n_out + 1);
    if (!l->carried || !l->results) return no_memory(b, nc);
    for (size_t i = 0; i < nc && l->loop.form != CT_LOOP_SWITCH; i++)
        l->carried[i] = l->results[i] = b->batched[i];
    return find_batched(l);
}

// ------------------------------------------------------------------------------------------ values

// t spread over the batch.
static ct_tensor over_batch(const ct_batching *b, ct_tensor t) {
    ct_dims_buffer dims;
    int64_t all[CT_MAX_RANK + 1] = {b->size};
    ct__dims_of(t, &dims);
    for (int64_t a = 0; a < dims.list.n; a++) all[a + 1] = dims.v[a];
    return ct_expand_at(t, (ct_ints){dims.list.n + 1, all}, b->node->here);
}
// A bool an element, so that it broadcasts against what has `rank` axes behind the batch.
static ct_tensor aligned(const ct_batching *b, ct_tensor each, int rank) {
    int64_t dims[CT_MAX_RANK + 1] = {b->size};
    for (int a = 0; a < rank; a++) dims[a + 1] = 1;
    return ct_reshape_at(each, (ct_ints){rank + 1, dims}, b->node->here);
}
static ct_tensor select_each(const ct_batching *b, ct_tensor each, ct_tensor yes, ct_tensor no) {
    return ct_select(aligned(b, each, ct__type_of(yes)->rank - 1), yes, no);
}

// A body's results, each with the batch where `wanted` says so (NULL: all), which is wherever it
// has it.
static bool batched_body(const batched_loop *l, size_t body, const ct_tensor *args,
                         const bool *wanted, ct_tensor *out) {
    const ct_body *f = l->loop.bodies.v[body];
    ct_arena scratch = {0};
    bool *in = ct__arena(&scratch, n_args(f) + 1), *has = ct__arena(&scratch, f->n_outs + 1);
    bool ok = (in && has) || no_memory(l->b, n_args(f));
    if (ok) args_batched(l, body, in);
    ok = ok && ct__inline_batched(l->b->node->ctx, f, l->b->size, args, in, out, has);
    for (size_t i = 0; i < f->n_outs && ok; i++)
        if (!has[i] && (!wanted || wanted[i])) out[i] = over_batch(l->b, out[i]);
    ct__arena_free(&scratch);
    return ok && !l->b->node->ctx->err.code;
}

// Arguments of a body of a loop: `in`, the carried tensors and elements, then what it captured.
static ct_tensor *arguments(const batched_loop *l, size_t body, const ct_tensor *in,
                            ct_arena *scratch) {
    const ct_body *f = l->loop.bodies.v[body];
    const size_t own = l->loop.n_shared;
    ct_tensor *args = ct__arena(scratch, (n_args(f) + 1) * sizeof *args);
    if (!args) return no_memory(l->b, n_args(f)), NULL;
    for (size_t p = 0; p < n_args(f); p++)
        args[p] = p < own ? in[p] : l->b->in[ct__loop_operand(&l->loop, body, p)];
    return args;
}

// What is carried when the loop begins.
static void first_carried(const batched_loop *l, ct_tensor *carry) {
    for (size_t i = 0; i < l->loop.n_carry; i++)
        carry[i] = l->carried[i] ? ct__batch_operand(l->b, (int)i) : l->b->in[i];
}
static void give_carried(const batched_loop *l, const ct_tensor *last) {
    for (size_t i = 0; i < l->loop.n_carry; i++) {
        l->b->out[i] = last[i];
        l->b->out_batched[i] = l->carried[i];
    }
}

// -------------------------------------------------------------------------------------------- scan

static void batched_iteration(const ct_tensor *in, ct_tensor *out, void *user) {
    const batched_loop *l = user;
    ct_arena scratch = {0};
    const ct_tensor *args = arguments(l, 0, in, &scratch);
    if (args) batched_body(l, 0, args, l->results, out);
    ct__arena_free(&scratch);
}

bool ct__scan_batch(ct_batching *b) {
    batched_loop l;
    ct_arena scratch = {0};
    const ct_ctx *ctx = b->node->ctx;
    bool ok = begin(&l, b, &scratch);
    const size_t nc = l.loop.n_carry, nx = l.loop.n_xs, n_out = (size_t)b->n_out;
    ct_tensor *carry = ct__arena(&scratch, (nc + nx + 1) * sizeof *carry),
              *last = ct__arena_zero(&scratch, (n_out + 1) * sizeof *last);
    ok = ok && ((carry && last) || no_memory(b, nc + nx));
    if (ok) {
        ct_tensor *xs = carry + nc;
        first_carried(&l, carry);
        for (size_t i = 0; i < nx; i++) { // elements lie along axis 0, in each the batch
            int rank = ct__type(b->node->in[nc + i])->rank + 1;
            xs[i] =
                b->batched[nc + i] ? ct__batch_move(b, b->in[nc + i], rank, 1, 0) : b->in[nc + i];
        }
        ct__scan((ct_scan_args){.body = batched_iteration,
                                .user = &l,
                                .carry = carry,
                                .n_carry = nc,
                                .xs = xs,
                                .n_xs = nx,
                                .n_ys = n_out - nc,
                                .length = l.loop.length,
                                .reverse = l.loop.reverse,
                                .here = b->node->here},
                 last, last + nc);
        give_carried(&l, last);
        for (size_t i = nc; i < n_out; i++)
            b->out[i] = l.results[i] ? ct__batch_move(b, last[i], b->node->out[i].rank + 1, 1, 0)
                                     : over_batch(b, last[i]);
    }
    ct__arena_free(&scratch);
    return ok && !ctx->err.code;
}

// ------------------------------------------------------------------------------------------- while

static void goes_on(const ct_tensor *in, ct_tensor *out, void *user) {
    const batched_loop *l = user;
    ct_arena scratch = {0};
    const bool one = false;
    const ct_tensor *args = arguments(l, 0, in, &scratch);
    if (args) batched_body(l, 0, args, &one, out);
    ct__arena_free(&scratch);
}
// The body without the predicate of its results, which the loop asks for itself.
static void turns(const ct_tensor *in, ct_tensor *out, void *user) {
    const batched_loop *l = user;
    const size_t nc = l->loop.n_carry;
    ct_arena scratch = {0};
    const ct_tensor *args = arguments(l, 1, in, &scratch);
    ct_tensor *made = ct__arena_zero(&scratch, (nc + 1) * sizeof *made);
    bool *wanted = ct__arena_zero(&scratch, nc + 1); // the predicate as it is
    bool ok = args && ((made && wanted) || no_memory(l->b, nc));
    if (ok && nc) memcpy(wanted, l->results, nc);
    ok = ok && batched_body(l, 1, args, wanted, made);
    if (ok && nc) memcpy(out, made, nc * sizeof *out);
    ct__arena_free(&scratch);
}

// Carried behind the user's tensors: of which elements the predicate holds.
static void any_goes_on(const ct_tensor *in, ct_tensor *out, void *user) {
    const batched_loop *l = user;
    out[0] = ct_any(in[l->loop.n_carry]);
}
static void each_turns(const ct_tensor *in, ct_tensor *out, void *user) {
    const batched_loop *l = user;
    const size_t nc = l->loop.n_carry;
    const ct_tensor going = in[nc];
    ct_arena scratch = {0};
    const ct_tensor *args = arguments(l, 1, in, &scratch);
    ct_tensor *made = ct__arena_zero(&scratch, (nc + 1) * sizeof *made);
    bool ok = args && (made || no_memory(l->b, nc)) && batched_body(l, 1, args, NULL, made);
    for (size_t i = 0; i < nc && ok; i++) out[i] = select_each(l->b, going, made[i], in[i]);
    if (ok) out[nc] = ct_and(going, made[nc]);
    ct__arena_free(&scratch);
}

bool ct__while_batch(ct_batching *b) {
    batched_loop l;
    ct_arena scratch = {0};
    bool ok = begin(&l, b, &scratch);
    const size_t nc = l.loop.n_carry;
    ct_tensor *carry = ct__arena(&scratch, (nc + 1) * sizeof *carry),
              *last = ct__arena_zero(&scratch, (nc + 1) * sizeof *last);
    ok = ok && ((carry && last) || no_memory(b, nc));
    if (ok) first_carried(&l, carry);
    if (ok && l.each_stops) {
        const ct_tensor *args = arguments(&l, 0, carry, &scratch);
        ok = args && batched_body(&l, 0, args, NULL, &carry[nc]);
    }
    if (ok) {
        ct_while_with((ct_while_args){.cond = l.each_stops ? any_goes_on : goes_on,
                                      .body = l.each_stops ? each_turns : turns,
                                      .user = &l,
                                      .carry = carry,
                                      .n_carry = nc + l.each_stops,
                                      .here = b->node->here},
                      last);
        give_carried(&l, last);
    }
    ct__arena_free(&scratch);
    return ok && !b->node->ctx->err.code;
}

// ---------------------------------------------------------------------------------------- branches

// in: all operands behind the index.
static bool branch_of_batch(const batched_loop *l, const ct_tensor *in, const bool *wanted,
                            ct_tensor *out) {
    const ct_body *f = l->loop.bodies.v[l->body];
    ct_arena scratch = {0};
    ct_tensor *args = ct__arena(&scratch, (n_args(f) + 1) * sizeof *args);
    bool ok = args || no_memory(l->b, n_args(f));
    for (size_t p = 0; p < n_args(f) && ok; p++)
        args[p] = in[ct__loop_operand(&l->loop, l->body, p) - 1];
    ok = ok && batched_body(l, l->body, args, wanted, out);
    ct__arena_free(&scratch);
    return ok;
}
static void batched_branch(const ct_tensor *in, ct_tensor *out, void *user) {
    const batched_loop *l = user;
    branch_of_batch(l, in, l->results, out);
}

// One choice for all elements.
static bool choose_once(batched_loop *l, ct_arena *scratch) {
    const ct_batching *b = l->b;
    const size_t n = l->loop.bodies.n, n_out = (size_t)b->n_out;
    batched_loop *each = ct__arena(scratch, n * sizeof *each);
    void **users = ct__arena(scratch, n * sizeof *users);
    ct_fn *branches = ct__arena(scratch, n * sizeof *branches);
    ct_tensor node;
    if (!each || !users || !branches) return no_memory(b, n);
    for (size_t i = 0; i < n; i++) {
        each[i] = *l;
        each[i].body = i;
        users[i] = &each[i];
        branches[i] = batched_branch;
    }
    const ct_choice c = {.op = b->node->op,
                         .index = b->in[0],
                         .branches = branches,
                         .users = users,
                         .n_branches = n,
                         .in = b->in + 1,
                         .n_in = (size_t)b->n_in - 1,
                         .n_out = n_out,
                         .here = b->node->here};
    if (!ct__record_choice(b->node->ctx, &c, &node)) return false;
    for (size_t i = 0; i < n_out; i++) {
        b->out[i] = ct__output(node, (uint32_t)i);
        b->out_batched[i] = l->results[i];
    }
    return true;
}

// For which elements branch k, or one before it, is chosen.
static ct_tensor up_to(ct_tensor index, size_t k) {
    if (ct__type_of(index)->dtype == CT_BOOL) return ct_not(index);
    return ct_less_equal(index, ct__number_like((double)k, index));
}
// For which elements branch k of several is chosen.
static ct_tensor where_chosen(ct_tensor index, size_t k, size_t n) {
    if (k == 0) return up_to(index, 0);
    const ct_tensor behind = ct_not(up_to(index, k - 1));
    return k + 1 < n ? ct_and(behind, up_to(index, k)) : behind;
}

// An operand of a branch that is computed for all elements, as those for which it is not chosen must
// see it: a constant. Else the slope of what is thrown away, maybe NaN, times 0 would reach them.
static ct_tensor only_where(const ct_batching *b, ct_tensor chosen, int k) {
    const ct_tensor x = b->batched[k] ? b->in[k] : over_batch(b, b->in[k]);
    return select_each(b, chosen, x, ct_stop_gradient(x));
}

// A choice an element: all branches, from the last one backwards.
static bool choose_each(batched_loop *l, ct_arena *scratch) {
    const ct_batching *b = l->b;
    const size_t n = l->loop.bodies.n, n_out = (size_t)b->n_out, n_in = (size_t)b->n_in;
    const ct_tensor index = b->in[0];
    ct_tensor *made = ct__arena_zero(scratch, (n_out + 1) * sizeof *made);
    ct_tensor *in = ct__arena(scratch, n_in * sizeof *in);
    bool *batched = ct__arena(scratch, n_in * sizeof *batched);
    if (!made || !in || !batched) return no_memory(b, n_out + n_in);
    memcpy(in, b->in, n_in * sizeof *in);
    ct_batching own = *b;
    own.batched = batched;
    l->b = &own;
    bool ok = true;
    for (size_t k = n; k-- > 0 && ok;) {
        const bool last = k + 1 == n;
        const ct_tensor chosen = n > 1 ? where_chosen(index, k, n) : CT_NONE;
        for (int i = 0; i < b->n_in; i++) {
            const ct_type *type = ct__type_of(b->in[i]);
            const bool moves =
                n > 1 && i > 0 && !type->weak && ct__has_slope((ct_dtype)type->dtype);
            if (moves) in[i] = only_where(b, chosen, i);
            batched[i] = b->batched[i] || moves;
        }
        l->body = k;
        ok = branch_of_batch(l, in + 1, NULL, last ? b->out : made);
        if (last || !ok) continue;
        const ct_tensor other = up_to(index, k);
        for (size_t i = 0; i < n_out; i++) b->out[i] = select_each(b, other, made[i], b->out[i]);
    }
    l->b = b;
    return ok;
}

bool ct__branch_batch(ct_batching *b) {
    batched_loop l;
    ct_arena scratch = {0};
    bool ok = begin(&l, b, &scratch) &&
              (b->batched[0] ? choose_each(&l, &scratch) : choose_once(&l, &scratch));
    ct__arena_free(&scratch);
    return ok && !b->node->ctx->err.code;
}

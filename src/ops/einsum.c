// Sums of products said in letters. What is recorded are contractions, products, sums and views.
#include "ops/rules.h"

// Letters in the order of their codes, then the axes of an ellipsis, of which the last are shared.
enum { LETTERS = 52, LABELS = LETTERS + CT_MAX_RANK };
enum { UNKNOWN_SIZE = 1024 }; // what a dynamic size counts as when pairs are chosen

// An operand, or what some of them have become: the label of each axis.
typedef struct term {
    ct_tensor t;
    int n, dots; // dots: of how many labels an ellipsis stands behind; -1: there is none
    uint8_t of[CT_MAX_RANK];
} term;

typedef struct einsum {
    ct_ctx *ctx;
    ct_loc here;
    const char *text;
    term *in; // (n) those that are left
    size_t n; // at first as many as were given
    term out;
    bool said; // the text says what the result is
    int dots;  // axes of the longest ellipsis
    struct {
        size_t in[2];        // 1 + the operand that it stands in first, and the place there
        int times;           // it stands in operands
        const ct_type *type; // of that operand
    } label[LABELS];
} einsum;

// Reports an error; false.
#define FAIL(s, code, ...) ((void)ct__fail((s)->ctx, code, (s)->here, "einsum", __VA_ARGS__), false)

static bool has(const term *x, int label) {
    for (int i = 0; i < x->n; i++)
        if (x->of[i] == label) return true;
    return false;
}
static bool is_one(const ct_type *type, int axis) { // for every length
    return type->dim[axis] == 1 && !ct__is_dyn(type, axis);
}
static int place(const term *x, int label) {
    int i = 0;
    while (i < x->n && x->of[i] != label) i++;
    return i;
}

// --------------------------------------------------------------------------------------- the text

static int letter(char c) { // -1: none
    return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? 26 + c - 'a' : -1;
}
// A label in a message: a letter, or the ellipsis it is of.
static const char *name_of(int label, char text[4]) {
    text[0] = (char)(label < 26 ? 'A' + label : 'a' + label - 26);
    text[1] = '\0';
    return label < LETTERS ? text : "...";
}

static bool unreadable(const einsum *s, const char *at, const char *why) {
    return FAIL(s, CT_E_ARGUMENT, "\"%.200s\" cannot be read at character %td: %s", s->text,
                at - s->text + 1, why);
}

// Letters up to a comma, an arrow or the end.
static bool read_term(const einsum *s, const char **from, term *to) {
    const char *at = *from;
    *to = (term){.dots = -1};
    for (; *at && *at != ',' && *at != '-'; at++) {
        if (*at == ' ') continue;
        if (*at == '.') {
            if (at[1] != '.' || at[2] != '.') return unreadable(s, at, "an ellipsis is three dots");
            if (to->dots >= 0) return unreadable(s, at, "an operand has one ellipsis");
            to->dots = to->n;
            at += 2;
            continue;
        }
        if (letter(*at) < 0)
            return unreadable(s, at, "it is made of letters, commas, '->', '...' and spaces");
        if (to->n == CT_MAX_RANK) return unreadable(s, at, "a tensor has at most 32 axes");
        to->of[to->n++] = (uint8_t)letter(*at);
    }
    *from = at;
    return true;
}

static bool read_text(einsum *s) {
    const char *at = s->text;
    size_t n = 0;
    for (;; at++) {
        if (!read_term(s, &at, &s->in[n++])) return false;
        if (*at != ',') break;
    }
    s->out = (term){.dots = -1};
    if (*at == '-') {
        if (at[1] != '>') return unreadable(s, at, "an arrow is '->'");
        s->said = true;
        at += 2;
        if (!read_term(s, &at, &s->out)) return false;
        if (*at)
            return unreadable(s, at, *at == ',' ? "there is one result" : "there is one arrow");
    }
    return n == s->n || FAIL(s, CT_E_ARGUMENT, "\"%.200s\" has %zu operand%s, %zu %s given",
                             s->text, n, n == 1 ? "" : "s", s->n, s->n == 1 ? "is" : "are");
}

// ------------------------------------------------------------------------------ labels and operands

// `n` labels of an ellipsis in its place.
static void put_dots(term *x, int n) {
    if (x->dots < 0) return;
    for (int i = x->n - 1; i >= x->dots; i--) x->of[i + n] = x->of[i];
    for (int i = 0; i < n; i++) x->of[x->dots + i] = (uint8_t)(LABELS - n + i);
    x->n += n;
}

// A label's axis in an operand: all of one label have one size, but where an ellipsis broadcasts.
static bool put_label(einsum *s, size_t operand, const ct_type *type, int axis) {
    const int label = s->in[operand].of[axis];
    const bool broadcasts = label >= LETTERS;
    const ct_type *other = s->label[label].type;
    s->label[label].times++;
    if (other) {
        const int there = (int)s->label[label].in[1];
        const bool same = type->dim[axis] == other->dim[there], one = is_one(other, there);
        if (same || (broadcasts && is_one(type, axis))) {
            if (!one || same) return true;
        } else if (!broadcasts || !one) {
            char text[4];
            (void)FAIL(
                s, CT_E_SHAPE,
                "'%s' is %lld in operand %zu, %s, and %lld in operand %zu, %s, of \"%.200s\"",
                name_of(label, text), (long long)other->dim[there], s->label[label].in[0],
                ct__type_text(other).s, (long long)type->dim[axis], operand + 1,
                ct__type_text(type).s, s->text);
            if (broadcasts && (ct__dynamic_one(type, axis) || ct__dynamic_one(other, there)))
                ct__err_hint(&s->ctx->err, CT_DYNAMIC_ONE_HINT);
            return false;
        }
    }
    s->label[label].type = type;
    s->label[label].in[0] = operand + 1;
    s->label[label].in[1] = (size_t)axis;
    return true;
}

static bool take_operand(einsum *s, size_t i, ct_tensor t) {
    term *x = &s->in[i];
    ct_val v;
    if (!ct__resolve(s->ctx, t, &v, "einsum", (int)i, s->here)) return false;
    const ct_type *type = ct__type(v);
    x->t = t;
    if (x->dots < 0 ? x->n != type->rank : x->n > type->rank)
        return FAIL(s, CT_E_SHAPE,
                    "operand %zu of \"%.200s\" is %s: it has %d ax%s for %s%d letter%s", i + 1,
                    s->text, ct__type_text(type).s, type->rank, type->rank == 1 ? "is" : "es",
                    x->dots < 0 ? "" : "at least ", x->n, x->n == 1 ? "" : "s");
    const int dots = type->rank - x->n;
    if (dots > s->dots) s->dots = dots;
    put_dots(x, dots);
    for (int a = 0; a < type->rank; a++)
        if (!put_label(s, i, type, a)) return false;
    return true;
}

// Without an arrow: the ellipsis, then the letters that stand once, in their order.
static bool name_result(einsum *s) {
    char text[4];
    int axes = s->dots + s->out.n;
    for (int l = 0; l < LETTERS && !s->said; l++) {
        s->out.dots = 0;
        if (s->label[l].times == 1 && axes++ < CT_MAX_RANK) s->out.of[s->out.n++] = (uint8_t)l;
    }
    if (axes > CT_MAX_RANK)
        return FAIL(s, CT_E_SHAPE, "the result of \"%.200s\" has %d axes, %d are possible", s->text,
                    axes, CT_MAX_RANK);
    if (s->out.dots < 0 && s->dots)
        return FAIL(s, CT_E_ARGUMENT, "the result of \"%.200s\" lacks the ellipsis of its operands",
                    s->text);
    for (int i = 0; i < s->out.n; i++) {
        const int label = s->out.of[i];
        if (!s->label[label].times)
            return FAIL(s, CT_E_ARGUMENT, "'%s' of the result stands in no operand of \"%.200s\"",
                        name_of(label, text), s->text);
        if (place(&s->out, label) != i)
            return FAIL(s, CT_E_ARGUMENT, "'%s' stands twice in the result of \"%.200s\"",
                        name_of(label, text), s->text);
    }
    put_dots(&s->out, s->dots);
    return true;
}

// ------------------------------------------------------------------------------------- one operand

static bool becomes(term *x, ct_tensor t) {
    x->t = t;
    return ct_ok(t);
}

// x with its axes in the order of `to`, whose labels are those of x.
static bool permute(const einsum *s, term *x, const uint8_t *to) {
    int64_t axes[CT_MAX_RANK];
    int moved = 0;
    for (int i = 0; i < x->n; i++) {
        axes[i] = place(x, to[i]);
        moved += axes[i] != i;
    }
    if (!moved) return true;
    for (int i = 0; i < x->n; i++) x->of[i] = to[i];
    return becomes(x, ct_permute_at(x->t, (ct_ints){x->n, axes}, s->here));
}

// x with axes of 1 where it has none of the labels; a scalar, which may be a bare number, as it is.
static ct_tensor spread(const einsum *s, term *x, const uint8_t *label, int n) {
    uint8_t own[CT_MAX_RANK] = {0};
    int64_t dims[CT_MAX_RANK];
    int k = 0;
    for (int i = 0; i < n; i++)
        if (has(x, label[i])) own[k++] = label[i];
    if (!permute(s, x, own)) return x->t;
    k = 0;
    for (int i = 0; i < n; i++) dims[i] = has(x, label[i]) ? ct__size_like(x->t, k++) : 1;
    return k == n || k == 0 ? x->t : ct_reshape_at(x->t, (ct_ints){n, dims}, s->here);
}

// Axes of size 1 that broadcast against a longer ellipsis go.
static bool drop_ones(const einsum *s, term *x) {
    int64_t dims[CT_MAX_RANK];
    int n = 0;
    for (int i = 0; i < x->n; i++) {
        const int label = x->of[i];
        const bool one = label >= LETTERS && is_one(ct__type_of(x->t), i) &&
                         !is_one(s->label[label].type, (int)s->label[label].in[1]);
        if (one) continue;
        dims[n] = ct__size_like(x->t, i);
        x->of[n++] = (uint8_t)label;
    }
    if (n == x->n) return true;
    x->n = n;
    return becomes(x, ct_reshape_at(x->t, (ct_ints){n, dims}, s->here));
}

// Axes 0 and 1 of size n are one, the diagonal: every (n + 1)th element of both in a row, a view. Of
// a dynamic size, whose step no view has, the sum of what stands on it.
static ct_tensor diagonal(const einsum *s, ct_tensor t, int rank) {
    const int64_t n = ct__size_like(t, 0);
    int64_t dims[CT_MAX_RANK], first = 0, step = n + 1;
    if (ct__marked(n) || ct__marked(ct__size_like(t, 1))) {
        const ct_ints square = {2, (int64_t[]){n, ct__size_like(t, 1)}};
        for (int a = 0; a < rank; a++) dims[a] = a < 2 ? square.v[a] : 1;
        ct_tensor on = ct_equal_at(ct_iota_at(CT_I64, square, 0, s->here),
                                   ct_iota_at(CT_I64, square, 1, s->here), s->here);
        on = ct_reshape_at(on, (ct_ints){rank, dims}, s->here);
        return ct_sum_with((ct_sum_args){.x = ct_select_at(on, t, ct__number_like(0, t), s->here),
                                         .axes = {1, &first},
                                         .here = s->here});
    }
    dims[0] = n * n;
    for (int a = 2; a < rank; a++) dims[a - 1] = ct__size_like(t, a);
    t = ct_reshape_at(t, (ct_ints){rank - 1, dims}, s->here);
    return ct_slice_with((ct_slice_args){
        .x = t, .axes = {1, &first}, .start = {1, &first}, .step = {1, &step}, .here = s->here});
}
static bool diagonals(const einsum *s, term *x) {
    for (int q = 0; q < x->n; q++) {
        const int p = place(x, x->of[q]);
        if (p == q) continue;
        int64_t axes[CT_MAX_RANK] = {p, q};
        uint8_t of[CT_MAX_RANK] = {x->of[q]};
        int n = 2;
        for (int i = 0; i < x->n; i++) {
            if (i == p || i == q) continue;
            of[n - 1] = x->of[i];
            axes[n++] = i;
        }
        ct_tensor t = ct_permute_at(x->t, (ct_ints){n, axes}, s->here);
        if (!ct_ok(t) || !becomes(x, diagonal(s, t, n))) return false;
        x->n = n - 1;
        for (int i = 0; i < x->n; i++) x->of[i] = of[i];
        q = 0; // a letter may stand there more than twice
    }
    return true;
}

// Does a label stand in the result, or in an operand but x and y?
static bool is_needed(const einsum *s, int label, const term *x, const term *y) {
    bool needed = has(&s->out, label);
    for (size_t i = 0; i < s->n && !needed; i++)
        needed = &s->in[i] != x && &s->in[i] != y && has(&s->in[i], label);
    return needed;
}
// What stands in this operand alone is summed over.
static bool sum_lonely(const einsum *s, term *x) {
    int64_t axes[CT_MAX_RANK];
    int n = 0, kept = 0;
    for (int i = 0; i < x->n; i++) {
        if (is_needed(s, x->of[i], x, x))
            x->of[kept++] = x->of[i];
        else
            axes[n++] = i;
    }
    x->n = kept;
    return !n ||
           becomes(x, ct_sum_with((ct_sum_args){.x = x->t, .axes = {n, axes}, .here = s->here}));
}

// -------------------------------------------------------------------------------------- two of them

typedef struct pair {
    term *x, *y;
    int n_batch, n_own[2], n_inner; // labels in both that stay, in one alone, in both that go
    uint8_t batch[CT_MAX_RANK], inner[CT_MAX_RANK];
} pair;

static pair paired(const einsum *s, term *x, term *y) {
    pair p = {.x = x, .y = y};
    for (int i = 0; i < s->out.n; i++) // in the order of the result
        if (has(x, s->out.of[i]) && has(y, s->out.of[i])) p.batch[p.n_batch++] = s->out.of[i];
    for (int i = 0; i < x->n; i++) {
        if (!has(y, x->of[i]))
            p.n_own[0]++;
        else if (!is_needed(s, x->of[i], x, y))
            p.inner[p.n_inner++] = x->of[i];
        else if (!has(&s->out, x->of[i]))
            p.batch[p.n_batch++] = x->of[i];
    }
    for (int i = 0; i < y->n; i++) p.n_own[1] += !has(x, y->of[i]);
    return p;
}

// Elements of both side by side, and perhaps the sum over what neither has for itself.
static bool multiply(const einsum *s, const pair *p, term *to) {
    uint8_t label[2 * CT_MAX_RANK];
    int64_t axes[CT_MAX_RANK];
    int n = 0;
    for (int i = 0; i < s->out.n; i++)
        if (has(p->x, s->out.of[i]) || has(p->y, s->out.of[i])) label[n++] = s->out.of[i];
    for (int k = 0; k < 2; k++) {
        const term *x = k ? p->y : p->x;
        for (int i = 0; i < x->n; i++)
            if (!has(&s->out, x->of[i]) && is_needed(s, x->of[i], p->x, p->y) &&
                !(k && has(p->x, x->of[i])))
                label[n++] = x->of[i];
    }
    const int kept = n;
    for (int i = 0; i < p->n_inner; i++) axes[i] = n, label[n++] = p->inner[i];
    if (n > CT_MAX_RANK)
        return FAIL(s, CT_E_SHAPE,
                    "a product on the way of \"%.200s\" has %d axes, %d are possible", s->text, n,
                    CT_MAX_RANK);
    ct_tensor a = spread(s, p->x, label, n), b = spread(s, p->y, label, n);
    ct_tensor t = ct_mul_at(a, b, s->here);
    if (p->n_inner)
        t = ct_sum_with((ct_sum_args){.x = t, .axes = {p->n_inner, axes}, .here = s->here});
    *to = (term){.n = kept, .dots = -1};
    for (int i = 0; i < kept; i++) to->of[i] = label[i];
    return becomes(to, t);
}

static bool contract(const einsum *s, const pair *p, term *to) {
    const term *x = p->x, *y = p->y;
    // The operand whose own axes come first in the result stands first.
    for (int i = 0; i < s->out.n; i++) {
        if (has(x, s->out.of[i]) == has(y, s->out.of[i])) continue;
        if (has(y, s->out.of[i])) x = p->y, y = p->x;
        break;
    }
    int64_t list[4][CT_MAX_RANK];
    for (int i = 0; i < p->n_inner; i++)
        list[0][i] = place(x, p->inner[i]), list[1][i] = place(y, p->inner[i]);
    for (int i = 0; i < p->n_batch; i++)
        list[2][i] = place(x, p->batch[i]), list[3][i] = place(y, p->batch[i]);
    term made = {.dots = -1};
    if (p->n_batch + p->n_own[0] + p->n_own[1] <= CT_MAX_RANK) { // else ct_contract says so
        for (int i = 0; i < p->n_batch; i++) made.of[made.n++] = p->batch[i];
        for (int i = 0; i < x->n; i++)
            if (!has(y, x->of[i])) made.of[made.n++] = x->of[i];
        for (int i = 0; i < y->n; i++)
            if (!has(x, y->of[i])) made.of[made.n++] = y->of[i];
    }
    const ct_tensor t = ct_contract_with((ct_contract_args){.a = x->t,
                                                            .b = y->t,
                                                            .a_axes = {p->n_inner, list[0]},
                                                            .b_axes = {p->n_inner, list[1]},
                                                            .a_batch = {p->n_batch, list[2]},
                                                            .b_batch = {p->n_batch, list[3]},
                                                            .here = s->here});
    *to = made;
    return becomes(to, t);
}

// Products that a pair takes, and elements of what it becomes.
static void cost_of(const einsum *s, const term *x, const term *y, double cost[2]) {
    cost[0] = cost[1] = 1;
    for (int k = 0; k < 2; k++) {
        const term *of = k ? y : x;
        for (int i = 0; i < of->n; i++) {
            const int label = of->of[i], axis = (int)s->label[label].in[1];
            const ct_type *type = s->label[label].type;
            if (k && has(x, label)) continue;
            const double size = ct__is_dyn(type, axis) ? UNKNOWN_SIZE : (double)type->dim[axis];
            cost[0] *= size;
            if (is_needed(s, label, x, y)) cost[1] *= size;
        }
    }
}

// The cheapest pair becomes one operand, the earlier one's place.
static bool join_cheapest(einsum *s) {
    size_t best[2] = {0, 1};
    double least[2] = {0}, cost[2];
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = i + 1; k < s->n; k++) {
            cost_of(s, &s->in[i], &s->in[k], cost);
            const bool less = cost[0] < least[0] || (cost[0] == least[0] && cost[1] < least[1]);
            if (!(i == 0 && k == 1) && !less) continue;
            best[0] = i, best[1] = k;
            least[0] = cost[0], least[1] = cost[1];
        }
    const pair p = paired(s, &s->in[best[0]], &s->in[best[1]]);
    term made;
    const bool sums = p.n_inner && (p.n_own[0] || p.n_own[1]);
    if (!(sums ? contract(s, &p, &made) : multiply(s, &p, &made))) return false;
    s->in[best[0]] = made;
    for (size_t i = best[1] + 1; i < s->n; i++) s->in[i - 1] = s->in[i];
    s->n--;
    return true;
}

// Products in their common dtype, however many there are.
static bool promote(const einsum *s) {
    const ct_type *first = ct__type_of(s->in[0].t);
    ct_dtype dtype = (ct_dtype)first->dtype;
    bool weak = first->weak;
    for (size_t i = 1; i < s->n; i++) {
        const ct_type *type = ct__type_of(s->in[i].t);
        const ct_dtype both = ct__promote(dtype, weak, (ct_dtype)type->dtype, type->weak);
        if (both == CT_DEFAULT)
            return FAIL(
                s, CT_E_DTYPE,
                "%s and %s, the dtype of operand %zu of \"%.200s\", do not promote to one dtype",
                ct_dtype_name(dtype), ct_dtype_name((ct_dtype)type->dtype), i + 1, s->text);
        dtype = both;
        weak = weak && type->weak;
    }
    for (size_t i = 0; i < s->n; i++) {
        const ct_type *type = ct__type_of(s->in[i].t);
        if (!type->weak && (ct_dtype)type->dtype != dtype &&
            !becomes(&s->in[i], ct_cast_at(s->in[i].t, dtype, s->here)))
            return false;
    }
    return true;
}

static bool record(einsum *s, const ct_tensor *operands) {
    if (!read_text(s)) return false;
    for (size_t i = 0; i < s->n; i++)
        if (!take_operand(s, i, operands[i])) return false;
    if (!name_result(s)) return false;
    for (size_t i = 0; i < s->n; i++)
        if (!drop_ones(s, &s->in[i]) || !diagonals(s, &s->in[i])) return false;
    if (!promote(s)) return false;
    for (size_t i = 0; i < s->n; i++)
        if (!sum_lonely(s, &s->in[i])) return false;
    while (s->n > 1)
        if (!join_cheapest(s)) return false;
    return permute(s, &s->in[0], s->out.of);
}

ct_tensor ct_einsum_at(const char *expression, const ct_tensor *operands, size_t n, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (!expression || (n && !operands))
        return ct__fail(ctx, CT_E_ARGUMENT, here, "einsum", "there is no %s",
                        expression ? "list of operands" : "expression");
    einsum s = {.ctx = ctx, .here = here, .text = expression, .n = n};
    size_t said = 1; // room for as many as the text may have
    for (const char *at = expression; *at; at++) said += *at == ',';
    s.in = ct__malloc(said * sizeof *s.in);
    if (!s.in) return ct__fail(ctx, CT_E_MEMORY, here, "einsum", "out of memory while recording");
    const bool ok = record(&s, operands);
    ct_tensor t = ok ? s.in[0].t : ct__poison(ctx, here);
    ct__free(s.in);
    for (size_t i = 0; ok && i < n; i++) // what comes out is a tensor of its own
        if (operands[i].bits == t.bits) {
            ct_dims_buffer dims;
            return ct_reshape_at(t, ct__dims_of(t, &dims), here);
        }
    return t;
}

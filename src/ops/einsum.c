// einsum: sums of products in index notation, recorded as contractions, products, sums and views.
#include "ops/rules.h"

// Labels: letters in the order of their codes, then the axes of an ellipsis, aligned at the end.
enum { LETTERS = 52, LABELS = LETTERS + CT_MAX_RANK };
enum { DYNAMIC_SIZE_GUESS = 1024 }; // assumed for a dynamic size when pairs are chosen

// An operand, or an intermediate result, with the label of each axis.
typedef struct term {
    ct_tensor t;
    int n, dots; // dots: number of labels before the ellipsis; -1: there is none
    uint8_t of[CT_MAX_RANK];
} term;

typedef struct einsum {
    ct_ctx *ctx;
    ct_loc here;
    const char *text;
    term *in; // (n) the remaining ones
    size_t n; // initially the number of operands
    term out;
    bool has_result; // the text specifies the result
    int dots;        // axes of the longest ellipsis
    struct {
        size_t in[2];        // 1 + the operand in which it appears first, and the axis there
        int times;           // number of appearances in operands
        const ct_type *type; // of that operand
    } label[LABELS];
} einsum;

// Reports an error and returns false.
#define FAIL(s, code, ...) ct__refuse((s)->ctx, code, (s)->here, "einsum", __VA_ARGS__)

static bool einsum_has_label(const term *x, int label) {
    for (int i = 0; i < x->n; i++)
        if (x->of[i] == label) return true;
    return false;
}
static bool einsum_is_one(const ct_type *type, int axis) { // for every value of dynamic sizes
    return type->dim[axis] == 1 && !ct__is_dyn(type, axis);
}
static int einsum_axis_of(const term *x, int label) {
    int i = 0;
    while (i < x->n && x->of[i] != label) i++;
    return i;
}

// --------------------------------------------------------------------------------------- the text

static int einsum_label_of(char c) { // -1: none
    return c >= 'A' && c <= 'Z' ? c - 'A' : c >= 'a' && c <= 'z' ? 26 + c - 'a' : -1;
}
// Returns the name of a label in a message: a letter, or the ellipsis that it belongs to.
static const char *einsum_label_name(int label, char text[4]) {
    text[0] = (char)(label < 26 ? 'A' + label : 'a' + label - 26);
    text[1] = '\0';
    return label < LETTERS ? text : "...";
}

static bool einsum_syntax_error(const einsum *s, const char *at, const char *why) {
    return FAIL(s, CT_E_ARGUMENT, "\"%.200s\" cannot be read at character %td: %s", s->text,
                at - s->text + 1, why);
}

// Parses letters up to a comma, an arrow or the end.
static bool einsum_parse_term(const einsum *s, const char **from, term *to) {
    const char *at = *from;
    *to = (term){.dots = -1};
    for (; *at && *at != ',' && *at != '-'; at++) {
        if (*at == ' ') continue;
        if (*at == '.') {
            if (at[1] != '.' || at[2] != '.')
                return einsum_syntax_error(s, at, "an ellipsis is three dots");
            if (to->dots >= 0) return einsum_syntax_error(s, at, "an operand has one ellipsis");
            to->dots = to->n;
            at += 2;
            continue;
        }
        if (einsum_label_of(*at) < 0)
            return einsum_syntax_error(s, at,
                                       "it is made of letters, commas, '->', '...' and spaces");
        if (to->n == CT_MAX_RANK) return einsum_syntax_error(s, at, "a tensor has at most 32 axes");
        to->of[to->n++] = (uint8_t)einsum_label_of(*at);
    }
    *from = at;
    return true;
}

static bool einsum_parse(einsum *s) {
    const char *at = s->text;
    size_t n = 0;
    for (;; at++) {
        if (!einsum_parse_term(s, &at, &s->in[n++])) return false;
        if (*at != ',') break;
    }
    s->out = (term){.dots = -1};
    if (*at == '-') {
        if (at[1] != '>') return einsum_syntax_error(s, at, "an arrow is '->'");
        s->has_result = true;
        at += 2;
        if (!einsum_parse_term(s, &at, &s->out)) return false;
        if (*at)
            return einsum_syntax_error(s, at,
                                       *at == ',' ? "there is one result" : "there is one arrow");
    }
    return n == s->n || FAIL(s, CT_E_ARGUMENT, "\"%.200s\" has %zu operand%s, %zu %s given",
                             s->text, n, n == 1 ? "" : "s", s->n, s->n == 1 ? "is" : "are");
}

// ------------------------------------------------------------------------------ labels and operands

// Replaces the ellipsis by its `n` labels.
static void einsum_expand_ellipsis(term *x, int n) {
    if (x->dots < 0) return;
    for (int i = x->n - 1; i >= x->dots; i--) x->of[i + n] = x->of[i];
    for (int i = 0; i < n; i++) x->of[x->dots + i] = (uint8_t)(LABELS - n + i);
    x->n += n;
}

// Registers a label of an operand's axis. All axes of one label have one size, except that those of an
// ellipsis broadcast.
static bool einsum_add_label(einsum *s, size_t operand, const ct_type *type, int axis) {
    const int label = s->in[operand].of[axis];
    const bool broadcasts = label >= LETTERS;
    const ct_type *other = s->label[label].type;
    s->label[label].times++;
    if (other) {
        const int other_axis = (int)s->label[label].in[1];
        const bool same = type->dim[axis] == other->dim[other_axis],
                   one = einsum_is_one(other, other_axis);
        if (same || (broadcasts && einsum_is_one(type, axis))) {
            if (!one || same) return true;
        } else if (!broadcasts || !one) {
            char text[4];
            (void)FAIL(
                s, CT_E_SHAPE,
                "'%s' is %lld in operand %zu, %s, and %lld in operand %zu, %s, of \"%.200s\"",
                einsum_label_name(label, text), (long long)other->dim[other_axis],
                s->label[label].in[0], ct__type_text(other).s, (long long)type->dim[axis],
                operand + 1, ct__type_text(type).s, s->text);
            if (broadcasts && (ct__dynamic_one(type, axis) || ct__dynamic_one(other, other_axis)))
                ct__err_hint(&s->ctx->err, CT_DYNAMIC_ONE_HINT);
            return false;
        }
    }
    s->label[label].type = type;
    s->label[label].in[0] = operand + 1;
    s->label[label].in[1] = (size_t)axis;
    return true;
}

static bool einsum_add_operand(einsum *s, size_t i, ct_tensor t) {
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
    einsum_expand_ellipsis(x, dots);
    for (int a = 0; a < type->rank; a++)
        if (!einsum_add_label(s, i, type, a)) return false;
    return true;
}

// Sets the result if there is no arrow: the ellipsis, then the letters that appear once, in order.
static bool einsum_set_result(einsum *s) {
    char text[4];
    int axes = s->dots + s->out.n;
    for (int l = 0; l < LETTERS && !s->has_result; l++) {
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
            return FAIL(s, CT_E_ARGUMENT, "'%s' of the result is in no operand of \"%.200s\"",
                        einsum_label_name(label, text), s->text);
        if (einsum_axis_of(&s->out, label) != i)
            return FAIL(s, CT_E_ARGUMENT, "'%s' is twice in the result of \"%.200s\"",
                        einsum_label_name(label, text), s->text);
    }
    einsum_expand_ellipsis(&s->out, s->dots);
    return true;
}

// ------------------------------------------------------------------------------------- one operand

static bool einsum_replace(term *x, ct_tensor t) {
    x->t = t;
    return ct_ok(t);
}

// Permutes the axes of x to the order of `to`, which has the same labels.
static bool einsum_permute(const einsum *s, term *x, const uint8_t *to) {
    int64_t axes[CT_MAX_RANK];
    int moved = 0;
    for (int i = 0; i < x->n; i++) {
        axes[i] = einsum_axis_of(x, to[i]);
        moved += axes[i] != i;
    }
    if (!moved) return true;
    for (int i = 0; i < x->n; i++) x->of[i] = to[i];
    return einsum_replace(x, ct_permute_at(x->t, (ct_ints){x->n, axes}, s->here));
}

// Inserts axes of size 1 for the labels that x lacks; a scalar, which may be a bare number, is unchanged.
static ct_tensor einsum_broadcast(const einsum *s, term *x, const uint8_t *label, int n) {
    uint8_t own[CT_MAX_RANK] = {0};
    int64_t dims[CT_MAX_RANK];
    int k = 0;
    for (int i = 0; i < n; i++)
        if (einsum_has_label(x, label[i])) own[k++] = label[i];
    if (!einsum_permute(s, x, own)) return x->t;
    k = 0;
    for (int i = 0; i < n; i++)
        dims[i] = einsum_has_label(x, label[i]) ? ct__size_like(x->t, k++) : 1;
    return k == n || k == 0 ? x->t : ct_reshape_at(x->t, (ct_ints){n, dims}, s->here);
}

// Drops axes of size 1 that broadcast to a longer ellipsis.
static bool einsum_drop_ones(const einsum *s, term *x) {
    int64_t dims[CT_MAX_RANK];
    int n = 0;
    for (int i = 0; i < x->n; i++) {
        const int label = x->of[i];
        const bool one = label >= LETTERS && einsum_is_one(ct__type_of(x->t), i) &&
                         !einsum_is_one(s->label[label].type, (int)s->label[label].in[1]);
        if (one) continue;
        dims[n] = ct__size_like(x->t, i);
        x->of[n++] = (uint8_t)label;
    }
    if (n == x->n) return true;
    x->n = n;
    return einsum_replace(x, ct_reshape_at(x->t, (ct_ints){n, dims}, s->here));
}

// Merges axes 0 and 1 of size n to one, the diagonal: every (n + 1)th element of both flattened, a view. For
// a dynamic size, which cannot be the step of a view, it is a masked sum.
static ct_tensor einsum_diagonal(const einsum *s, ct_tensor t, int rank) {
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
static bool einsum_take_diagonals(const einsum *s, term *x) {
    for (int q = 0; q < x->n; q++) {
        const int p = einsum_axis_of(x, x->of[q]);
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
        if (!ct_ok(t) || !einsum_replace(x, einsum_diagonal(s, t, n))) return false;
        x->n = n - 1;
        for (int i = 0; i < x->n; i++) x->of[i] = of[i];
        q = 0; // a letter may appear more than twice
    }
    return true;
}

// True if a label appears in the result, or in an operand other than x and y.
static bool einsum_is_needed(const einsum *s, int label, const term *x, const term *y) {
    bool needed = einsum_has_label(&s->out, label);
    for (size_t i = 0; i < s->n && !needed; i++)
        needed = &s->in[i] != x && &s->in[i] != y && einsum_has_label(&s->in[i], label);
    return needed;
}
// Sums over the labels that appear in this operand only.
static bool einsum_sum_unused(const einsum *s, term *x) {
    int64_t axes[CT_MAX_RANK];
    int n = 0, n_kept = 0;
    for (int i = 0; i < x->n; i++) {
        if (einsum_is_needed(s, x->of[i], x, x))
            x->of[n_kept++] = x->of[i];
        else
            axes[n++] = i;
    }
    x->n = n_kept;
    return !n || einsum_replace(
                     x, ct_sum_with((ct_sum_args){.x = x->t, .axes = {n, axes}, .here = s->here}));
}

// -------------------------------------------------------------------------------------- two of them

typedef struct pair {
    term *x, *y;
    // labels in both that remain, in only one, in both that are summed over
    int n_batch, n_own[2], n_inner;
    uint8_t batch[CT_MAX_RANK], inner[CT_MAX_RANK];
} pair;

static pair einsum_make_pair(const einsum *s, term *x, term *y) {
    pair p = {.x = x, .y = y};
    for (int i = 0; i < s->out.n; i++) // in the order of the result
        if (einsum_has_label(x, s->out.of[i]) && einsum_has_label(y, s->out.of[i]))
            p.batch[p.n_batch++] = s->out.of[i];
    for (int i = 0; i < x->n; i++) {
        if (!einsum_has_label(y, x->of[i]))
            p.n_own[0]++;
        else if (!einsum_is_needed(s, x->of[i], x, y))
            p.inner[p.n_inner++] = x->of[i];
        else if (!einsum_has_label(&s->out, x->of[i]))
            p.batch[p.n_batch++] = x->of[i];
    }
    for (int i = 0; i < y->n; i++) p.n_own[1] += !einsum_has_label(x, y->of[i]);
    return p;
}

// Multiplies elementwise, and possibly sums over shared labels if neither operand has labels of its own.
static bool einsum_multiply(const einsum *s, const pair *p, term *to) {
    uint8_t label[2 * CT_MAX_RANK];
    int64_t axes[CT_MAX_RANK];
    int n = 0;
    for (int i = 0; i < s->out.n; i++)
        if (einsum_has_label(p->x, s->out.of[i]) || einsum_has_label(p->y, s->out.of[i]))
            label[n++] = s->out.of[i];
    for (int k = 0; k < 2; k++) {
        const term *x = k ? p->y : p->x;
        for (int i = 0; i < x->n; i++)
            if (!einsum_has_label(&s->out, x->of[i]) && einsum_is_needed(s, x->of[i], p->x, p->y) &&
                !(k && einsum_has_label(p->x, x->of[i])))
                label[n++] = x->of[i];
    }
    const int n_kept = n;
    for (int i = 0; i < p->n_inner; i++) axes[i] = n, label[n++] = p->inner[i];
    if (n > CT_MAX_RANK)
        return FAIL(s, CT_E_SHAPE,
                    "a product on the way of \"%.200s\" has %d axes, %d are possible", s->text, n,
                    CT_MAX_RANK);
    ct_tensor a = einsum_broadcast(s, p->x, label, n), b = einsum_broadcast(s, p->y, label, n);
    ct_tensor t = ct_mul_at(a, b, s->here);
    if (p->n_inner)
        t = ct_sum_with((ct_sum_args){.x = t, .axes = {p->n_inner, axes}, .here = s->here});
    *to = (term){.n = n_kept, .dots = -1};
    for (int i = 0; i < n_kept; i++) to->of[i] = label[i];
    return einsum_replace(to, t);
}

static bool einsum_contract(const einsum *s, const pair *p, term *to) {
    const term *x = p->x, *y = p->y;
    // The operand whose own axes come first in the result is the first operand.
    for (int i = 0; i < s->out.n; i++) {
        if (einsum_has_label(x, s->out.of[i]) == einsum_has_label(y, s->out.of[i])) continue;
        if (einsum_has_label(y, s->out.of[i])) x = p->y, y = p->x;
        break;
    }
    int64_t list[4][CT_MAX_RANK];
    for (int i = 0; i < p->n_inner; i++)
        list[0][i] = einsum_axis_of(x, p->inner[i]), list[1][i] = einsum_axis_of(y, p->inner[i]);
    for (int i = 0; i < p->n_batch; i++)
        list[2][i] = einsum_axis_of(x, p->batch[i]), list[3][i] = einsum_axis_of(y, p->batch[i]);
    term result = {.dots = -1};
    // else ct_contract reports the error
    if (p->n_batch + p->n_own[0] + p->n_own[1] <= CT_MAX_RANK) {
        for (int i = 0; i < p->n_batch; i++) result.of[result.n++] = p->batch[i];
        for (int i = 0; i < x->n; i++)
            if (!einsum_has_label(y, x->of[i])) result.of[result.n++] = x->of[i];
        for (int i = 0; i < y->n; i++)
            if (!einsum_has_label(x, y->of[i])) result.of[result.n++] = y->of[i];
    }
    const ct_tensor t = ct_contract_with((ct_contract_args){.a = x->t,
                                                            .b = y->t,
                                                            .a_axes = {p->n_inner, list[0]},
                                                            .b_axes = {p->n_inner, list[1]},
                                                            .a_batch = {p->n_batch, list[2]},
                                                            .b_batch = {p->n_batch, list[3]},
                                                            .here = s->here});
    *to = result;
    return einsum_replace(to, t);
}

// Computes the number of multiplications of a pair, and the number of elements of its result.
static void einsum_pair_cost(const einsum *s, const term *x, const term *y, double cost[2]) {
    cost[0] = cost[1] = 1;
    for (int k = 0; k < 2; k++) {
        const term *of = k ? y : x;
        for (int i = 0; i < of->n; i++) {
            const int label = of->of[i], axis = (int)s->label[label].in[1];
            const ct_type *type = s->label[label].type;
            if (k && einsum_has_label(x, label)) continue;
            const double size =
                ct__is_dyn(type, axis) ? DYNAMIC_SIZE_GUESS : (double)type->dim[axis];
            cost[0] *= size;
            if (einsum_is_needed(s, label, x, y)) cost[1] *= size;
        }
    }
}

// Contracts the cheapest pair; the result takes the place of the earlier operand.
static bool einsum_contract_cheapest(einsum *s) {
    size_t best[2] = {0, 1};
    double min_cost[2] = {0}, cost[2];
    for (size_t i = 0; i < s->n; i++)
        for (size_t k = i + 1; k < s->n; k++) {
            einsum_pair_cost(s, &s->in[i], &s->in[k], cost);
            const bool is_cheaper =
                cost[0] < min_cost[0] || (cost[0] == min_cost[0] && cost[1] < min_cost[1]);
            if (!(i == 0 && k == 1) && !is_cheaper) continue;
            best[0] = i, best[1] = k;
            min_cost[0] = cost[0], min_cost[1] = cost[1];
        }
    const pair p = einsum_make_pair(s, &s->in[best[0]], &s->in[best[1]]);
    term result;
    const bool sums = p.n_inner && (p.n_own[0] || p.n_own[1]);
    if (!(sums ? einsum_contract(s, &p, &result) : einsum_multiply(s, &p, &result))) return false;
    s->in[best[0]] = result;
    for (size_t i = best[1] + 1; i < s->n; i++) s->in[i - 1] = s->in[i];
    s->n--;
    return true;
}

// Casts all operands to their common dtype.
static bool einsum_promote(const einsum *s) {
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
            !einsum_replace(&s->in[i], ct_cast_at(s->in[i].t, dtype, s->here)))
            return false;
    }
    return true;
}

static bool einsum_record(einsum *s, const ct_tensor *operands) {
    if (!einsum_parse(s)) return false;
    for (size_t i = 0; i < s->n; i++)
        if (!einsum_add_operand(s, i, operands[i])) return false;
    if (!einsum_set_result(s)) return false;
    for (size_t i = 0; i < s->n; i++)
        if (!einsum_drop_ones(s, &s->in[i]) || !einsum_take_diagonals(s, &s->in[i])) return false;
    if (!einsum_promote(s)) return false;
    for (size_t i = 0; i < s->n; i++)
        if (!einsum_sum_unused(s, &s->in[i])) return false;
    while (s->n > 1)
        if (!einsum_contract_cheapest(s)) return false;
    return einsum_permute(s, &s->in[0], s->out.of);
}

ct_tensor ct_einsum_at(const char *expression, const ct_tensor *operands, size_t n, ct_loc here) {
    ct_ctx *ctx = ct__ctx();
    if (!ctx) return CT_NONE;
    if (!expression || (n && !operands))
        return ct__fail(ctx, CT_E_ARGUMENT, here, "einsum", "there is no %s",
                        expression ? "list of operands" : "expression");
    einsum s = {.ctx = ctx, .here = here, .text = expression, .n = n};
    size_t n_terms = 1; // capacity for as many operands as the text may have
    for (const char *at = expression; *at; at++) n_terms += *at == ',';
    s.in = ct__malloc(n_terms * sizeof *s.in);
    if (!s.in) return ct__fail(ctx, CT_E_MEMORY, here, "einsum", "out of memory while recording");
    const bool ok = einsum_record(&s, operands);
    ct_tensor t = ok ? s.in[0].t : ct__poison(ctx, here);
    ct__free(s.in);
    for (size_t i = 0; ok && i < n; i++) // the result is always a new tensor
        if (operands[i].bits == t.bits) {
            ct_dims_buffer dims;
            return ct_reshape_at(t, ct__dims_of(t, &dims), here);
        }
    return t;
}

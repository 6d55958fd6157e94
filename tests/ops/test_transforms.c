// Functions of functions: what they say of bad input, and what they share. And, called as
//     test_transforms --programs DEVICE IN OUT
// runs programs of ops and transforms that tests/ops/programs.py wrote.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "ops/rules.h"
#include "support/case_file.h"
#include "support/record.h"

// ---------------------------------------------------------------------------------------------------
// programs: functions by number, each a list of instructions that add registers

enum { OP, NUMBER, WHOLE, CONST, TRANSFORM }; // instructions
enum {
    CALL,
    GRAD,
    VALUE_AND_GRAD,
    JVP,
    VJP,
    VMAP,
    LINEARIZE,
    LINEAR_TRANSPOSE,
    JACFWD,
    JACREV,
    HESSIAN,
    HVP,
    CUSTOM_JVP,
    CUSTOM_VJP,
    REMAT,
    SCAN,
    WHILE,
    FORI,
    COND,
    SWITCH,
    ASSOCIATIVE_SCAN,
    NAME,
    EINSUM,
};
enum { MOST_FUNCTIONS = 64, MOST_REGISTERS = 512, MOST_OPERANDS = 64 };

typedef struct {
    reader function[MOST_FUNCTIONS];
    int64_t n;
} program;
// A function being recorded: its registers, and the function in which it stands.
typedef struct frame {
    const program *program;
    const struct frame *outer;
    ct_tensor v[MOST_REGISTERS];
    int64_t n;
} frame;
// What a ct_fn is given: which function, and where it stands.
typedef struct {
    const frame *outer;
    int64_t function;
} closure;

static ct_tensor read_ref(reader *r, const frame *f) {
    int64_t depth = read_word(r), place = read_word(r);
    if (depth < 0) return CT_NONE;
    for (; depth > 0; depth--) f = f->outer;
    return f->v[place];
}
static int64_t read_refs(reader *r, const frame *f, ct_tensor *to) {
    int64_t n = read_word(r);
    for (int64_t i = 0; i < n; i++) to[i] = read_ref(r, f);
    return n;
}

static void read_op(reader *r, frame *f) {
    const ct_opdef *op = ct__ops[read_word(r)];
    const int64_t n_out = read_word(r);
    _Alignas(8) char attrs[512] = {0};
    ct_tensor in[MOST_OPERANDS];
    read_attrs(r, op, attrs);
    const int64_t n_in = read_refs(r, f, in);
    ct_tensor t = ct__record(op, attrs, in, (int)n_in, (ct_loc){"program", (uint32_t)f->n});
    for (int64_t i = 0; i < n_out; i++) f->v[f->n++] = ct__output(t, (uint32_t)i);
}

static void read_const(reader *r, frame *f) {
    ct_dtype dtype = (ct_dtype)read_word(r);
    ct_ints dims = read_list(r);
    size_t bytes = (size_t)read_word(r);
    f->v[f->n++] = ct_const(read_bytes(r, bytes), dtype, dims);
}

static void run_function(const ct_tensor *in, ct_tensor *out, void *user);
// The second and third of functions that share what they are given.
static void run_second(const ct_tensor *in, ct_tensor *out, void *user) {
    run_function(in, out, (closure *)user + 1);
}
static void run_third(const ct_tensor *in, ct_tensor *out, void *user) {
    run_function(in, out, (closure *)user + 2);
}
enum { MOST_SHARED = 3 };

// A transform's instruction: its functions as closures, operands, room for results, lists of numbers.
typedef struct {
    closure function[MOST_SHARED];
    ct_tensor in[MOST_OPERANDS], *out;
    int64_t n_in, n_out;
    ct_ints list[4];
} instruction;

static void run_vmap(const instruction *x) {
    ct_vmap(run_function, (void *)&x->function[0], x->in, (size_t)x->n_in, x->out, (size_t)x->n_out,
            .in_axes = x->list[0], .out_axes = x->list[1], .size = x->list[2].v[0]);
}

// Of the operands the first n are the function's, then come tangents, n for each use of the map, or
// cotangents for its transpose.
static void run_linearize(const instruction *x, bool transposed) {
    const size_t n = (size_t)x->list[0].v[0], more = (size_t)x->n_in - n;
    const size_t n_out = transposed ? more : (size_t)x->n_out / (1 + more / n);
    ct_linear_map map = ct_linearize(run_function, (void *)x->function, x->in, n, x->out, n_out);
    if (transposed) ct_linear_transpose(map, x->in + n, x->out + n_out);
    for (size_t i = 0; i < more / n && !transposed; i++)
        ct_linear_apply(map, x->in + n * (1 + i), x->out + n_out * (1 + i));
}

// Names are the bytes of the second list, a number each; each name ends with a 0.
static void run_remat(const instruction *x) {
    const char *names[8] = {0};
    char bytes[128] = {0};
    size_t n = 0;
    for (int64_t i = 0; i < x->list[1].n; i++) {
        if (i == 0 || !x->list[1].v[i - 1]) names[n++] = bytes + i;
        bytes[i] = (char)x->list[1].v[i];
    }
    ct_remat(run_function, (void *)x->function, x->in, (size_t)x->n_in, x->out, (size_t)x->n_out,
             .policy = (ct_remat_policy)x->list[0].v[0], .names = names, .n_names = n);
}

static void run_einsum(const instruction *x) {
    char text[128] = {0};
    for (int64_t i = 0; i < x->list[0].n; i++) text[i] = (char)x->list[0].v[i];
    x->out[0] = ct_einsum(text, x->in, (size_t)x->n_in);
}

static void run_scan(const instruction *x) {
    const size_t n_carry = (size_t)x->list[0].v[0];
    ct_scan(x->out, x->out + n_carry, .body = run_function, .user = (void *)&x->function[0],
            .carry = x->in, .n_carry = n_carry, .xs = x->in + n_carry,
            .n_xs = (size_t)x->n_in - n_carry, .n_ys = (size_t)x->n_out - n_carry,
            .length = x->list[0].v[1], .reverse = x->list[0].v[2] != 0);
}

static void run_while(const instruction *x) {
    ct_while(x->out, .cond = run_function, .body = run_second, .user = (void *)x->function,
             .carry = x->in, .n_carry = (size_t)x->n_in);
}

// Bounds are the first two operands, or numbers of a list.
static void run_fori(const instruction *x) {
    const ct_ints numbers = x->list[0];
    const size_t bounds = numbers.n ? 0 : 2;
    ct_fori_args args = {.body = run_function,
                         .user = (void *)x->function,
                         .carry = x->in + bounds,
                         .n_carry = (size_t)x->n_in - bounds,
                         .here = CT_HERE};
    if (numbers.n)
        args.lower = numbers.v[0], args.upper = numbers.v[1];
    else
        args.lower_value = x->in[0], args.upper_value = x->in[1];
    ct_fori_with(args, x->out);
}

// The first operand says which branch.
static void run_branches(int64_t which, const instruction *x) {
    static const ct_fn branches[MOST_SHARED] = {run_function, run_second, run_third};
    void *user = (void *)x->function;
    if (which == COND)
        ct_cond(x->out, .pred = x->in[0], .then = run_function, .otherwise = run_second,
                .user = user, .in = x->in + 1, .n_in = (size_t)x->n_in - 1,
                .n_out = (size_t)x->n_out);
    else
        ct_switch(x->out, .index = x->in[0], .branches = branches,
                  .n_branches = (size_t)x->list[0].v[0], .user = user, .in = x->in + 1,
                  .n_in = (size_t)x->n_in - 1, .n_out = (size_t)x->n_out);
}

// Of a function with `outs` results; the first list says how many operands are f's.
static void run_transform(int64_t which, instruction *x) {
    void *user = &x->function[0];
    const size_t n = x->list[0].n ? (size_t)x->list[0].v[0] : 0, n_out = (size_t)x->n_out;
    const size_t outs = x->list[1].n ? (size_t)x->list[1].v[0] : 0;
    const char text[2] = {n <= 'z' ? (char)n : 0};
    ct_tensor value[MOST_OPERANDS];
    switch (which) {
    case CALL: ct_call(run_function, user, x->in, (size_t)x->n_in, x->out, n_out); break;
    case GRAD: ct_grad(x->in[0], x->in + 1, n_out, x->out); break;
    case VALUE_AND_GRAD:
        ct_value_and_grad(run_function, user, x->in, n, x->out, outs, x->out + outs);
        break;
    case JVP: ct_jvp(run_function, user, x->in, n, x->out, outs, x->in + n, x->out + outs); break;
    case VJP: ct_vjp(run_function, user, x->in, n, x->out, outs, x->in + n, x->out + outs); break;
    case VMAP: run_vmap(x); break;
    case JACFWD: ct_jacfwd(run_function, user, x->in, n, value, outs, x->out); break;
    case JACREV: ct_jacrev(run_function, user, x->in, n, value, outs, x->out); break;
    case HESSIAN: ct_hessian(run_function, user, x->in, n, value, outs, x->out); break;
    case HVP: ct_hvp(run_function, user, x->in, n, x->in + n, x->out); break;
    case CUSTOM_JVP:
        ct_custom_jvp(run_function, run_second, x->function, x->in, (size_t)x->n_in, x->out, n_out);
        break;
    case CUSTOM_VJP:
        ct_custom_vjp(run_function, run_second, x->function, x->in, (size_t)x->n_in, x->out, n_out);
        break;
    case NAME: x->out[0] = ct_remat_name(x->in[0], text); break;
    case EINSUM: run_einsum(x); break;
    case LINEARIZE:
    case LINEAR_TRANSPOSE: run_linearize(x, which == LINEAR_TRANSPOSE); break;
    case REMAT: run_remat(x); break;
    case SCAN: run_scan(x); break;
    case WHILE: run_while(x); break;
    case FORI: run_fori(x); break;
    case COND:
    case SWITCH: run_branches(which, x); break;
    case ASSOCIATIVE_SCAN:
        ct_associative_scan(x->out, .f = run_function, .user = user, .xs = x->in,
                            .n_xs = (size_t)x->n_in, .axis = x->list[0].v[0],
                            .reverse = x->list[0].v[1] != 0);
        break;
    default: fprintf(stderr, "test_transforms: there is no transform %d\n", (int)which); exit(2);
    }
}

static void read_transform(reader *r, frame *f) {
    instruction x = {.out = f->v + f->n};
    const int64_t which = read_word(r);
    x.n_out = read_word(r);
    const int64_t n_functions = read_word(r);
    if (n_functions > MOST_SHARED) {
        fprintf(stderr, "test_transforms: %d functions in one transform, at most %d are possible\n",
                (int)n_functions, MOST_SHARED);
        exit(2);
    }
    for (int64_t i = 0; i < n_functions; i++) x.function[i] = (closure){f, read_word(r)};
    x.n_in = read_refs(r, f, x.in);
    const int64_t lists = read_word(r);
    for (int64_t i = 0; i < lists; i++) x.list[i] = read_list(r);
    run_transform(which, &x);
    f->n += x.n_out;
}

static void run_function(const ct_tensor *in, ct_tensor *out, void *user) {
    const closure *c = user;
    frame *f = calloc(1, sizeof *f);
    if (!f) exit(2);
    f->program = c->outer->program;
    f->outer = c->outer->n < 0 ? NULL : c->outer;
    reader r = f->program->function[c->function];
    f->n = read_word(&r);
    for (int64_t i = 0; i < f->n; i++) f->v[i] = in[i];
    for (int64_t n = read_word(&r); n > 0; n--) {
        switch (read_word(&r)) {
        case OP: read_op(&r, f); break;
        case NUMBER: f->v[f->n++] = ct_f(read_number(&r)); break;
        case WHOLE: f->v[f->n++] = ct_i(read_word(&r)); break;
        case CONST: read_const(&r, f); break;
        default: read_transform(&r, f);
        }
    }
    read_refs(&r, f, out);
    free(f);
}

static void next_program(reader *r, FILE *out) {
    static program p;
    CT_SCOPE;
    p.n = read_word(r);
    for (int64_t i = 0; i < p.n; i++) {
        const int64_t words = read_word(r);
        p.function[i] = (reader){r->at, r->at + words};
        r->at += words;
    }
    ct_tensor in[MOST_OPERANDS], outs[MOST_REGISTERS];
    const int64_t n_in = read_word(r), n_out = read_word(r);
    for (int64_t i = 0; i < n_in; i++) in[i] = read_operand(r);
    static const frame none = {.n = -1};
    frame top = none;
    top.program = &p;
    run_function(in, outs, &(closure){&top, 0});
    write_results(out, outs, (size_t)n_out, !ct_failed() && ct_eval(outs, (size_t)n_out));
}

// ---------------------------------------------------------------------------------------------------
// what is shared, and what is not made

#define TEST(name) cmocka_unit_test_setup_teardown(name, record_begin, record_end)

static void product(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_matmul(in[0], in[1]);
}

// Rows of all elements, columns of all elements, or a product an element.
static void a_product_with_one_operand_for_all_is_one_product(void **state) {
    (void)state;
    enum { BATCH = 6, ROWS = 3, INNER = 5, COLUMNS = 4 };
    assert_true(ct_set_device("cpu"));
    for (int shared = 0; shared < 3; shared++) {
        CT_SCOPE;
        ct_tensor rows = ct_random_uniform(ct_random_key(1), CT_DIMS(BATCH, ROWS, INNER)), out;
        ct_tensor columns = ct_random_uniform(ct_random_key(2), CT_DIMS(BATCH, INNER, COLUMNS));
        ct_tensor one[] = {ct_slice(rows, .stop = CT_INTS(1)),
                           ct_slice(columns, .stop = CT_INTS(1))};
        ct_tensor in[] = {
            shared == 0 ? ct_keep(ct_reshape(one[0], CT_DIMS(ROWS, INNER))) : ct_keep(rows),
            shared == 1 ? ct_keep(ct_reshape(one[1], CT_DIMS(INNER, COLUMNS))) : ct_keep(columns)};
        assert_true(ct_eval(in, 2));
        ct_vmap(product, NULL, in, 2, &out, 1,
                .in_axes = CT_AXES(shared == 0 ? CT_NO_AXIS : 0, shared == 1 ? CT_NO_AXIS : 0));
        assert_true(ct_eval(&out, 1));
        int products = 0;
        uint64_t bytes = 0;
        const ct_plan_cost *plan = ct_latest_plan();
        for (size_t i = 0; i < plan->n_launches; i++) {
            if (strcmp(plan->launches[i].op, "matmul")) continue;
            bytes += plan->launches[i].bytes;
            products++;
        }
        assert_int_equal(products, 1);
        // One matrix of the shared operand is read, not one an element.
        uint64_t all = BATCH * (ROWS * INNER + INNER * COLUMNS + ROWS * COLUMNS) * sizeof(float);
        uint64_t less = shared == 2   ? 0
                        : shared == 1 ? (BATCH - 1) * INNER * COLUMNS * sizeof(float)
                                      : (BATCH - 1) * ROWS * INNER * sizeof(float);
        assert_int_equal(bytes, all - less);
    }
}

static void heavy_then_light(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    ct_tensor heavy = ct_sum(ct_exp(ct_sin(ct_tanh(in[0])))); // of the operand that is one for all
    out[0] = ct_mul(in[1], heavy);
    out[1] = heavy;
}
static void what_is_the_same_for_all_is_computed_once(void **state) {
    (void)state;
    enum { BATCH = 64, N = 60 };
    assert_true(ct_set_device("cpu"));
    CT_SCOPE;
    ct_tensor in[] = {line_of(N), line_of(BATCH)}, out[2];
    ct_vmap(heavy_then_light, NULL, in, 2, out, 2, .in_axes = CT_AXES(CT_NO_AXIS, 0),
            .out_axes = CT_AXES(0, CT_NO_AXIS));
    assert_true(ct_eval(out, 2));
    assert_int_equal(ct_rank(out[1]), 0);
    assert_true(ct_latest_plan()->flops < 4 * N + 2 * BATCH);
    assert_true(at(out[0], 1) == 2 * at(out[1], 0));
}

enum { MANY = 40 };
static void sum_of_products(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = in[0];
    for (int i = 1; i < MANY; i++) out[0] = ct_add(out[0], ct_mul(in[i - 1], in[i]));
}
static void its_gradient(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    for (int i = 0; i < MANY; i++) {
        ct_tensor slope = i == 0 ? ct_add(in[1], ct_f(1)) : i + 1 < MANY ? in[i + 1] : ct_f(0);
        out[i] = ct_mul(in[MANY + 1], i ? ct_add(in[i - 1], slope) : slope);
    }
}
static void more_operands_than_a_tensor_has_axes(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor in[MANY], rows[MANY], out, sum, slope, grads[MANY], ones[MANY];
    for (int i = 0; i < MANY; i++) {
        in[i] = ct_scalar(i + 1, CT_F64);
        rows[i] = ct_full(in[i], CT_DIMS(3));
        ones[i] = ct_scalar(1, CT_F64);
    }
    ct_jvp(sum_of_products, NULL, in, MANY, &sum, 1, ones, &slope);
    ct_vjp(sum_of_products, NULL, in, MANY, &out, 1, ones, grads);
    double total = 0;
    for (int i = 0; i < MANY; i++) total += ct_item(grads[i]);
    assert_true(total == ct_item(slope) && ct_item(grads[0]) == 3 && ct_item(grads[1]) == 4);
    ct_custom_vjp(sum_of_products, its_gradient, NULL, in, MANY, &out, 1);
    ct_grad(out, in, MANY, grads);
    assert_true(ct_item(grads[0]) == 3 && ct_item(grads[MANY - 1]) == MANY - 1);
    ct_vmap(sum_of_products, NULL, rows, MANY, &out, 1);
    assert_true(ct_item(ct_slice(out, .start = CT_INTS(2))) == ct_item(sum));
    assert_ok();
}

static void a_linear_map_computes_its_function_once(void **state) {
    (void)state;
    enum { N = 64, USES = 3 };
    double flops[2];
    assert_true(ct_set_device("cpu"));
    for (int apart = 0; apart < 2; apart++) {
        CT_SCOPE;
        ct_tensor in[] = {line_of(N), line_of(N)}, out[2], value[2], slope[2 * USES];
        ct_linear_map map = ct_linearize(heavy_then_light, NULL, in, 2, out, 2);
        for (int i = 0; i < USES; i++) {
            ct_tensor way[] = {ct_mul(in[0], ct_f(i + 1)), CT_NONE};
            if (apart)
                ct_jvp(heavy_then_light, NULL, in, 2, value, 2, way, slope + 2 * i);
            else
                ct_linear_apply(map, way, slope + 2 * i);
        }
        assert_true(ct_eval(slope, 2 * USES));
        flops[apart] = ct_latest_plan()->flops;
    }
    assert_true(flops[0] > 0 && flops[0] <= flops[1]);
    assert_ok();
}

static void sum_of_square(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_add(ct_sum(ct_mul(in[0], in[0])), in[1]);
}
static void a_known_step_makes_no_plan(void **state) {
    (void)state;
    uint64_t made = 0;
    for (int step = 0; step < 3; step++) {
        CT_SCOPE;
        ct_tensor in[] = {line_of(4), ct_f(step)}, out, slope, tangents[] = {line_of(4), CT_NONE};
        ct_jvp(sum_of_square, NULL, in, 2, &out, 1, tangents, &slope);
        assert_true(ct_item(slope) == 2 * 30 && ct_item(out) == 30 + step);
        if (step == 0) made = plans_made();
    }
    assert_int_equal(plans_made(), made);
}

// A result may be an operand, and one tensor may be several operands.
static void swaps(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = in[1];
    out[1] = ct_mul(in[0], in[0]);
}
static void operands_that_are_one_tensor_stay_apart(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor x = ct_f(3), in[] = {x, x}, out[2], slopes[2];
    ct_tensor tangents[] = {ct_f(1), CT_NONE}, cotangents[] = {ct_f(1), ct_f(1)};
    ct_jvp(swaps, NULL, in, 2, out, 2, tangents, slopes);
    assert_true(ct_item(slopes[0]) == 0 && ct_item(slopes[1]) == 6);
    ct_vjp(swaps, NULL, in, 2, out, 2, cotangents, slopes);
    assert_true(ct_item(slopes[0]) == 6 && ct_item(slopes[1]) == 1);
    assert_true(ct_item(out[0]) == 3 && ct_item(out[1]) == 9);
    assert_ok();
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "--programs") == 0)
        return run_cases(argv[2], argv[3], argv[4], next_program);
    const struct CMUnitTest tests[] = {
        TEST(a_product_with_one_operand_for_all_is_one_product),
        TEST(what_is_the_same_for_all_is_computed_once),
        TEST(more_operands_than_a_tensor_has_axes),
        TEST(a_linear_map_computes_its_function_once),
        TEST(a_known_step_makes_no_plan),
        TEST(operands_that_are_one_tensor_stay_apart),
    };
    return cmocka_run_group_tests_name("transforms", tests, NULL, NULL);
}

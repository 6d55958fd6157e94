// The table of ops: every record is whole. And, called as
//     test_ops --cases DEVICE IN OUT        evaluates cases that test_op_values.py wrote
//     test_ops --graphs DEVICE IN OUT       evaluates graphs that test_op_graphs.py wrote
//     test_ops --table OUT                  writes the records, from which it makes them
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/rules.h"
#include "support/case_file.h"

// ---------------------------------------------------------------------------------------------------
// the table

static void names_and_numbers_are_distinct(void **state) {
    (void)state;
    for (uint32_t i = 0; i < ct__n_ops; i++) {
        const ct_opdef *op = ct__ops[i];
        assert_non_null(op->name);
        for (uint32_t j = 0; j < i; j++) {
            assert_string_not_equal(op->name, ct__ops[j]->name);
            assert_int_not_equal(op->id, ct__ops[j]->id);
        }
    }
}

static void records_are_whole(void **state) {
    (void)state;
    int bad = 0;
#define NEEDS(condition, what)                                                                     \
    if (!(condition)) bad++, print_error("op %s: %s\n", op->name, what)
    for (uint32_t i = 0; i < ct__n_ops; i++) {
        const ct_opdef *op = ct__ops[i];
        bool composed = op->kind == &ct__kind_composition || op->kind->takes;
        NEEDS(op->doc && *op->doc && op->doc[strlen(op->doc) - 1] == '.', "no doc, or no sentence");
        NEEDS(op->infer, "no shape rule");
        NEEDS(op->accepts, "accepts nothing");
        NEEDS((op->fields == NULL) == (op->attr_size == 0), "fields and size of attributes differ");
        bool owner = composed || op->kind == &ct__kind_loop; // of a body
        NEEDS(op->jvp || (owner && (op->body || op->vjp)), "no jvp and no CT_NO_GRAD");
        NEEDS(composed == (op->body != NULL), "a body is what makes a composition");
        // What an optimizer records widens by itself, or in the op that it is made of; a traced function is what
        // its user wrote.
        bool own = op == &ct__op_update || op == &ct__op_global_norm ||
                   op == &ct__op_linear_cross_entropy || op == &ct__op_quantised_matmul ||
                   op->accepts == CT_ANY;
        NEEDS(composed || !op->widens, "it has no body to widen");
        NEEDS(!composed || own || op->widens || !(op->accepts & CT_HALVES), "16-bit steps");
        NEEDS(!op->vjp || owner, "a vjp of its own is for what owns a body");
        const ct_kind *kind = op->kind;
        NEEDS(kind && kind->name && kind->doc, "no kind, or one without name or doc");
        if (kind->scheduled == CT_POINTWISE) {
            NEEDS(op->emit, "no kernel IR");
            NEEDS(!(op->accepts & CT_FLOATS) || op->eval_f64 || op->eval, "no eval_f64");
            NEEDS(!(op->accepts & CT_BITS) || op->eval_i64 || op->eval, "no eval_i64");
        } else if (kind->scheduled != CT_STRUCTURAL) {
            NEEDS(op->eval || kind->eval || kind->takes, "no reference evaluation");
        }
        if (kind == &ct__kind_reduce || kind == &ct__kind_scan)
            NEEDS(op->reduction || op->monoid.join, "no reduction, and no monoid");
        NEEDS((kind->scheduled == CT_MAPPED) == (op->map != NULL),
              "an index map is for the mapped");
        NEEDS((kind->scheduled == CT_TEMPLATE) == (kind->kernels != NULL),
              "its kind says that it has a template, and has none, or has one and does not say so");
        bool used = kind->scheduled == CT_STRUCTURAL || kind->scheduled == CT_TEMPLATE ||
                    kind->scheduled == CT_CALLED;
        NEEDS(used == (kind->value == NULL), "its kind does not say what an element is");
        if (kind == &ct__kind_transform)
            NEEDS(op->expand || op->transpose, "it does not say what it stands for");
        if (kind == &ct__kind_movement) NEEDS(op->transpose, "linear, but no transpose");
        bool inside = kind != &ct__kind_leaf && kind != &ct__kind_transform && op->n_in != 0;
        bool batches = op->batch || kind->batch || op->body;
        NEEDS(!inside || batches, "no rule for batches and no CT_NO_VMAP");
        if (op->jvp == ct__jvp_same) NEEDS(op->transpose, "linear, but no transpose");
    }
#undef NEEDS
    assert_int_equal(bad, 0);
}

// ---------------------------------------------------------------------------------------------------
// cases from a file

enum { MANY = 128 };

// The sum over float tensors of all elements times weights from the file; `bent`: of x + x x / 2
// for each element x, so that linear ops have a second derivative, too.
static ct_tensor weighted(reader *r, const ct_tensor *t, int n, bool bent) {
    ct_tensor total = CT_NONE;
    for (int i = 0; i < n; i++) {
        size_t bytes = (size_t)read_word(r);
        const void *data = read_bytes(r, bytes);
        if (!bytes || !ct_ok(t[i])) continue;
        ct_dims_buffer dims;
        ct_tensor w = ct_from(data, CT_F64, ct__dims_of(t[i], &dims));
        ct_tensor x = t[i];
        if (bent) x = ct_add(x, ct_mul(ct_mul(x, x), ct_f(0.5)));
        total = ct__add_zero(total, ct_sum(ct_mul(x, w)));
    }
    return total;
}

// What a case asks for: outputs; of a case with gradients then loss, slope, first and second
// derivatives.
typedef struct {
    ct_tensor v[4 * MANY + 2];
    size_t n;
} wanted;

static void record_case(reader *r, wanted *want) {
    const ct_opdef *op = ct__ops[read_word(r)];
    bool gradients = read_word(r);
    _Alignas(8) char attrs[512] = {0};
    read_attrs(r, op, attrs);
    ct_tensor in[MANY], floats[MANY], *outs = want->v;
    int n_in = (int)read_word(r), n_floats = 0, n_out = 0;
    for (int i = 0; i < n_in; i++) {
        in[i] = read_operand(r);
        if (ct_dtype_of(in[i]) == CT_F64) floats[n_floats++] = in[i];
    }
    ct_tensor t = ct__record(op, attrs, in, n_in, (ct_loc){"case", 1});
    uint32_t first_out;
    const ct_node *node = ct__peek(t, &first_out);
    n_out = node && ct_ok(t) ? node->n_out : 1;
    for (int i = 0; i < n_out; i++) outs[i] = ct__output(t, (uint32_t)i);
    want->n = (size_t)n_out;
    if (!gradients) return;
    ct_tensor *loss = outs + n_out, *slope = loss + 1, *first = slope + 1;
    *loss = weighted(r, outs, n_out, true);
    ct_grad(*loss, floats, (size_t)n_floats, first);
    *slope = weighted(r, first, n_floats, false);
    want->n += 2 + (size_t)n_floats;
    if (!read_word(r)) return;
    ct_grad(*slope, floats, (size_t)n_floats, first + n_floats);
    want->n += (size_t)n_floats;
}

enum { GROUP = 64 };

// Some cases as one plan, so that a device that compiles does so once for all of them; one by one
// when that fails, to tell which it was.
static void some_cases(reader *r, FILE *out) {
    static wanted want[GROUP];
    static ct_tensor all[GROUP * MANY];
    reader before = *r;
    int n = 0;
    {
        CT_SCOPE;
        size_t n_all = 0;
        while (n < GROUP && r->at < r->end) {
            reader here = *r;
            record_case(r, &want[n]);
            if (n_all + want[n].n > GROUP * MANY) { // the next group's first
                *r = here;
                break;
            }
            for (size_t i = 0; i < want[n].n; i++) all[n_all++] = want[n].v[i];
            n++;
        }
        if (!ct_failed() && ct_eval(all, n_all)) {
            for (int i = 0; i < n; i++) write_results(out, want[i].v, want[i].n, true);
            return;
        }
        ct_error_clear();
    }
    *r = before;
    for (int i = 0; i < n; i++) {
        CT_SCOPE;
        record_case(r, &want[0]);
        write_results(out, want[0].v, want[0].n, !ct_failed() && ct_eval(want[0].v, want[0].n));
    }
}

// A graph: the number of its nodes, the nodes, the number of its roots, and the roots. A value is a
// node and an output of it.
enum { LEAF, CONSTANT, BARE_FLOAT, BARE_INTEGER, NODE_OF_OP, GRADIENT }; // what a node is
enum { NODES = 256 };

static ct_tensor read_value(reader *r, const ct_tensor *nodes) {
    ct_tensor node = nodes[read_word(r)];
    return ct__output(node, (uint32_t)read_word(r));
}

static ct_tensor read_op(reader *r, const ct_tensor *nodes) {
    const ct_opdef *op = ct__ops[read_word(r)];
    _Alignas(8) char attrs[512] = {0};
    ct_tensor in[MANY];
    read_attrs(r, op, attrs);
    int n = (int)read_word(r);
    for (int i = 0; i < n; i++) in[i] = read_value(r, nodes);
    return ct__record(op, attrs, in, n, (ct_loc){"graph", 1});
}

// Of the sum of one value, with respect to another.
static ct_tensor read_gradient(reader *r, const ct_tensor *nodes) {
    ct_tensor of = ct_sum(read_value(r, nodes)), wrt = read_value(r, nodes), gradient;
    ct_grad(of, &wrt, 1, &gradient);
    return gradient;
}

static ct_tensor read_const(reader *r) {
    ct_dtype dtype = (ct_dtype)read_word(r);
    ct_ints dims = read_list(r);
    size_t bytes = (size_t)read_word(r);
    return ct_const(read_bytes(r, bytes), dtype, dims);
}

static void record_graph(reader *r, wanted *want) {
    ct_tensor nodes[NODES];
    int64_t n = read_word(r);
    for (int64_t i = 0; i < n; i++) {
        switch (read_word(r)) {
        case LEAF: nodes[i] = read_operand(r); break;
        case CONSTANT: nodes[i] = read_const(r); break;
        case BARE_FLOAT: nodes[i] = ct_f(read_number(r)); break;
        case BARE_INTEGER: nodes[i] = ct_i(read_word(r)); break;
        case GRADIENT: nodes[i] = read_gradient(r, nodes); break;
        default: nodes[i] = read_op(r, nodes);
        }
    }
    want->n = (size_t)read_word(r);
    for (size_t i = 0; i < want->n; i++) want->v[i] = read_value(r, nodes);
}

// Each graph is a plan of its own, of all its roots.
static void next_graph(reader *r, FILE *out) {
    static wanted want;
    CT_SCOPE;
    record_graph(r, &want);
    write_results(out, want.v, want.n, !ct_failed() && ct_eval(want.v, want.n));
}

// A line a dtype: its name and bits.
static int write_dtypes(const char *path) {
    FILE *out = fopen(path, "w");
    if (!out) return 2;
    for (ct_dtype d = CT_DEFAULT + 1; d < CT_DTYPE_COUNT; d++)
        fprintf(out, "%s %d\n", ct_dtype_name(d), ct__dtype(d)->bits);
    return fclose(out) == 0 ? 0 : 2;
}

// A line a pair: both dtypes, a '*' behind that of a bare number, and the one in which they meet,
// "none" where there is none.
static int write_promotions(const char *path) {
    FILE *out = fopen(path, "w");
    if (!out) return 2;
    for (ct_dtype a = CT_DEFAULT + 1; a < CT_DTYPE_COUNT; a++)
        for (ct_dtype b = CT_DEFAULT + 1; b < CT_DTYPE_COUNT; b++)
            for (int bare = 0; bare < 4; bare++) {
                const ct_dtype met = ct__promote(a, bare & 1, b, bare & 2);
                fprintf(out, "%s%s %s%s %s\n", ct_dtype_name(a), bare & 1 ? "*" : "",
                        ct_dtype_name(b), bare & 2 ? "*" : "", met ? ct_dtype_name(met) : "none");
            }
    return fclose(out) == 0 ? 0 : 2;
}

// A line an op: name kind operands outputs accepts gradient lo hi integers kinks ulp, then fields
// kind:name.
static int write_table(const char *to) {
    FILE *out = fopen(to, "w");
    if (!out) return 2;
    static const char *const fields[] = {"i64",  "f64",  "num",  "bool", "dtype",
                                         "ints", "body", "data", "type"};
    for (uint32_t i = 0; i < ct__n_ops; i++) {
        const ct_opdef *op = ct__ops[i];
        fprintf(out, "%s %s %d %d %llu %d %g %g %d %d %g", op->name, op->kind->name, op->n_in,
                op->n_out, (unsigned long long)op->accepts, op->jvp != ct__no_grad, op->samples.lo,
                op->samples.hi, op->samples.integers, op->samples.kinks, op->samples.ulp);
        for (size_t f = 0; f < op->n_fields; f++)
            fprintf(out, " %s:%s", fields[op->fields[f].kind], op->fields[f].name);
        fputc('\n', out);
    }
    return fclose(out) == 0 ? 0 : 2;
}

int main(int argc, char **argv) {
    if (argc == 5 && strcmp(argv[1], "--cases") == 0)
        return run_cases(argv[2], argv[3], argv[4], some_cases);
    if (argc == 5 && strcmp(argv[1], "--graphs") == 0)
        return run_cases(argv[2], argv[3], argv[4], next_graph);
    if (argc == 3 && strcmp(argv[1], "--table") == 0) return write_table(argv[2]);
    if (argc == 3 && strcmp(argv[1], "--dtypes") == 0) return write_dtypes(argv[2]);
    if (argc == 3 && strcmp(argv[1], "--promotions") == 0) return write_promotions(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_numbers_are_distinct),
        cmocka_unit_test(records_are_whole),
    };
    return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}

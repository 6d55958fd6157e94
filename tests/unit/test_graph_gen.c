// Random graphs (tests/support/graph_gen.h) stay what they are when an op joins the table.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "support/graph_gen.h"

enum { SEED = 20261123, GRAPHS = 40, EACH = 4, MADE = 600 };

static bool same_ints(ct_ints a, ct_ints b) {
    return a.n == b.n && (a.n == 0 || memcmp(a.v, b.v, (size_t)a.n * sizeof *a.v) == 0);
}

static bool same_step(const gen_step *a, const gen_step *b) {
    if (a->kind != b->kind || a->op != b->op || a->n_in != b->n_in || a->first != b->first ||
        a->n_out != b->n_out || memcmp(a->in, b->in, (size_t)a->n_in * sizeof *a->in) != 0)
        return false;
    switch (a->kind) {
    case GEN_DATA:
    case GEN_CONST: {
        size_t size = ct_dtype_size(a->dtype);
        for (int64_t i = 0; i < a->dims.n; i++) size *= (size_t)ct__unmarked(a->dims.v[i]);
        return a->dtype == b->dtype && same_ints(a->dims, b->dims) &&
               memcmp(a->data, b->data, size) == 0;
    }
    case GEN_WEAK:
        return a->dtype == b->dtype && memcmp(&a->number, &b->number, sizeof a->number) == 0;
    case GEN_OP: return !a->op->n_fields || ct__attrs_equal(a->op, a->attrs, b->attrs);
    case GEN_LOOP: return memcmp(a->attrs, b->attrs, 3) == 0;
    }
    return false;
}

static bool same_graph(const gen_graph *a, const gen_graph *b) {
    if (a->n_steps != b->n_steps || a->n_roots != b->n_roots || a->loss != b->loss ||
        a->n_wrt != b->n_wrt)
        return false;
    for (int i = 0; i < a->n_steps; i++)
        if (!same_step(&a->step[i], &b->step[i])) return false;
    return memcmp(a->root, b->root, (size_t)a->n_roots * sizeof *a->root) == 0 &&
           memcmp(a->wrt, b->wrt, (size_t)a->n_wrt * sizeof *a->wrt) == 0;
}

// With one op taken from the table, a graph is the same unless it had chosen that op.
static void an_op_changes_only_graphs_that_choose_it(void **state) {
    (void)state;
    gen_graph *with = malloc(sizeof *with), *without = malloc(sizeof *without);
    assert_true(with && without && ct_set_device("ref"));
    int kept = 0, changed = 0, fewest = MADE;
    int *chosen_by = calloc(ct__n_ops, sizeof *chosen_by);
    assert_non_null(chosen_by);
    for (uint64_t number = 0; number < MADE; number++) {
        gen_make(with, SEED, number);
        int left = EACH;
        const bool compared = number < GRAPHS;     // the others tell which ops are chosen
        for (uint32_t k = 0; k < ct__n_ops; k++) { // begins elsewhere in the table each time
            uint32_t place = (uint32_t)((k + number * 37) % ct__n_ops);
            const ct_opdef *op = ct__ops[place];
            bool chosen = with->chosen[place];
            chosen_by[place] += chosen;
            if (!compared || !gen_wants(op) || (!chosen && left-- <= 0)) continue;
            gen_make_without(without, SEED, number, op);
            bool same = same_graph(with, without);
            gen_free(without);
            if (!chosen && !same)
                fail_msg("graph %llu changes without the op %s, which it did not choose",
                         (unsigned long long)number, op->name);
            kept += !chosen;
            changed += !same;
        }
        gen_free(with);
    }
    for (uint32_t i = 0; i < ct__n_ops; i++)
        if (gen_wants(ct__ops[i]) && chosen_by[i] < fewest) fewest = chosen_by[i];
    print_message("%d graphs as before without an op, %d others; each op is chosen by %d or more\n",
                  kept, changed, fewest);
    assert_true(kept == GRAPHS * EACH && changed > GRAPHS && fewest >= 1);
    free(chosen_by);
    free(with);
    free(without);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_op_changes_only_graphs_that_choose_it),
    };
    return cmocka_run_group_tests_name("graph_gen", tests, NULL, NULL);
}

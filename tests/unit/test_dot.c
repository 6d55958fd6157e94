// Graphs for Graphviz: what COTAN_DUMP=dot says of a small program, whole. With --print, says it
// to standard error, for test_dot.py.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cotan/cotan.h"

static char said[1 << 16];

static void listen(ct_log_kind kind, const char *text, void *user) {
    (void)user;
    if (kind == CT_LOG_DUMP) strncat(said, text, sizeof said - strlen(said) - 1);
}

// The user's names and paths hold whatever they like.
#define ODD "a \"b\"\\c\n{<d>}.c"

static double program(void) {
    CT_SCOPE;
    const ct_loc odd = {ODD, 7};
    const float values[2] = {3, 4};
    ct_params *params = ct_params_new();
    ct_tensor w = ct_param_at(params, "w\"\\1", CT_F32, CT_SCALAR, odd);
    ct_assign_at(w, ct_f(2), odd);
    ct_tensor x = ct_from_at(values, CT_F32, CT_DIMS(2), odd); // (2,)
    ct_tensor loss = ct_sum_with((ct_sum_args){ct_mul_at(x, w, odd), .here = odd});
    ct_metric_at("loss \"1\"", loss, odd);
    double value = ct_item_at(loss, odd);
    ct_params_free(params);
    return value;
}

static const char recorded[] =
    "digraph \"recorded\" {\n"
    "  node [shape=box fontname=\"monospace\"];\n"
    "  n0 [label=\"scalar\\nf32()\" shape=ellipse];\n"
    "  n1 [label=\"cast\\ndtype=f32\\nf32()\\na \\\"b\\\"\\\\c?{<d>}.c:7\"];\n"
    "  n2 [label=\"data\\nf32(2,)\\na \\\"b\\\"\\\\c?{<d>}.c:7\" shape=ellipse];\n"
    "  n3 [label=\"same w\\\"\\\\1\\nf32()\\na \\\"b\\\"\\\\c?{<d>}.c:7\"];\n"
    "  n4 [label=\"mul\\nf32(2,)\\na \\\"b\\\"\\\\c?{<d>}.c:7\"];\n"
    "  n5 [label=\"sum\\naxes=[0], keepdims=false\\nf32()\\na \\\"b\\\"\\\\c?{<d>}.c:7\"];\n"
    "  n0 -> n1;\n"
    "  n1 -> n3;\n"
    "  n2 -> n4;\n"
    "  n3 -> n4;\n"
    "  n4 -> n5;\n"
    "  root0 [label=\"assign w\\\"\\\\1\" shape=plain];\n"
    "  n1 -> root0;\n"
    "  root1 [label=\"metric loss \\\"1\\\"\" shape=plain];\n"
    "  n5 -> root1;\n"
    "  root2 [label=\"read\" shape=plain];\n"
    "  n5 -> root2;\n"
    "}\n";

static void whole(void **state) {
    (void)state;
    assert_true(ct_set_device("ref"));
    ct_set_log(listen, NULL);
    setenv("COTAN_DUMP", "dot", 1);
    assert_true(program() == 14);
    unsetenv("COTAN_DUMP");
    const char *end = strstr(said, "\n}\n");
    assert_non_null(end);
    size_t n = (size_t)(end - said) + 3;
    char *first = strndup(said, n);
    assert_non_null(first);
    assert_string_equal(first, recorded);
    free(first);
    assert_non_null(strstr(said, "digraph \"expanded\" {\n"));
    assert_non_null(strstr(said, "digraph \"simplified\" {\n"));
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--print") == 0) return program() != 14;
    const struct CMUnitTest tests[] = {cmocka_unit_test(whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

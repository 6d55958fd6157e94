// Plans written ahead of time: what the C compiler makes of them, alone and by several options, has
// the bits of the library, keeps to the memory that it was given, and warns of nothing.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fenv.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compile/plan.h"
#include "support/graph_gen.h"

static char folder[] = "/tmp/cotan-ahead-XXXXXX";

typedef struct buffer {
    size_t bytes;
    ct_dtype dtype; // of a result
    void *data;
} buffer;

enum { MOST = 2048, GUARD = 64, POISON = 0xa5 };
typedef struct plan {
    const char *name;
    int n_in, n_out;
    buffer in[MOST], out[MOST]; // out: the library's results
} plan;

static void *copy_of(const void *data, size_t bytes) {
    void *copy = malloc(bytes + 1);
    assert_true(copy && (data || !bytes));
    if (bytes) memcpy(copy, data, bytes);
    return copy;
}

static char *read_text(const char *name, const char *end) {
    char path[200], *text = NULL;
    snprintf(path, sizeof path, "%s/%s%s", folder, name, end);
    FILE *f = fopen(path, "r");
    size_t cap = 0;
    assert_true(f && getdelim(&text, &cap, 0, f) > 0);
    fclose(f);
    return text;
}

static int count(const char *text, const char *part) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++) n++;
    return n;
}

// Writes what is pending, runs it here as well, and remembers what went in and came out. Only
// inputs, scalars and results: their members are numbered.
static void write_plan(plan *p, const char *name) {
    char path[200];
    static ct_tensor results[MOST];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!ct_compile(path)) fail_msg("%s", ct_error_text());
    const ct_executor *engine = ct__ctx()->device;
    char *header = read_text(name, ".h");
    *p = (plan){
        .name = name, .n_in = (int)engine->order.n_leaves, .n_out = count(header, "*result_")};
    assert_int_equal(count(header, "*input_"), p->n_in);
    free(header);
    assert_in_range(p->n_out, 1, MOST);
    assert_in_range(p->n_in, 0, MOST);
    for (int i = 0; i < p->n_in; i++) {
        const ct_storage *leaf = engine->order.leaves[i]; // device cpu: in the host's memory
        p->in[i] = (buffer){leaf->bytes, CT_DEFAULT, copy_of(leaf->buffer, leaf->bytes)};
    }
    for (int i = 0; i < p->n_out; i++) results[i] = ct__handle_of(engine->roots[i].val);
    assert_true(ct_eval(NULL, 0));
    for (int i = 0; i < p->n_out; i++) {
        size_t bytes = (size_t)ct_size(results[i]) * ct_dtype_size(ct_dtype_of(results[i]));
        p->out[i] = (buffer){bytes, ct_dtype_of(results[i]), copy_of(ct_data(results[i]), bytes)};
    }
}

static void forget(plan *p) {
    for (int i = 0; i < p->n_in; i++) free(p->in[i].data);
    for (int i = 0; i < p->n_out; i++) free(p->out[i].data);
}

// A function that fills the struct, which this program cannot know.
static void write_glue(const plan *p) {
    char path[200];
    snprintf(path, sizeof path, "%s/call_%s.c", folder, p->name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "#include \"%s.h\"\nint call(void **p);\nint call(void **p) {\n", p->name);
    fprintf(f, "    struct %s s;\n    %s_init(&s);\n    s.arena = p[0];\n", p->name, p->name);
    for (int i = 0; i < p->n_in; i++) fprintf(f, "    s.input_%d = p[%d];\n", i + 1, i + 1);
    for (int i = 0; i < p->n_out; i++)
        fprintf(f, "    s.result_%d = p[%d];\n", i + 1, p->n_in + i + 1);
    fprintf(f, "    return %s(&s);\n}\nextern const unsigned long room;\n", p->name);
    fprintf(f, "const unsigned long room = ");
    for (const char *c = p->name; *c; c++) fputc(*c & ~0x20, f);
    fprintf(f, "_ARENA_BYTES;\n");
    assert_int_equal(fclose(f), 0);
}

static void *guarded(size_t bytes) {
    unsigned char *p = aligned_alloc(64, (bytes + GUARD + 63) & ~(size_t)63);
    assert_non_null(p);
    memset(p, POISON, bytes + GUARD);
    return p;
}
static void guard_stands(const unsigned char *p, size_t bytes) {
    for (int i = 0; i < GUARD; i++) assert_int_equal(p[bytes + (size_t)i], POISON);
}

static void same_bits(const plan *p, int k, const char *got, const char *options) {
    const buffer *b = &p->out[k];
    size_t size = ct_dtype_size(b->dtype);
    for (size_t i = 0; i < b->bytes / size; i++) {
        const char *x = (const char *)b->data + i * size, *y = got + i * size;
        if (memcmp(x, y, size) == 0) continue;
        double a = ct__load_f64(b->dtype, x, 0), c = ct__load_f64(b->dtype, y, 0);
        if (ct__is_float(b->dtype) && isnan(a) && isnan(c)) continue; // whose bits mean nothing
        fail_msg("%s by %s: result %d, element %zu: %.17g, the library's is %.17g", p->name,
                 options, k + 1, i, c, a);
    }
}

static void compile(const plan *p, const char *options) {
    char command[600];
    snprintf(
        command, sizeof command,
        "cd %s && %s -Wall -Wextra -Werror -shared -fPIC -o %s.so %s.c call_%s.c -lm 2>said || "
        "{ head -20 said >&2; false; }",
        folder, options, p->name, p->name, p->name);
    if (system(command) != 0) fail_msg("%s", command);
}

static void run_written(const plan *p, const char *options) {
    char path[200];
    write_glue(p);
    compile(p, options);
    snprintf(path, sizeof path, "%s/%s.so", folder, p->name);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
    int (*call)(void **) = NULL;
    *(void **)&call = dlsym(library, "call");
    const unsigned long *room = dlsym(library, "room");
    assert_true(call && room);
    static void *given[2 * MOST + 1];
    for (int i = 0; i < p->n_in; i++) given[i + 1] = p->in[i].data;
    for (int i = 0; i < p->n_out; i++) given[p->n_in + i + 1] = guarded(p->out[i].bytes);
    unsigned char *arena = given[0] = guarded(*room);
    fesetround(FE_UPWARD); // the caller's modes are not the plan's, and stay
    assert_int_equal(call(given), 0);
    assert_int_equal(fegetround(), FE_UPWARD);
    fesetround(FE_TONEAREST);
    guard_stands(arena, *room);
    for (int i = 0; i < p->n_out; i++) {
        same_bits(p, i, given[p->n_in + i + 1], options);
        guard_stands(given[p->n_in + i + 1], p->out[i].bytes);
    }
    given[0] = arena + 8;
    assert_int_equal(call(given), 1);
    given[0] = NULL;
    assert_int_equal(call(given), 1);
    given[0] = arena;
    free(given[p->n_in + 1]);
    given[p->n_in + 1] = NULL; // the first result
    assert_int_equal(call(given), p->out[0].bytes ? 2 : 0);
    for (int i = 1; i < p->n_out; i++) free(given[p->n_in + i + 1]);
    free(arena);
    dlclose(library);
}

// --------------------------------------------------------------------------------- chosen programs

static const int32_t rows[3] = {4, 0, 2};
static float numbers[5 * 700];

static void fill(void) {
    for (int i = 0; i < 5 * 700; i++) numbers[i] = (float)((i * 37 % 101) - 50) / 32;
}

static void sum_of_squares(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user; // in: (2,) carried, (2,) of the row
    out[0] = ct_add(ct_mul(in[0], ct_f(0.5)), ct_mul(in[1], in[1]));
    out[1] = ct_sum(out[0]);
}

static void keep_scan(ct_tensor x) { // (5, 700)
    ct_tensor carry = ct_zeros(CT_F32, CT_DIMS(2)), last, sums;
    ct_tensor by_2 = ct_reshape(x, CT_DIMS(1750, 2)); // more iterations than a launch does
    ct_scan(&last, &sums, .body = sum_of_squares, .carry = &carry, .n_carry = 1, .xs = &by_2,
            .n_xs = 1, .n_ys = 1, .reverse = true);
    ct_keep(last);
    ct_keep(sums);
}

// Collatz: how often it turns is not known before; which branch it takes neither.
static void is_not_one(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_not_equal(in[0], ct_i(1));
}
static void half(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_div(in[0], ct_i(2));
}
static void thrice(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_add(ct_mul(in[0], ct_i(3)), ct_i(1));
}
static void collatz(const ct_tensor *in, ct_tensor *out, void *user) {
    ct_tensor odd = ct_equal(ct_mod(in[0], ct_i(2)), ct_i(1));
    ct_cond(out, .pred = odd, .then = thrice, .otherwise = half, .user = user, .in = in, .n_in = 1,
            .n_out = 1);
    out[1] = ct_add(in[1], ct_i(1));
}
// Of each element of x a branch, by a number that may be outside of them.
static void choose(const ct_tensor *in, ct_tensor *out, void *user) {
    static const ct_fn branches[] = {half, thrice, half};
    ct_switch(out, .index = in[1], .branches = branches, .n_branches = 3, .user = user, .in = in,
              .n_in = 1, .n_out = 1);
    out[1] = out[0];
}

static void keep_loops(void) {
    static const int32_t start = 27, none = 0, numbers_of[5] = {-1, 1, 0, 2, 9};
    ct_tensor begin[2] = {ct_from(&start, CT_I32, CT_SCALAR), ct_from(&none, CT_I32, CT_SCALAR)},
              end[2], last, ys, which = ct_from(numbers_of, CT_I32, CT_DIMS(5));
    ct_while(end, .cond = is_not_one, .body = collatz, .carry = begin, .n_carry = 2);
    ct_keep(end[0]);
    ct_keep(end[1]); // 111
    for (int reverse = 0; reverse < 2; reverse++) {
        ct_scan(&last, &ys, .body = choose, .carry = begin, .n_carry = 1, .xs = &which, .n_xs = 1,
                .n_ys = 1, .reverse = reverse);
        ct_keep(last);
        ct_keep(ys);
    }
}

// Numbers that wrap, alone: that is not for the compiler to think about.
static void keep_wrapped(void) {
    static const int32_t most = INT32_MAX, one = 1, least = INT32_MIN;
    static const int64_t large = INT64_MAX / 3, ten = 10;
    ct_tensor m = ct_from(&most, CT_I32, CT_SCALAR), l = ct_from(&least, CT_I32, CT_SCALAR);
    ct_tensor by = ct_const(&one, CT_I32, CT_SCALAR), x = ct_from(&large, CT_I64, CT_SCALAR);
    ct_keep(ct_less(m, ct_add(m, by)));
    ct_keep(ct_less(ct_sub(l, by), l));
    ct_keep(ct_less(ct_neg(l), ct_const(&one, CT_I32, CT_SCALAR)));
    ct_keep(ct_less(x, ct_mul(x, ct_const(&ten, CT_I64, CT_SCALAR))));
    ct_keep(ct_abs(l));
}

static void keep_programs(void) {
    static const double third[1] = {1.0 / 3};
    ct_tensor x = ct_from(numbers, CT_F32, CT_DIMS(5, 700));
    ct_tensor some = ct_from(rows, CT_I32, CT_DIMS(3)), key = ct_random_key(11);
    ct_keep(ct_sum(x)); // of several blocks
    ct_keep(ct_max(x, .axes = CT_AXES(0)));
    ct_keep(ct_matmul(x, ct_permute(x, CT_AXES(1, 0)))); // (5, 5)
    ct_keep(ct_softmax(x));
    ct_keep(ct_random_normal(key, CT_DIMS(40)));
    ct_keep(ct_gather(x, some));
    ct_keep(ct_scatter_add(ct_zeros(CT_F32, CT_DIMS(5, 700)), some, ct_gather(x, some)));
    ct_keep(ct_mul(ct_cast(x, CT_F64), ct_const(third, CT_F64, CT_DIMS(1)))); // a constant
    ct_keep(ct_cast(ct_mul(x, ct_f(1e6)), CT_I64));
    ct_keep(ct_cast(x, CT_BF16));
    ct_keep(ct_less(x, ct_f(0.25)));
    ct_keep(ct_exp(ct_from(numbers, CT_F32, CT_DIMS(CT_DYN(1234)))));
    keep_scan(x);
    keep_loops();
    keep_wrapped();
}

static void chosen_programs(void **state) {
    (void)state;
    static plan p;
    static const char *const options[] = {
        "cc -O2", "cc -O3 -march=native -std=c11", "clang -O2",
        "clang -O3 -march=native -std=gnu11",
        "cc -O2 -freciprocal-math -fassociative-math -fno-signed-zeros -fno-trapping-math"};
    {
        CT_SCOPE;
        keep_programs();
        write_plan(&p, "chosen");
    }
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) run_written(&p, options[i]);
    forget(&p);
}

// --------------------------------------------------------------------------------- random programs

enum { GRAPHS = 25 }; // a plan

static void keep_graphs(uint64_t first) {
    static gen_graph graph[GRAPHS];
    static ct_tensor t[GEN_RESULTS];
    ct_ctx *cpu = ct__ctx(), *ref = ct_ctx_new();
    ct_ctx_use(ref);
    ct_set_log(NULL, NULL);
    assert_true(ct_set_device("ref"));
    for (uint64_t i = 0; i < GRAPHS; i++) gen_make(&graph[i], 20261122, first + i);
    ct_ctx_use(cpu);
    ct_ctx_free(ref);
    for (int i = 0; i < GRAPHS; i++) {
        int n = gen_record(&graph[i], 0, t);
        for (int k = 0; k < n; k++) {
            uint32_t out;
            if (ct__peek(t[k], &out)->n_in) ct_keep(t[k]);
        }
        gen_free(&graph[i]);
    }
}

// Four plans of 25 graphs, each by options of its own; one of them, unless COTAN_TEST_ALL is set.
static void random_programs(void **state) {
    (void)state;
    static plan p;
    static const char *const options[] = {"clang -O2 -march=native", "cc -O2 -march=native",
                                          "cc -O1", "clang -O1"};
    for (int i = 0; i < 4; i += getenv("COTAN_TEST_ALL") ? 1 : 4) {
        {
            CT_SCOPE;
            keep_graphs((uint64_t)i * GRAPHS);
            write_plan(&p, "graphs");
        }
        run_written(&p, options[i]);
        forget(&p);
    }
}

static int make_folder(void **state) {
    (void)state;
    fill();
    setenv("COTAN_CC", "none", 1); // interpreted: the same bits, sooner
    ct_set_log(NULL, NULL);
    return mkdtemp(folder) && ct_set_device("cpu") ? 0 : 1;
}
static int remove_folder(void **state) {
    (void)state;
    char command[80];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chosen_programs),
        cmocka_unit_test(random_programs),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

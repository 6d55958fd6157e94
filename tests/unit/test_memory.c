// Memory: counted, planned before anything runs, refused where it does not fit.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "backend/cpu/queue.h"
#include "backend/memory.h"
#include "base/os.h"
#include "base/text.h"
#include "compile/plan.h"
#include "cotan/optim.h"

enum { IN = 64, MIDDLE = 256, ROWS = 128 };

typedef struct mlp {
    ct_params *params;
    ct_tensor w1, w2;
    ct_optim *optim;
} mlp;

static mlp make_mlp(void) {
    mlp m = {.params = ct_params_new()};
    m.w1 = ct_param(m.params, "w1", CT_F32, CT_DIMS(IN, MIDDLE));
    m.w2 = ct_param(m.params, "w2", CT_F32, CT_DIMS(MIDDLE, IN));
    {
        CT_SCOPE;
        ct_assign(m.w1, ct_full(ct_f(0.01), CT_DIMS(IN, MIDDLE)));
        ct_assign(m.w2, ct_full(ct_f(0.02), CT_DIMS(MIDDLE, IN)));
    }
    m.optim = ct_adamw(m.params, .lr = 1e-3, .clip = 1.0);
    assert_non_null(m.optim);
    return m;
}

static void free_mlp(mlp *m) {
    ct_optim_free(m->optim);
    ct_params_free(m->params);
}

static uint32_t step_line;

static void step(const mlp *m) {
    static float x[ROWS * IN];
    CT_SCOPE;
    ct_tensor in = ct_from(x, CT_F32, CT_DIMS(ROWS, IN));          // (ROWS, IN)
    ct_tensor middle = ct_relu(ct_matmul(in, m->w1));              // (ROWS, MIDDLE)
    ct_tensor loss = ct_mean(ct_square(ct_matmul(middle, m->w2))); // ()
    step_line = __LINE__ - 2;
    ct_metric("loss", loss);
    ct_optim_step(m->optim, loss);
}

// Everything about a program as seen from its device.
typedef struct seen {
    uint64_t memory, peak, arena, inputs, results, constants, workspace, bytes;
    double flops;
    size_t launches, kernels, new_kernels;
} seen;

static seen run_on(const char *device) {
    ct_ctx *ctx = ct_ctx_new(), *before = ct_ctx_use(ctx);
    assert_true(ct_set_device(device));
    const ct_executor *executor = ctx->device;
    const ct_account *account = executor->device->account;
    uint64_t held = account->total;
    ct__account.peak = ct__account.total; // of what runs here alone
    mlp m = make_mlp();
    for (int i = 0; i < 3; i++) step(&m);
    assert_string_equal(ct_error_text(), "");
    const ct_plan_cost *c = ct_latest_plan();
    assert_non_null(c);
    seen s = {.memory = account->total - held,
              .peak = account->peak - held,
              .arena = c->arena_bytes,
              .inputs = c->input_bytes,
              .results = c->result_bytes,
              .constants = c->constant_bytes,
              .workspace = c->workspace_bytes,
              .bytes = c->bytes,
              .flops = c->flops,
              .launches = c->n_launches,
              .kernels = c->n_kernels,
              .new_kernels = c->new_kernels};
    free_mlp(&m);
    ct_ctx_use(before);
    ct_ctx_free(ctx);
    return s;
}

// A program on a dry device tells what it takes on the other, and takes, compiles and runs nothing.
static void test_dry_tells_what_runs(void **state) {
    const char *device = *state;
    char dry[16];
    snprintf(dry, sizeof dry, "dry:%s", device);
    ct__queue_wait_idle(); // what the programs before had compiled in the background counts as theirs
    ct_stats begin = ct_get_stats();
    seen planned = run_on(dry);
    ct_stats end = ct_get_stats();
    assert_int_equal(end.memory, begin.memory);
    assert_int_equal(end.peak_memory, end.memory);
    assert_int_equal(end.kernels_compiled + end.kernels_loaded,
                     begin.kernels_compiled + begin.kernels_loaded);
    seen real = run_on(device);
    assert_memory_equal(&planned, &real, sizeof real);
    assert_true(planned.launches > 2);
    assert_int_equal(ct_get_stats().memory, begin.memory); // all is given back
}

static char *own_compiler; // COTAN_CC as it was: for another machine it names that one's

static int interpret(void **state) {
    const char *own = getenv("COTAN_CC");
    (void)state;
    own_compiler = own ? strdup(own) : NULL;
    return (own && !own_compiler) || setenv("COTAN_CC", "none", 1);
}

static int compile_again(void **state) {
    (void)state;
    int bad = own_compiler ? setenv("COTAN_CC", own_compiler, 1) : unsetenv("COTAN_CC");
    free(own_compiler);
    return bad;
}

// What runs after the number of threads was lowered takes no more than was planned for the fewer.
static void test_dry_tells_what_fewer_threads_take(void **state) {
    ct_set_threads(6);
    test_dry_tells_what_runs(state);
    ct_set_threads(2);
    test_dry_tells_what_runs(state);
    ct_set_threads(0);
}

// The interpreter needs more than compiled kernels do.
static void test_dry_tells_what_is_interpreted(void **state) {
    static char cpu[] = "cpu";
    (void)state;
    void *device = cpu;
    ct__queue_wait_idle();
    ct_stats begin = ct_get_stats();
    test_dry_tells_what_runs(&device);
    ct_stats end = ct_get_stats();
    assert_int_equal(end.kernels_compiled + end.kernels_loaded,
                     begin.kernels_compiled + begin.kernels_loaded);
}

static void test_dry_has_no_values(void **state) {
    (void)state;
    ct_ctx *ctx = ct_ctx_new(), *before = ct_ctx_use(ctx);
    assert_true(ct_set_device("dry:cpu"));
    {
        CT_SCOPE;
        ct_tensor x = ct_full(ct_f(2), CT_DIMS(3));
        assert_null(ct_data(ct_exp(x)));
        assert_string_equal(ct_error_text(),
                            "dry: this device plans and runs nothing: there are no values to read");
    }
    ct_ctx_use(before);
    ct_ctx_free(ctx);
}

// A product makes the numbers of a quantised weight while it packs or loads them, however few its rows are.
static void test_quantised_weights_are_not_stored(void **state) {
    (void)state;
    assert_true(ct_set_device("dry:cpu"));
    enum { K = 256, N = 96, MOST = 16 };
    static float x[N * K]; // of which the codes are a part
    static uint16_t scales[N * (K / 32)];
    static const int rows[] = {1, 4, MOST};
    for (int i = 0; i < 6; i++) {
        CT_SCOPE;
        const bool narrow = i % 2;
        const int layout = narrow ? CT_LAYOUT_INT4_32 : CT_LAYOUT_INT8, n = rows[i / 2];
        ct_tensor a = ct_from(x, CT_F32, CT_DIMS(n, K));
        ct_tensor codes = ct_from(x, narrow ? CT_I4 : CT_I8, CT_DIMS(N, K));
        ct_tensor by = ct_from(scales, narrow ? CT_F16 : CT_F32, CT_DIMS(N, narrow ? K / 32 : 1));
        ct_tensor w = ct_dequantise(codes, by, layout);
        ct_tensor y = ct_matmul(a, ct_permute(w, CT_AXES(1, 0)));
        assert_true(ct_eval(&y, 1));
        const ct_plan_cost *c = ct_latest_plan();
        const uint64_t stored = N * (narrow ? K / 2 + K / 32 * 2 : K + 4);
        assert_int_equal(c->n_launches, 1);
        assert_int_equal(c->peak_temporary_bytes, 0);
        assert_int_equal(c->input_bytes, (uint64_t)n * K * 4 + stored);
        assert_true(c->bytes - (uint64_t)n * (K + N) * 4 <= stored + stored / 10);
    }
    assert_true(ct_set_device("cpu"));
}

enum { CASTS, SCALES, SCALES_COLUMNS, WORKS };

// What is cast or scaled before a product is stored nowhere, whatever rows, layout and operand are.
static void test_operand_work(void **state) {
    (void)state;
    assert_true(ct_set_device("dry:cpu"));
    static float x[300 * 64], w[64 * 96], by[96];
    for (int i = 0; i < WORKS * 2 * 3; i++) {
        CT_SCOPE;
        const int work = i % WORKS, rows = (int[]){1, 3, 300}[i / WORKS / 2];
        const bool turned = i / WORKS % 2;
        const ct_dtype dtype = work == CASTS ? CT_BF16 : CT_F32;
        ct_tensor a = ct_from(x, CT_F32, CT_DIMS(rows, 64));
        ct_tensor b = ct_from(w, dtype, turned ? CT_DIMS(96, 64) : CT_DIMS(64, 96));
        if (turned) b = ct_permute(b, CT_AXES(1, 0));
        if (work == CASTS) b = ct_cast(b, CT_F32);
        if (work == SCALES) b = ct_mul(b, ct_f(0.125));
        if (work == SCALES_COLUMNS) b = ct_mul(b, ct_from(by, CT_F32, CT_DIMS(96)));
        ct_tensor y = ct_matmul(a, b);
        assert_true(ct_eval(&y, 1));
        const ct_plan_cost *c = ct_latest_plan();
        assert_int_equal(c->n_launches, 1);
        assert_int_equal(c->peak_temporary_bytes, 0);
        const uint64_t stored = 64 * 96 * (work == CASTS ? 2 : 4);
        assert_true(c->bytes - (uint64_t)rows * (64 + 96) * 4 <= stored + stored / 10);
    }
    assert_true(ct_set_device("cpu"));
}

static void test_cost(void **state) {
    (void)state;
    assert_true(ct_set_device("dry:cpu"));
    {
        CT_SCOPE;
        static float x[96 * 64];
        ct_tensor a = ct_from(x, CT_F32, CT_DIMS(96, 64));
        ct_tensor product = ct_matmul(a, ct_permute(a, CT_AXES(1, 0))); // (96, 96)
        ct_tensor kept = ct_sum(product, .axes = CT_AXES(0));           // (96,)
        assert_true(ct_eval(&kept, 1));
        const ct_plan_cost *c = ct_latest_plan();
        assert_int_equal(c->input_bytes, 96 * 64 * 4);
        assert_int_equal(c->result_bytes, 96 * 4);
        assert_int_equal(c->arena_bytes, 96 * 96 * 4);
        assert_int_equal(c->peak_temporary_bytes, 96 * 96 * 4);
        assert_int_equal(c->n_launches, 2);
        assert_string_equal(c->launches[0].op, "matmul");
        assert_string_equal(c->launches[0].here.file, "tests/unit/test_memory.c");
        assert_int_equal(c->launches[0].here.line, __LINE__ - 11);
        assert_true(c->launches[0].flops == 2.0 * 96 * 96 * 64);
        assert_int_equal(c->launches[0].executions, 1);
        assert_int_equal(c->launches[0].bytes + c->launches[1].bytes, c->bytes);
        assert_true(strncmp(c->launches[0].kernel, "k_", 2) == 0);
        assert_int_equal(c->tensors[0].bytes, 96 * 96 * 4);
        assert_string_equal(c->tensors[0].name, "matmul");
        assert_int_equal(c->tensors[1].bytes, 96 * 64 * 4);
        assert_null(c->tensors[1].name);
    }
    assert_true(ct_set_device("cpu"));
}

static void body(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_tanh(ct_matmul(in[0], in[1]));
    out[1] = in[1];
}

// What is in a loop counts as often as it runs.
static void test_cost_of_a_loop(void **state) {
    (void)state;
    static float w[128 * 128];
    assert_true(ct_set_device("dry:cpu"));
    // A loop of launches; and one inside of a kernel, which does up to 1,024 iterations a launch.
    const struct {
        int size, length, times;
        const char *op;
    } cases[] = {{128, 5, 5, "matmul"}, {8, 5, 1, "scan"}, {8, 2000, 2, "scan"}};
    for (int k = 0; k < 3; k++) {
        CT_SCOPE;
        int size = cases[k].size, length = cases[k].length;
        ct_tensor in = ct_from(w, CT_F32, CT_DIMS(size, size)), carry[] = {in, in}, out[2];
        ct_scan(out, NULL, .body = body, .carry = carry, .n_carry = 2, .length = length);
        assert_true(ct_eval(out, 1));
        const ct_plan_cost *c = ct_latest_plan();
        int times = 0;
        for (size_t i = 0; i < c->n_launches; i++)
            if (strcmp(c->launches[i].op, cases[k].op) == 0 &&
                strcmp(c->launches[i].kernel, "copy") != 0)
                times += (int)c->launches[i].executions;
        assert_int_equal(times, cases[k].times);
        double product = (double)length * 2 * size * size * size;
        assert_true(c->flops >= product && c->flops < 1.5 * product);
    }
    assert_true(ct_set_device("cpu"));
}

// A plan that does not fit is refused whole, before it takes memory; variables keep their values.
static void test_refused(void **state) {
    (void)state;
    char want[512], text[512];
    mlp m = make_mlp();
    ct_stats before = ct_get_stats();
    uint64_t held = ct__account.now[CT_MEMORY_WORKSPACES];
    ct_set_memory_limit(before.memory + 200000);
    assert_int_equal(ct_memory_limit(), before.memory + 200000);
    step(&m);
    assert_int_equal(ct_error_code(), CT_E_LIMIT);
    snprintf(text, sizeof text, "%s", ct_error_text());
    ct_error_clear();
    ct_stats after = ct_get_stats();
    assert_int_equal(after.plans_made, before.plans_made);
    assert_int_equal(after.memory, before.memory);
    ct_set_memory_limit(0);
    step(&m);
    assert_string_equal(ct_error_text(), "");
    const ct_plan_cost *c = ct_latest_plan();
    uint64_t workspace = c->workspace_bytes > held ? c->workspace_bytes - held : 0;
    uint64_t need = c->arena_bytes + c->constant_bytes + c->result_bytes + workspace;
    snprintf(want, sizeof want,
             "tests/unit/test_memory.c:%u: plan: %s are needed where %s are in use: the limit is "
             "%s; the largest tensors are matmul (128, 256) f32 of 131 kB "
             "(tests/unit/test_memory.c:%u), 2 times select (128, 256) f32 of 131 kB "
             "(tests/unit/test_memory.c:%u) and variable \"w1\" (64, 256) f32 of 65.5 kB "
             "(tests/unit/test_memory.c:31)",
             step_line + 3, ct__bytes_text(need).s,
             ct__bytes_text(before.memory + sizeof(float[ROWS * IN])).s,
             ct__bytes_text(before.memory + 200000).s, step_line, step_line);
    assert_string_equal(text, want);
    free_mlp(&m);
}

// A plan that is there needs memory for its results only: that is counted where it is taken.
static void test_refused_later(void **state) {
    (void)state;
    static float x[50000];
    CT_SCOPE;
    ct_tensor kept[3] = {CT_NONE, CT_NONE, CT_NONE};
    ct_tensor in = ct_from(x, CT_F32, CT_DIMS(50000));
    for (int i = 0; i < 3; i++) {
        if (i == 2) ct_set_memory_limit(ct_get_stats().memory + 1000);
        kept[i] = ct_exp(in);
        bool ran = ct_eval(&kept[i], 1);
        assert_true(ran == (i < 2));
    }
    char want[200];
    snprintf(
        want, sizeof want, "memory: 200 kB more are needed where %s are in use: the limit is %s",
        ct__bytes_text(ct_get_stats().memory).s, ct__bytes_text(ct_get_stats().memory + 1000).s);
    assert_string_equal(ct_error_text(), want);
    ct_error_clear();
    ct_set_memory_limit(0);
}

// A chain of `products` products with a matrix of n x n whose elements are 1 / n, which keeps it.
static double chain(int products, int n) {
    CT_SCOPE;
    ct_tensor m = ct_full(ct_f(1.0 / n), CT_DIMS(n, n)), y = m; // (n, n)
    for (int i = 0; i < products; i++) y = ct_matmul(y, m);
    return ct_item(ct_sum(y));
}

// Plans of a context use one memory for what is temporary, as large as the largest of them needs.
static void test_plans_share_temporaries(void **state) {
    static const int products[] = {2, 5, 1, 3, 4}, n[] = {40, 90, 20, 130, 64};
    const uint64_t before = ct_get_stats().arena_bytes;
    ct_ctx *ctx = ct_ctx_new(), *outer = ct_ctx_use(ctx);
    uint64_t largest = 0, guard = 0;
    if (!ct_set_device(*state)) fail_msg("%s", ct_error_text());
    for (int turn = 0; turn < 3; turn++)
        for (int i = 0; i < 5; i++) {
            const double sum = chain(products[i], n[i]);
            if (ct_failed()) fail_msg("%s", ct_error_text());
            assert_true(fabs(sum - n[i]) < 1e-3 * n[i]);
            const uint64_t needs = ct_latest_plan()->arena_bytes;
            assert_true(needs > 0);
            if (needs > largest) largest = needs;
            if (getenv("COTAN_CHECK")) guard = CT_GUARD;
            assert_int_equal(ct_get_stats().arena_bytes - before, largest + guard);
        }
    ct_ctx_free(ct_ctx_use(outer));
    assert_int_equal(ct_get_stats().arena_bytes, before);
}

static void test_plans_share_guarded_temporaries(void **state) {
    setenv("COTAN_CHECK", "bounds", 1);
    test_plans_share_temporaries(state);
    unsetenv("COTAN_CHECK");
}

// A plan that found no memory is run again when there is some, and the others meanwhile.
static void test_temporaries_after_a_refusal(void **state) {
    (void)state;
    ct_ctx *ctx = ct_ctx_new(), *outer = ct_ctx_use(ctx);
    assert_true(ct_set_device("cpu"));
    assert_true(fabs(chain(2, 30) - 30) < 0.1);
    const uint64_t small = ct_latest_plan()->arena_bytes;
    ct_set_memory_limit(ct_get_stats().memory + 100000);
    chain(3, 300);
    assert_int_equal(ct_error_code(), CT_E_LIMIT);
    ct_error_clear();
    assert_true(fabs(chain(2, 30) - 30) < 0.1);
    assert_int_equal(ct_latest_plan()->arena_bytes, small);
    ct_set_memory_limit(0);
    assert_true(fabs(chain(3, 300) - 300) < 0.5);
    assert_true(fabs(chain(2, 30) - 30) < 0.1);
    ct_ctx_free(ct_ctx_use(outer));
}

static void test_bytes_text(void **state) {
    (void)state;
    const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0 bytes"},         {1, "1 byte"},       {999, "999 bytes"},
                 {1000, "1 kB"},         {1500, "1.5 kB"},    {999499, "999 kB"},
                 {999500, "1 MB"},       {50000000, "50 MB"}, {2147483648u, "2.15 GB"},
                 {UINT64_MAX, "18.4 EB"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(ct__bytes_text(cases[i].bytes).s, cases[i].text);
}

// ------------------------------------------------------------------------------------ control
// groups

static void put(const char *folder, const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

// A quota of a group above binds what is below, in both versions; cpuset and cpuacct are not cpu.
static void test_cgroup_cores(void **state) {
    (void)state;
    char root[] = "/tmp/cotan-cgroup-XXXXXX", self[64], remove[128];
    assert_non_null(mkdtemp(root));
    snprintf(self, sizeof self, "%s/self", root);
    assert_true(ct__cgroup_cores(root, self) == SIZE_MAX); // no such file
    put(root, "self", "3:cpuset:/other\n2:cpuacct:/other\n0::/outer/middle/inner\n");
    put(root, "cpu/other/cpu.cfs_quota_us", "100000\n");
    put(root, "cpu/other/cpu.cfs_period_us", "100000\n");
    assert_true(ct__cgroup_cores(root, self) == SIZE_MAX); // no limit
    put(root, "outer/middle/inner/cpu.max", "max 100000\n");
    assert_true(ct__cgroup_cores(root, self) == SIZE_MAX);
    put(root, "outer/cpu.max", "350000 100000\n");
    assert_int_equal(ct__cgroup_cores(root, self), 4); // 3.5
    put(root, "outer/middle/cpu.max", "100000 50000\n");
    assert_int_equal(ct__cgroup_cores(root, self), 2);
    put(root, "outer/middle/inner/cpu.max", "800000 100000\n"); // more than what is above lets it
    assert_int_equal(ct__cgroup_cores(root, self), 2);
    put(root, "outer/middle/inner/cpu.max", "1000 100000\n");
    assert_int_equal(ct__cgroup_cores(root, self), 1);
    put(root, "self", "4:cpu,cpuacct:/job/step\n0::/\n"); // the first version
    assert_true(ct__cgroup_cores(root, self) == SIZE_MAX);
    put(root, "cpu/job/step/cpu.cfs_quota_us", "-1\n");
    put(root, "cpu/job/step/cpu.cfs_period_us", "100000\n");
    assert_true(ct__cgroup_cores(root, self) == SIZE_MAX);
    put(root, "cpu/job/cpu.cfs_quota_us", "250000\n");
    put(root, "cpu/job/cpu.cfs_period_us", "100000\n");
    assert_int_equal(ct__cgroup_cores(root, self), 3);
    put(root, "cpu.max", "200000 100000\n"); // of the group of the whole container
    assert_int_equal(ct__cgroup_cores(root, self), 2);
    snprintf(remove, sizeof remove, "rm -r %s", root);
    assert_int_equal(system(remove), 0);
}

static void test_cgroups(void **state) {
    (void)state;
    char root[] = "/tmp/cotan-cgroup-XXXXXX", self[64], remove[128];
    assert_non_null(mkdtemp(root));
    snprintf(self, sizeof self, "%s/self", root);
    assert_true(ct__cgroup_left(root, self) == SIZE_MAX); // no such file
    put(root, "self", "1:cpu:/other\n0::/outer/inner\n");
    assert_true(ct__cgroup_left(root, self) == SIZE_MAX); // no limit
    put(root, "outer/inner/memory.max", "max\n");
    put(root, "outer/inner/memory.current", "700\n");
    assert_true(ct__cgroup_left(root, self) == SIZE_MAX);
    put(root, "outer/memory.max", "5000\n"); // binds what is below
    put(root, "outer/memory.current", "2000\n");
    assert_int_equal(ct__cgroup_left(root, self), 3000);
    put(root, "outer/memory.stat", "anon 10\nfile 90\ninactive_file 500\n"); // goes on demand
    assert_int_equal(ct__cgroup_left(root, self), 3500);
    assert_int_equal(ct__cgroup_limit(root, self), 5000);
    put(root, "outer/inner/memory.max", "600\n");
    assert_int_equal(ct__cgroup_left(root, self), 0); // over it already
    put(root, "self", "4:cpu,memory:/job\n0::/\n");   // the first version, beside the second
    put(root, "memory/job/memory.limit_in_bytes", "9000\n");
    put(root, "memory/job/memory.usage_in_bytes", "1000\n");
    assert_int_equal(ct__cgroup_left(root, self), 8000);
    put(root, "memory/memory.limit_in_bytes", "4000\n");
    put(root, "memory/memory.usage_in_bytes", "1500\n");
    put(root, "memory/memory.stat", "inactive_file 9\ntotal_inactive_file 300\n");
    assert_int_equal(ct__cgroup_left(root, self), 2800);
    assert_int_equal(ct__cgroup_limit(root, self), 4000);
    assert_true(ct__memory_bytes() > 1 << 20 && ct__memory_bytes() >= ct__available_bytes());
    snprintf(remove, sizeof remove, "rm -r %s", root);
    assert_int_equal(system(remove), 0);
}

// A freed buffer serves the next of its size; so many stay, and none where there is a limit.
static void test_freed_buffers_serve_again(void **state) {
    (void)state;
    enum { MIB = 1 << 20, MANY = CT_SPARES + 1 };
    ct_err err = {0};
    void *buffer[MANY];
    ct_device *device = ct__device_open("cpu", &err);
    assert_non_null(device);
    void *first = ct__device_alloc(device, MIB, CT_MEMORY_VALUES, &err);
    const uint64_t in_use = ct__account.total;
    ct__device_free(device, first, MIB, CT_MEMORY_VALUES);
    assert_int_equal(ct__account.total, in_use - MIB); // what waits counts as free
    void *other = ct__device_alloc(device, 2 * MIB, CT_MEMORY_VALUES, &err);
    assert_ptr_not_equal(other, first);
    assert_ptr_equal(ct__device_alloc(device, MIB, CT_MEMORY_VALUES, &err), first);
    ct__device_free(device, other, 2 * MIB, CT_MEMORY_VALUES);
    ct__device_free(device, first, MIB, CT_MEMORY_VALUES);
    for (int i = 0; i < MANY; i++)
        buffer[i] = ct__device_alloc(device, 3 * MIB, CT_MEMORY_VALUES, &err);
    for (int i = 0; i < MANY; i++) ct__device_free(device, buffer[i], 3 * MIB, CT_MEMORY_VALUES);
    assert_int_equal(device->spare_bytes, CT_SPARES * 3 * MIB); // the newest, of whatever size
    // The process does not grow past its peak while more than 8 wait: the oldest go.
    void *large = ct__device_alloc(device, (size_t)200 * MIB, CT_MEMORY_VALUES, &err);
    const uint64_t room = (ct__account.peak - ct__account.total) / (3 * MIB);
    assert_true(room < CT_SPARES && room > 8);
    assert_int_equal(device->spare_bytes, room * 3 * MIB);
    ct__device_free(device, large, (size_t)200 * MIB, CT_MEMORY_VALUES);
    assert_ptr_equal(ct__device_alloc(device, (size_t)200 * MIB, CT_MEMORY_VALUES, &err), large);
    void *huge = ct__device_alloc(device, (size_t)600 * MIB, CT_MEMORY_VALUES, &err);
    const size_t few = device->spare_bytes;
    assert_true(few > 0 && few <= 8 * 3 * MIB);
    ct__device_free(device, huge, (size_t)600 * MIB, CT_MEMORY_VALUES); // more than may stay
    assert_int_equal(device->spare_bytes, few);
    ct__device_free(device, large, (size_t)200 * MIB, CT_MEMORY_VALUES);
    // An arena is freed for a larger one.
    void *arena = ct__device_alloc(device, (size_t)5 * MIB, CT_MEMORY_ARENAS, &err);
    const size_t waiting = device->spare_bytes;
    ct__device_free(device, arena, (size_t)5 * MIB, CT_MEMORY_ARENAS);
    assert_int_equal(device->spare_bytes, waiting);
    ct_set_memory_limit((uint64_t)1 << 40);
    first = ct__device_alloc(device, MIB, CT_MEMORY_VALUES, &err);
    assert_int_equal(device->spare_bytes, 0);
    ct__device_free(device, first, MIB, CT_MEMORY_VALUES);
    assert_int_equal(device->spare_bytes, 0);
    ct_set_memory_limit(0);
    ct__device_close(device);
}

int main(void) {
    static char cpu[] = "cpu", ref[] = "ref", async[] = "async:cpu";
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_dry_tells_what_runs, cpu),
        cmocka_unit_test_prestate(test_dry_tells_what_runs, ref),
        cmocka_unit_test_prestate(test_dry_tells_what_fewer_threads_take, cpu),
        cmocka_unit_test_setup_teardown(test_dry_tells_what_is_interpreted, interpret,
                                        compile_again),
        cmocka_unit_test(test_dry_has_no_values),
        cmocka_unit_test(test_quantised_weights_are_not_stored),
        cmocka_unit_test(test_operand_work),
        cmocka_unit_test(test_cost),
        cmocka_unit_test(test_cost_of_a_loop),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_refused_later),
        cmocka_unit_test_prestate(test_plans_share_temporaries, cpu),
        cmocka_unit_test_prestate(test_plans_share_temporaries, ref),
        cmocka_unit_test_prestate(test_plans_share_temporaries, async),
        cmocka_unit_test_prestate(test_plans_share_guarded_temporaries, cpu),
        cmocka_unit_test(test_freed_buffers_serve_again),
        cmocka_unit_test(test_temporaries_after_a_refusal),
        cmocka_unit_test(test_bytes_text),
        cmocka_unit_test(test_cgroups),
        cmocka_unit_test(test_cgroup_cores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

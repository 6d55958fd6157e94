// ct_compile: the header it writes, names, and what it says where it cannot write.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "compile/ahead/ahead.h"
#include "cotan/cotan.h"
#include "cotan/optim.h"

static char folder[] = "/tmp/cotan-compile-XXXXXX";

static char *in_folder(const char *name) {
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static char *text_of(const char *name) {
    char *text = NULL;
    size_t cap = 0;
    FILE *f = fopen(in_folder(name), "r");
    assert_true(f && getdelim(&text, &cap, 0, f) > 0);
    fclose(f);
    return text;
}

static int files(void) {
    DIR *dir = opendir(folder);
    int n = 0;
    assert_non_null(dir);
    while (readdir(dir)) n++;
    closedir(dir);
    return n - 2;
}
static void remove_files(void) {
    char command[80];
    snprintf(command, sizeof command, "rm -f %s/*", folder);
    assert_int_equal(system(command), 0);
}

// What it says instead of writing, whole, and that no file is left.
static void refuses(ct_compile_args args, const char *text) {
    args.here = (ct_loc){"user.c", 7};
    assert_false(ct_compile_with(args));
    assert_string_equal(ct_error_text(), text);
    ct_error_clear();
    assert_int_equal(files(), 0);
}

static const float four[4] = {1, 2, 3, 4};
static ct_params *params;
static ct_tensor weight, x, rate, y;

// A step of one variable, (4,), from line 20 on.
static void record(void) {
    x = ct_from_at(four, CT_F32, CT_DIMS(4), (ct_loc){"user.c", 21});
    rate = ct_f(0.5);
    y = ct_mul_at(x, weight, (ct_loc){"user.c", 22});
    ct_metric_at("sum", ct_sum_with((ct_sum_args){.x = y, .here = {"user.c", 23}}),
                 (ct_loc){"user.c", 23});
    ct_assign_at(
        weight,
        ct_sub_at(weight, ct_mul_at(rate, y, (ct_loc){"user.c", 24}), (ct_loc){"user.c", 24}),
        (ct_loc){"user.c", 24});
}

static void make_weight(const char *name) {
    params = ct_params_new();
    CT_SCOPE;
    weight = ct_param_at(params, name, CT_F32, CT_DIMS(4), (ct_loc){"user.c", 20});
    ct_assign(weight, ct_from(four, CT_F32, CT_DIMS(4)));
}

static int start(void **state) {
    (void)state;
    ct_set_log(NULL, NULL);
    make_weight("a.weight");
    return ct_failed();
}
static int end(void **state) {
    (void)state;
    ct_params_free(params);
    remove_files();
    ct_error_clear();
    return 0;
}

// ------------------------------------------------------------------------------------- the header

static const char members[] =
    "// Tensors are dense and row-major and do not overlap. bool is a byte, 0 or 1; f16 and bf16 "
    "are\n// their bits.\n"
    "struct step {\n"
    "    void *arena; // memory to work in\n"
    "\n"
    "    // variables\n"
    "    float *a_weight; // (4,) f32, updated: a.weight of user.c:20\n"
    "\n"
    "    // inputs\n"
    "    const float *pixels; // (4,) f32 of user.c:21\n"
    "\n"
    "    // scalars\n"
    "    float rate; // f32, it was 0.5; first needed for sub of user.c:24\n"
    "\n"
    "    // results\n"
    "    float *sum; // () f32: sum of user.c:23\n"
    "};\n"
    "\n"
    "// All pointers NULL, all scalars as they were when this was written.\n"
    "void step_init(struct step *s);\n"
    "int step(const struct step *s); // 0: done\n";

static void header(void **state) {
    (void)state;
    {
        CT_SCOPE;
        record();
        assert_true(
            ct_compile(in_folder("step"), .names = CT_NAMED_LIST({"pixels", x}, {"rate", rate})));
    }
    assert_false(ct_failed()); // the scope's end ran it as ever
    assert_true(ct_metric_value("sum") == 30);
    char *text = text_of("step.h"), *source = text_of("step.c");
    assert_non_null(strstr(text, "// step: a plan of Cotan "));
    assert_non_null(strstr(text, "#define STEP_ARENA_BYTES 64 // "));
    if (!strstr(text, members)) assert_string_equal(text, members);
    assert_non_null(strstr(source, "    s->rate = 0.5f;\n"));
    assert_null(strstr(source, "alloc("));
    free(text);
    free(source);
}

static void nothing_runs_for_it(void **state) {
    (void)state;
    ct_stats before = ct_get_stats();
    CT_SCOPE;
    record();
    assert_true(ct_compile(in_folder("step")));
    assert_int_equal(ct_get_stats().launches, before.launches);
    assert_int_equal(files(), 2);
    ct_error_clear();
}

// Names out of files and paths hold whatever they like; the file holds C.
static void foreign_names(void **state) {
    (void)state;
    static const char *const odd[] = {"*/ int evil; /*",
                                      "x\\\n#error evil\n",
                                      "?\?/\nint evil;",
                                      "\xe2\x80\xae evil",
                                      "float",
                                      "9",
                                      "",
                                      "int evil\r"};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        ct_params_free(params);
        make_weight(odd[i]);
        if (ct_failed()) fail_msg("%s", ct_error_text());
        {
            CT_SCOPE;
            ct_loc line = {odd[i], 1};
            record();
            ct_metric_at(odd[i], ct_sum_with((ct_sum_args){.x = y, .here = line}), line);
            if (!ct_compile(in_folder("foreign"))) fail_msg("%s", ct_error_text());
        }
        char command[160];
        snprintf(command, sizeof command,
                 "cd %s && cc -std=c11 -trigraphs -Wall -Wextra -Werror -fsyntax-only foreign.c",
                 folder);
        assert_int_equal(system(command), 0);
        for (int k = 0; k < 2; k++) {
            char *text = text_of(k ? "foreign.h" : "foreign.c");
            assert_null(strstr(text, "\n#error evil"));
            assert_null(strstr(text, "\nint evil"));
            for (const char *c = text; *c; c++) assert_true(*c == '\n' || (*c >= 32 && *c < 127));
            free(text);
        }
    }
}

static void equal_names(void **state) {
    (void)state;
    CT_SCOPE;
    record();
    ct_metric("a weight", y = ct_sum(y));
    ct_metric("a?weight", ct_neg(y));
    assert_true(ct_compile(in_folder("step")));
    char *text = text_of("step.h");
    assert_non_null(strstr(text, " *a_weight; // (4,) f32, updated: a.weight of"));
    assert_non_null(strstr(text, " *a_weight_2; // () f32: a weight of"));
    assert_non_null(strstr(text, " *a_weight_3; // () f32: a_weight of"));
    free(text);
}

// Of every dtype: half floats are their bits.
static void scalars(void **state) {
    (void)state;
    CT_SCOPE;
    ct_metric("a", ct_cast(ct_scalar(0.5, CT_F16), CT_F32));
    ct_metric("b", ct_cast(ct_scalar(-2, CT_BF16), CT_F32));
    ct_metric("c", ct_cast(ct_scalar(1e-300, CT_F64), CT_F32));
    ct_metric("d", ct_cast(ct_scalar(-7, CT_I64), CT_F32));
    ct_metric("e", ct_cast(ct_scalar(1, CT_BOOL), CT_F32));
    ct_metric("f", ct_cast(ct_scalar((double)NAN, CT_F32), CT_F64));
    assert_true(ct_compile(in_folder("step")));
    char *source = text_of("step.c"), *text = text_of("step.h");
    const char *init = "    s->scalar_1 = 0x3800;\n"
                       "    s->scalar_2 = 0xc000;\n"
                       "    s->scalar_3 = 1e-300;\n"
                       "    s->scalar_4 = -7;\n"
                       "    s->scalar_5 = 1;\n"
                       "    s->scalar_6 = __builtin_nanf(\"\");\n";
    if (!strstr(source, init)) assert_string_equal(strstr(source, "    s->scalar_1"), init);
    assert_non_null(strstr(text, "    uint16_t scalar_1; // f16, it was 0.5; first needed for"));
    assert_non_null(strstr(text, "    uint8_t scalar_5; // bool, it was 1; first needed for"));
    free(source);
    free(text);
}

// They are called what the optimizer's options call them.
static void numbers_of_optimizers(void **state) {
    (void)state;
    static const char *const lines[] = {
        "    float beta1; // f32, it was 0.9; first needed for ",
        "    float one_minus_beta1; // f32, it was 0.1; first needed for ",
        "    float beta2; // f32, it was 0.99; first needed for ",
        "    float one_minus_beta2; // f32, it was 0.01; first needed for ",
        "    float eps; // f32, it was 1e-08; first needed for ",
        "    float weight_decay; // f32, it was 0.25; first needed for ",
        "    float momentum; // f32, it was 0.75; first needed for "};
    ct_params *matrix = ct_params_new();
    ct_tensor w = ct_param(matrix, "w", CT_F32, CT_DIMS(2, 2));
    {
        CT_SCOPE;
        ct_assign(w, ct_from(four, CT_F32, CT_DIMS(2, 2)));
    }
    ct_optim *adamw = ct_adamw(matrix, .lr = 0.5, .beta2 = CT_F(0.99), .weight_decay = CT_F(0.25));
    ct_optim *sgd = ct_sgd(params, .lr = 0.5, .momentum = 0.75);
    {
        CT_SCOPE;
        ct_optim_step(adamw, ct_sum(ct_square(w)));
        ct_optim_step(sgd, ct_sum(ct_square(weight)));
        assert_true(ct_compile(in_folder("step")));
    }
    char *text = text_of("step.h");
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (!strstr(text, lines[i])) fail_msg("no \"%s\" in\n%s", lines[i], text);
    free(text);
    ct_optim_free(adamw);
    ct_optim_free(sgd);
    ct_params_free(matrix);
}

// What the plan only reads stands in the file; what it updates cannot.
static void embedded(void **state) {
    (void)state;
    CT_SCOPE;
    ct_metric("product", ct_sum(ct_mul(weight, weight)));
    assert_true(ct_compile(in_folder("step"), .embed_params = params));
    char *text = text_of("step.h"), *source = text_of("step.c");
    assert_null(strstr(text, "a_weight"));
    assert_non_null(strstr(source, "// a.weight, (4,) f32\n"));
    assert_non_null(
        strstr(source, " = {\n    0x3f800000, 0x40000000, 0x40400000, 0x40800000,\n};"));
    free(text);
    free(source);
    record();
    assert_true(ct_compile(in_folder("step"), .embed_params = params));
    text = text_of("step.h");
    assert_non_null(strstr(text, "    float *a_weight; // (4,) f32, updated: a.weight of"));
    free(text);
}

// ----------------------------------------------------------------------------------------- errors

static void bad_arguments(void **state) {
    (void)state;
    static const char hint[] = "\n  hint: up to 60 letters, digits and _, a letter first; no word "
                               "of the language or its library";
    static const char *const names[] = {
        "3d",       "",         "a-b",        "_x",           "int",    "class",
        "arena",    "größe",    "fmaf",       "memset",       "strlen", "exp",
        "fenv_t",   "fegetenv", "FE_DFL_ENV", "uint_fast8_t", "INT8_C", "UINT64_C",
        "INTMAX_C", "offsetof", "strdupa"};
    char path[200], text[400];
    CT_SCOPE;
    record();
    refuses((ct_compile_args){0}, "user.c:7: compile: the path must not be NULL");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        snprintf(text, sizeof text, "user.c:7: compile: \"%s\" cannot be a name in C%s", names[i],
                 hint);
        refuses((ct_compile_args){.path = path}, text);
    }
    record();
    snprintf(path, sizeof path, "%s/up_i32", folder);
    refuses((ct_compile_args){.path = path},
            "user.c:7: compile: the generated code has a \"up_i32\" of its own: choose another "
            "name");
    record();
    snprintf(text, sizeof text, "%s/none/step.c: cannot create: No such file or directory", folder);
    snprintf(path, sizeof path, "%s/none/step", folder);
    refuses((ct_compile_args){.path = path}, text);
    // Neither file is written where one cannot be.
    snprintf(path, sizeof path, "%s/way.h", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(text, sizeof text, "compile: %s/way.h: a folder of that name is in the way", folder);
    snprintf(path, sizeof path, "%s/way", folder);
    record();
    assert_false(ct_compile(path));
    assert_non_null(strstr(ct_error_text(), text));
    assert_int_equal(files(), 1);
    ct_error_clear();
    snprintf(path, sizeof path, "%s/way.h", folder);
    assert_int_equal(rmdir(path), 0);
}

// Where a program is linked statically no symbol can be looked up.
static void functions_of_the_c_library_are_known_by_name(void **state) {
    (void)state;
    static const char *const declared[] = {"acos",   "fmaf",    "truncl", "nanf",   "feclearexcept",
                                           "memset", "strxfrm", "abort",  "wctomb", "vsscanf"};
    static const char *const free_ones[] = {"step",    "f",   "l",       "fmaff",
                                            "memsetf", "mem", "point_C", "UINT_x"};
    for (size_t i = 0; i < sizeof declared / sizeof *declared; i++)
        if (!ct__ahead_is_declared(declared[i])) fail_msg("%s", declared[i]);
    for (size_t i = 0; i < sizeof free_ones / sizeof *free_ones; i++)
        if (ct__ahead_is_declared(free_ones[i])) fail_msg("%s", free_ones[i]);
    assert_true(ct__check_function_name("point_C", CT_E_ARGUMENT, CT_NOWHERE, NULL));
}

static void bad_names(void **state) {
    (void)state;
    const char *path = "step";
    CT_SCOPE;
    record(); // anew each time: what was pending goes with the error
    refuses((ct_compile_args){.path = path, .names = CT_NAMED_LIST({"a b", x})},
            "user.c:7: compile: \"a b\" cannot be a name in C\n  hint: up to 60 letters, digits "
            "and _, a letter first; no word of the language or its library");
    record();
    refuses((ct_compile_args){.path = path, .names = CT_NAMED_LIST({"INT32_MAX", x})},
            "user.c:7: compile: \"INT32_MAX\" cannot be a name in C\n  hint: up to 60 letters, "
            "digits and _, a letter first; no word of the language or its library");
    record();
    refuses((ct_compile_args){.path = path, .names = CT_NAMED_LIST({"x", x}, {"x", rate})},
            "user.c:7: compile: two tensors are named \"x\"");
    record();
    refuses((ct_compile_args){.path = path, .names = CT_NAMED_LIST({"x", x}, {"z", x})},
            "user.c:7: compile: the tensor named \"z\" has another name as well");
    record();
    refuses((ct_compile_args){.path = path, .names = CT_NAMED_LIST({"n", ct_neg(x)})},
            "user.c:7: compile: the tensor named \"n\" is neither given to what is pending nor a "
            "result of it");
    record();
    refuses((ct_compile_args){.path = path, .names = CT_NAMED_LIST({NULL, x})},
            "user.c:7: compile: a tensor's name must not be NULL");
    record();
    refuses((ct_compile_args){.path = path, .names = {NULL, 2}},
            "user.c:7: compile: the list of names must not be NULL");
    record();
    refuses((ct_compile_args){.path = path, .names = CT_NAMED_LIST({"x", CT_NONE})},
            "user.c:7: compile: operand 1 is no tensor");
}

static void no_plan(void **state) {
    (void)state;
    CT_SCOPE;
    refuses((ct_compile_args){.path = "step"},
            "user.c:7: compile: nothing is pending: there is no plan\n"
            "  hint: call it after a step is recorded, before the step's scope ends");
}

static void other_devices(void **state) {
    (void)state;
    static const char *const devices[] = {"ref", "async:ref", "dry:ref"};
    for (size_t i = 0; i < 3; i++) {
        assert_true(ct_set_device(devices[i]));
        {
            CT_SCOPE;
            ct_metric("sum", ct_sum(ct_from(four, CT_F32, CT_DIMS(4))));
            refuses((ct_compile_args){.path = "step"},
                    "user.c:7: compile: device ref runs an op at a time: it has no kernels to "
                    "write\n  hint: ct_set_device(\"cpu\"), or \"dry:cpu\", which runs nothing");
        }
        ct_error_clear();
    }
    static const char *const good[] = {"async:cpu", "dry:cpu", "cpu"};
    for (size_t i = 0; i < 3; i++) {
        assert_true(ct_set_device(good[i]));
        CT_SCOPE;
        ct_metric("sum", ct_sum(ct_from(four, CT_F32, CT_DIMS(4))));
        assert_true(ct_compile(in_folder("step")));
    }
}

static void compile_traced(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = ct_neg(in[0]);
    refuses((ct_compile_args){.path = "step"},
            "user.c:7: compile: a traced function has no plan of its own: its caller's is written");
}
static void traced(void **state) {
    (void)state;
    CT_SCOPE;
    ct_tensor in = ct_from(four, CT_F32, CT_DIMS(4)), out;
    ct_call(compile_traced, NULL, &in, 1, &out, 1);
}

static void full_disk(void **state) {
    (void)state;
    char text[300];
    struct rlimit was, small = {1000, 1000};
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small.rlim_max = was.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    CT_SCOPE;
    record();
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    snprintf(text, sizeof text, "%s.c: cannot write: File too large", in_folder("step"));
    refuses((ct_compile_args){.path = in_folder("step")}, text);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
}

static void no_memory(void **state) {
    (void)state;
    int64_t n = 0;
    for (bool ok = false; !ok; n++) {
        CT_SCOPE;
        record();
        ct__fail_alloc_after(n);
        ok =
            ct_compile(in_folder("step"), .names = CT_NAMED_LIST({"x", x}), .embed_params = params);
        ct__fail_alloc_after(-1);
        if (!ok) {
            assert_int_equal(ct_error_code(), CT_E_MEMORY);
            assert_int_equal(files(), 0);
        }
        ct_error_clear();
    }
    assert_true(n > 10);
    assert_int_equal(files(), 2);
}

static int make_folder(void **state) {
    (void)state;
    setenv("COTAN_CC", "none", 1);
    return mkdtemp(folder) ? 0 : 1;
}
static int remove_folder(void **state) {
    (void)state;
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(header, start, end),
        cmocka_unit_test_setup_teardown(nothing_runs_for_it, start, end),
        cmocka_unit_test_setup_teardown(foreign_names, start, end),
        cmocka_unit_test_setup_teardown(equal_names, start, end),
        cmocka_unit_test_setup_teardown(scalars, start, end),
        cmocka_unit_test_setup_teardown(numbers_of_optimizers, start, end),
        cmocka_unit_test_setup_teardown(embedded, start, end),
        cmocka_unit_test_setup_teardown(bad_arguments, start, end),
        cmocka_unit_test(functions_of_the_c_library_are_known_by_name),
        cmocka_unit_test_setup_teardown(bad_names, start, end),
        cmocka_unit_test_setup_teardown(no_plan, start, end),
        cmocka_unit_test_setup_teardown(other_devices, start, end),
        cmocka_unit_test_setup_teardown(traced, start, end),
        cmocka_unit_test_setup_teardown(full_disk, start, end),
        cmocka_unit_test_setup_teardown(no_memory, start, end),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}

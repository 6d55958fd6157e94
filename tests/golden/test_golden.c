// Golden kernels: the text that is generated for some seventy graphs, and for a few of them as CUDA, is
// the stored one, so that a refactor shows that it changed nothing. About thirty texts, one of each
// kind of kernel, are stored in full in tests/golden/kernels and tests/golden/cuda (FULL below); of
// the others tests/golden/hashes.tsv has the number of lines and a CRC32C.
// The program leaves every text that is as stored in texts/, next to itself, and every other in
// changed/: build/tests/golden/texts/kernels/softmax.txt. After a change on purpose, read the
// difference of these two, then renew the full texts and the hashes:
//     COTAN_GOLDEN=write build/tests/golden/test_golden && git diff tests/golden
// Plans are made for one fixed machine, on a device that runs nothing.
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/os.h"
#include "base/text.h"
#include "compile/plan.h"
#include "cotan/cotan.h"
#include "io/crc32c.h"

typedef struct golden {
    const char *name;
    int (*record)(ct_tensor *out); // returns the number of results
    bool full;                     // the whole text is stored, not its hash
} golden;

static const char zeros[1 << 16]; // values decide nothing
static ct_tensor input(ct_dtype dtype, ct_ints dims) { return ct_from(zeros, dtype, dims); }
#define F32(...) input(CT_F32, CT_DIMS(__VA_ARGS__))
#define I32(...) input(CT_I32, CT_DIMS(__VA_ARGS__))

// A graph of one result.
#define GRAPH(name, ...)                                                                           \
    static int name(ct_tensor *out) {                                                              \
        out[0] = __VA_ARGS__;                                                                      \
        return 1;                                                                                  \
    }
// The gradients of the sum of y(x) with respect to x.
static int slope(ct_tensor x, ct_tensor y, ct_tensor *out) {
    out[0] = y;
    ct_grad(ct_sum(y), &x, 1, &out[1]);
    return 2;
}

// elementwise
GRAPH(gelu_bias, ct_gelu(ct_add(F32(37, 100), F32(100))))
GRAPH(broadcast_column, ct_mul(ct_add(F32(37, 1), F32(100)), ct_f(0.5)))
GRAPH(functions, ct_add(ct_exp(F32(100)), ct_add(ct_log(F32(100)), ct_erf(F32(100)))))
GRAPH(angles, ct_atan2(ct_sin(F32(100)), ct_cos(F32(100))))
GRAPH(mixed_dtypes, ct_add(ct_mul(I32(50), I32(50)), input(CT_F64, CT_DIMS(50))))
GRAPH(integers, ct_div(ct_shift_left(I32(50), ct_i(3)), ct_add(I32(50), ct_i(7))))
GRAPH(choice, ct_select(ct_less(F32(50), F32(50)), F32(50), ct_f(0)))
GRAPH(halves, ct_cast(ct_add(ct_cast(input(CT_F16, CT_DIMS(50)), CT_F32), ct_f(1)), CT_BF16))
GRAPH(wide, ct_sqrt(ct_tanh(input(CT_F64, CT_DIMS(50)))))
GRAPH(dynamic_rows, ct_mul(ct_tanh(F32(CT_DYN(9), 20)), ct_f(2)))
GRAPH(rounded_halves,
      ct_mul(ct_add(input(CT_F16, CT_DIMS(50)), ct_f(1)), input(CT_F16, CT_DIMS(50))))
GRAPH(sum_halves, ct_sum(input(CT_BF16, CT_DIMS(8, 100)), .axes = CT_AXES(1)))
GRAPH(narrow, ct_shift_right(ct_mul(input(CT_I8, CT_DIMS(50)), input(CT_I8, CT_DIMS(50))), ct_i(2)))
GRAPH(complex, ct_exp(ct_mul(input(CT_C64, CT_DIMS(20, 30)), input(CT_C64, CT_DIMS(30)))))
GRAPH(past_caches, ct_add(F32(4096, 1), F32(1024)))
GRAPH(past_caches_rows, ct_softmax(ct_add(F32(4096, 1), F32(1030))))
GRAPH(bits, ct_xor(ct_bitcast(F32(50), CT_U32), input(CT_U32, CT_DIMS(50))))

// movement
GRAPH(transposed, ct_add(ct_permute(F32(40, 30), CT_AXES(1, 0)), F32(30, 40)))
GRAPH(turned, ct_add(ct_permute(F32(64, 96), CT_AXES(1, 0)), F32(96, 64)))
GRAPH(flipped, ct_flip(F32(20, 30), CT_AXES(1)))
GRAPH(padded, ct_pad(F32(5, 6), ct_f(1), .low = CT_INTS(1, 2), .interior = CT_INTS(0, 1)))
GRAPH(sliced, ct_slice(F32(20, 30), .start = CT_INTS(1, 2), .step = CT_INTS(2, 3)))
GRAPH(joined, ct_concat(((ct_tensor[]){F32(4, 5), ct_exp(F32(4, 6))}), 2, 1))
GRAPH(reshaped, ct_reshape(ct_permute(F32(4, 5, 6), CT_AXES(1, 0, 2)), CT_DIMS(20, 6)))
GRAPH(counted, ct_mul(ct_iota(CT_F32, CT_DIMS(7, 9), 1), F32(7, 9)))

// reductions
GRAPH(sum_all, ct_sum(F32(3000)))
GRAPH(sum_rows, ct_sum(F32(30, 70), .axes = CT_AXES(1)))
GRAPH(sum_columns, ct_sum(F32(70, 30), .axes = CT_AXES(0)))
GRAPH(sum_middle, ct_sum(F32(4, 70, 30), .axes = CT_AXES(1), .keepdims = true))
GRAPH(sum_outer, ct_sum(ct_mul(ct_add(F32(4, 70, 1), F32(4, 1, 70)), F32(4, 70, 70))))
GRAPH(sum_dynamic, ct_sum(F32(5, CT_DYN(70)), .axes = CT_AXES(1)))
GRAPH(largest, ct_max(F32(30, 70), .axes = CT_AXES(1)))
GRAPH(product, ct_prod(I32(30, 70), .axes = CT_AXES(0)))
GRAPH(largest_at, ct_argmax(F32(30, 70), .axis = 1))
GRAPH(variance, ct_var(F32(30, 70), .axes = CT_AXES(1)))
GRAPH(any_of, ct_any(input(CT_BOOL, CT_DIMS(30, 70)), .axes = CT_AXES(1)))
GRAPH(softmax, ct_softmax(F32(30, 70), .axes = CT_AXES(-1)))
GRAPH(softmax_columns, ct_softmax(F32(30, 70), .axes = CT_AXES(0)))
GRAPH(layer_norm, ct_layer_norm(F32(30, 70), F32(70), F32(70)))
GRAPH(rms_norm, ct_rms_norm(F32(30, 70), F32(70)))
GRAPH(cross_entropy, ct_cross_entropy(F32(30, 70), I32(30)))
GRAPH(running_sum, ct_cumsum(F32(30, 70), .axis = 1))
GRAPH(running_sum_in_blocks, ct_cumsum(F32(2, 3000), .axis = 1))
GRAPH(running_sum_long, ct_cumsum(F32(20000)))

// index
GRAPH(rows_of, ct_gather(F32(50, 20), I32(7), .axis = 0))
GRAPH(added_to, ct_scatter_add(F32(50, 20), I32(7), F32(7, 20), .axis = 0))
GRAPH(added_apart,
      ct_scatter_add(F32(50000), I32(9000), F32(9000), .unique = true, .mode = CT_MODE_CLIP))
GRAPH(added_in_order, ct_scatter_add(F32(50000), I32(9000), F32(9000), .sorted = true))
GRAPH(in_order, ct_sort(F32(3, 70), .axis = 1))
GRAPH(searched, ct_searchsorted(F32(70), F32(9)))
GRAPH(window, ct_dynamic_slice(F32(50, 20), I32(1), .axes = CT_AXES(0), .sizes = CT_INTS(5)))
GRAPH(updated, ct_dynamic_update(F32(50, 20), F32(5, 20), I32(1), .axes = CT_AXES(0)))
GRAPH(one_hot, ct_one_hot(I32(9), 20, CT_F32))
static int best_two(ct_tensor *out) {
    ct_topk_out best = ct_topk(F32(9, 40), 2);
    return out[0] = best.values, out[1] = best.indices, 2;
}

// random
GRAPH(normal, ct_random_normal(ct_random_key(1), CT_DIMS(7, 9)))
GRAPH(dropout, ct_dropout(F32(30, 70), ct_random_key(1), ct_f(0.1)))

// products
GRAPH(matmul, ct_matmul(F32(30, 40), F32(40, 50)))
GRAPH(matmul_batched, ct_matmul(F32(3, 30, 20), ct_permute(F32(3, 10, 20), CT_AXES(0, 2, 1))))
GRAPH(matmul_chunks, ct_matmul(F32(3, 1000), F32(1000, 9)))
GRAPH(matmul_gelu, ct_gelu(ct_add(ct_matmul(F32(30, 40), F32(40, 50)), F32(50))))
GRAPH(matmul_dynamic, ct_matmul(F32(CT_DYN(30), 40), F32(40, 50)))
GRAPH(matmul_quantised,
      ct_matmul(F32(30, 64),
                ct_permute(ct_dequantise(input(CT_I4, CT_DIMS(20, 64)),
                                         input(CT_F16, CT_DIMS(20, 2)), CT_LAYOUT_INT4_32),
                           CT_AXES(1, 0))))
static ct_tensor dequantised(void) { // (70, 128); the cast changes nothing, and hides nothing
    return ct_cast(ct_dequantise(input(CT_I4, CT_DIMS(70, 128)), input(CT_F16, CT_DIMS(70, 4)),
                                 CT_LAYOUT_INT4_32),
                   CT_F32);
}
GRAPH(matmul_codes, // of few rows
      ct_matmul(F32(3, 128), ct_permute(dequantised(), CT_AXES(1, 0))))
GRAPH(matmul_mx, ct_quantised_matmul(F32(1, 128), input(CT_F4, CT_DIMS(20, 128)),
                                     input(CT_U8, CT_DIMS(20, 4)), CT_LAYOUT_MXFP4))
GRAPH(matmul_bytes, ct_quantised_matmul(F32(30, 64), input(CT_I8, CT_DIMS(20, 64)),
                                        input(CT_F16, CT_DIMS(20, 2)), CT_LAYOUT_INT8_32))
GRAPH(matmul_integers, ct_matmul(input(CT_I8, CT_DIMS(30, 40)), input(CT_I8, CT_DIMS(40, 50))))
GRAPH(dot_products, ct_contract(F32(90, 600), F32(90, 600), .a_axes = CT_AXES(1),
                                .b_axes = CT_AXES(1), .a_batch = CT_AXES(0), .b_batch = CT_AXES(0)))
GRAPH(matmul_pairs, ct_matmul(input(CT_BF16, CT_DIMS(30, 64)), input(CT_BF16, CT_DIMS(64, 50))))
GRAPH(convolution, ct_conv(F32(2, 3, 9, 8), F32(4, 3, 3, 3), .padding = CT_DIMS(1, 1)))
GRAPH(attention, ct_attention(F32(2, 9, 8), F32(2, 70, 8), F32(2, 70, 8), .causal = true))

// gradients, loops, updates
static int softmax_slope(ct_tensor *out) {
    ct_tensor x = F32(30, 70);
    return slope(x, ct_mul(ct_softmax(x, .axes = CT_AXES(-1)), F32(30, 70)), out);
}
static int layer_norm_slope(ct_tensor *out) {
    ct_tensor x = F32(30, 70);
    return slope(x, ct_mul(ct_layer_norm(x, F32(70), F32(70)), F32(30, 70)), out);
}
GRAPH(attention_few, ct_attention(F32(2, 2, 8), F32(2, 70, 8), F32(2, 70, 8), .causal = true))
static int attention_slope(ct_tensor *out) {
    ct_tensor x = F32(2, 9, 8);
    return slope(x, ct_attention(x, F32(2, 70, 8), F32(2, 70, 8), .causal = true), out);
}
static int matmul_slope(ct_tensor *out) {
    ct_tensor x = F32(30, 40);
    return slope(x, ct_tanh(ct_matmul(x, F32(40, 20))), out);
}
static void cell(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = out[1] = ct_tanh(ct_add(ct_matmul(in[0], F32(6, 6)), in[1]));
}
static int loop(ct_tensor *out) {
    ct_tensor start = F32(4, 6), xs = F32(5, 4, 6);
    ct_scan(&out[0], &out[1], .body = cell, .carry = &start, .n_carry = 1, .xs = &xs, .n_xs = 1,
            .n_ys = 1);
    return 2;
}

static const golden graphs[] = {
#define G(name)                                                                                    \
    { #name, name, false }
#define FULL(name)                                                                                 \
    { #name, name, true }
    FULL(rounded_halves),
    G(sum_halves),
    G(narrow),
    G(gelu_bias),
    FULL(broadcast_column),
    G(functions),
    G(angles),
    G(mixed_dtypes),
    FULL(integers),
    G(choice),
    G(halves),
    G(wide),
    G(dynamic_rows),
    G(bits),
    FULL(past_caches),
    G(past_caches_rows),
    G(complex),
    FULL(transposed),
    G(turned),
    G(flipped),
    FULL(padded),
    G(sliced),
    G(joined),
    G(reshaped),
    G(counted),
    G(sum_outer),
    FULL(sum_all),
    FULL(sum_rows),
    G(sum_columns),
    G(sum_middle),
    FULL(sum_dynamic),
    G(largest),
    G(product),
    FULL(largest_at),
    G(variance),
    G(any_of),
    FULL(softmax),
    G(softmax_columns),
    FULL(layer_norm),
    G(rms_norm),
    G(cross_entropy),
    G(running_sum),
    FULL(running_sum_in_blocks),
    G(running_sum_long),
    FULL(rows_of),
    FULL(added_to),
    G(added_apart),
    G(added_in_order),
    FULL(in_order),
    FULL(searched),
    G(window),
    G(updated),
    G(one_hot),
    G(best_two),
    G(normal),
    FULL(dropout),
    G(matmul),
    G(matmul_batched),
    G(matmul_chunks),
    FULL(matmul_gelu),
    G(matmul_dynamic),
    FULL(matmul_quantised),
    G(matmul_integers),
    FULL(dot_products),
    G(attention),
    G(softmax_slope),
    G(layer_norm_slope),
    G(matmul_slope),
    G(loop),
    G(attention_slope),
    G(matmul_bytes),
    G(matmul_codes),
    G(matmul_mx),
    FULL(attention_few),
    G(matmul_pairs),
    FULL(convolution),
};
// One of each way to bind a nest to threads: alone, with folds, with barriers, with scratch.
static const golden as_cuda[] = {
    FULL(gelu_bias),     G(rounded_halves),
    FULL(sum_all),       G(sum_columns),
    G(largest_at),       FULL(softmax),
    G(layer_norm),       FULL(matmul),
    G(matmul_quantised), G(matmul_bytes),
    G(attention),        FULL(rows_of),
    FULL(added_to),      FULL(running_sum_in_blocks),
    G(normal),           G(in_order),
    G(layer_norm_slope), G(attention_slope),
    G(matmul_codes),     G(matmul_mx),
    G(attention_few),    G(matmul_pairs),
};
enum { GRAPHS = sizeof graphs / sizeof *graphs, AS_CUDA = sizeof as_cuda / sizeof *as_cuda };

// ------------------------------------------------------------------------------------------------

static ct_text made;
static void take_dump(ct_log_kind kind, const char *text, void *user) {
    (void)user;
    if (kind != CT_LOG_DUMP) fail_msg("%s", text);
    // Lines of this file are not part of a kernel: "first for exp of
    // tests/golden/test_golden.c:70".
    const char *place = strstr(text, " of "), *end = strchr(text, '\n');
    if (!place || place > end) place = end;
    ct__text_bytes(&made, text, (size_t)(place - text));
    ct__text_add(&made, end);
    ct__text_add(&made, "\n");
}

// Two cores with AVX-512's registers, whatever this machine has.
static ct_target fixed_target(void) {
    return (ct_target){
        .pairs = true, .cores = 2, .lanes = 16, .registers = 32, CT_TARGET_CPU_TASKS};
}
static ct_backend fixed_backend;
static void fix_target(void) {
    ct_executor *engine = ct__ctx()->device;
    fixed_backend = *engine->device->inner->backend;
    fixed_backend.target = fixed_target;
    engine->device->inner->backend = &fixed_backend;
}

#define HASHES "tests/golden/hashes.tsv"
static const char *program;         // argv[0]
static ct_text texts, changed;      // folders next to the program
static ct_text text_path, new_path; // of the test that runs: in `texts`, in `changed`
static ct_text stray;               // rows of the file of hashes that belong to no text

typedef struct golden_hash {
    bool stored;
    size_t lines;
    uint32_t crc;
} golden_hash;
static golden_hash hashes[GRAPHS + AS_CUDA]; // by golden_index; of full texts unused

static bool golden_is_cuda(const golden *g) { return g >= as_cuda && g < as_cuda + AS_CUDA; }
static const char *golden_kind(const golden *g) { return golden_is_cuda(g) ? "cuda" : "kernels"; }
static const char *golden_ending(const golden *g) { return golden_is_cuda(g) ? "cu" : "txt"; }
static size_t golden_index(const golden *g) {
    return golden_is_cuda(g) ? GRAPHS + (size_t)(g - as_cuda) : (size_t)(g - graphs);
}
static const golden *golden_at(size_t i) { return i < GRAPHS ? &graphs[i] : &as_cuda[i - GRAPHS]; }

static bool golden_renews(void) {
    const char *mode = getenv("COTAN_GOLDEN");
    return mode && strcmp(mode, "write") == 0;
}

static golden_hash golden_hash_text(const char *text) {
    golden_hash hash = {.stored = true, .crc = ct__crc32c(text, strlen(text))};
    for (; *text; text++) hash.lines += *text == '\n';
    return hash;
}
static bool golden_same(golden_hash a, golden_hash b) {
    return a.stored && b.stored && a.lines == b.lines && a.crc == b.crc;
}

// Returns the text of a file, or NULL.
static char *golden_read(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    text[fread(text, 1, (1 << 20) - 1, file)] = '\0';
    fclose(file);
    return text;
}
static void golden_write(const char *path, const ct_text *text) {
    FILE *file = fopen(path, "wb");
    if (!file) fail_msg("cannot write %s", path);
    assert_int_equal(fwrite(text->s, 1, text->n, file), text->n);
    assert_int_equal(fclose(file), 0);
}

static int golden_read_hashes(void **state) {
    (void)state;
    FILE *file = fopen(HASHES, "rb");
    char line[200], name[40], kind[10];
    while (file && fgets(line, sizeof line, file)) {
        golden_hash hash = {.stored = true};
        const bool row =
            sscanf(line, "%39s %9s %zu %" SCNx32, name, kind, &hash.lines, &hash.crc) == 4;
        bool found = line[0] == '#';
        for (size_t i = 0; i < GRAPHS + AS_CUDA && row && !found; i++) {
            const golden *g = golden_at(i);
            if (g->full || strcmp(g->name, name) != 0 || strcmp(golden_kind(g), kind) != 0)
                continue;
            found = !hashes[i].stored;
            hashes[i] = hash;
        }
        if (!found) ct__text_add(&stray, line);
    }
    if (file) fclose(file);
    return 0;
}
static int golden_write_hashes(void **state) {
    (void)state;
    if (!golden_renews()) return 0;
    ct_text rows = {0};
    ct__text_add(&rows, "# name, kind, lines and CRC32C of the texts of test_golden.c that are not "
                        "stored in full; COTAN_GOLDEN=write renews them\n");
    for (size_t i = 0; i < GRAPHS + AS_CUDA; i++) {
        const golden *g = golden_at(i);
        if (!g->full && hashes[i].stored)
            ct__textf(&rows, "%s\t%s\t%zu\t%08" PRIx32 "\n", g->name, golden_kind(g),
                      hashes[i].lines, hashes[i].crc);
    }
    golden_write(HASHES, &rows);
    ct__text_free(&rows);
    return 0;
}
static void no_hash_is_left_over(void **state) {
    (void)state;
    if (stray.n > 0 && !golden_renews())
        fail_msg("rows of " HASHES " belong to no text, or to one twice; renew with\n"
                 "    COTAN_GOLDEN=write %s\n%s",
                 program, stray.s);
}

static void golden_generate(const golden *g) {
    assert_true(ct_set_device("dry:cpu"));
    ct_set_log(take_dump, NULL);
    ct__text_free(&made);
    {
        CT_SCOPE;
        ct_tensor out[4], warm = ct_zeros(CT_F32, CT_DIMS(1));
        unsetenv("COTAN_DUMP");
        assert_true(ct_eval(&warm, 1)); // opens the device
        fix_target();
        setenv("COTAN_DUMP", golden_kind(g), 1);
        if (!ct_eval(out, (size_t)g->record(out))) fail_msg("%s", ct_error_text());
    }
    assert_string_equal(ct_error_text(), "");
    assert_true(made.n > 0 && !made.failed);
}

// Fails with what changed. `old` is the text at `old_path`, NULL if it is not there.
static void golden_fail(const golden *g, const char *old_path, const char *old, golden_hash was,
                        golden_hash is) {
    ct_text message = {0};
    ct__textf(&message, "%s/%s.%s (%s) ", golden_kind(g), g->name, golden_ending(g),
              g->full ? "a full text" : "a hash");
    if (was.stored)
        ct__textf(&message, "changed: %zu lines before, %zu now.\n", was.lines, is.lines);
    else
        ct__textf(&message, "is not stored yet: %zu lines.\n", is.lines);
    ct__textf(&message, "The new text is in %s\n", new_path.s);
    if (old) ct__textf(&message, "To compare:\n    diff -u %s %s\n", old_path, new_path.s);
    ct__textf(
        &message,
        "If the change is meant, renew all full texts and hashes:\n    COTAN_GOLDEN=write %s\n",
        program);
    if (old) {
        size_t at = 0;
        while (old[at] && old[at] == made.s[at]) at++;
        while (at > 0 && made.s[at - 1] != '\n') at--;
        ct__textf(&message, "It is:\n%.300s\nIt was:\n%.300s\n", made.s + at, old + at);
    } else if (was.stored) {
        ct__textf(
            &message,
            "The old text is not at hand, only its hash. Compare with the text of the earlier "
            "commit: built there, the same command writes it to\n    %s\n",
            text_path.s);
    }
    fail_msg("%s", message.s);
}

static void is_as_stored(void **state) {
    const golden *g = *state;
    char path[100];
    snprintf(path, sizeof path, "tests/golden/%s/%s.%s", golden_kind(g), g->name, golden_ending(g));
    ct__text_free(&text_path);
    ct__text_free(&new_path);
    ct__textf(&text_path, "%s/%s/%s.%s", texts.s, golden_kind(g), g->name, golden_ending(g));
    ct__textf(&new_path, "%s/%s/%s.%s", changed.s, golden_kind(g), g->name, golden_ending(g));
    golden_generate(g);

    golden_hash is = golden_hash_text(made.s), *was = &hashes[golden_index(g)];
    if (golden_renews()) {
        *was = is;
        if (g->full)
            golden_write(path, &made);
        else
            remove(path);
    }
    const char *old_path = g->full ? path : text_path.s;
    char *old = golden_read(old_path);
    if (g->full)
        *was = old ? golden_hash_text(old) : (golden_hash){0};
    else if (old && !golden_same(golden_hash_text(old), *was))
        free(old), old = NULL;

    if (g->full ? old && strcmp(old, made.s) == 0 : golden_same(is, *was)) {
        golden_write(text_path.s, &made);
        remove(new_path.s);
    } else {
        golden_write(new_path.s, &made);
        golden_fail(g, old_path, old, *was, is);
    }
    free(old);
}

static void golden_make_folders(void) {
    const char *slash = strrchr(program, '/');
    const int n = slash ? (int)(slash - program) : 1;
    ct__textf(&texts, "%.*s/texts", n, slash ? program : ".");
    ct__textf(&changed, "%.*s/changed", n, slash ? program : ".");
    const ct_text *folders[] = {&texts, &changed};
    for (int i = 0; i < 4; i++) {
        ct_text folder = {0};
        ct_err err = {0};
        ct__textf(&folder, "%s/%s", folders[i / 2]->s, i % 2 ? "cuda" : "kernels");
        if (!ct__make_dirs(folder.s, 0777, &err)) fprintf(stderr, "cannot make %s\n", folder.s);
        ct__text_free(&folder);
    }
}

int main(int argc, char **argv) {
    (void)argc;
    program = argv[0];
    golden_make_folders();
    struct CMUnitTest tests[GRAPHS + AS_CUDA + 1];
    char names[AS_CUDA][40];
    for (int i = 0; i < GRAPHS; i++)
        tests[i] = (struct CMUnitTest){graphs[i].name, is_as_stored, NULL, NULL,
                                       (void *)(uintptr_t)&graphs[i]};
    for (int i = 0; i < AS_CUDA; i++) {
        snprintf(names[i], sizeof names[i], "%s_as_cuda", as_cuda[i].name);
        tests[GRAPHS + i] =
            (struct CMUnitTest){names[i], is_as_stored, NULL, NULL, (void *)(uintptr_t)&as_cuda[i]};
    }
    tests[GRAPHS + AS_CUDA] = (struct CMUnitTest)cmocka_unit_test(no_hash_is_left_over);
    unsetenv("COTAN_FUSE");
    unsetenv("COTAN_DUMP_DIR");
    const int failed =
        cmocka_run_group_tests_name("golden", tests, golden_read_hashes, golden_write_hashes);
    ct_text *all[] = {&made, &texts, &changed, &text_path, &new_path, &stray};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) ct__text_free(all[i]);
    return failed;
}

// Benchmarks of ops: their programs, and lower bounds of their work.
#include <math.h>
#include <stdarg.h>

#include "rows.h"

static const double F32 = sizeof(float);

__attribute__((format(printf, 2, 3))) static bench_case *cases_init(bench_case *c,
                                                                    const char *format, ...) {
    va_list args;
    *c = (bench_case){0};
    va_start(args, format);
    vsnprintf(c->name, sizeof c->name, format, args);
    va_end(args);
    return c;
}

// ----------------------------------------------------------------------------------------- matmul

enum { FORWARD, DX, DW, FORMS };
static const char *const forms[] = {"forward", "dx", "dw"};

size_t matmul_options(bench_settings *s, opt *out) {
    enum { MOST = 1 << 20 };
    static const char *const names[] = {"f32", "bf16", NULL};
    size_t n = 0;
    out[n++] = (opt){"dtype",          OPT_CHOICE,
                     "NAME",           "of operands and results: f32 or bf16 (f32)",
                     .choices = names, .out = &s->precision};
    out[n++] =
        (opt){"m", OPT_INT, "N", "rows; with --k and --n one shape alone", 1, MOST, .out = &s->m};
    out[n++] = (opt){"k", OPT_INT, "N", "what the forward form sums over", 1, MOST, .out = &s->k};
    out[n++] = (opt){"n", OPT_INT, "N", "columns of the forward form", 1, MOST, .out = &s->n};
    return n;
}

static ct_tensor cases_numbers_as(ct_dtype dtype, ct_ints dims, uint32_t seed) {
    ct_tensor x = bench_numbers(dims, seed);
    return dtype == CT_F32 ? x : ct_keep(ct_cast(x, dtype));
}
static size_t cases_make_products(const bench_case *c, ct_tensor *in) {
    int64_t m = c->size[0], k = c->size[1], n = c->size[2];
    for (int64_t i = 0; i < c->times; i++)
        in[1 + i] = cases_numbers_as(c->dtype, c->which == DX ? CT_DIMS(m, n) : CT_DIMS(m, k),
                                     (uint32_t)i + 2);
    in[0] = cases_numbers_as(c->dtype, c->which == DW ? CT_DIMS(m, n) : CT_DIMS(k, n), 1);
    return 1 + (size_t)c->times;
}

static size_t cases_record_products(const bench_case *c, const ct_tensor *in, int64_t iteration,
                                    ct_tensor *out) {
    (void)iteration;
    for (int64_t i = 0; i < c->times; i++) {
        ct_tensor left = in[1 + i], right = in[0];
        if (c->which == DX) right = ct_permute(right, CT_AXES(1, 0)); // (N, K)
        if (c->which == DW) left = ct_permute(left, CT_AXES(1, 0));   // (K, M)
        out[i] = ct_matmul(left, right);
    }
    return (size_t)c->times;
}

// Chooses a number of products per plan that takes neither much memory nor much time.
static void cases_list_product(bench_case *c, const bench_settings *s, int64_t m, int64_t k,
                               int64_t n, int which) {
    double sizes[] = {(double)m * (double)k, (double)k * (double)n, (double)m * (double)n};
    const ct_dtype dtype = s->precision == 1 ? CT_BF16 : CT_F32;
    double flops = 2 * sizes[0] * (double)n,
           bytes = (sizes[0] + sizes[1] + sizes[2]) * (dtype == CT_F32 ? F32 : F32 / 2);
    double left = which == DX ? sizes[2] : sizes[0], result = which == DX   ? sizes[0]
                                                              : which == DW ? sizes[1]
                                                                            : sizes[2];
    double times = 512e6 / ((left + result) * F32);
    if (times > 5e10 / flops) times = 5e10 / flops;
    cases_init(c, "%lldx%lldx%lld %s", (long long)m, (long long)k, (long long)n, forms[which]);
    c->flops = flops, c->bytes = bytes, c->dtype = dtype;
    c->times = times > MOST_RESULTS ? MOST_RESULTS : times < 1 ? 1 : (int64_t)times;
    c->size[0] = m, c->size[1] = k, c->size[2] = n;
    c->which = which;
    c->make = cases_make_products, c->record = cases_record_products;
}

size_t list_matmul(const bench_settings *s, bench_case *out) {
    static const int64_t gpt2[][2] = {
        {768, 2304}, {768, 768}, {768, 3072}, {3072, 768}, {768, 50257}}; // (K, N)
    size_t cases = 0;
    if (s->m || s->k || s->n) {
        if (!s->m || !s->k || !s->n) {
            usage_error("matmul: one shape is --m, --k and --n, all three; %s is missing",
                        !s->m   ? "--m"
                        : !s->k ? "--k"
                                : "--n");
            return 0;
        }
        for (int form = 0; form < FORMS; form++)
            cases_list_product(&out[cases++], s, s->m, s->k, s->n, form);
        return cases;
    }
    for (int64_t m = 256; m <= 1024; m *= 4)
        for (size_t i = 0; i < sizeof gpt2 / sizeof *gpt2; i++)
            for (int form = 0; form < FORMS; form++)
                cases_list_product(&out[cases++], s, m, gpt2[i][0], gpt2[i][1], form);
    for (int64_t m = 64; m <= 4096; m *= 2) cases_list_product(&out[cases++], s, m, m, m, FORWARD);
    return cases;
}

// ----------------------------------------------------------------- small-m and large-m

// Storage of a weight (N, K); `columns`: as (K, N).
static const struct format {
    const char *name;
    double bits;
    ct_dtype dtype;
    int layout;              // -1: only a cast to the dtype
    bool columns, quantised; // quantised: activations are quantised to int8, too
    ct_dtype rows;
} formats[] = {{"f32", 32, CT_F32, -1, false, false, CT_F32},
               {"f32 by bf16", 16, CT_BF16, -1, false, false, CT_F32},
               {"bf16", 16, CT_BF16, -1, false, false, CT_BF16},
               {"bf16 (K, N)", 16, CT_BF16, -1, true, false, CT_BF16},
               {"int8", 8, CT_I8, CT_LAYOUT_INT8, false, true, CT_F32},
               {"int8 by 32", 8.5, CT_I8, CT_LAYOUT_INT8_32, false, true, CT_F32},
               {"int4 by 32", 4.5, CT_I4, CT_LAYOUT_INT4_32, false, true, CT_F32},
               {"int4 by 128", 4.125, CT_I4, CT_LAYOUT_INT4_128, false, true, CT_F32},
               {"mxfp4", 4.25, CT_F4, CT_LAYOUT_MXFP4, false, true, CT_F32},
               {"int8 dequantised", 8, CT_I8, CT_LAYOUT_INT8, false, false, CT_F32},
               {"int4 by 32 dequantised", 4.5, CT_I4, CT_LAYOUT_INT4_32, false, false, CT_F32},
               {"mxfp4 dequantised", 4.25, CT_F4, CT_LAYOUT_MXFP4, false, false, CT_F32}};
enum { FORMATS = sizeof formats / sizeof *formats };

static size_t cases_make_weight(const bench_case *c, ct_tensor *in) {
    const struct format *f = &formats[c->which];
    int64_t k = c->size[1], n = c->size[2];
    in[0] = cases_numbers_as(f->rows, CT_DIMS(c->size[0], k), 2);
    CT_SCOPE; // kept tensors are leaves: the weight is not recomputed
    ct_tensor weight = bench_numbers(f->columns ? CT_DIMS(k, n) : CT_DIMS(n, k), 1);
    if (f->layout < 0) {
        in[1] = ct_keep(ct_cast(weight, f->dtype));
        return 2;
    }
    ct_quantise_out q = ct_quantise(weight, f->layout);
    in[1] = ct_keep(q.codes), in[2] = ct_keep(q.scales);
    return 3;
}
static size_t cases_record_weight(const bench_case *c, const ct_tensor *in, int64_t iteration,
                                  ct_tensor *out) {
    const struct format *f = &formats[c->which];
    (void)iteration;
    if (f->quantised) {
        out[0] = ct_quantised_matmul(in[0], in[1], in[2], f->layout); // (rows, N)
        return 1;
    }
    ct_tensor w = f->layout < 0 ? in[1] : ct_dequantise(in[1], in[2], f->layout);
    if (f->layout < 0 && f->rows == CT_F32) w = ct_cast(w, CT_F32);
    out[0] = ct_matmul(in[0], f->columns ? w : ct_permute(w, CT_AXES(1, 0))); // (rows, N)
    return 1;
}
// Initialises a case of `m` rows times a weight (n, k).
static void cases_init_weight(bench_case *out, int format, int64_t m, int64_t k, int64_t n) {
    const struct format *f = &formats[format];
    bench_case *c = cases_init(out, "%lld %s", (long long)m, f->name);
    c->size[0] = m, c->size[1] = k, c->size[2] = n;
    c->bytes = (double)k * (double)n * f->bits / 8;
    *(f->quantised ? &c->int8_ops : &c->flops) = 2.0 * (double)m * (double)k * (double)n;
    c->which = format;
    c->make = cases_make_weight, c->record = cases_record_weight;
}
size_t list_small_m(const bench_settings *s, bench_case *out) {
    static const int64_t rows[] = {1, 4, 16};
    enum { K = 4096, N = 32768 }; // with 4 bits they are twice as large as a last-level cache
    (void)s;
    for (int i = 0; i < 3 * FORMATS; i++)
        cases_init_weight(&out[i], i % FORMATS, rows[i / FORMATS], K, N);
    return 3 * (size_t)FORMATS;
}
size_t list_large_m(const bench_settings *s, bench_case *out) {
    enum { M = 512, K = 4096, N = 4096 };
    size_t n = 0;
    (void)s;
    for (int i = 0; i < FORMATS; i++)
        if (!formats[i].columns) cases_init_weight(&out[n++], i, M, K, N);
    return n;
}

// -------------------------------------------------------------------------- bound by memory

// A function of x, or its gradient: `moved` counts elements read and written, in units of x.
typedef struct chain {
    const char *name;
    double moved;
    size_t (*record)(const bench_case *c, const ct_tensor *in, int64_t iteration, ct_tensor *out);
} chain;

// x and the cotangent (size[0], size[1]), a weight and a bias (size[1]).
static size_t cases_make_rows(const bench_case *c, ct_tensor *in) {
    for (uint32_t i = 0; i < 2; i++) in[i] = bench_numbers(CT_DIMS(c->size[0], c->size[1]), i + 1);
    for (uint32_t i = 2; i < 4; i++) in[i] = bench_numbers(CT_DIMS(c->size[1]), i + 1);
    return 4;
}

static size_t cases_list_chains(bench_case *out, const chain *chains, size_t n, int64_t rows,
                                int64_t columns) {
    for (size_t i = 0; i < n; i++) {
        bench_case *c = cases_init(&out[i], "%s", chains[i].name);
        c->bytes = chains[i].moved * (double)rows * (double)columns * F32;
        c->size[0] = rows, c->size[1] = columns;
        c->make = cases_make_rows, c->record = chains[i].record;
    }
    return n;
}

#define CHAIN(id, value)                                                                           \
    static size_t record_##id(const bench_case *c, const ct_tensor *in, int64_t iteration,         \
                              ct_tensor *out) {                                                    \
        (void)c, (void)iteration;                                                                  \
        out[0] = value;                                                                            \
        return 1;                                                                                  \
    }
// Gradients with respect to the first n of x, weight and bias, with cotangent in[1].
#define GRADIENT(id, value, n)                                                                     \
    static size_t record_##id(const bench_case *c, const ct_tensor *in, int64_t iteration,         \
                              ct_tensor *out) {                                                    \
        (void)c, (void)iteration;                                                                  \
        const ct_tensor wrt[3] = {in[0], in[2], in[3]};                                            \
        ct_grad(ct_sum(ct_mul(value, in[1])), wrt, n, out);                                        \
        return n;                                                                                  \
    }

CHAIN(layer_norm, ct_layer_norm(in[0], in[2], in[3]))
GRADIENT(layer_norm_grad, ct_layer_norm(in[0], in[2], in[3]), 3)
CHAIN(rms_norm, ct_rms_norm(in[0], in[2]))
GRADIENT(rms_norm_grad, ct_rms_norm(in[0], in[2]), 2)
size_t list_norms(const bench_settings *s, bench_case *out) {
    static const chain chains[] = {{"layer_norm", 2, record_layer_norm},
                                   {"layer_norm_grad", 3, record_layer_norm_grad},
                                   {"rms_norm", 2, record_rms_norm},
                                   {"rms_norm_grad", 3, record_rms_norm_grad}};
    (void)s;
    return cases_list_chains(out, chains, sizeof chains / sizeof *chains, 16384, 768);
}

CHAIN(softmax, ct_softmax(in[0]))
GRADIENT(softmax_grad, ct_softmax(in[0]), 1)
size_t list_softmax(const bench_settings *s, bench_case *out) {
    static const chain chains[] = {{"softmax", 2, record_softmax},
                                   {"softmax_grad", 3, record_softmax_grad}};
    (void)s;
    return cases_list_chains(out, chains, sizeof chains / sizeof *chains, 16384, 1024);
}

CHAIN(gelu, ct_gelu(in[0]))
GRADIENT(gelu_grad, ct_gelu(in[0]), 1)
CHAIN(gelu_erf, ct_gelu(in[0], .exact = true))
GRADIENT(gelu_erf_grad, ct_gelu(in[0], .exact = true), 1)
size_t list_gelu(const bench_settings *s, bench_case *out) {
    static const chain chains[] = {{"gelu", 2, record_gelu},
                                   {"gelu_grad", 3, record_gelu_grad},
                                   {"gelu_erf", 2, record_gelu_erf},
                                   {"gelu_erf_grad", 3, record_gelu_erf_grad}};
    (void)s;
    return cases_list_chains(out, chains, sizeof chains / sizeof *chains, 16384, 1024);
}

static size_t cases_make_scores(const bench_case *c, ct_tensor *in) {
    int32_t targets[1024];
    for (int64_t i = 0; i < c->size[0]; i++) targets[i] = (int32_t)(i * 7919 % c->size[1]);
    in[0] = bench_numbers(CT_DIMS(c->size[0], c->size[1]), 1);
    in[1] = ct_from(targets, CT_I32, CT_DIMS(c->size[0]));
    return 2;
}
CHAIN(cross_entropy, ct_cross_entropy(in[0], in[1]))
static size_t cases_record_cross_entropy_grad(const bench_case *c, const ct_tensor *in,
                                              int64_t iteration, ct_tensor *out) {
    (void)c, (void)iteration;
    out[0] = ct_cross_entropy(in[0], in[1]); // ()
    ct_grad(out[0], in, 1, &out[1]);         // (rows, vocabulary)
    return 2;
}
size_t list_cross_entropy(const bench_settings *s, bench_case *out) {
    static const chain chains[] = {{"cross_entropy", 1, record_cross_entropy},
                                   {"cross_entropy_grad", 2, cases_record_cross_entropy_grad}};
    (void)s;
    size_t n = cases_list_chains(out, chains, sizeof chains / sizeof *chains, 1024, 50257);
    for (size_t i = 0; i < n; i++) out[i].make = cases_make_scores;
    return n;
}

// ------------------------------------------------- a linear layer and the cross-entropy of its classes

enum { WITH_LOGITS, IN_BLOCKS };

// x (rows, width), weight (classes, width), targets.
static size_t cases_make_linear_loss(const bench_case *c, ct_tensor *in) {
    static int32_t targets[2048];
    for (int64_t i = 0; i < c->size[0]; i++) targets[i] = (int32_t)(i * 7919 % c->size[2]);
    in[0] = bench_numbers(CT_DIMS(c->size[0], c->size[1]), 1);
    in[1] = bench_numbers(CT_DIMS(c->size[2], c->size[1]), 2);
    in[2] = ct_from(targets, CT_I32, CT_DIMS(c->size[0]));
    return 3;
}
static size_t cases_record_linear_loss(const bench_case *c, const ct_tensor *in, int64_t iteration,
                                       ct_tensor *out) {
    (void)iteration;
    if (c->which == IN_BLOCKS)
        out[0] = ct_linear_cross_entropy(in[0], in[1], in[2]);
    else
        out[0] = ct_cross_entropy(ct_matmul(in[0], ct_permute(in[1], CT_AXES(1, 0))), in[2]);
    ct_grad(out[0], in, 2, &out[1]);
    return 3;
}
size_t list_linear_cross_entropy(const bench_settings *s, bench_case *out) {
    static const char *const ways[] = {"with logits", "in blocks"};
    static const int64_t sizes[][3] = {{2048, 768, 131072},
                                       {1024, 768, 50257}}; // rows, width, classes
    (void)s;
    for (int i = 0; i < 4; i++) {
        const int64_t *size = sizes[i / 2];
        bench_case *c = cases_init(&out[i], "%lldx%lldx%lld %s", (long long)size[0],
                                   (long long)size[1], (long long)size[2], ways[i % 2]);
        for (int k = 0; k < 3; k++) c->size[k] = size[k];
        c->flops = 6 * (double)size[0] * (double)size[1] * (double)size[2];
        c->which = i % 2;
        c->make = cases_make_linear_loss, c->record = cases_record_linear_loss;
    }
    return 4;
}

// --------------------------------------------------------------------------------------- attention

enum { CAUSAL = 1, BOTH = 2, WRITTEN = 4, HEAD = 64 };

// q, k and v (1, H, T, 64).
static size_t cases_make_heads(const bench_case *c, ct_tensor *in) {
    for (uint32_t i = 0; i < 3; i++)
        in[i] = bench_numbers(CT_DIMS(1, c->size[0], c->size[1], HEAD), i);
    return 3;
}
static ct_tensor cases_attention(const bench_case *c, const ct_tensor *in) {
    const int64_t length = c->size[1];
    if (!(c->which & WRITTEN))
        return ct_attention(in[0], in[1], in[2], .causal = c->which & CAUSAL);
    ct_tensor scores = ct_matmul(in[0], ct_permute(in[1], CT_AXES(0, 1, 3, 2))); // (1, H, T, T)
    ct_tensor query = ct_iota(CT_I32, CT_DIMS(length, 1), 0),
              key = ct_iota(CT_I32, CT_DIMS(length), 0);
    scores = ct_mul(scores, ct_f(0.125));
    scores = ct_select(ct_less_equal(key, query), scores, ct_f(-INFINITY));
    return ct_matmul(ct_softmax(scores), in[2]);
}
static size_t cases_record_attention(const bench_case *c, const ct_tensor *in, int64_t iteration,
                                     ct_tensor *out) {
    (void)iteration;
    out[0] = cases_attention(c, in); // (1, H, T, 64)
    if (!(c->which & BOTH)) return 1;
    out[0] = ct_sum(ct_square(out[0])); // ()
    ct_grad(out[0], in, 3, &out[1]);
    return 4;
}
size_t list_attention(const bench_settings *s, bench_case *out) {
    static const int64_t sizes[][2] = {{12, 256}, {12, 1024}, {4, 4096}}; // heads, length
    static const int ways[] = {
        0, BOTH, CAUSAL, CAUSAL | BOTH, CAUSAL | WRITTEN, CAUSAL | WRITTEN | BOTH};
    size_t n = 0;
    (void)s;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            const double heads = (double)sizes[i][0], length = (double)sizes[i][1];
            if (ways[w] & WRITTEN && sizes[i][1] != 1024) continue;
            bench_case *c = cases_init(
                &out[n++], "%lldx%lldx%d%s%s%s", (long long)sizes[i][0], (long long)sizes[i][1],
                HEAD, ways[w] & CAUSAL ? " causal" : "", ways[w] & WRITTEN ? " written out" : "",
                ways[w] & BOTH ? " with gradients" : "");
            c->size[0] = sizes[i][0], c->size[1] = sizes[i][1];
            c->which = ways[w];
            // Two products, and five more for gradients; only unmasked pairs count.
            const double pairs = ways[w] & CAUSAL ? length * (length + 1) / 2 : length * length;
            c->flops = 2 * heads * pairs * HEAD * (ways[w] & BOTH ? 7 : 2);
            c->make = cases_make_heads, c->record = cases_record_attention;
        }
    return n;
}

// x (B, H, T, D), cos and sin tables (T, D / 2).
static size_t cases_make_rotary(const bench_case *c, ct_tensor *in) {
    in[0] = bench_numbers(CT_DIMS(8, 12, c->size[1], c->size[2]), 1);
    for (uint32_t i = 1; i < 3; i++) in[i] = bench_numbers(CT_DIMS(c->size[1], c->size[2] / 2), i);
    return 3;
}
static size_t cases_record_rotary(const bench_case *c, const ct_tensor *in, int64_t iteration,
                                  ct_tensor *out) {
    (void)iteration;
    int64_t half = c->size[2] / 2;
    ct_tensor a = ct_slice(in[0], .axes = CT_AXES(3), .start = CT_INTS(0), .stop = CT_INTS(half));
    ct_tensor b =
        ct_slice(in[0], .axes = CT_AXES(3), .start = CT_INTS(half), .stop = CT_INTS(CT_END));
    const ct_tensor halves[2] = {ct_sub(ct_mul(a, in[1]), ct_mul(b, in[2])),
                                 ct_add(ct_mul(b, in[1]), ct_mul(a, in[2]))}; // (B, H, T, D / 2)
    out[0] = ct_concat(halves, 2, 3);
    return 1;
}
size_t list_rotary(const bench_settings *s, bench_case *out) {
    (void)s;
    bench_case *c = cases_init(out, "rotary");
    c->size[0] = 8 * 12, c->size[1] = 1024, c->size[2] = 64;
    c->bytes = 2 * 8 * 12 * 1024 * 64 * F32;
    c->make = cases_make_rotary, c->record = cases_record_rotary;
    return 1;
}

CHAIN(transposed_add, ct_add(in[0], ct_permute(in[1], CT_AXES(1, 0))))
size_t list_transposed_add(const bench_settings *s, bench_case *out) {
    static const chain alone = {"transposed_add", 3, record_transposed_add};
    (void)s;
    return cases_list_chains(out, &alone, 1, 4096, 4096);
}

// The random key is in the place of a weight.
static size_t cases_make_dropout(const bench_case *c, ct_tensor *in) {
    size_t n = cases_make_rows(c, in);
    in[2] = ct_random_key(1337);
    return n;
}
CHAIN(dropout, ct_dropout(in[0], in[2], ct_f(0.1)))
static size_t cases_record_dropout_grad(const bench_case *c, const ct_tensor *in, int64_t iteration,
                                        ct_tensor *out) {
    (void)c, (void)iteration;
    out[0] = ct_dropout(in[0], in[2], ct_f(0.1));
    ct_grad(ct_sum(ct_mul(out[0], in[1])), in, 1, &out[1]);
    return 2;
}
size_t list_dropout(const bench_settings *s, bench_case *out) {
    static const chain chains[] = {{"dropout", 2, record_dropout},
                                   {"dropout_grad", 4, cases_record_dropout_grad}};
    (void)s;
    size_t n = cases_list_chains(out, chains, sizeof chains / sizeof *chains, 16384, 1024);
    for (size_t i = 0; i < n; i++) {
        out[i].words = 16384 * 1024;
        out[i].make = cases_make_dropout;
    }
    return n;
}

// ------------------------------------------------------------------------------------------- scan

size_t scan_options(bench_settings *s, opt *out) {
    s->length = 10000, s->width = 64;
    out[0] = (opt){"length", OPT_INT, "N", "iterations (10000)", 1, 1 << 24, .out = &s->length};
    out[1] =
        (opt){"width", OPT_INT, "N", "numbers of an iteration (64)", 1, 1 << 20, .out = &s->width};
    return 2;
}

static void cases_scan_step(const ct_tensor *in, ct_tensor *out, void *user) {
    (void)user;
    out[0] = out[1] = ct_tanh(ct_add(in[0], in[1])); // (width,)
}

static size_t cases_make_scan(const bench_case *c, ct_tensor *in) {
    in[0] = bench_numbers(CT_DIMS(c->size[1]), 1);
    in[1] = bench_numbers(CT_DIMS(c->size[0], c->size[1]), 2);
    return 2;
}

static size_t cases_record_scan(const bench_case *c, const ct_tensor *in, int64_t iteration,
                                ct_tensor *out) {
    (void)iteration;
    ct_tensor last, ys; // (width,), (length, width)
    ct_scan(&last, &ys, .body = cases_scan_step, .carry = &in[0], .n_carry = 1, .xs = &in[1],
            .n_xs = 1, .n_ys = 1);
    out[0] = c->which ? ct_sum(ys) : ys;
    if (!c->which) return 1;
    ct_grad(out[0], in, 2, &out[1]);
    return 3;
}

size_t list_scan(const bench_settings *s, bench_case *out) {
    for (int i = 0; i < 2; i++) {
        bench_case *c = cases_init(&out[i], "%s", i ? "gradient" : "forward");
        c->size[0] = s->length, c->size[1] = s->width;
        c->which = i;
        c->make = cases_make_scan, c->record = cases_record_scan;
    }
    return 2;
}

// ------------------------------------------------------------------------------------------ cold-start

enum { START_ROWS = 8, HIDDEN = 16, CLASSES = 4, NARROWEST = 5, WIDEST = 3000 };

static size_t cases_record_cold_start(const bench_case *c, const ct_tensor *in, int64_t iteration,
                                      ct_tensor *out) {
    static float numbers[START_ROWS * (WIDEST + 1) * 2];
    (void)in;
    int64_t width = NARROWEST + iteration % (WIDEST - NARROWEST);
    if (numbers[0] == 0)
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
            numbers[i] = (float)(i * 37 % 101) / 101 - 0.5f;
    ct_tensor x = ct_from(numbers, CT_F32, CT_DIMS(START_ROWS, width));
    ct_tensor w1 = ct_from(numbers + 1, CT_F32, CT_DIMS(width, HIDDEN));
    ct_tensor w2 = ct_from(numbers + 2, CT_F32, CT_DIMS(HIDDEN, CLASSES));
    ct_tensor y = ct_matmul(ct_tanh(ct_matmul(x, w1)), w2); // (START_ROWS, CLASSES)
    out[0] = ct_mean(ct_square(ct_softmax(y)));             // ()
    if (c->which) ct_grad(out[0], &w1, 1, &out[0]);         // (width, HIDDEN)
    return 1;
}

size_t list_cold_start(const bench_settings *s, bench_case *out) {
    (void)s;
    for (int i = 0; i < 2; i++) {
        bench_case *c = cases_init(&out[i], "%s", i ? "gradient" : "forward");
        c->which = i;
        c->record = cases_record_cold_start;
    }
    return 2;
}

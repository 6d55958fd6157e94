// Measures benchmarks of ops, networks, programs and training, one at a time:
//   build/bench/rows BENCHMARK [options] | --list
// bench/compare.py runs them beside other libraries.
#define _GNU_SOURCE
#include <ftw.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "rows.h"

// A benchmark is one entry here, and the functions that it names.
static const benchmark benchmarks[] = {
    {.name = "train gpt2",
     .summary = "a training step of GPT-2 with AdamW and clipping, 124M unless sizes are given",
     .text =
         "Trains a GPT-2 of 124 million parameters, or of the sizes given, on random tokens,\n"
         "with AdamW and gradients clipped to a norm of 1. Each step is timed; the first three\n"
         "do not count. --json has ms_per_step (the median), ms_steps, tokens_per_s,\n"
         "peak_rss_bytes, flops_per_step (of the matrix products of model and gradient),\n"
         "limit_fraction (those in a second over what the multiply-adds of all threads do in\n"
         "registers), threads, params, losses and compile_ms (what the first step took\n"
         "longer).\n",
     .options = gpt2_options,
     .example = "--batch 4 --context 64 --steps 8 --precision fp32",
     .run = run_gpt2},
    {.name = "matmul",
     .summary = "matrix products: GPT-2's, forward and both backward forms, and squares",
     .text = "Products of GPT-2's shapes with 256 and 1,024 rows, each as its forward form\n"
             "(M, K) x (K, N) and the two of its gradient (dx: (M, N) x (K, N) transposed, dw:\n"
             "(M, K) transposed x (M, N)), and squares from 64 to 4,096; or of one shape. Up to\n"
             "100 of them, of different left operands, are one plan; the time is that of one.\n",
     .options = matmul_options,
     .example = "--m 256 --k 768 --n 2304",
     .list = list_matmul},
    {.name = "small-m",
     .summary = "1, 4 and 16 rows times a weight in 32, 16, 8 and 4 bits",
     .text =
         "Products of 1, 4 and 16 rows of 4,096 f32 numbers with a weight (32768, 4096) that is\n"
         "held in f32, in bf16, with rows in bf16 as well and then also as (4096, 32768), int8 by\n"
         "channel or by 32, int4 by 32 or by 128, MXFP4; with rows quantised to int8, too, and by\n"
         "dequantising. The bytes that are counted are those of the weight as it is held.\n",
     .list = list_small_m},
    {.name = "large-m",
     .summary = "512 rows times a weight in 32, 16, 8 and 4 bits",
     .text =
         "Products of 512 rows of 4,096 f32 numbers with a weight (4096, 4096) that is held as\n"
         "those of small-m are. Where rows are quantised to int8, the limit is that of int8 dot\n"
         "products, if the processor has an instruction for them.\n",
     .list = list_large_m},
    {.name = "norms",
     .summary = "layer and root-mean-square norms, and their gradients",
     .text = "Norms of 16,384 rows of 768 numbers, and their gradients.\n",
     .list = list_norms},
    {.name = "softmax",
     .summary = "softmax and its gradient",
     .text = "Softmax of 16,384 rows of 1,024 numbers, and its gradient.\n",
     .list = list_softmax},
    {.name = "gelu",
     .summary = "gelu and its gradient",
     .text = "Gelu, with tanh and with erf, of 16 million numbers, and its gradient.\n",
     .list = list_gelu},
    {.name = "cross-entropy",
     .summary = "the cross-entropy of a large vocabulary, and its gradient",
     .text = "The mean cross-entropy of 1,024 rows of 50,257 scores, and its gradient.\n",
     .list = list_cross_entropy},
    {.name = "linear-cross-entropy",
     .summary = "the loss of a linear layer of many classes, with its logits and in blocks",
     .text = "The mean cross-entropy of a linear layer's classes, with the gradients of its input\n"
             "and weight: of 2,048 rows of 768 and 131,072 classes, and of 1,024 and 50,257.\n",
     .list = list_linear_cross_entropy},
    {.name = "attention",
     .summary = "attention and its gradients, causal or not, and written out",
     .text = "Attention of 12 heads of 256 and 1,024 queries and keys of 64 numbers, and of 4\n"
             "heads of 4,096; causal and not, with the gradients of all three operands and\n"
             "without; and the same of products, a mask and a softmax.\n",
     .list = list_attention},
    {.name = "rotary",
     .summary = "rotary position embeddings",
     .text = "Rotates pairs of numbers of 8 x 12 heads of 1,024 positions of 64 numbers by\n"
             "angles from two tables.\n",
     .list = list_rotary},
    {.name = "transposed-add",
     .summary = "a matrix plus another one transposed",
     .text = "The sum of a square matrix of 4,096 rows and another one transposed.\n",
     .list = list_transposed_add},
    {.name = "dropout",
     .summary = "dropout, and its gradient",
     .text = "Dropout of 16 million numbers. limit_fraction is of the slower of the memory and of\n"
             "the random words (Threefry-2x32 of 20 rounds, one a number) that all threads can\n"
             "make in registers.\n",
     .list = list_dropout},
    {.name = "ops",
     .summary = "40 plain ops of a million elements, each alone",
     .text = "40 ops, each alone, of a million f32 elements. They may fit into the caches, so\n"
             "that limit_fraction, which is of the memory, may be above 1.\n",
     .list = list_ops},
    {.name = "programs",
     .summary = "58 ordinary programs, written as a newcomer would",
     .text = "Programs of a few lines each: preprocessing, convolution and pooling by slices,\n"
             "padding, concat of many, stencils, recurrences, one-hot products, statistics by\n"
             "channel, masks, dropout. What they must do at least is not counted.\n",
     .list = list_programs},
    {.name = "conv",
     .summary = "convolutions of ResNets, forward and both backward forms",
     .text =
         "Convolutions in f32 of ResNets for CIFAR, with 64 images, and for ImageNet, with one,\n"
         "each forward and both of its gradients alone (dx: of the input, dw: of the weight).\n",
     .list = list_conv},
    {.name = "pooling",
     .summary = "the max pool of a ResNet, and its gradient",
     .text = "Max pooling of 16 x 64 images of 112 x 112 by windows of 3 x 3 with stride 2, and\n"
             "its gradient.\n",
     .list = list_pooling},
    {.name = "resnet18",
     .summary = "a training step of ResNet-18 for CIFAR with SGD and momentum",
     .text = "Trains a ResNet-18 of 10 classes on images of 32 x 32, with SGD and momentum, from\n"
             "recording to the weights. Each step is timed.\n",
     .options = resnet18_options,
     .example = "--batch 32",
     .list = list_resnet18},
    {.name = "resnet50",
     .summary = "inference of ResNet-50, one image of 224 x 224",
     .text = "The logits of a ResNet-50 of 1,000 classes for one image of 224 x 224.\n",
     .list = list_resnet50},
    {.name = "scan",
     .summary = "a loop of tanh(c + x) over 10,000 rows, and its gradients",
     .text = "ct_scan of tanh(c + x) over --length rows of --width numbers, and both gradients of\n"
             "the sum of its results.\n",
     .options = scan_options,
     .example = "--length 1000 --width 64",
     .list = list_scan},
    {.name = "cold-start",
     .summary = "the first call of programs that were never met, with no kernel compiled",
     .text = "Two small layers and a softmax over rows of ever new widths, forward and with a\n"
             "gradient, from recording to the value. The cache of kernels is an empty folder.\n",
     .list = list_cold_start,
     .new_kernels = true},
};
enum { BENCHMARKS = sizeof benchmarks / sizeof *benchmarks, MAX_REPEATS = 1000, MIN_REPEATS = 5 };

double bench_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int rows_compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_median(double *v, size_t n) {
    qsort(v, n, sizeof *v, rows_compare_doubles);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

int64_t bench_peak_rss(void) {
    struct rusage use;
    return getrusage(RUSAGE_SELF, &use) == 0 ? (int64_t)use.ru_maxrss * 1024 : 0;
}

bool bench_next_line(char *line, size_t n) {
    if (!flush_output() || !fgets(line, (int)n, stdin)) return false;
    line[strcspn(line, "\n")] = '\0';
    return true;
}

// ------------------------------------------------------------------------------------- measuring

typedef struct measured {
    double ms; // median
    double all_ms[MAX_REPEATS];
    size_t n;
} measured;

// Returns the seconds from recording to the results; negative: it failed.
static double rows_run_once(const bench_case *c, const ct_tensor *in, int64_t iteration) {
    ct_tensor out[MOST_RESULTS];
    double begin = bench_now();
    {
        CT_SCOPE;
        size_t n = c->record(c, in, iteration, out);
        if (!ct_eval(out, n)) return -1;
    }
    return bench_now() - begin;
}

// Runs the case until no launch is interpreted: kernels are interpreted while they are being compiled,
// and those runs are not to be timed.
static bool rows_warm_up(const bench_case *c, const ct_tensor *in) {
    double begin = bench_now();
    uint64_t before;
    do {
        before = ct_get_stats().launches_interpreted;
        if (rows_run_once(c, in, 0) < 0) return false;
    } while (ct_get_stats().launches_interpreted > before && bench_now() - begin < 60);
    return true;
}

// The operands of a case, which are kept from run to run.
typedef struct operands {
    const bench_case *owner; // NULL: none yet
    ct_scope scope;
    ct_tensor in[MOST_INPUTS];
} operands;

static void rows_free_operands(operands *o) {
    if (o->owner) ct_scope_end(o->scope, CT_HERE);
    o->owner = NULL;
}

static bool rows_make_operands(operands *o, const bench_case *c) {
    if (o->owner == c) return true;
    rows_free_operands(o);
    o->owner = c;
    o->scope = ct_scope_begin(CT_HERE);
    return !c->make || c->make(c, o->in) > 0;
}

// Times a case at least `fewest` times, and for at least `seconds`.
static bool rows_measure(operands *o, const bench_case *c, size_t fewest, double seconds, bool warm,
                         measured *out) {
    static int64_t
        iteration; // counts runs of the process, so that programs that must be new are new
    if (!rows_make_operands(o, c) || (warm && !rows_warm_up(c, o->in))) return false;
    double begin = bench_now();
    double times = c->times ? (double)c->times : 1;
    for (out->n = 0; out->n < MAX_REPEATS && (out->n < fewest || bench_now() - begin < seconds);
         out->n++) {
        double took = rows_run_once(c, o->in, iteration++);
        if (took < 0) return false;
        out->all_ms[out->n] = took * 1e3 / times;
    }
    double sorted[MAX_REPEATS];
    memcpy(sorted, out->all_ms, out->n * sizeof *sorted);
    out->ms = bench_median(sorted, out->n);
    return true;
}

static double rows_total_flops(const bench_case *c) { return c->flops + c->int8_ops; }

// Returns the fraction of the measured time that the machine's limits require. 0: nothing is counted.
static double rows_limit_fraction(const bench_case *c, const ct_machine_limits *l, double ms) {
    double least =
        fmax(c->flops / l->flops, fmax(c->bytes / l->stream_bandwidth, c->words / l->random_words));
    least = fmax(least, c->int8_ops / (l->int8_ops > 0 ? l->int8_ops : l->flops));
    return least * 1e3 / ms;
}

// Prints mean and mean square of each result, so that other libraries can check that they run the same
// program.
static bool rows_put_moments(operands *o, const bench_case *c) {
    ct_tensor out[MOST_RESULTS], moments[2 * MOST_RESULTS];
    if (!rows_make_operands(o, c)) return false;
    CT_SCOPE; // inside that of the operands
    size_t n = c->record(c, o->in, 0, out);
    for (size_t i = 0; i < n; i++) {
        ct_tensor x = ct_cast(out[i], CT_F64);
        moments[2 * i] = ct_mean(x);
        moments[2 * i + 1] = ct_mean(ct_square(x));
    }
    if (!ct_eval(moments, 2 * n)) return false; // in one run: a training step cannot be repeated
    printf("{\"case\": \"%s\", \"moments\": [", c->name);
    for (size_t i = 0; i < n; i++)
        printf("%s[%.9g, %.9g]", i ? ", " : "", ct_item(moments[2 * i]),
               ct_item(moments[2 * i + 1]));
    printf("]}\n");
    return !ct_failed();
}

// ----------------------------------------------------------------------------------------- output

static void rows_put_counts(const bench_case *c) {
    printf("\"flops\": %.17g, \"bytes\": %.17g, \"random_words\": %.17g, \"int8_ops\": %.17g",
           c->flops, c->bytes, c->words, c->int8_ops);
}

static void rows_put_case(const bench_case *c, const ct_machine_limits *l, const measured *m,
                          bool all) {
    printf("{\"case\": \"%s\", \"ms\": %.6g, ", c->name, m->ms);
    rows_put_counts(c);
    printf(", \"flops_per_s\": %.6g, \"bytes_per_s\": %.6g, \"limit_fraction\": ",
           rows_total_flops(c) * 1e3 / m->ms, c->bytes * 1e3 / m->ms);
    if (rows_total_flops(c) + c->bytes > 0)
        printf("%.4f", rows_limit_fraction(c, l, m->ms));
    else
        printf("null");
    if (all) {
        printf(", \"ms_all\": [");
        for (size_t i = 0; i < m->n; i++) printf("%s%.6g", i ? ", " : "", m->all_ms[i]);
        printf("]");
    }
    printf("}");
}

static void rows_print_case(const bench_case *c, const ct_machine_limits *l, const measured *m) {
    char rate[2][32] = {"", ""}, part[16] = "";
    if (rows_total_flops(c) > 0)
        snprintf(rate[0], sizeof rate[0], "%.1f", rows_total_flops(c) * 1e-6 / m->ms);
    if (c->bytes > 0) snprintf(rate[1], sizeof rate[1], "%.1f", c->bytes * 1e-6 / m->ms);
    if (rows_total_flops(c) + c->bytes > 0)
        snprintf(part, sizeof part, "%.2f", rows_limit_fraction(c, l, m->ms));
    printf("%-28s %10.4f %9s %7s %6s\n", c->name, m->ms, rate[0], rate[1], part);
}

// ------------------------------------------------------------------------------------- benchmarks

static int rows_run_all(const benchmark *row, const bench_settings *s, const bench_case *cases,
                        size_t n) {
    ct_machine_limits limits = {0};
    operands o = {0};
    measured *m = calloc(n, sizeof *m);
    bool ok = m && limits_measure(&limits, s->threads);
    int status = ok ? EXIT_DONE : EXIT_FAILED;
    for (size_t i = 0; ok && i < n; i++) {
        fprintf(stderr, "%s (%zu of %zu)\n", cases[i].name, i + 1, n);
        ok = rows_measure(&o, &cases[i], MIN_REPEATS, s->seconds.value, !row->new_kernels, &m[i]);
        if (!ok) status = report_error();
    }
    rows_free_operands(&o);
    if (ok && !limits_measure(&limits, s->threads)) status = EXIT_FAILED;
    if (status == EXIT_DONE && s->json) {
        printf("{\"row\": \"%s\", \"threads\": %d, \"version\": \"%s\", ", row->name, s->threads,
               CT_VERSION);
        limits_print_json(&limits);
        printf(", \"cases\": [");
        for (size_t i = 0; i < n; i++) {
            printf("%s\n  ", i ? "," : "");
            rows_put_case(&cases[i], &limits, &m[i], !s->summary);
        }
        printf("]}\n");
    } else if (status == EXIT_DONE) {
        printf("%-28s %10s %9s %7s %6s\n", row->name, "ms", "GFLOP/s", "GB/s", "limit");
        for (size_t i = 0; i < n; i++) rows_print_case(&cases[i], &limits, &m[i]);
        printf("limits: %.1f GFLOP/s, %.1f GOP/s of int8, %.1f GB/s, %.1f GB/s read, %.2f G random "
               "words/s; threads %d\n",
               limits.flops * 1e-9, limits.int8_ops * 1e-9, limits.stream_bandwidth * 1e-9,
               limits.read_bandwidth * 1e-9, limits.random_words * 1e-9, s->threads);
    }
    free(m);
    return status;
}

static const bench_case *rows_find_case(const bench_case *cases, size_t n, const char *wanted) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(cases[i].name, wanted) == 0) return &cases[i];
    return NULL;
}

// Measures cases on request, for a comparison that alternates between libraries: each input line names a
// case to measure or check, and a JSON object answers it.
static int rows_serve_stdin(const benchmark *row, const bench_settings *s, const bench_case *cases,
                            size_t n) {
    measured *m = malloc(sizeof *m);
    operands o = {0};
    char line[64];
    int status = m ? EXIT_DONE : EXIT_FAILED;
    printf("{\"cases\": [");
    for (size_t i = 0; i < n; i++) {
        printf("%s{\"case\": \"%s\", ", i ? ", " : "", cases[i].name);
        rows_put_counts(&cases[i]);
        printf("}");
    }
    printf("], \"threads\": %d, \"version\": \"%s\"}\n", s->threads, CT_VERSION);
    while (status == EXIT_DONE && bench_next_line(line, sizeof line)) {
        const bench_case *c = rows_find_case(cases, n, line), *checked = NULL;
        if (strncmp(line, "check ", 6) == 0) checked = rows_find_case(cases, n, line + 6);
        if (checked) {
            if (!rows_put_moments(&o, checked)) status = report_error();
        } else if (c) {
            if (rows_measure(&o, c, 1, s->seconds.value, !row->new_kernels, m))
                printf("{\"case\": \"%s\", \"ms\": %.6g}\n", c->name, m->ms);
            else
                status = report_error();
        } else if (strcmp(line, "limits") == 0) {
            ct_machine_limits limits = {0};
            if (!limits_measure(&limits, s->threads)) status = EXIT_FAILED;
            printf("{");
            limits_print_json(&limits);
            printf("}\n");
        } else {
            status = usage_error("%s: there is no case \"%s\"", row->name, printable(line));
        }
    }
    rows_free_operands(&o);
    free(m);
    return status;
}

static int rows_remove_entry(const char *path, const struct stat *st, int kind, struct FTW *where) {
    (void)st, (void)kind, (void)where;
    return remove(path);
}

static int rows_run_cases(const benchmark *row, const bench_settings *s) {
    static bench_case cases[MOST_CASES];
    size_t n = row->list(s, cases);
    if (n == 0) return EXIT_USAGE;
    int status =
        s->from_stdin ? rows_serve_stdin(row, s, cases, n) : rows_run_all(row, s, cases, n);
    ct_machine_limits_free();
    return status;
}

static int rows_run(const benchmark *row, const bench_settings *s) {
    char folder[] = "/tmp/cotan-bench-XXXXXX";
    if (row->new_kernels && (!mkdtemp(folder) || setenv("COTAN_CACHE_DIR", folder, 1) != 0)) {
        perror("rows: a folder in /tmp");
        return EXIT_FAILED;
    }
    int status = row->run ? row->run(s) : rows_run_cases(row, s);
    if (row->new_kernels) {
        (void)!ct_shutdown(); // no compiler writes into the directory any more
        nftw(folder, rows_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    }
    return status;
}

// ---------------------------------------------------------------------------------------- options

static const char general[] =
    "Measures a benchmark of ops, of a network, of programs or of training, and in the same run\n"
    "the limits of the machine. --list lists the benchmarks. A case is recorded and computed anew\n"
    "for --seconds, after a run in which its kernels are compiled; its time is the median.\n"
    "limit_fraction is the time that the machine's limits require over the time taken: of\n"
    "multiply-adds in registers, and of memory (the faster of STREAM's copy and triad) for the\n"
    "bytes that must be read and written, on as many threads. Progress goes to standard error.\n"
    "`make bench` compares the same benchmarks with PyTorch, JAX, ONNX Runtime, OpenBLAS and\n"
    "oneDNN.\n";

static const char examples[] =
    "  build/bench/rows --list\n"
    "  build/bench/rows softmax              # a table\n"
    "  build/bench/rows matmul --m 256 --k 768 --n 2304 --threads 1\n"
    "  build/bench/rows train gpt2 --batch 4 --context 64 --steps 8 --precision fp32 --json\n";

static int rows_print_list(void) {
    for (size_t i = 0; i < BENCHMARKS; i++)
        printf("%-21s %s\n", benchmarks[i].name, benchmarks[i].summary);
    return EXIT_DONE;
}

// Lists the options of one benchmark, followed by those of all.
static size_t rows_options_init(const benchmark *row, bench_settings *s, opt *options) {
    const opt on[] = {MACHINE_OPTIONS(s->machine)};
    size_t n = row->options ? row->options(s, options) : 0;
    options[n++] = (opt){"json", OPT_FLAG, NULL, "one JSON object", .out = &s->json};
    options[n++] = (opt){"summary", OPT_FLAG, NULL, "--json without what there is of each repeat",
                         .out = &s->summary};
    options[n++] =
        (opt){"stdin", OPT_FLAG, NULL, "measure the case that each line of standard input names",
              .out = &s->from_stdin};
    if (!row->run) {
        s->seconds = CT_F(0.3);
        options[n++] =
            (opt){"seconds", OPT_REAL, "X", "of each case (0.3)", 0, 3600, .out = &s->seconds};
    }
    for (size_t i = 0; i < sizeof on / sizeof *on; i++) options[n++] = on[i];
    return n;
}

static void rows_write_examples(const benchmark *row, char *to, size_t n) {
    int at = snprintf(to, n, "  build/bench/rows %s                # %s\n", row->name,
                      row->run ? "a line" : "a table");
    if (row->example)
        at += snprintf(to + at, n - (size_t)at, "  build/bench/rows %s %s\n", row->name,
                       row->example);
    snprintf(to + at, n - (size_t)at,
             "  build/bench/rows %s --threads 1 --summary\n"
             "  make bench ROWS=\"%s\"           # beside other libraries\n",
             row->name, row->name);
}

static int rows_start(const benchmark *row, int argc, char **argv) {
    static char usage[] = "[options]", own[512];
    opt options[MOST_OWN_OPTIONS + 8];
    bench_settings s = {0};
    int status;
    command c = {.name = row->name, .usage = usage, .text = row->text, .examples = own};
    rows_write_examples(row, own, sizeof own);
    c.opts = options;
    c.n = rows_options_init(row, &s, options);
    if (!options_parse(&c, argc, argv, NULL, &status)) return status;
    if (!machine_apply(&s.machine, c.name, &status)) return status;
    s.json |= s.summary;
    s.threads = s.machine.threads ? (int)s.machine.threads : limits_default_threads();
    return rows_run(row, &s);
}

// Returns the number of arguments that spell the benchmark's name. 0: they do not.
static int rows_match_name(const benchmark *row, int argc, char **argv) {
    const char *name = row->name;
    for (int i = 0; i < argc; i++) {
        size_t n = strcspn(name, " ");
        if (strlen(argv[i]) != n || memcmp(argv[i], name, n) != 0) return 0;
        if (!name[n]) return i + 1;
        name += n + 1;
    }
    return 0;
}

static int rows_unknown_error(int argc, char **argv) {
    const char *names[BENCHMARKS + 1] = {0};
    char asked[64] = "";
    for (int i = 0; i < argc && argv[i][0] != '-' && i < 2; i++) {
        if (i) strncat(asked, " ", sizeof asked - strlen(asked) - 1);
        strncat(asked, printable(argv[i]), sizeof asked - strlen(asked) - 1);
    }
    const char *near = NULL;
    for (size_t i = 0; i < BENCHMARKS; i++) {
        const size_t n = strlen(asked);
        names[i] = benchmarks[i].name;
        if (strncmp(names[i], asked, n) == 0 && names[i][n] == ' ')
            near = names[i]; // the argument is its first word
    }
    if (!near) near = ct_nearest(asked, names);
    if (near) return usage_error("there is no benchmark \"%s\"; is %s meant?", asked, near);
    return usage_error("there is no benchmark \"%s\"; rows --list lists them", asked);
}

static int rows_main(int argc, char **argv) {
    for (size_t i = 0; i < BENCHMARKS; i++) {
        int words = rows_match_name(&benchmarks[i], argc, argv);
        if (words) return rows_start(&benchmarks[i], argc - words, argv + words);
    }
    if (argc > 0 && argv[0][0] != '-') return rows_unknown_error(argc, argv);
    if (argc == 0)
        return usage_error("it needs a benchmark: rows BENCHMARK; rows --list lists them");
    if (strcmp(argv[0], "--list") == 0) return rows_print_list();
    if (strcmp(argv[0], "--help") != 0 && strcmp(argv[0], "-h") != 0)
        return usage_error("there is no option %s; rows --help lists them", printable(argv[0]));
    opt options[] = {{"list", OPT_FLAG, NULL, "the benchmarks, a line each", .out = NULL}};
    options_print_help(&(command){.name = "",
                                  .usage = "BENCHMARK [options] | --list",
                                  .text = general,
                                  .examples = examples,
                                  .opts = options,
                                  .n = 1});
    return EXIT_DONE;
}

int main(int argc, char **argv) {
    message_name = "rows";
    int status = rows_main(argc - 1, argv + 1);
    if (!flush_output() && status == EXIT_DONE) {
        fprintf(stderr, "rows: standard output: %s\n", output_error());
        status = EXIT_FAILED;
    }
    return status;
}

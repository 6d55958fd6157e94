// The parts of bench/rows: benchmarks and their cases.
#ifndef COTAN_BENCH_ROWS_H
#define COTAN_BENCH_ROWS_H

#include <cotan/profile.h>

#include "../cli/cli.h"

// ------------------------------------------------------------------------------------ benchmarks

enum { MOST_CASES = 64, MOST_INPUTS = 101, MOST_RESULTS = 100, MOST_OWN_OPTIONS = 8 };

// A small program that is measured: it is recorded and its results are computed in every run.
typedef struct bench_case bench_case;
struct bench_case {
    char name[48];
    double flops, bytes, words; // lower bounds of its work; 0: not counted
    double int8_ops;            // operations of int8 products, not included in flops
    int64_t times;              // number of repetitions in the program; 0: one
    int64_t size[3];            // meaning defined by the benchmark
    ct_dtype dtype;             // of operands, if there is a choice
    int which;
    // Makes leaves in the enclosing scope and returns their number. NULL: none are needed.
    size_t (*make)(const bench_case *c, ct_tensor *in);
    // `iteration` counts runs from 0, for programs that must be new every time.
    size_t (*record)(const bench_case *c, const ct_tensor *in, int64_t iteration, ct_tensor *out);
};

typedef struct bench_settings {
    bool json, summary; // summary: JSON without the numbers of each run
    bool from_stdin;    // measures what lines of standard input name
    ct_num seconds;     // minimum time per case
    machine machine;
    int threads;
    // options of some benchmarks; 0: not given
    int64_t m, k, n, length, width, batch, context, steps, layers, heads;
    int precision;
} bench_settings;

// An entry (row) of the table in rows.c.
typedef struct benchmark {
    const char *name;                               // "train gpt2"
    const char *summary;                            // one line
    const char *text;                               // for --help
    const char *example;                            // of its own options; NULL: none
    size_t (*options)(bench_settings *s, opt *out); // adds its own options; NULL: none
    // Makes its cases, at most MOST_CASES. Returns 0 if an error was printed.
    size_t (*list)(const bench_settings *s, bench_case *out);
    bool new_kernels;                    // runs with an empty kernel cache
    int (*run)(const bench_settings *s); // for one that is not a list of cases
} benchmark;

size_t matmul_options(bench_settings *s, opt *out);
size_t list_matmul(const bench_settings *s, bench_case *out);
size_t list_small_m(const bench_settings *s, bench_case *out);
size_t list_large_m(const bench_settings *s, bench_case *out);
size_t list_norms(const bench_settings *s, bench_case *out);
size_t list_softmax(const bench_settings *s, bench_case *out);
size_t list_gelu(const bench_settings *s, bench_case *out);
size_t list_cross_entropy(const bench_settings *s, bench_case *out);
size_t list_linear_cross_entropy(const bench_settings *s, bench_case *out);
size_t list_attention(const bench_settings *s, bench_case *out);
size_t list_rotary(const bench_settings *s, bench_case *out);
size_t list_transposed_add(const bench_settings *s, bench_case *out);
size_t list_dropout(const bench_settings *s, bench_case *out);
size_t list_ops(const bench_settings *s, bench_case *out);
size_t list_programs(const bench_settings *s, bench_case *out);
size_t list_conv(const bench_settings *s, bench_case *out);
size_t list_pooling(const bench_settings *s, bench_case *out);
size_t resnet18_options(bench_settings *s, opt *out);
size_t list_resnet18(const bench_settings *s, bench_case *out);
size_t list_resnet50(const bench_settings *s, bench_case *out);
size_t scan_options(bench_settings *s, opt *out);
size_t list_scan(const bench_settings *s, bench_case *out);
size_t list_cold_start(const bench_settings *s, bench_case *out);
size_t gpt2_options(bench_settings *s, opt *out);
int run_gpt2(const bench_settings *s);

// f32 numbers in [0.1, 0.9), which bench/peers/rows.py makes as well.
ct_tensor bench_numbers(ct_ints dims, uint32_t seed);
// Integers from 0 to `below` - 1, of CT_U8 or CT_I32, which bench/peers/rows.py makes as well.
ct_tensor bench_integers(ct_ints dims, uint32_t seed, uint32_t below, ct_dtype dtype);

double bench_now(void);                   // seconds
double bench_median(double *v, size_t n); // sorts v
int64_t bench_peak_rss(void);             // bytes of the process
// Reads a line of standard input, for --stdin. False: end of input.
bool bench_next_line(char *line, size_t n);

#endif

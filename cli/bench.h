// What `cotan bench` is made of: rows, their cases, and what the machine could do at most.
#ifndef COTAN_CLI_BENCH_H
#define COTAN_CLI_BENCH_H

#include <cotan/profile.h>

#include "cli.h"

// ------------------------------------------------------------------------------------ rows of cases

enum { MOST_CASES = 64, MOST_INPUTS = 101, MOST_RESULTS = 100, MOST_ROW_OPTIONS = 8 };

// A small program that a row measures: it is recorded anew every time, and its results are computed.
typedef struct bench_case bench_case;
struct bench_case {
    char name[48];
    double flops, bytes, words; // the least that it has to do; 0: not counted
    double byte_flops;          // of products of bytes, apart from flops
    int64_t times;              // that its program does it; 0: once
    int64_t size[3];            // of the row's own meaning
    ct_dtype dtype;             // of operands, where the row has a choice
    int which;
    // Leaves in the scope around; how many. NULL: none are needed.
    size_t (*make)(const bench_case *c, ct_tensor *in);
    // `turn` counts from 0, for programs that are to be new every time.
    size_t (*record)(const bench_case *c, const ct_tensor *in, int64_t turn, ct_tensor *out);
};

typedef struct bench_settings {
    bool json, summary, turns; // summary: json without what there is of each repeat
    ct_num seconds;            // a case is repeated for
    machine machine;
    int threads;
    // of the rows that have them; 0: not given
    int64_t m, k, n, length, width, batch, context, steps, layers, heads;
    int precision;
} bench_settings;

typedef struct bench_row {
    const char *name;                               // "train gpt2"
    const char *summary;                            // one line
    const char *text;                               // for --help
    const char *example;                            // of its own options; NULL: it has none
    size_t (*options)(bench_settings *s, opt *out); // of its own; NULL: none
    // Its cases, at most MOST_CASES. 0: what was to be said has been said.
    size_t (*list)(const bench_settings *s, bench_case *out);
    bool new_kernels;                    // its cache of kernels is empty
    int (*run)(const bench_settings *s); // of a row that is no list of cases
} bench_row;

size_t matmul_options(bench_settings *s, opt *out);
size_t list_matmul(const bench_settings *s, bench_case *out);
size_t list_few_rows(const bench_settings *s, bench_case *out);
size_t list_many_rows(const bench_settings *s, bench_case *out);
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
size_t list_start(const bench_settings *s, bench_case *out);
size_t gpt2_options(bench_settings *s, opt *out);
int run_gpt2(const bench_settings *s);

// f32 numbers in [0.1, 0.9), which bench/peers/rows.py makes, too.
ct_tensor bench_numbers(ct_ints dims, uint32_t seed);
// Integers from 0 to `below` - 1, of CT_U8 or CT_I32, which it makes as well.
ct_tensor bench_integers(ct_ints dims, uint32_t seed, uint32_t below, ct_dtype dtype);

double bench_now(void);                     // seconds
double bench_median(double *v, size_t n);   // sorts them
int64_t bench_peak_rss(void);               // bytes of the process
bool bench_next_turn(char *line, size_t n); // of standard input, for --turns; false: no more

#endif

// Compares the programs of `build/bench/rows programs` with fusion and with COTAN_FUSE=0, alternately.
//   build/bench/fusion [ROUNDS [PART OF A NAME]]
// Prints a line for each program: milliseconds of both (minimum of the rounds), their ratio (median
// of the pairs), and for both the number of launches and the megabytes that they must move. No
// ratio may be above 1.05. With COTAN_THREADS=1, CPU time is measured instead of wall time, so that
// other programs on the machine matter less. Results must be bit-identical.
#include <cotan/cotan.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/os.h"
#include "rows.h"

enum { MAX_ROUNDS = 1001 };

static double fusion_now(void) {
    const char *threads = getenv("COTAN_THREADS");
    if (!threads || strcmp(threads, "1") != 0) return ct__now();
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

typedef struct {
    ct_ctx *ctx;
    const char *fuse;
    ct_tensor in[MOST_INPUTS];
    double seconds[MAX_ROUNDS], bytes;
    size_t launches, result_bytes;
    char *result;
} variant;

// Returns the seconds of a run; negative if it failed.
static double fusion_run(variant *s, const bench_case *p, bool first) {
    ct_tensor out[MOST_RESULTS];
    ct_ctx_use(s->ctx);
    setenv("COTAN_FUSE", s->fuse, 1);
    CT_SCOPE;
    size_t n = p->record(p, s->in, 0, out);
    double begin = fusion_now();
    if (!ct_eval(out, n) || !ct_data(out[0])) return -1;
    double seconds = fusion_now() - begin;
    if (!first) return seconds;
    const ct_plan_cost *cost = ct_latest_plan();
    s->bytes = cost ? (double)cost->bytes : 0;
    s->launches = cost ? cost->n_launches : 0;
    for (size_t i = 0; i < n; i++) {
        size_t bytes = (size_t)ct_size(out[i]) * ct_dtype_size(ct_dtype_of(out[i]));
        s->result = realloc(s->result, s->result_bytes + bytes);
        if (!s->result) abort();
        memcpy(s->result + s->result_bytes, ct_data(out[i]), bytes);
        s->result_bytes += bytes;
    }
    return ct_failed() ? -1 : seconds;
}

static int fusion_compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Returns the ratio of the times; negative if it failed.
static double fusion_compare(variant *fused, variant *unfused, const bench_case *p, int rounds) {
    variant *both[2] = {fused, unfused};
    for (int k = 0; k < 2; k++) {
        ct_ctx_use(both[k]->ctx);
        if (p->make(p, both[k]->in) == 0) return -1;
        both[k]->result = NULL;
        both[k]->result_bytes = 0;
        if (fusion_run(both[k], p, true) < 0 || fusion_run(both[k], p, false) < 0) return -1;
    }
    double ratio[MAX_ROUNDS];
    for (int i = 0; i < rounds; i++) {
        for (int k = 0; k < 2; k++) {
            variant *s = both[(i + k) % 2];
            s->seconds[i] = fusion_run(s, p, false);
            if (s->seconds[i] < 0) return -1;
        }
        ratio[i] = fused->seconds[i] / unfused->seconds[i];
    }
    qsort(ratio, (size_t)rounds, sizeof *ratio, fusion_compare_doubles);
    for (int k = 0; k < 2; k++)
        qsort(both[k]->seconds, (size_t)rounds, sizeof(double), fusion_compare_doubles);
    bool same = fused->result_bytes == unfused->result_bytes &&
                memcmp(fused->result, unfused->result, unfused->result_bytes) == 0;
    printf("%-27s %8.3f %8.3f %7.2f %6zu %4zu %8.2f %8.2f%s\n", p->name, fused->seconds[0] * 1e3,
           unfused->seconds[0] * 1e3, ratio[rounds / 2], fused->launches, unfused->launches,
           fused->bytes / 1e6, unfused->bytes / 1e6, same ? "" : "  OTHER BITS");
    fflush(stdout);
    for (int k = 0; k < 2; k++) free(both[k]->result);
    return same ? ratio[rounds / 2] : -1;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 21, above = 0, n = 0;
    if (rounds < 1 || rounds > MAX_ROUNDS)
        return fprintf(stderr, "1 to %d rounds\n", MAX_ROUNDS), 2;
    static variant fused = {.fuse = "1"}, unfused = {.fuse = "0"};
    double logs = 0;
    setenv("COTAN_COMPILE", "wait", 1);
    printf("%-27s %8s %8s %7s %11s %17s\n", "program", "fused", "plain", "ratio", "launches", "MB");
    static bench_case programs[MOST_CASES];
    size_t n_programs = list_programs(NULL, programs);
    for (size_t i = 0; i < n_programs; i++) {
        if (argc > 2 && !strstr(programs[i].name, argv[2])) continue;
        fused.ctx = ct_ctx_new();
        unfused.ctx = ct_ctx_new();
        double ratio = fusion_compare(&fused, &unfused, &programs[i], rounds);
        if (ratio < 0) printf("%-27s failed: %s\n", programs[i].name, ct_error_text());
        above += ratio < 0 || ratio > 1.05;
        logs += ratio > 0 ? log(ratio) : 0;
        n++;
        ct_ctx_use(NULL);
        ct_ctx_free(fused.ctx);
        ct_ctx_free(unfused.ctx);
    }
    printf("%d programs, geometric mean %.3f, above 1.05: %d\n", n, exp(logs / n), above);
    return above > 0;
}

// Compares matrix products of generated kernels with OpenBLAS in alternate runs: GFLOP/s and their
// ratio.
//   matmul [--rounds N] [--threads T] [--only NAME,NAME] [--openblas FILE] [--out FILE]
//          [--tile ROWS,VECTORS,ROW_BLOCK,COLUMN_BLOCK,GROUP]
// Prints a table for 1, 2, 4 ... T threads, and writes it to FILE with date, CPU and versions.
// OpenBLAS is loaded at run time (Debian: libopenblas0-pthread); without it its columns are 0. Old
// versions take new CPUs for a Prescott, so OPENBLAS_CORETYPE is set if the CPU has AVX-512.
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/build.h"
#include "compile/render/render_c.h"
#include "backend/backend.h"
#include "kinds/matmul.h"

enum { MAX_THREADS = 64, MAX_ROUNDS = 101 };

typedef struct shape {
    const char *name;
    int64_t batch, m, k, n;
    bool ta, tb; // stored as (K, M), (N, K)
} shape;

static const shape shapes[] = {
    {"fc", 1, 256, 768, 3072, false, false},         {"fc-nt", 1, 256, 768, 3072, false, true},
    {"fc-dw", 1, 768, 256, 3072, true, false},       {"fcproj", 1, 256, 3072, 768, false, false},
    {"logits", 1, 256, 768, 50257, false, false},    {"logits-nt", 1, 256, 768, 50257, false, true},
    {"logits-dx", 1, 256, 50257, 768, false, false}, {"logits-dw", 1, 50257, 256, 768, true, false},
    {"small", 1, 768, 128, 512, false, false},       {"square", 1, 1024, 1024, 1024, false, false},
    {"head-qk", 48, 64, 64, 64, false, true},        {"head-av", 48, 64, 64, 64, false, false},
    {"head-32", 48, 64, 32, 64, false, true},        {"decode", 1, 1, 768, 3072, false, false},
    {"decode-nt", 1, 1, 768, 50257, false, true},    {"decode-nn", 1, 1, 768, 50257, false, false},
    {"decode-2nt", 1, 2, 768, 50257, false, true},   {"decode-4nt", 1, 4, 768, 50257, false, true},
    {"decode-4nn", 1, 4, 768, 50257, false, false},  {"decode-8", 1, 8, 768, 3072, false, false},
};

// -------------------------------------------------------------------------------- generated kernel

typedef struct job {
    ct__kernel_fn fn;
    void *bufs[3];
    int64_t grid;
    void *scratch[MAX_THREADS];
    int threads;
    atomic_int arrived, round; // spin barrier: sleeping costs more than a small product
    pthread_barrier_t start;
    int repeat;
    bool stop;
} job;
typedef struct worker {
    job *j;
    int id;
} worker;

static void matmul_run_share(job *j, int id) {
    j->fn(j->bufs, NULL, j->grid * id / j->threads, j->grid * (id + 1) / j->threads,
          j->scratch[id]);
}

static void matmul_spin_barrier(job *j) {
    if (j->threads == 1) return;
    int round = atomic_load(&j->round);
    if (atomic_fetch_add(&j->arrived, 1) + 1 == j->threads) {
        atomic_store(&j->arrived, 0);
        atomic_store(&j->round, round + 1);
    }
    for (int spins = 0; atomic_load(&j->round) == round; spins++)
        if (spins > 2000) sched_yield(); // the other thread may need this core
}

static void matmul_repeat(job *j, int id) {
    for (int i = 0; i < j->repeat; i++) {
        matmul_spin_barrier(j);
        matmul_run_share(j, id);
    }
    matmul_spin_barrier(j);
}

// Sleeps between the measurements, so that the other library can use all cores.
static void *matmul_worker(void *arg) {
    worker *w = arg;
    for (;;) {
        pthread_barrier_wait(&w->j->start);
        if (w->j->stop) return NULL;
        matmul_repeat(w->j, w->id);
    }
}

static void matmul_run(job *j, int times) {
    j->repeat = times;
    if (j->threads > 1) pthread_barrier_wait(&j->start);
    matmul_repeat(j, 0);
}

static ct_matmul_tile tile; // --tile

static bool matmul_make_kernel(const shape *s, job *j) {
    ct_kir k;
    ct__kir_init(&k);
    int a = ct__kir_buffer(&k, CT_F32, CT_KIR_READ), b = ct__kir_buffer(&k, CT_F32, CT_KIR_READ),
        c = ct__kir_buffer(&k, CT_F32, CT_KIR_WRITE);
    ct_kval one = ct__kir_int(&k, 1), batch = ct__kir_int(&k, s->batch);
    ct_kval m = ct__kir_int(&k, s->m), n = ct__kir_int(&k, s->n), inner = ct__kir_int(&k, s->k);
    ct_kval sa[3] = {ct__kir_int(&k, s->m * s->k), s->ta ? one : inner, s->ta ? m : one};
    ct_kval sb[3] = {ct__kir_int(&k, s->n * s->k), s->tb ? one : n, s->tb ? inner : one};
    ct_kval sc[3] = {ct__kir_int(&k, s->m * s->n), n, one};
    ct_matmul_spec spec = {.dtype = CT_F32,
                           .n_batch = 1,
                           .batch = &batch,
                           .rows = m,
                           .columns = n,
                           .inner = inner,
                           .a = {.buf = a, .offset = -1, .stride = sa},
                           .b = {.buf = b, .offset = -1, .stride = sb},
                           .c = {.buf = c, .offset = -1, .stride = sc},
                           .target = ct__backend_cpu.target(),
                           .tile = tile};
    spec.target.cores = j->threads;
    ct__template_matmul(&k, &spec);
    ct__kir_lower_tiles(&k);
    ct_err err = {0};
    ct_text text = {0};
    char name[40];
    bool ok = ct__render_c(&k, &text, name, &err);
    ct__kernel_source source = {.name = name, .text = text.s};
    ok = ok && ct__cpu_build(&source, 1, 1, &err);
    if (!ok) fprintf(stderr, "%s\n", err.text);
    j->fn = source.fn;
    j->grid = ok ? ct__kir_grid(&k, NULL) : 0;
    for (int t = 0; t < j->threads && ok; t++)
        ok = (j->scratch[t] = ct__aligned(64, ct__kir_scratch(&k) + 64)) != NULL;
    ct__text_free(&text);
    ct__kir_free(&k);
    return ok;
}

// ---------------------------------------------------------------------------------------- OpenBLAS

typedef void sgemm_fn(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                      int lda, const float *b, int ldb, float beta, float *c, int ldc);
static sgemm_fn *sgemm;
static void (*blas_threads)(int);

static void matmul_openblas(const shape *s, const float *a, const float *b, float *c) {
    for (int64_t i = 0; i < s->batch; i++)
        sgemm(101, s->ta ? 112 : 111, s->tb ? 112 : 111, (int)s->m, (int)s->n, (int)s->k, 1,
              a + i * s->m * s->k, (int)(s->ta ? s->m : s->k), b + i * s->n * s->k,
              (int)(s->tb ? s->k : s->n), 0, c + i * s->m * s->n, (int)s->n);
}

// A single thread is measured by its CPU time, which excludes other programs.
static double matmul_now(int threads) {
    struct timespec t;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int matmul_compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double matmul_median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, matmul_compare_doubles);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static FILE *out; // --out

__attribute__((format(printf, 1, 2))) static void matmul_report(const char *format, ...) {
    va_list args;
    for (int i = 0; i < (out ? 2 : 1); i++) {
        va_start(args, format);
        vfprintf(i ? out : stdout, format, args);
        va_end(args);
        fflush(i ? out : stdout);
    }
}

static void matmul_print_heading(void *lib) {
    char date[32] = "", line[256], cpu[256] = "?\n";
    time_t t = time(NULL);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&t));
    FILE *info = fopen("/proc/cpuinfo", "r");
    while (info && fgets(line, sizeof line, info))
        if (!strncmp(line, "model name", 10) && strchr(line, ':'))
            snprintf(cpu, sizeof cpu, "%s", strchr(line, ':') + 2);
    if (info) fclose(info);
    char *(*config)(void) = NULL, *(*core)(void) = NULL;
    if (lib) *(void **)&config = dlsym(lib, "openblas_get_config");
    if (lib) *(void **)&core = dlsym(lib, "openblas_get_corename");
    matmul_report("date      %s\ncpu       %s", date, cpu);
    matmul_report("openblas  %s%s%s\n", config ? config() : "not found", core ? ", core " : "",
                  core ? core() : "");
    matmul_report(
        "\nGFLOP/s, medians of paired rounds; ratio: the median of ours / theirs; error: largest "
        "difference\n%-10s %4s %6s %6s %6s %8s %9s %9s %6s  %s\n",
        "name", "b", "m", "k", "n", "threads", "cotan", "openblas", "ratio", "error");
}

static float *matmul_new_random(int64_t n, uint64_t seed) {
    float *x = ct__aligned(64, (size_t)n * sizeof *x);
    for (int64_t i = 0; x && i < n; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        x[i] = (float)((double)(seed >> 11) * 0x1p-53 * 2 - 1);
    }
    return x;
}

static bool matmul_is_listed(const char *list, const char *name) {
    size_t n = strlen(name);
    for (const char *p = list; (p = strstr(p, name)); p++)
        if ((p == list || p[-1] == ',') && (p[n] == ',' || !p[n])) return true;
    return false;
}

static void matmul_compare(const shape *s, int threads, int rounds) {
    float *a = matmul_new_random(s->batch * s->m * s->k, 1),
          *b = matmul_new_random(s->batch * s->k * s->n, 2);
    float *c = matmul_new_random(s->batch * s->m * s->n, 3),
          *d = matmul_new_random(s->batch * s->m * s->n, 4);
    job j = {.bufs = {a, b, c}, .threads = threads};
    if (!a || !b || !c || !d || !matmul_make_kernel(s, &j)) exit(1);
    pthread_t thread[MAX_THREADS];
    pthread_barrier_init(&j.start, NULL, (unsigned)threads);
    worker workers[MAX_THREADS];
    for (int t = 1; t < threads; t++) {
        workers[t] = (worker){&j, t};
        pthread_create(&thread[t], NULL, matmul_worker, &workers[t]);
    }
    if (blas_threads) blas_threads(threads);
    double flops = 2.0 * (double)(s->batch * s->m) * (double)(s->k) * (double)s->n;
    int times = (int)(1e10 / flops) + 1;
    if (times > 2000) times = 2000;
    double ours[MAX_ROUNDS], theirs[MAX_ROUNDS], ratio[MAX_ROUNDS], worst = 0;
    matmul_run(&j, 1);
    if (sgemm) matmul_openblas(s, a, b, d);
    for (int64_t i = 0; sgemm && i < s->batch * s->m * s->n; i++)
        worst = fmax(worst, fabs((double)c[i] - (double)d[i]));
    for (int r = 0; r < rounds; r++) {
        double t0 = matmul_now(threads);
        matmul_run(&j, times);
        double t1 = matmul_now(threads);
        for (int i = 0; i < times && sgemm; i++) matmul_openblas(s, a, b, d);
        double t2 = matmul_now(threads);
        ours[r] = flops * times / (t1 - t0) * 1e-9;
        theirs[r] = sgemm ? flops * times / (t2 - t1) * 1e-9 : 0;
        ratio[r] = sgemm ? ours[r] / theirs[r] : 0;
    }
    matmul_report("%-10s %4ld %6ld %6ld %6ld %8d %9.1f %9.1f %6.2f  %.1e\n", s->name,
                  (long)s->batch, (long)s->m, (long)s->k, (long)s->n, threads,
                  matmul_median(ours, rounds), matmul_median(theirs, rounds),
                  matmul_median(ratio, rounds), worst);
    j.stop = true;
    if (threads > 1) pthread_barrier_wait(&j.start);
    for (int t = 1; t < threads; t++) pthread_join(thread[t], NULL);
    for (int t = 0; t < MAX_THREADS; t++) ct__free(j.scratch[t]);
    ct__free(a), ct__free(b), ct__free(c), ct__free(d);
}

int main(int argc, char **argv) {
    int rounds = 7, threads = 2;
    const char *only = NULL, *library = "libopenblas.so.0", *file = NULL;
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *value = argv[i + 1];
        if (!strcmp(argv[i], "--rounds")) rounds = atoi(value);
        if (!strcmp(argv[i], "--threads")) threads = atoi(value);
        if (!strcmp(argv[i], "--only")) only = value;
        if (!strcmp(argv[i], "--openblas")) library = value;
        if (!strcmp(argv[i], "--out")) file = value;
        long rows = 0, columns = 0;
        if (!strcmp(argv[i], "--tile") && sscanf(value, "%d,%d,%ld,%ld,%d", &tile.rows,
                                                 &tile.vectors, &rows, &columns, &tile.group) >= 4)
            tile.row_block = rows, tile.column_block = columns;
    }
    if (rounds < 1 || rounds > MAX_ROUNDS || threads < 1 || threads > MAX_THREADS) {
        fprintf(stderr, "matmul: 1 to %d rounds, 1 to %d threads\n", MAX_ROUNDS, MAX_THREADS);
        return 2;
    }
    if (file && !(out = fopen(file, "w"))) {
        perror(file);
        return 1;
    }
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
#endif
    void *lib = dlopen(library, RTLD_NOW);
    if (lib) *(void **)&sgemm = dlsym(lib, "cblas_sgemm");
    if (lib) *(void **)&blas_threads = dlsym(lib, "openblas_set_num_threads");
    matmul_print_heading(lib);
    for (int t = 1; t <= threads; t *= 2)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            if (!only || matmul_is_listed(only, shapes[i].name))
                matmul_compare(&shapes[i], t, rounds);
    if (out) fclose(out);
    return 0;
}

// cotan bench: measures the limits of the machine.
#include "cli.h"

typedef struct limit {
    const char *name, *what;
    double value;
    const char *unit; // of 1e9
} limit;
enum { LIMITS = 5 };

static void bench_limits_init(const ct_machine_limits *l, limit out[LIMITS]) {
    out[0] =
        (limit){"f32", "f32 multiply-adds in registers, two operations each", l->flops, "GFLOP/s"};
    out[1] = (limit){"int8", "int8 dot products in registers", l->int8_ops, "GOP/s"};
    out[2] = (limit){"stream", "memory: the faster of STREAM's copy and triad", l->stream_bandwidth,
                     "GB/s"};
    out[3] = (limit){"read", "memory: reading alone", l->read_bandwidth, "GB/s"};
    out[4] = (limit){"random", "random words in registers, Threefry-2x32 of 20 rounds",
                     l->random_words, "G words/s"};
}

static int bench_print_list(void) {
    limit limits[LIMITS];
    bench_limits_init(&(ct_machine_limits){0}, limits);
    for (int i = 0; i < LIMITS; i++) printf("%-8s %s\n", limits[i].name, limits[i].what);
    printf("Benchmarks beside other frameworks are `make bench`: see bench/README.md.\n");
    return EXIT_DONE;
}

static void bench_print_limits(const ct_machine_limits *l, int threads) {
    limit limits[LIMITS];
    bench_limits_init(l, limits);
    for (int i = 0; i < LIMITS; i++) {
        if (limits[i].value > 0)
            printf("%-8s %10.2f %-9s  %s\n", limits[i].name, limits[i].value * 1e-9, limits[i].unit,
                   limits[i].what);
        else
            printf("%-8s %10s %-9s  %s: no instruction for them\n", limits[i].name, "-", "",
                   limits[i].what);
    }
    printf("threads  %10d\n", threads);
}

int run_bench(int argc, char **argv) {
    bool list = false, json = false;
    int64_t threads = 0;
    int status;
    opt options[] = {
        {"list", OPT_FLAG, NULL, "the limits, a line each, without measuring them", .out = &list},
        {"json", OPT_FLAG, NULL, "one JSON object", .out = &json},
        {"threads", OPT_INT, "N", "threads (COTAN_THREADS, else the cores allowed)", 1, 256,
         .out = &threads}};
    command c = {.name = "bench",
                 .usage = "[options]",
                 .text = "Measures the limits of this machine: what all threads do in a second in "
                         "small loops that\n"
                         "do nothing else, the best of several tries. It takes a second. `make "
                         "bench` in the source\n"
                         "tree compares with other frameworks (bench/README.md).\n",
                 .examples = "  cotan bench\n"
                             "  cotan bench --threads 1 --json\n"
                             "  cotan bench --list\n",
                 .opts = options,
                 .n = sizeof options / sizeof *options};
    if (argc > 0 && argv[0][0] != '-')
        return usage_error("bench: it measures the limits of the machine and takes no benchmark; "
                           "make bench runs benchmarks (bench/README.md)");
    if (!options_parse(&c, argc, argv, NULL, &status)) return status;
    if (list) return bench_print_list();
    if (!threads) threads = limits_default_threads();
    ct_machine_limits limits = {0};
    if (!limits_measure(&limits, (int)threads)) return EXIT_FAILED;
    ct_machine_limits_free();
    if (json) {
        printf("{\"threads\": %d, \"version\": \"%s\", ", (int)threads, CT_VERSION);
        limits_print_json(&limits);
        printf("}\n");
    } else {
        bench_print_limits(&limits, (int)threads);
    }
    return EXIT_DONE;
}

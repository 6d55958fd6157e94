// The limits of the machine, for `cotan bench` and for bench/rows.
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>

#include "cli.h"

int limits_default_threads(void) {
    const char *asked = getenv("COTAN_THREADS");
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    if (asked && atoi(asked) > 0) n = atoi(asked);
    return n < 1 ? 1 : n > 256 ? 256 : n;
}

bool limits_measure(ct_machine_limits *l, int threads) {
    if (ct_measure_machine_limits(l, threads, true)) return true;
    usage_error("the limits of the machine cannot be measured: no memory, or no threads");
    return false;
}

void limits_print_json(const ct_machine_limits *l) {
    printf("\"limits\": {\"flops_per_s\": %.6g, \"stream_bytes_per_s\": %.6g, "
           "\"read_bytes_per_s\": %.6g, \"threefry_words_per_s\": %.6g",
           l->flops, l->stream_bandwidth, l->read_bandwidth, l->random_words);
    if (l->int8_ops > 0) printf(", \"int8_ops_per_s\": %.6g", l->int8_ops);
    printf("}");
}

// The target of kernels: properties of a processor.
#ifndef COTAN_KIR_TARGET_H
#define COTAN_KIR_TARGET_H

#include <stdbool.h>

// It determines tiles and the size of tasks, but never bits, except by `pairs`.
typedef struct ct_target {
    // products of pairs of bf16 are instructions (DOT2), which flush subnormal numbers
    bool pairs;
    int cores;     // that tasks may run on
    int lanes;     // f32 that one vector register holds: 16, 8 or 4
    int registers; // vector registers: 32 or 16
    int task;      // elements of pointwise work that are worth a separate task
    int columns;   // adjacent lines along an outer axis that one task reduces or scans
    int few_tasks; // with fewer tasks cores are idle: then long reductions and scans are split,
    int long_line; // those of at least this many elements
    // largest number of elements of a value that a task stores for reuse by its later loops
    int reuse_elements;
    int nontemporal_bytes; // results of at least this size are written by non-temporal stores
    int move_work; // vector operations in the time of moving a vector of f32 to or from memory
    double gflops; // of the threads in a matrix product, estimated from their type, never measured
} ct_target;

// Task sizes for CPUs: a task outweighs its dispatch, and its data fits the first two caches.
#define CT_TARGET_CPU_TASKS                                                                        \
    .task = 4096, .columns = 64, .few_tasks = 8, .long_line = 8192, .reuse_elements = 16384,       \
    .nontemporal_bytes = 16 << 20, .move_work = 12

#endif

// What kernels are written for.
#ifndef COTAN_KIR_TARGET_H
#define COTAN_KIR_TARGET_H

#include <stdbool.h>

// Decides tiles and how work is cut, never bits but by `pairs`.
typedef struct ct_target {
    bool
        pairs; // products of pairs of bf16 are instructions (DOT2), which know no subnormal numbers
    int cores; // that tasks may run on
    int lanes; // f32 that one vector register holds: 16, 8 or 4
    int registers;   // vector registers: 32 or 16
    int task;        // elements of pointwise work that are worth a task of their own
    int columns;     // neighbouring lines along an outer axis that one task reduces or scans
    int few_tasks;   // fewer leave the target idle: long reductions and scans are then cut,
    int long_line;   // those of at least so many elements
    int kept;        // elements of a value that a task keeps for its later loops
    int past_caches; // bytes of a result from which it is written past the caches
    int move_work;   // vector operations in the time of moving a vector of f32 to or from memory
    double gflops;   // of the threads in a matrix product, roughly: by what they are, never timed
} ct_target;

// How CPUs are fed: tasks that outweigh their dispatch and stay in the first two caches.
#define CT_TARGET_CPU_TASKS                                                                        \
    .task = 4096, .columns = 64, .few_tasks = 8, .long_line = 8192, .kept = 16384,                 \
    .past_caches = 16 << 20, .move_work = 12

#endif

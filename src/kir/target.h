// What kernels are written for.
#ifndef COTAN_KIR_TARGET_H
#define COTAN_KIR_TARGET_H

#include <stdbool.h>

// Decides tiles and how work is cut, never bits.
typedef struct ct_target {
    int cores;           // that tasks may run on
    bool many_registers; // vector registers have room for 32 values of 16 f32; else for 8
    double gflops; // of the threads in a matrix product, roughly: by what they are, never timed
} ct_target;

#endif

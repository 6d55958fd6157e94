// What kernels are written for.
#ifndef COTAN_KIR_TARGET_H
#define COTAN_KIR_TARGET_H

// Decides tiles and how work is cut, never bits.
typedef struct ct_target {
    int cores;     // that tasks may run on
    int lanes;     // f32 that one vector register holds: 16, 8 or 4
    int registers; // vector registers: 32 or 16
    double gflops; // of the threads in a matrix product, roughly: by what they are, never timed
} ct_target;

#endif

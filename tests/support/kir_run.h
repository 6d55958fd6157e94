// Running a hand-written kernel: render, compile (or load), call. With COTAN_TEST_KIR=opencl in the environment it runs
// as a GPU's, on an OpenCL device of the host's memory (kir_gpu.h).
#ifndef COTAN_TESTS_KIR_RUN_H
#define COTAN_TESTS_KIR_RUN_H

#include "kir/kir.h"

// Runs the whole grid in `pieces` calls. Fails the test with the error's text and the kernel's dump
// if anything goes wrong. The kernel is freed.
void kir_run(ct_kir *k, void *const *bufs, const int64_t *args, int pieces);

#endif

// OpenCL for tests of generated text: one CPU device (PoCL), whose kernels take addresses of the host.
#ifndef COTAN_TESTS_KIR_GPU_H
#define COTAN_TESTS_KIR_GPU_H

#include "kir/kir.h"

bool kir_gpu_present(void);
// Renders as OpenCL C, builds and runs the whole grid in `pieces` launches. Fails the test with the compiler's text if
// anything goes wrong.
void kir_gpu_run(const ct_kir *k, void *const *bufs, const int64_t *args, int pieces);

#endif

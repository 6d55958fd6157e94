// Preloaded before PyTorch's MKL, which takes processors of other makers for strangers and leaves
// their vectors unused.
int mkl_serv_intel_cpu_true(void);
int mkl_serv_intel_cpu_true(void) { return 1; }

// Preloaded before PyTorch's MKL, which otherwise does not use vector instructions on CPUs of other
// makers.
int mkl_serv_intel_cpu_true(void);
int mkl_serv_intel_cpu_true(void) { return 1; }

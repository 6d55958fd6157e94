// The queue of kernels to compile, and this process's threads that compile them in the background:
// at most as many as requested, each with one compiler at a time. The threads start when there is
// work and end when there is none, so that an idle process has none; they block the host program's
// signals.
#ifndef COTAN_BACKEND_CPU_QUEUE_H
#define COTAN_BACKEND_CPU_QUEUE_H

#include "backend/cpu/build.h"

struct ct_toolchain;

// Appends a kernel, with copies of its name and text, unless it is queued already. False: no
// memory.
bool ct__queue_add(const ct__kernel_source *k, const struct ct_toolchain *toolchain, ct_err *err);
// A thread waits for this kernel: it is compiled before the others.
void ct__queue_prioritize(ct_cpu_code *code);
// Starts threads until so many compile, as far as there is work; `helps`: the calling thread is one
// of them.
void ct__queue_start(int threads, bool helps);
// Compiles some of the urgent kernels on the calling thread. False: there are none.
bool ct__queue_compile_some(void);
// Waits until no thread that took the kernel from the queue is at work on it; returns true if one
// was. Such a thread claims the kernel only after it has taken it, so ct__code_await alone may miss
// it: it is called after this.
bool ct__queue_await(const ct_cpu_code *code);

// Returns when the queue is empty and no thread compiles.
void ct__queue_wait_idle(void);
// Drops the queued kernels, waits for running compilers, and joins the threads; nothing is accepted
// until ct__queue_open.
void ct__queue_close(void);
void ct__queue_open(void);

#endif

// Kernels that are to be compiled, and the threads of this process that compile them in the
// background: at most as many at once as asked for, each of which waits for one compiler at a time.
// They begin when there is work and end when there is none, so that an idle process has none of
// them; they take none of the host program's signals.
#ifndef COTAN_BACKEND_CPU_QUEUE_H
#define COTAN_BACKEND_CPU_QUEUE_H

#include "backend/cpu/build.h"

struct ct_toolchain;

// Appends a kernel, with copies of its name and text, unless it waits there. False: no memory.
bool ct__queue_add(const ct__kernel_source *k, const struct ct_toolchain *toolchain, ct_err *err);
// Somebody waits for this kernel: it goes before those that nobody waits for.
void ct__queue_prioritize(ct_cpu_code *code);
// Sees to it that so many threads compile what waits, as far as there is work; `helps`: the calling
// thread is one of them.
void ct__queue_start(int threads, bool helps);
// Compiles some of what is wanted, in the calling thread. False: nothing wanted waits.
bool ct__queue_compile_some(void);

// Returns when nothing waits and nobody compiles.
void ct__queue_wait_idle(void);
// Drops what waits, lets compilers that run end, and joins the threads; nothing is taken from then
// on until ct__queue_open.
void ct__queue_close(void);
void ct__queue_open(void);

#endif

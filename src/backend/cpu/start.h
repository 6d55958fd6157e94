// How a plan starts whose kernels are not all compiled yet.
#ifndef COTAN_BACKEND_CPU_START_H
#define COTAN_BACKEND_CPU_START_H

#include "backend/backend.h"

// More bytes of scratch a thread than compiled code needs, that a kernel can be interpreted in them
// meanwhile.
enum { CT_FRAME_ROOM = 32 << 10 };

// Before the commands are submitted: waits for the compiler where the run is expected to end sooner
// so, and sees to it that all other kernels can be interpreted. `threads`: that launches, and at most
// compilers, run on; `stop` ends a wait. *finished: all that can be compiled is. False: the error
// says why not.
bool ct__cpu_start(const ct_command *commands, size_t n, int threads, const atomic_bool *stop,
                   bool *finished, ct_err *err);

#endif

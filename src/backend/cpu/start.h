// Starts a plan whose kernels are not all compiled yet.
#ifndef COTAN_BACKEND_CPU_START_H
#define COTAN_BACKEND_CPU_START_H

#include "backend/backend.h"

// Additional scratch bytes a thread, so that a kernel can be interpreted until it is compiled.
enum { CT_FRAME_ROOM = 32 << 10 };

// Called before the commands are submitted: waits for the compiler if the run is expected to end
// sooner that way, and prepares all other kernels for the interpreter. `threads`: for launches and,
// at most, for compilers; `stop` ends a wait. *finished: everything that can be compiled is
// compiled. Returns false with the error set.
bool ct__cpu_start(const ct_command *commands, size_t n, int threads, const atomic_bool *stop,
                   bool *finished, ct_err *err);

#endif

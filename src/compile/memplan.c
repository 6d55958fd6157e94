// Places of temporary buffers in the plan's arena.
#include "compile/program.h"

bool ct__plan_memory(ct_program *program, ct_err *err) {
    (void)err;
    size_t at = 0;
    for (size_t i = 0; i < program->n_bufs; i++) {
        if (program->bufs[i].kind != CT_BUF_TEMP) continue;
        program->bufs[i].offset = at;
        at += (program->bufs[i].bytes + 63) & ~(size_t)63;
    }
    program->arena_bytes = at;
    return true;
}

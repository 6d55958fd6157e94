// Assigns memory to temporary buffers. In: a program (schedule/program.h) with its launches in order. Out:
// an offset in the plan's arena for each buffer, and the arena's size.
#ifndef COTAN_COMPILE_MEMPLAN_H
#define COTAN_COMPILE_MEMPLAN_H

#include "compile/schedule/program.h"

// Computes offsets of TEMP buffers from their lifetimes over the launches (a buffer that an iteration of a
// loop reads from outside lives through the loop), and arena_bytes.
bool ct__plan_memory(ct_program *program, ct_err *err);
// Finds the first and the last launch that use each buffer (n_bufs); first is SIZE_MAX if no launch does.
bool ct__plan_lifetimes(const ct_program *program, size_t *first, size_t *last, ct_err *err);

// Recomputes offsets for other sizes of the buffers, keeping the order of buffers that are live at the same
// time. Returns the arena's size. Only if the program's `stacking` is recorded.
size_t ct__restack(ct_program *program);

#endif

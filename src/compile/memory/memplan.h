// Where temporary buffers lie. In: a program (schedule/program.h), its launches in order. Out: the same
// with an offset in the plan's arena for each buffer, and the arena's size.
#ifndef COTAN_COMPILE_MEMPLAN_H
#define COTAN_COMPILE_MEMPLAN_H

#include "compile/schedule/program.h"

// Offsets of TEMP buffers from their lifetimes over the launches (a buffer that an iteration of a
// loop gets from outside lives through the loop); fills arena_bytes.
bool ct__plan_memory(ct_program *program, ct_err *err);
// The first and the last launch in which each buffer (n_bufs) is needed; first is SIZE_MAX for one
// that never is.
bool ct__plan_lives(const ct_program *program, size_t *first, size_t *last, ct_err *err);

// The same for other sizes of the buffers: the lower of two that live at the same time stays the lower
// one. Gives the arena's size. Only where the program's `stacking` has been noted.
size_t ct__restack(ct_program *program);

#endif

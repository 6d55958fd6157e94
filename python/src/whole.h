// Sections that happen whole or not at all, whatever a signal's handler in Python raises.
#ifndef COTAN_PYTHON_WHOLE_H
#define COTAN_PYTHON_WHOLE_H

#include "core.h"

// Signals whose handlers are Python's wait from begin to end; then they are handled where the interpreter next looks for
// such. In other threads, which handle none, both do nothing. Sections may be nested.
void whole_begin(void);
void whole_end(void);
bool whole_inside(void);
// May SIGINT end a plan that runs now? In a section the last plan alone, before which none has run there: until then nothing
// has changed.
bool whole_may_cancel(void);
void whole_ran(void);     // a plan ran
bool whole_deliver(void); // calls the handlers of what waits; false: one has raised

extern PyMethodDef whole_functions[];
bool whole_start(PyObject *module);

#endif

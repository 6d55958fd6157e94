// Critical sections, which run completely or not at all, whatever a Python signal handler raises.
#ifndef COTAN_PYTHON_WHOLE_H
#define COTAN_PYTHON_WHOLE_H

#include "core.h"

// Signals that have Python handlers are held back from begin to end; then they are handled where the
// interpreter next checks for signals. In other threads, which handle no signals, both do nothing. Sections
// may be nested.
void critical_begin(void);
void critical_end(void);
bool critical_is_inside(void);
// True if SIGINT may end the plan that runs now. In a section only the last plan may be ended, if no other
// has run before it: until then nothing has changed.
bool critical_can_cancel(void);
void critical_plan_ran(void); // called after a plan ran
// Calls the handlers of signals that were held back; false if one has raised.
bool critical_deliver_signals(void);

extern PyMethodDef critical_functions[];
bool critical_init(PyObject *module);

#endif

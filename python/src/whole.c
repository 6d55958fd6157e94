// cotan._core.Whole, Swap, GradMode: critical sections, which a signal does not interrupt halfway.
//
// The interpreter handles signals only between instructions of the main thread, so one call of C is never
// interrupted. For a section in Python, the handlers are replaced by one of ours that notes the signal.
// Python's handlers are replaced, not the system's, so that signals sent by PyErr_SetInterrupt are held back,
// too.
#include "whole.h"
#include "tensor.h"
#include "threads.h"

#include <signal.h>
#include <time.h>

// The signals for which programs have handlers that raise.
static const int critical_signals[] = {SIGINT, SIGTERM, SIGALRM, SIGHUP, SIGUSR1, SIGUSR2};
enum { N_SIGNALS = sizeof critical_signals / sizeof *critical_signals };

static struct held_signal {
    PyObject *handler; // the handler that was replaced, or NULL
    struct sigaction system;
    bool arrived;
    struct timespec arrival;
} held_signal[N_SIGNALS];
static int critical_depth;
// A plan has run in the section; the plan that runs now is its last.
static bool critical_has_run_plan, critical_is_last_plan;
static PyObject *signal_get_handler, *signal_set_handler; // functions of the module _signal
static PyObject *signal_hold_back, *signal_numbers[N_SIGNALS];
static PyObject *method_type;

bool critical_is_inside(void) { return critical_depth && thread_get()->is_main; }
bool critical_can_cancel(void) {
    return !critical_is_inside() || (critical_is_last_plan && !critical_has_run_plan);
}
void critical_plan_ran(void) {
    if (critical_is_inside()) critical_has_run_plan = true;
}

static PyObject *critical_call_handler(PyObject *handler, PyObject *number) {
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    return PyObject_CallFunctionObjArgs(handler, number, frame ? frame : Py_None, NULL);
}

// Notes a signal. A second signal more than a second after the first is handled at once: the section may
// never end.
static PyObject *critical_note_signal(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *number = PyTuple_GetItem(args, 0);
    const long n = number ? PyLong_AsLong(number) : -1;
    for (int i = 0; i < N_SIGNALS; i++) {
        struct held_signal *h = &held_signal[i];
        if (critical_signals[i] != n || !h->handler) continue;
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        const double waited = (double)(now.tv_sec - h->arrival.tv_sec) +
                              (double)(now.tv_nsec - h->arrival.tv_nsec) * 1e-9;
        if (h->arrived && waited > 1) {
            h->arrived = false;
            return critical_call_handler(h->handler, number);
        }
        if (!h->arrived) h->arrival = now;
        h->arrived = true;
    }
    return none_if(!PyErr_Occurred());
}

// Raised by a signal handler inside a section; set again at its end.
static PyObject *critical_exception;
static int critical_raise_pending(void *exception) {
    PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_DECREF((PyObject *)exception);
    return -1;
}
static void critical_store_exception(void) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (!critical_exception) critical_exception = Py_XNewRef(value);
    release(type, value, trace);
}

// signal.signal first handles signals that have arrived, so it may raise: then it is called again.
static PyObject *critical_set_handler(int i, PyObject *handler) {
    for (int tries = 0; tries < 8; tries++) {
        PyObject *before =
            PyObject_CallFunctionObjArgs(signal_set_handler, signal_numbers[i], handler, NULL);
        if (before) return before;
        critical_store_exception();
    }
    return NULL;
}

void critical_begin(void) {
    if (!thread_get()->is_main || critical_depth++) return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    critical_has_run_plan = critical_is_last_plan = false;
    if (Py_MakePendingCalls() < 0) critical_store_exception();
    for (int i = 0; i < N_SIGNALS; i++) {
        PyObject *handler =
            PyObject_CallFunctionObjArgs(signal_get_handler, signal_numbers[i], NULL);
        if (!handler) PyErr_Clear();
        if (handler && PyCallable_Check(handler)) {
            sigaction(critical_signals[i], NULL, &held_signal[i].system);
            held_signal[i].handler = critical_set_handler(i, signal_hold_back);
        }
        Py_XDECREF(handler);
    }
    PyErr_Restore(type, value, trace);
}

static int critical_call_pending(void *pair) {
    PyObject *done = critical_call_handler(PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1));
    release((PyObject *)pair, done);
    return done ? 0 : -1;
}

void critical_end(void) {
    if (!thread_get()->is_main || --critical_depth) return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    for (int i = 0; i < N_SIGNALS; i++) {
        struct held_signal *h = &held_signal[i];
        if (!h->handler) continue;
        Py_XDECREF(critical_set_handler(i, h->handler));
        // Restores its flags, and a C handler of the program's own that calls Python's.
        sigaction(critical_signals[i], &h->system, NULL);
        if (h->arrived) {
            PyObject *pair = PyTuple_Pack(2, h->handler, signal_numbers[i]);
            if (pair && Py_AddPendingCall(critical_call_pending, pair) < 0) Py_DECREF(pair);
            PyErr_Clear();
        }
        h->arrived = false;
        Py_CLEAR(h->handler);
    }
    if (critical_exception && Py_AddPendingCall(critical_raise_pending, critical_exception) == 0)
        critical_exception = NULL;
    PyErr_Restore(type, value, trace);
}

bool critical_deliver_signals(void) {
    for (int i = 0; i < N_SIGNALS && critical_depth; i++) {
        if (!held_signal[i].arrived) continue;
        held_signal[i].arrived = false;
        PyObject *done = critical_call_handler(held_signal[i].handler, signal_numbers[i]);
        if (!done) return false;
        Py_DECREF(done);
    }
    return true;
}

// ------------------------------------------------------------------------------------------- Whole

typedef struct critical_function {
    PyObject_HEAD PyObject *function, *dict;
} critical_function;

static PyObject *critical_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(options)) {
    PyObject *function;
    if (!PyArg_ParseTuple(args, "O:Whole", &function)) return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    critical_function *self = (critical_function *)alloc(type, 0);
    if (self) self->function = Py_NewRef(function);
    return (PyObject *)self;
}
static PyObject *critical_call(PyObject *o, PyObject *args, PyObject *options) {
    critical_begin();
    PyObject *result = PyObject_Call(((critical_function *)o)->function, args, options);
    critical_end();
    return result;
}
static PyObject *critical_bind(PyObject *o, PyObject *to, PyObject *Py_UNUSED(type)) {
    if (!to || to == Py_None) return Py_NewRef(o);
    return PyObject_CallFunctionObjArgs(method_type, o, to, NULL);
}
static int critical_traverse(PyObject *o, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(o));
    Py_VISIT(((critical_function *)o)->function);
    Py_VISIT(((critical_function *)o)->dict);
    return 0;
}
static int critical_clear(PyObject *o) {
    Py_CLEAR(((critical_function *)o)->function);
    Py_CLEAR(((critical_function *)o)->dict);
    return 0;
}
static void critical_dealloc(PyObject *o) { // of every class that has a tp_clear
    PyTypeObject *type = Py_TYPE(o);
    PyObject_GC_UnTrack(o);
    ((inquiry)PyType_GetSlot(type, Py_tp_clear))(o);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(o);
    Py_DECREF(type);
}

static PyMemberDef critical_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(critical_function, dict), READONLY, NULL}, {0}};
static PyGetSetDef critical_getters[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL}, {0}};
static PyType_Slot critical_slots[] = {
    {Py_tp_new, critical_new},
    {Py_tp_call, critical_call},
    {Py_tp_descr_get, critical_bind},
    {Py_tp_traverse, critical_traverse},
    {Py_tp_clear, critical_clear},
    {Py_tp_dealloc, critical_dealloc},
    {Py_tp_members, critical_members},
    {Py_tp_getset, critical_getters},
    {0},
};
static PyType_Spec critical_spec = {"cotan._core.Whole", sizeof(critical_function), 0,
                                    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, critical_slots};

// -------------------------------------------------------------------------------------------- Swap

// Swap(object, name, value): sets the attribute to the value within a `with` block, and restores it after the
// block.
typedef struct swap {
    // Value: the one to set at the next enter or exit.
    PyObject_HEAD PyObject *object, *name, *value;
    bool entered;
} swap;

static PyObject *swap_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(options)) {
    PyObject *object, *name, *value;
    if (!PyArg_ParseTuple(args, "OOO:Swap", &object, &name, &value)) return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    swap *self = (swap *)alloc(type, 0);
    if (!self) return NULL;
    self->object = Py_NewRef(object);
    self->name = Py_NewRef(name);
    self->value = Py_NewRef(value);
    return (PyObject *)self;
}
static bool swap_now(swap *self) {
    PyObject *before = PyObject_GetAttr(self->object, self->name);
    if (!before) return false;
    if (PyObject_SetAttr(self->object, self->name, self->value) < 0) {
        Py_DECREF(before);
        return false;
    }
    PyObject *inside = self->value;
    self->value = before;
    Py_DECREF(inside);
    return true;
}
static PyObject *swap_enter(PyObject *o, PyObject *Py_UNUSED(unused)) {
    return swap_now((swap *)o) ? Py_NewRef(o) : NULL;
}
static PyObject *swap_exit(PyObject *o, PyObject *Py_UNUSED(exception)) {
    return none_if(swap_now((swap *)o));
}
static int swap_traverse(PyObject *o, visitproc visit, void *arg) {
    const swap *self = (swap *)o;
    Py_VISIT(Py_TYPE(o));
    Py_VISIT(self->object);
    Py_VISIT(self->name);
    Py_VISIT(self->value);
    return 0;
}
static int swap_clear(PyObject *o) {
    swap *self = (swap *)o;
    Py_CLEAR(self->object);
    Py_CLEAR(self->name);
    Py_CLEAR(self->value);
    return 0;
}

static PyMethodDef swap_methods[] = {
    {"__enter__", swap_enter, METH_NOARGS, NULL}, {"__exit__", swap_exit, METH_VARARGS, NULL}, {0}};
static PyType_Slot swap_slots[] = {
    {Py_tp_new, swap_new},     {Py_tp_methods, swap_methods},     {Py_tp_traverse, swap_traverse},
    {Py_tp_clear, swap_clear}, {Py_tp_dealloc, critical_dealloc}, {0},
};
static PyType_Spec swap_spec = {"cotan._core.Swap", sizeof(swap), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, swap_slots};

// ---------------------------------------------------------------------------------------- GradMode

// The base of no_grad and the like: a subclass, or an object of one, has `mode`. It may be entered again
// before it is left.
typedef struct grad_mode {
    // A bit for each nested enter, the last one lowest.
    PyObject_HEAD uint64_t before;
} grad_mode;

static PyObject *py_grad_mode_enter(PyObject *o, PyObject *Py_UNUSED(unused)) {
    PyObject *mode = PyObject_GetAttrString(o, "mode");
    const int on = mode ? PyObject_IsTrue(mode) : -1;
    Py_XDECREF(mode);
    if (on < 0) return NULL;
    thread *self = thread_get();
    grad_mode *m = (grad_mode *)o;
    m->before = m->before << 1 | !self->no_grad;
    self->no_grad = !on;
    return Py_NewRef(o);
}
static PyObject *py_grad_mode_exit(PyObject *o, PyObject *Py_UNUSED(exception)) {
    grad_mode *m = (grad_mode *)o;
    thread_get()->no_grad = !(m->before & 1);
    m->before >>= 1;
    Py_RETURN_NONE;
}

static PyMethodDef grad_mode_methods[] = {{"__enter__", py_grad_mode_enter, METH_NOARGS, NULL},
                                          {"__exit__", py_grad_mode_exit, METH_VARARGS, NULL},
                                          {0}};
static PyType_Slot grad_mode_slots[] = {{Py_tp_methods, grad_mode_methods}, {0}};
static PyType_Spec grad_mode_spec = {"cotan._core.GradMode", sizeof(grad_mode), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, grad_mode_slots};

// GradSetting(mode) sets the mode at once; a `with` block keeps it, and restores the previous mode after the
// block.
typedef struct grad_setting {
    PyObject_HEAD char mode, before;
} grad_setting;

static PyObject *py_grad_setting_new(PyTypeObject *type, PyObject *args, PyObject *options) {
    static char *keywords[] = {"mode", NULL};
    int mode;
    if (!PyArg_ParseTupleAndKeywords(args, options, "p:set_grad_enabled", keywords, &mode))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    grad_setting *self = (grad_setting *)alloc(type, 0);
    if (self && Py_MakePendingCalls() < 0)
        Py_CLEAR(self); // raises pending exceptions before a `with` block begins
    if (!self) return NULL;
    thread *here = thread_get();
    self->mode = mode != 0, self->before = !here->no_grad;
    here->no_grad = !mode;
    return (PyObject *)self;
}
static PyObject *py_grad_setting_enter(PyObject *o, PyObject *Py_UNUSED(unused)) {
    thread_get()->no_grad = !((grad_setting *)o)->mode;
    return Py_NewRef(o);
}
static PyObject *py_grad_setting_exit(PyObject *o, PyObject *Py_UNUSED(exception)) {
    thread_get()->no_grad = !((grad_setting *)o)->before;
    Py_RETURN_NONE;
}

static PyMethodDef grad_setting_methods[] = {
    {"__enter__", py_grad_setting_enter, METH_NOARGS, NULL},
    {"__exit__", py_grad_setting_exit, METH_VARARGS, NULL},
    {0}};
static PyMemberDef grad_setting_members[] = {
    {"mode", T_BOOL, offsetof(grad_setting, mode), READONLY, NULL},
    {"before", T_BOOL, offsetof(grad_setting, before), READONLY, NULL},
    {0}};
static PyType_Slot grad_setting_slots[] = {{Py_tp_new, py_grad_setting_new},
                                           {Py_tp_methods, grad_setting_methods},
                                           {Py_tp_members, grad_setting_members},
                                           {0}};
static PyType_Spec grad_setting_spec = {"cotan._core.GradSetting", sizeof(grad_setting), 0,
                                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                        grad_setting_slots};

// ------------------------------------------------------------------------------------------ module

// _eval_last(): evaluates what is pending, as the section's last plan.
static PyObject *critical_eval_last(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(unused)) {
    const ct_loc here = api_enter();
    thread_get()->reads++;
    critical_is_last_plan = true;
    const bool ok = run_eval(NULL, 0, here);
    critical_is_last_plan = false;
    return none_if(ok);
}

PyMethodDef critical_functions[] = {{"_eval_last", critical_eval_last, METH_NOARGS, NULL}, {0}};
static PyMethodDef signal_hold_back_method = {"hold_back", critical_note_signal, METH_VARARGS,
                                              NULL};

bool critical_init(PyObject *module) {
    PyObject *signals = PyImport_ImportModule("_signal"), *types = PyImport_ImportModule("types");
    if (!signals || !types) return false;
    signal_get_handler = PyObject_GetAttrString(signals, "getsignal");
    signal_set_handler = PyObject_GetAttrString(signals, "signal");
    method_type = PyObject_GetAttrString(types, "MethodType");
    signal_hold_back = PyCFunction_New(&signal_hold_back_method, NULL);
    bool ok = signal_get_handler && signal_set_handler && method_type && signal_hold_back;
    for (int i = 0; ok && i < N_SIGNALS; i++)
        ok = (signal_numbers[i] = PyLong_FromLong(critical_signals[i]));
    static PyType_Spec *const specs[] = {&critical_spec, &swap_spec, &grad_mode_spec,
                                         &grad_setting_spec};
    static const char *const names[] = {"Whole", "Swap", "GradMode", "GradSetting"};
    for (int i = 0; ok && i < 4; i++) {
        PyObject *type = PyType_FromSpec(specs[i]);
        ok = type && PyModule_AddObjectRef(module, names[i], type) == 0;
        Py_XDECREF(type);
    }
    release(signals, types);
    return ok && PyModule_AddFunctions(module, critical_functions) == 0;
}

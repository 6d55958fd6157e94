// cotan._core.Whole, Swap, GradMode: what a signal does not cut in two.
//
// The interpreter handles signals between instructions of the main thread alone, so one call of C is whole. A section in Python
// is made so by handlers of ours, which note the signal, in the place of those that are there. Python's are replaced, not
// the system's: what others send by PyErr_SetInterrupt is held back, too.
#include "whole.h"
#include "tensor.h"
#include "threads.h"

#include <signal.h>
#include <time.h>

// Those for which programs have handlers that raise.
static const int numbers[] = {SIGINT, SIGTERM, SIGALRM, SIGHUP, SIGUSR1, SIGUSR2};
enum { SIGNALS = sizeof numbers / sizeof *numbers };

static struct held {
    PyObject *handler; // that was replaced, or NULL
    struct sigaction system;
    bool came;
    struct timespec when;
} held[SIGNALS];
static int depth;
static bool ran, last;                      // a plan has; this one is the section's last
static PyObject *get_handler, *set_handler; // of the module _signal
static PyObject *hold_back, *signal_number[SIGNALS];
static PyObject *method_type;

bool whole_inside(void) { return depth && thread_here()->is_main; }
bool whole_may_cancel(void) { return !whole_inside() || (last && !ran); }
void whole_ran(void) {
    if (whole_inside()) ran = true;
}

static PyObject *whole_call_handler(PyObject *handler, PyObject *number) {
    PyObject *frame = (PyObject *)PyEval_GetFrame();
    return PyObject_CallFunctionObjArgs(handler, number, frame ? frame : Py_None, NULL);
}

// A second signal, when the first has waited for a while, goes through: what is in the section may never end.
static PyObject *whole_hold_back(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *number = PyTuple_GetItem(args, 0);
    const long n = number ? PyLong_AsLong(number) : -1;
    for (int i = 0; i < SIGNALS; i++) {
        struct held *h = &held[i];
        if (numbers[i] != n || !h->handler) continue;
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        const double waited =
            (double)(now.tv_sec - h->when.tv_sec) + (double)(now.tv_nsec - h->when.tv_nsec) * 1e-9;
        if (h->came && waited > 1) {
            h->came = false;
            return whole_call_handler(h->handler, number);
        }
        if (!h->came) h->when = now;
        h->came = true;
    }
    if (PyErr_Occurred()) return NULL;
    Py_RETURN_NONE;
}

static PyObject *raised; // by a signal handler inside a section; set again after it
static int whole_raise_later(void *exception) {
    PyErr_SetObject((PyObject *)Py_TYPE(exception), exception);
    Py_DECREF((PyObject *)exception);
    return -1;
}
static void whole_keep_exception(void) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (!raised) raised = Py_XNewRef(value);
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
}

// signal.signal handles what has come first, so it may raise: then it is called again.
static PyObject *whole_set_handler(int i, PyObject *handler) {
    for (int tries = 0; tries < 8; tries++) {
        PyObject *before =
            PyObject_CallFunctionObjArgs(set_handler, signal_number[i], handler, NULL);
        if (before) return before;
        whole_keep_exception();
    }
    return NULL;
}

void whole_begin(void) {
    if (!thread_here()->is_main || depth++) return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    ran = last = false;
    if (Py_MakePendingCalls() < 0) whole_keep_exception();
    for (int i = 0; i < SIGNALS; i++) {
        PyObject *handler = PyObject_CallFunctionObjArgs(get_handler, signal_number[i], NULL);
        if (!handler) PyErr_Clear();
        if (handler && PyCallable_Check(handler)) {
            sigaction(numbers[i], NULL, &held[i].system);
            held[i].handler = whole_set_handler(i, hold_back);
        }
        Py_XDECREF(handler);
    }
    PyErr_Restore(type, value, trace);
}

static int whole_handle_later(void *pair) {
    PyObject *done = whole_call_handler(PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1));
    Py_DECREF((PyObject *)pair);
    Py_XDECREF(done);
    return done ? 0 : -1;
}

void whole_end(void) {
    if (!thread_here()->is_main || --depth) return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    for (int i = 0; i < SIGNALS; i++) {
        struct held *h = &held[i];
        if (!h->handler) continue;
        Py_XDECREF(whole_set_handler(i, h->handler));
        sigaction(numbers[i], &h->system,
                  NULL); // its flags, and a program's own that calls Python's
        if (h->came) {
            PyObject *pair = PyTuple_Pack(2, h->handler, signal_number[i]);
            if (pair && Py_AddPendingCall(whole_handle_later, pair) < 0) Py_DECREF(pair);
            PyErr_Clear();
        }
        h->came = false;
        Py_CLEAR(h->handler);
    }
    if (raised && Py_AddPendingCall(whole_raise_later, raised) == 0) raised = NULL;
    PyErr_Restore(type, value, trace);
}

bool whole_deliver(void) {
    for (int i = 0; i < SIGNALS && depth; i++) {
        if (!held[i].came) continue;
        held[i].came = false;
        PyObject *done = whole_call_handler(held[i].handler, signal_number[i]);
        if (!done) return false;
        Py_DECREF(done);
    }
    return true;
}

// ------------------------------------------------------------------------------------------- Whole

typedef struct whole {
    PyObject_HEAD PyObject *function, *dict;
} whole;

static PyObject *whole_new(PyTypeObject *type, PyObject *args, PyObject *options) {
    (void)options;
    PyObject *function;
    if (!PyArg_ParseTuple(args, "O:Whole", &function)) return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    whole *self = (whole *)alloc(type, 0);
    if (self) self->function = Py_NewRef(function);
    return (PyObject *)self;
}
static PyObject *whole_call(PyObject *o, PyObject *args, PyObject *options) {
    whole_begin();
    PyObject *result = PyObject_Call(((whole *)o)->function, args, options);
    whole_end();
    return result;
}
static PyObject *whole_bind(PyObject *o, PyObject *to, PyObject *type) {
    (void)type;
    if (!to || to == Py_None) return Py_NewRef(o);
    return PyObject_CallFunctionObjArgs(method_type, o, to, NULL);
}
static int whole_traverse(PyObject *o, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(o));
    Py_VISIT(((whole *)o)->function);
    Py_VISIT(((whole *)o)->dict);
    return 0;
}
static int whole_clear(PyObject *o) {
    Py_CLEAR(((whole *)o)->function);
    Py_CLEAR(((whole *)o)->dict);
    return 0;
}
static void whole_dealloc(PyObject *o) {
    PyTypeObject *type = Py_TYPE(o);
    PyObject_GC_UnTrack(o);
    whole_clear(o);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(o);
    Py_DECREF(type);
}

static PyMemberDef whole_members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(whole, dict), READONLY, NULL}, {0}};
static PyGetSetDef whole_getters[] = {
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL}, {0}};
static PyType_Slot whole_slots[] = {
    {Py_tp_new, whole_new},           {Py_tp_call, whole_call},      {Py_tp_descr_get, whole_bind},
    {Py_tp_traverse, whole_traverse}, {Py_tp_clear, whole_clear},    {Py_tp_dealloc, whole_dealloc},
    {Py_tp_members, whole_members},   {Py_tp_getset, whole_getters}, {0},
};
static PyType_Spec whole_spec = {"cotan._core.Whole", sizeof(whole), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, whole_slots};

// -------------------------------------------------------------------------------------------- Swap

// Swap(object, name, value): inside of its `with` the attribute is the value.
typedef struct swap {
    PyObject_HEAD PyObject *object, *name,
        *value; // value: outside of the block, which it gets inside
    bool entered;
} swap;

static PyObject *swap_new(PyTypeObject *type, PyObject *args, PyObject *options) {
    (void)options;
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
static PyObject *swap_enter(PyObject *o, PyObject *unused) {
    (void)unused;
    return swap_now((swap *)o) ? Py_NewRef(o) : NULL;
}
static PyObject *swap_exit(PyObject *o, PyObject *exception) {
    (void)exception;
    if (!swap_now((swap *)o)) return NULL;
    Py_RETURN_NONE;
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
static void swap_dealloc(PyObject *o) {
    PyTypeObject *type = Py_TYPE(o);
    PyObject_GC_UnTrack(o);
    swap_clear(o);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(o);
    Py_DECREF(type);
}

static PyMethodDef swap_methods[] = {
    {"__enter__", swap_enter, METH_NOARGS, NULL}, {"__exit__", swap_exit, METH_VARARGS, NULL}, {0}};
static PyType_Slot swap_slots[] = {
    {Py_tp_new, swap_new},     {Py_tp_methods, swap_methods}, {Py_tp_traverse, swap_traverse},
    {Py_tp_clear, swap_clear}, {Py_tp_dealloc, swap_dealloc}, {0},
};
static PyType_Spec swap_spec = {"cotan._core.Swap", sizeof(swap), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, swap_slots};

// ---------------------------------------------------------------------------------------- GradMode

// A subclass, or an object of one, has `mode`. It may be entered again before it is left.
typedef struct grad_mode {
    PyObject_HEAD uint64_t before; // a bit for each time that it was entered, the last one lowest
} grad_mode;

static PyObject *grad_mode_enter(PyObject *o, PyObject *unused) {
    (void)unused;
    PyObject *mode = PyObject_GetAttrString(o, "mode");
    const int on = mode ? PyObject_IsTrue(mode) : -1;
    Py_XDECREF(mode);
    if (on < 0) return NULL;
    thread *self = thread_here();
    grad_mode *m = (grad_mode *)o;
    m->before = m->before << 1 | !self->no_grad;
    self->no_grad = !on;
    return Py_NewRef(o);
}
static PyObject *grad_mode_exit(PyObject *o, PyObject *exception) {
    (void)exception;
    grad_mode *m = (grad_mode *)o;
    thread_here()->no_grad = !(m->before & 1);
    m->before >>= 1;
    Py_RETURN_NONE;
}

static PyMethodDef grad_mode_methods[] = {{"__enter__", grad_mode_enter, METH_NOARGS, NULL},
                                          {"__exit__", grad_mode_exit, METH_VARARGS, NULL},
                                          {0}};
static PyType_Slot grad_mode_slots[] = {{Py_tp_methods, grad_mode_methods}, {0}};
static PyType_Spec grad_mode_spec = {"cotan._core.GradMode", sizeof(grad_mode), 0,
                                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, grad_mode_slots};

// GradSetting(mode) sets it at once; inside of a `with` it is that, and behind it what it was before.
typedef struct grad_setting {
    PyObject_HEAD char mode, before;
} grad_setting;

static PyObject *grad_setting_new(PyTypeObject *type, PyObject *args, PyObject *options) {
    static char *keywords[] = {"mode", NULL};
    int mode;
    if (!PyArg_ParseTupleAndKeywords(args, options, "p:set_grad_enabled", keywords, &mode))
        return NULL;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    grad_setting *self = (grad_setting *)alloc(type, 0);
    if (self && Py_MakePendingCalls() < 0)
        Py_CLEAR(self); // what has come is raised before a `with` begins
    if (!self) return NULL;
    thread *here = thread_here();
    self->mode = mode != 0, self->before = !here->no_grad;
    here->no_grad = !mode;
    return (PyObject *)self;
}
static PyObject *grad_setting_enter(PyObject *o, PyObject *unused) {
    (void)unused;
    thread_here()->no_grad = !((grad_setting *)o)->mode;
    return Py_NewRef(o);
}
static PyObject *grad_setting_exit(PyObject *o, PyObject *exception) {
    (void)exception;
    thread_here()->no_grad = !((grad_setting *)o)->before;
    Py_RETURN_NONE;
}

static PyMethodDef grad_setting_methods[] = {{"__enter__", grad_setting_enter, METH_NOARGS, NULL},
                                             {"__exit__", grad_setting_exit, METH_VARARGS, NULL},
                                             {0}};
static PyMemberDef grad_setting_members[] = {
    {"mode", T_BOOL, offsetof(grad_setting, mode), READONLY, NULL},
    {"before", T_BOOL, offsetof(grad_setting, before), READONLY, NULL},
    {0}};
static PyType_Slot grad_setting_slots[] = {{Py_tp_new, grad_setting_new},
                                           {Py_tp_methods, grad_setting_methods},
                                           {Py_tp_members, grad_setting_members},
                                           {0}};
static PyType_Spec grad_setting_spec = {"cotan._core.GradSetting", sizeof(grad_setting), 0,
                                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                                        grad_setting_slots};

// ------------------------------------------------------------------------------------------ module

// _eval_last(): what is pending, as a section's last plan.
static PyObject *whole_eval_last(PyObject *module, PyObject *unused) {
    (void)module, (void)unused;
    const ct_loc here = enter();
    thread_here()->reads++;
    last = true;
    const bool ok = run_eval(NULL, 0, here);
    last = false;
    if (!ok) return NULL;
    Py_RETURN_NONE;
}

PyMethodDef whole_functions[] = {{"_eval_last", whole_eval_last, METH_NOARGS, NULL}, {0}};
static PyMethodDef hold_back_method = {"hold_back", whole_hold_back, METH_VARARGS, NULL};

bool whole_start(PyObject *module) {
    PyObject *signals = PyImport_ImportModule("_signal"), *types = PyImport_ImportModule("types");
    if (!signals || !types) return false;
    get_handler = PyObject_GetAttrString(signals, "getsignal");
    set_handler = PyObject_GetAttrString(signals, "signal");
    method_type = PyObject_GetAttrString(types, "MethodType");
    hold_back = PyCFunction_New(&hold_back_method, NULL);
    bool ok = get_handler && set_handler && method_type && hold_back;
    for (int i = 0; ok && i < SIGNALS; i++) ok = (signal_number[i] = PyLong_FromLong(numbers[i]));
    static PyType_Spec *const specs[] = {&whole_spec, &swap_spec, &grad_mode_spec,
                                         &grad_setting_spec};
    static const char *const names[] = {"Whole", "Swap", "GradMode", "GradSetting"};
    for (int i = 0; ok && i < 4; i++) {
        PyObject *type = PyType_FromSpec(specs[i]);
        ok = type && PyModule_AddObjectRef(module, names[i], type) == 0;
        Py_XDECREF(type);
    }
    Py_DECREF(signals);
    Py_DECREF(types);
    return ok && PyModule_AddFunctions(module, whole_functions) == 0;
}

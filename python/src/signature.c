// Functions and methods with PyTorch's signatures (cotan.torch): each is declared by the text of its
// signature, as PyTorch's docs have it, and a function that takes all parameters by position. Arguments are
// bound here, so that a call costs no more than that of an op.
//
//     std(input, dim: int|ints=None, *, correction: float=1, keepdim: bool=False, out=None)
//
// A parameter's annotation says what it accepts: Tensor, int, ints (also one int), bool, float (any number),
// str, dtype, Tensors (a sequence), None, any; `input` and `self` are tensors unless annotated. `*size: ints` takes
// numbers, or one sequence of them. A name may have several signatures, which are tried in order.
#include "signature.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "tensor.h"

enum { MAX_PARAMETERS = 24, MAX_METHODS = 1024 };

enum {
    ACCEPT_TENSOR = 1,
    ACCEPT_INT = 2,
    ACCEPT_INTS = 4,
    ACCEPT_BOOL = 8,
    ACCEPT_FLOAT = 16,
    ACCEPT_STR = 32,
    ACCEPT_DTYPE = 64,
    ACCEPT_TENSORS = 128,
    ACCEPT_ANY = 256,
    ACCEPT_NONE = 512,
};
static const struct {
    const char *word, *says; // in the annotation; in errors
} accept_words[] = {
    {"Tensor", "a Tensor"},      {"int", "an int"},
    {"ints", "a tuple of ints"}, {"bool", "a bool"},
    {"float", "a number"},       {"str", "a str"},
    {"dtype", "a dtype"},        {"Tensors", "a tuple of Tensors"},
    {"any", "anything"},         {"None", "None"},
};

typedef struct parameter {
    PyObject *name;    // interned
    PyObject *missing; // its default; NULL: it must be given
    int accepts;
    bool by_name; // by keyword only
    bool is_list; // *name: takes all positional arguments that are left
} parameter;

typedef struct overload {
    struct overload *next;
    parameter p[MAX_PARAMETERS];
    int n, n_positional, out; // `out`: the parameter's index; -1: there is none
    PyObject *function;
    const op_entry
        *op; // called in the function's place if the parameters after its operands have defaults
    unsigned op_flags;
    char *text; // the signature
} overload;

typedef struct signature {
    const char *name;
    overload *first;
    PyObject *public; // the function by which __torch_function__ is called
} signature;

typedef struct method {
    signature *of;
    bool in_place;
    PyMethodDef def;
} method;

static method methods[MAX_METHODS];
static size_t n_methods;
// Python's: writes to out=; calls __torch_function__; the one of classes that have none.
static PyObject *write_out_hook, *dispatch_hook, *no_dispatch;
static _Thread_local bool dispatch_is_off;

static void signature_replace(PyObject **at, PyObject *by) {
    Py_XDECREF(*at);
    *at = by;
}

// ------------------------------------------------------------------------------------- binding

// True for whole numbers, and for tensors of one that have no axes.
static bool signature_is_int(PyObject *o) {
    if (tensor_check(o)) {
        const ct_tensor t = tensor_peek(o);
        const char kind = ct_ok(t) && !ct_rank(t) ? dtype_kind(ct_dtype_of(t)) : 'f';
        return kind == 'i' || kind == 'u';
    }
    return !PyBool_Check(o) && (PyLong_Check(o) || (PyIndex_Check(o) && !PyFloat_Check(o)));
}
static bool signature_is_sequence(PyObject *o) {
    return PyTuple_Check(o) || PyList_Check(o) ||
           (PySequence_Check(o) && !PyUnicode_Check(o) && !tensor_check(o) && !PyIndex_Check(o));
}
static bool signature_is_sequence_of(PyObject *o, bool of_tensors) {
    if (!signature_is_sequence(o)) return false;
    const Py_ssize_t n = PySequence_Size(o);
    if (n <= 0) return PyErr_Clear(), n == 0;
    PyObject *first = PySequence_GetItem(o, 0);
    const bool is = first && (of_tensors ? tensor_check(first) : signature_is_int(first));
    Py_XDECREF(first);
    PyErr_Clear();
    return is;
}

static bool signature_accepts(int allowed, PyObject *o) {
    if ((allowed & ACCEPT_ANY) || ((allowed & ACCEPT_NONE) && o == Py_None)) return true;
    if ((allowed & ACCEPT_TENSOR) && tensor_check(o)) return true;
    if ((allowed & ACCEPT_BOOL) && PyBool_Check(o)) return true;
    if ((allowed & ACCEPT_FLOAT) &&
        (is_number(o) || tensor_check(o) || (!signature_is_sequence(o) && PyNumber_Check(o))))
        return true;
    if ((allowed & (ACCEPT_INT | ACCEPT_INTS)) && signature_is_int(o)) return true;
    if ((allowed & ACCEPT_INTS) && signature_is_sequence_of(o, false)) return true;
    if ((allowed & ACCEPT_TENSORS) && signature_is_sequence_of(o, true)) return true;
    if ((allowed & ACCEPT_STR) && PyUnicode_Check(o)) return true;
    if (allowed & ACCEPT_DTYPE) {
        ct_dtype dtype;
        if (!PyUnicode_Check(o) && !PyLong_Check(o) && !PyFloat_Check(o) && !tensor_check(o) &&
            dtype_parse(o, &dtype))
            return true;
        PyErr_Clear();
    }
    return false;
}

static void signature_write_accepts(int allowed, char *to, size_t room) {
    *to = '\0';
    for (size_t i = 0, at = 0; i < sizeof accept_words / sizeof *accept_words; i++)
        if (allowed & (1 << i))
            at += (size_t)snprintf(to + at, at < room ? room - at : 0, "%s%s", at ? " or " : "",
                                   accept_words[i].says);
}

// Finds the parameter of a keyword; PyTorch takes NumPy's names for some.
static int signature_find(const overload *v, PyObject *name) {
    static const char *const also[][2] = {{"axis", "dim"}, {"keepdims", "keepdim"},
                                          {"x", "input"},  {"a", "input"},
                                          {"x1", "input"}, {"x2", "other"}};
    for (int i = 0; i < v->n; i++)
        if (v->p[i].name == name) return i;
    for (int i = 0; i < v->n; i++)
        if (PyUnicode_Compare(v->p[i].name, name) == 0) return i;
    for (size_t k = 0; k < sizeof also / sizeof *also; k++)
        if (PyUnicode_CompareWithASCIIString(name, also[k][0]) == 0)
            for (int i = 0; i < v->n; i++)
                if (PyUnicode_CompareWithASCIIString(v->p[i].name, also[k][1]) == 0) return i;
    return -1;
}

typedef struct call {
    const char *name;
    PyObject *self; // of a method; NULL for a function
    PyObject *const *args;
    Py_ssize_t n;
    PyObject *names;
    PyObject *values[MAX_PARAMETERS]; // borrowed, but for `list`
    PyObject *list;                   // the tuple of a *parameter
} call;

// The positional arguments of a *parameter: one sequence, or all that are left.
static bool signature_bind_list(call *c, Py_ssize_t from, PyObject **value) {
    if (c->n - from == 1 && signature_is_sequence(c->args[from])) {
        *value = c->args[from];
        return true;
    }
    c->list = PyTuple_New(c->n - from);
    for (Py_ssize_t i = from; c->list && i < c->n; i++)
        PyTuple_SetItem(c->list, i - from, Py_NewRef(c->args[i]));
    *value = c->list;
    return c->list != NULL;
}

static bool signature_bind_positional(const overload *v, call *c) {
    int at = 0;
    Py_ssize_t i = 0;
    if (c->self) c->values[at++] = c->self;
    for (; i < c->n && at < v->n_positional; at++) {
        if (v->p[at].is_list) {
            if (!signature_bind_list(c, i, &c->values[at])) return false;
            return true;
        }
        c->values[at] = c->args[i++];
    }
    if (i == c->n) return true;
    return PyErr_Format(PyExc_TypeError, "%s() takes %d positional arguments, %zd were given",
                        c->name, v->n_positional - (c->self != NULL), c->n);
}

static bool signature_bind(const overload *v, call *c) {
    Py_CLEAR(c->list);
    for (int i = 0; i < v->n; i++) c->values[i] = NULL;
    if (!signature_bind_positional(v, c)) return false;
    const Py_ssize_t n_names = c->names ? PyTuple_Size(c->names) : 0;
    for (Py_ssize_t k = 0; k < n_names; k++) {
        PyObject *name = PyTuple_GetItem(c->names, k);
        const int i = signature_find(v, name);
        if (i < 0 || c->values[i])
            return PyErr_Format(PyExc_TypeError,
                                i < 0 ? "%s() got an unexpected keyword argument %R"
                                      : "%s() got multiple values for argument %R",
                                c->name, name);
        c->values[i] = c->args[c->n + k];
    }
    for (int i = 0; i < v->n; i++) {
        const parameter *p = &v->p[i];
        if (!c->values[i]) {
            if (!p->missing && p->is_list) { // x.expand(*()) has no sizes
                c->list = PyTuple_New(0);
                if (!(c->values[i] = c->list)) return false;
                continue;
            }
            if (!p->missing)
                return PyErr_Format(PyExc_TypeError, "%s() missing required argument: %R", c->name,
                                    p->name);
            c->values[i] = p->missing;
        } else if (c->values[i] != p->missing &&
                   !((p->accepts & ACCEPT_TENSOR) && Py_TYPE(c->values[i]) == tensor_type) &&
                   !signature_accepts(p->accepts, c->values[i])) {
            char says[160];
            signature_write_accepts(p->accepts, says, sizeof says);
            return PyErr_Format(PyExc_TypeError, "%s(): argument %R must be %s, not %R", c->name,
                                p->name, says, (PyObject *)Py_TYPE(c->values[i]));
        }
    }
    return true;
}

static void signature_raise_no_match(const signature *s, const call *c) {
    PyObject *message =
        PyUnicode_FromFormat("%s() received an invalid combination of arguments - got (", c->name);
    for (Py_ssize_t i = -(c->self != NULL);
         message && i < c->n + (c->names ? PyTuple_Size(c->names) : 0); i++) {
        PyObject *type =
            PyObject_GetAttrString((PyObject *)Py_TYPE(i < 0 ? c->self : c->args[i]), "__name__");
        const bool first = i == -(c->self != NULL), named = i >= c->n;
        PyObject *word =
            named ? PyUnicode_FromFormat("%S=%S", PyTuple_GetItem(c->names, i - c->n), type)
                  : Py_XNewRef(type);
        PyObject *longer = PyUnicode_FromFormat("%U%s%V", message, first ? "" : ", ", word, "?");
        release(type, word);
        signature_replace(&message, longer);
    }
    if (message)
        signature_replace(&message, PyUnicode_FromFormat("%U), but expected one of:", message));
    for (const overload *v = s->first; message && v; v = v->next)
        signature_replace(&message, PyUnicode_FromFormat("%U\n * %s", message, v->text));
    if (message) PyErr_SetObject(PyExc_TypeError, message);
    Py_XDECREF(message);
}

// ----------------------------------------------------------------------------- __torch_function__

// Returns true if objects of the type may have a __torch_function__ other than Tensor's own. The types asked
// about last are remembered, with a reference.
static bool signature_type_dispatches(PyTypeObject *type) {
    enum { KNOWN = 64 };
    static struct {
        PyTypeObject *type;
        bool dispatches;
    } known[KNOWN];
    const size_t at = ((uintptr_t)type >> 4) % KNOWN;
    if (type == tensor_type) return false;
    if (known[at].type == type) return known[at].dispatches;
    PyObject *own = PyObject_GetAttrString((PyObject *)type, "__torch_function__");
    PyErr_Clear();
    const bool is = own && own != Py_None && own != no_dispatch;
    Py_XDECREF(own);
    Py_INCREF((PyObject *)type);
    Py_XDECREF((PyObject *)known[at].type);
    known[at].type = type, known[at].dispatches = is;
    return is;
}
static bool signature_dispatches(PyObject *o) {
    if (Py_TYPE(o) == tensor_type || is_number(o) || o == Py_None) return false;
    if (!PyTuple_CheckExact(o) && !PyList_CheckExact(o))
        return signature_type_dispatches(Py_TYPE(o));
    const Py_ssize_t n = PySequence_Size(o);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyTuple_CheckExact(o) ? PyTuple_GetItem(o, i) : PyList_GetItem(o, i);
        if (Py_TYPE(item) != tensor_type && tensor_check(item) &&
            signature_type_dispatches(Py_TYPE(item)))
            return true;
        if (!tensor_check(item) && !is_number(item) && signature_type_dispatches(Py_TYPE(item)))
            return true;
    }
    return false;
}
static bool signature_call_dispatches(const call *c) {
    if (dispatch_is_off || !dispatch_hook) return false;
    if (c->self && signature_dispatches(c->self)) return true;
    const Py_ssize_t n = c->n + (c->names ? PyTuple_Size(c->names) : 0);
    for (Py_ssize_t i = 0; i < n; i++)
        if (signature_dispatches(c->args[i])) return true;
    return false;
}

static PyObject *signature_dispatch(PyObject *public, const call *c) {
    const int first = c->self != NULL;
    PyObject *args = PyTuple_New(c->n + first), *options = PyDict_New(), *result = NULL;
    if (args && options) {
        if (first) PyTuple_SetItem(args, 0, Py_NewRef(c->self));
        for (Py_ssize_t i = 0; i < c->n; i++)
            PyTuple_SetItem(args, i + first, Py_NewRef(c->args[i]));
        bool ok = true;
        for (Py_ssize_t k = 0; ok && c->names && k < PyTuple_Size(c->names); k++)
            ok = PyDict_SetItem(options, PyTuple_GetItem(c->names, k), c->args[c->n + k]) == 0;
        if (ok) result = PyObject_CallFunctionObjArgs(dispatch_hook, public, args, options, NULL);
    }
    release(args, options);
    return result;
}

// --------------------------------------------------------------------------------------- calling

static bool signature_has_defaults_after(const overload *v, const call *c, int n) {
    for (int i = n; i < v->n; i++)
        if (c->values[i] != v->p[i].missing) return false;
    return true;
}

// Returns false for complex operands of an op that takes real ones.
static bool signature_suits_op(const overload *v, const call *c) {
    for (int i = 0; (v->op_flags & CALL_REAL) && i < v->op->n_operands; i++)
        if (tensor_check(c->values[i]) ? dtype_kind(ct_dtype_of(tensor_peek(c->values[i]))) == 'c'
                                       : PyComplex_Check(c->values[i]))
            return false;
    return true;
}

static PyObject *signature_run(const overload *v, const call *c) {
    if (v->op && signature_has_defaults_after(v, c, v->op->n_operands) && signature_suits_op(v, c))
        return call_op_operands(v->op, c->values, v->op_flags);
    const int n = v->n - (v->out >= 0);
    PyObject *args = PyTuple_New(n);
    for (int i = 0, at = 0; args && i < v->n; i++)
        if (i != v->out) PyTuple_SetItem(args, at++, Py_NewRef(c->values[i]));
    PyObject *result = args ? PyObject_Call(v->function, args, NULL) : NULL;
    Py_XDECREF(args);
    return result;
}

static PyObject *signature_end(call *c, PyObject *result) {
    Py_CLEAR(c->list);
    return result;
}

static PyObject *signature_call(const signature *s, PyObject *public, call *c) {
    if (signature_call_dispatches(c)) return signature_dispatch(public, c);
    const overload *v = s->first;
    while (!signature_bind(v, c)) {
        if (!s->first->next || !PyErr_ExceptionMatches(PyExc_TypeError))
            return signature_end(c, NULL);
        PyErr_Clear();
        v = v->next;
        if (!v) return signature_raise_no_match(s, c), signature_end(c, NULL);
    }
    PyObject *out = Py_None;
    if (v->out >= 0) {
        out = c->values[v->out];
        c->values[v->out] = v->p[v->out].missing;
    }
    PyObject *result = signature_run(v, c);
    if (result && out != Py_None)
        signature_replace(&result,
                          PyObject_CallFunction(write_out_hook, "sOO", s->name, out, result));
    return signature_end(c, result);
}

static PyObject *signature_call_function(PyObject *self, PyObject *const *args, Py_ssize_t n,
                                         PyObject *names) {
    const signature *s = PyCapsule_GetPointer(self, NULL);
    call c;
    c.name = s->name, c.self = NULL, c.args = args, c.n = n, c.names = names, c.list = NULL;
    return signature_call(s, s->public, &c);
}

// Writes the result of an in-place form to the tensor, which is returned. A handle has one Tensor, so the
// value gets a new one. What __torch_function__ returned may be no tensor.
static PyObject *signature_write(PyObject *self, PyObject *result) {
    if (!result || result == self || !tensor_check(self) || !tensor_check(result)) return result;
    const ct_loc here = api_enter();
    const ct_tensor value = new_handle_of(tensor_value(result, here), here);
    const bool ok = tensor_write(self, value, here);
    Py_DECREF(result);
    return ok ? Py_NewRef(self) : NULL;
}

static PyObject *signature_call_in_place(PyObject *self, PyObject *const *args, Py_ssize_t n,
                                         PyObject *names) {
    PyObject *result = signature_call_function(self, args, n, names);
    return n ? signature_write(args[0], result) : result;
}

static PyObject *signature_call_method(const method *m, PyObject *self, PyObject *const *args,
                                       Py_ssize_t n, PyObject *names) {
    call c;
    c.name = m->def.ml_name, c.self = self, c.args = args, c.n = n, c.names = names, c.list = NULL;
    PyObject *result = signature_call(m->of, m->of->public, &c);
    return m->in_place ? signature_write(self, result) : result;
}

// A method's C function receives the tensor alone, so each has a function of its own.
#define METHOD(n)                                                                                  \
    static PyObject *method_##n(PyObject *self, PyObject *const *args, Py_ssize_t k,               \
                                PyObject *names) {                                                 \
        return signature_call_method(&methods[0x##n], self, args, k, names);                       \
    }
#define NAME(n) method_##n,
#define TIMES_4(use, n) use(n##0) use(n##1) use(n##2) use(n##3)
#define TIMES_16(use, n)                                                                           \
    TIMES_4(use, n)                                                                                \
    use(n##4) use(n##5) use(n##6) use(n##7) use(n##8) use(n##9) use(n##a) use(n##b) use(n##c)      \
        use(n##d) use(n##e) use(n##f)
#define TIMES_64(use, n)                                                                           \
    TIMES_16(use, n##0) TIMES_16(use, n##1) TIMES_16(use, n##2) TIMES_16(use, n##3)
#define TIMES_256(use, n)                                                                          \
    TIMES_64(use, n)                                                                               \
    TIMES_16(use, n##4)                                                                            \
    TIMES_16(use, n##5)                                                                            \
    TIMES_16(use, n##6)                                                                            \
    TIMES_16(use, n##7)                                                                            \
    TIMES_16(use, n##8)                                                                            \
    TIMES_16(use, n##9)                                                                            \
    TIMES_16(use, n##a)                                                                            \
    TIMES_16(use, n##b)                                                                            \
    TIMES_16(use, n##c) TIMES_16(use, n##d) TIMES_16(use, n##e) TIMES_16(use, n##f)
#define TIMES_1024(use) TIMES_256(use, 0) TIMES_256(use, 1) TIMES_256(use, 2) TIMES_256(use, 3)
TIMES_1024(METHOD)
typedef PyObject *(*method_function)(PyObject *, PyObject *const *, Py_ssize_t, PyObject *);
static const method_function method_functions[MAX_METHODS] = {TIMES_1024(NAME)};

// --------------------------------------------------------------------------------------- parsing

static const char *py_signature_skip_spaces(const char *s) {
    while (*s == ' ') s++;
    return s;
}

static PyObject *signature_parse_default(const char *s, size_t n) {
    static PyObject *globals;
    if (n == 4 && !strncmp(s, "None", n)) return Py_NewRef(Py_None);
    if (n == 4 && !strncmp(s, "True", n)) return Py_NewRef(Py_True);
    if (n == 5 && !strncmp(s, "False", n)) return Py_NewRef(Py_False);
    if (n == 1 && *s >= '0' && *s <= '9') return PyLong_FromLong(*s - '0');
    char text[128];
    snprintf(text, sizeof text, "%.*s", (int)n, s);
    if (!globals) globals = PyDict_New();
    PyObject *code = Py_CompileString(text, "signature", Py_eval_input);
    PyObject *value = code ? PyEval_EvalCode(code, globals, globals) : NULL;
    Py_XDECREF(code);
    return value;
}

// Parses "Tensor|int" up to the end of the annotation.
static bool signature_parse_accepts(const char **at, int *accepts) {
    const char *s = *at;
    for (*accepts = 0;; s++) {
        s = py_signature_skip_spaces(s);
        const size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzNT");
        size_t i = 0;
        while (i < sizeof accept_words / sizeof *accept_words &&
               (strlen(accept_words[i].word) != n || strncmp(accept_words[i].word, s, n)))
            i++;
        if (i == sizeof accept_words / sizeof *accept_words) return false;
        *accepts |= 1 << i;
        s = py_signature_skip_spaces(s + n);
        if (*s != '|') break;
    }
    *at = s;
    return true;
}

// Returns the end of a default: a comma or the last bracket, outside of brackets and quotes.
static const char *signature_end_of_default(const char *s) {
    int depth = 0;
    for (bool quoted = false; *s && (depth || quoted || (*s != ',' && *s != ')')); s++) {
        if (*s == '"') quoted = !quoted;
        if (!quoted) depth += (*s == '(' || *s == '[') - (*s == ')' || *s == ']');
    }
    return s;
}

static bool signature_parse_parameter(const char **at, overload *v, bool by_name) {
    const char *s = *at;
    parameter *p = &v->p[v->n];
    *p = (parameter){.by_name = by_name, .accepts = ACCEPT_ANY};
    if (*s == '*') p->is_list = true, s++;
    const size_t n = strcspn(s, ":=,) ");
    if (v->n + 1 >= MAX_PARAMETERS || n == 0 ||
        !(p->name = PyUnicode_FromStringAndSize(s, (Py_ssize_t)n)))
        return false;
    PyUnicode_InternInPlace(&p->name);
    if ((n == 5 && !strncmp(s, "input", n)) || (n == 4 && !strncmp(s, "self", n)))
        p->accepts = ACCEPT_TENSOR;
    if (n == 3 && !strncmp(s, "out", n)) v->out = v->n;
    s = py_signature_skip_spaces(s + n);
    if (*s == ':' && (s++, !signature_parse_accepts(&s, &p->accepts))) return false;
    if (*s == '=') {
        s = py_signature_skip_spaces(s + 1);
        const char *end = signature_end_of_default(s);
        if (!(p->missing = signature_parse_default(s, (size_t)(end - s)))) return false;
        s = end;
    }
    v->n++;
    if (!by_name) v->n_positional = v->n;
    *at = s;
    return true;
}

// Parses "name(a, b: int=1, *, c=None)"; the name's end is *open.
static bool signature_parse(const char *text, overload *v, const char **open) {
    const char *s = strchr(text, '(');
    bool ok = s, by_name = false;
    *open = s;
    v->out = -1;
    for (s = ok ? py_signature_skip_spaces(s + 1) : text; ok && *s != ')';) {
        if (s[0] == '*' && (s[1] == ',' || s[1] == ' '))
            by_name = true, s++;
        else if (s[0] == '/')
            s++;
        else
            ok = signature_parse_parameter(&s, v, by_name);
        s = py_signature_skip_spaces(s);
        if (*s == ',')
            s = py_signature_skip_spaces(s + 1);
        else if (*s != ')')
            ok = false;
    }
    if (!ok && !PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "the signature is not understood at %R: %s",
                     PyUnicode_FromString(s), text);
    return ok;
}

static const op_entry *signature_find_op(const char *name) {
    for (size_t i = 0; i < op_count; i++)
        if (strcmp(op_entries[i]->name, name) == 0) return op_entries[i];
    return NULL;
}

// Returns the capsule's signature, or a new one with its function, in *made.
static signature *signature_of(PyObject *capsule, const char *text, size_t n, PyObject **made) {
    if (capsule != Py_None) return *made = Py_NewRef(capsule), PyCapsule_GetPointer(capsule, NULL);
    signature *s = calloc(1, sizeof *s);
    if (!s || !(s->name = strndup(text, n))) return (signature *)PyErr_NoMemory();
    *made = PyCapsule_New(s, NULL, NULL); // signatures are kept
    return *made ? s : NULL;
}

// _define(capsule or None, signature, function or None, op or None, flags, last): adds a signature, and returns the
// capsule.
static PyObject *signature_define(PyObject *Py_UNUSED(module), PyObject *args) {
    const char *text, *op, *open;
    PyObject *capsule, *function, *made = NULL;
    unsigned flags;
    overload *v = calloc(1, sizeof *v);
    if (!v) return PyErr_NoMemory();
    if (!PyArg_ParseTuple(args, "OsOzI:_define", &capsule, &text, &function, &op, &flags) ||
        !signature_parse(text, v, &open))
        return NULL;
    signature *s = signature_of(capsule, text, (size_t)(open - text), &made);
    if (!s) return NULL;
    v->function = Py_NewRef(function);
    v->text = strdup(open);
    v->op_flags = flags;
    if (op && !(v->op = signature_find_op(op)))
        return PyErr_Format(PyExc_ValueError, "there is no op %s", op);
    overload **last = &s->first;
    while (*last) last = &(*last)->next;
    *last = v;
    return made;
}

// _function(capsule, name, doc, in_place): returns the function of a signature.
static PyObject *signature_make_function(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *capsule;
    const char *name, *doc;
    int in_place;
    if (!PyArg_ParseTuple(args, "Ossp:_function", &capsule, &name, &doc, &in_place)) return NULL;
    signature *s = PyCapsule_GetPointer(capsule, NULL);
    PyMethodDef *def = s ? calloc(1, sizeof *def) : NULL;
    if (!def) return s ? PyErr_NoMemory() : NULL;
    *def = (PyMethodDef){
        strdup(name),
        (PyCFunction)(void *)(in_place ? signature_call_in_place : signature_call_function),
        METH_FASTCALL | METH_KEYWORDS, strdup(doc)};
    PyObject *module_name = PyUnicode_FromString("torch");
    PyObject *function = PyCFunction_NewEx(def, capsule, module_name);
    Py_XDECREF(module_name);
    if (function && !in_place && !s->public) s->public = Py_NewRef(function);
    return function;
}

// _method(capsule, name, doc, in_place): adds a method to Tensor.
static PyObject *signature_add_method(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *capsule;
    const char *name, *doc;
    int in_place;
    if (!PyArg_ParseTuple(args, "Ossp:_method", &capsule, &name, &doc, &in_place)) return NULL;
    signature *s = PyCapsule_GetPointer(capsule, NULL);
    if (!s || n_methods == MAX_METHODS)
        return s ? PyErr_Format(PyExc_ValueError, "there are more than %d methods", MAX_METHODS)
                 : NULL;
    method *m = &methods[n_methods];
    *m = (method){s,
                  in_place,
                  {strdup(name), (PyCFunction)(void *)method_functions[n_methods],
                   METH_FASTCALL | METH_KEYWORDS, strdup(doc)}};
    n_methods++;
    PyObject *descriptor = PyDescr_NewMethod(tensor_type, &m->def);
    if (!descriptor || PyObject_SetAttrString((PyObject *)tensor_type, name, descriptor) < 0)
        return NULL;
    if (!s->public) s->public = Py_NewRef(descriptor);
    return descriptor;
}

// _signature_hooks(write_out, dispatch, no_dispatch)
static PyObject *signature_set_hooks(PyObject *Py_UNUSED(module), PyObject *args) {
    if (!PyArg_ParseTuple(args, "OOO:_signature_hooks", &write_out_hook, &dispatch_hook,
                          &no_dispatch))
        return NULL;
    Py_INCREF(write_out_hook);
    Py_INCREF(dispatch_hook);
    Py_INCREF(no_dispatch);
    Py_RETURN_NONE;
}

// _dispatch_off(off): sets whether __torch_function__ is left alone in this thread; returns what was.
static PyObject *signature_set_dispatch_off(PyObject *Py_UNUSED(module), PyObject *off) {
    const bool was = dispatch_is_off;
    dispatch_is_off = PyObject_IsTrue(off) == 1;
    return PyBool_FromLong(was);
}

// _as_type(x, type): returns the value, with its history, as an object of a subclass.
static PyObject *signature_as_type(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *x, *type;
    if (!PyArg_ParseTuple(args, "O!O!:_as_type", tensor_type, &x, &PyType_Type, &type)) return NULL;
    if (!PyType_IsSubtype((PyTypeObject *)type, tensor_type))
        return PyErr_Format(PyExc_TypeError, "as_subclass: %R is no subclass of Tensor", type);
    const ct_loc here = api_enter();
    const ct_tensor t = tensor_value(x, here);
    return t.bits ? tensor_new_of_type((PyTypeObject *)type, new_handle_of(t, here), here) : NULL;
}

PyMethodDef signature_functions[] = {
    {"_as_type", signature_as_type, METH_VARARGS, NULL},
    {"_define", signature_define, METH_VARARGS, NULL},
    {"_function", signature_make_function, METH_VARARGS, NULL},
    {"_method", signature_add_method, METH_VARARGS, NULL},
    {"_signature_hooks", signature_set_hooks, METH_VARARGS, NULL},
    {"_dispatch_off", signature_set_dispatch_off, METH_O, NULL},
    {0},
};

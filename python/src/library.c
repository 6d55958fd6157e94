// Custom ops (cotan/custom_op.h), and plans compiled ahead of time to C.
#include "core.h"
#include "tensor.h"

#include <stdio.h>

static const char capsule_name[] = "cotan.op";

static PyObject *py_op_to_capsule(const ct_op *op) {
    return op ? PyCapsule_New((void *)(uintptr_t)op, capsule_name, NULL) : raise_error();
}
static const ct_op *py_op_from_capsule(PyObject *o) {
    return PyCapsule_GetPointer(o, capsule_name);
}

// _op_define(name, doc, operands, expression): defines an op.
static PyObject *py_op_define(PyObject *Py_UNUSED(module), PyObject *args) {
    ct_op_spec spec = {.struct_size = sizeof spec, .here = api_enter()};
    if (!PyArg_ParseTuple(args, "ssss:_op_define", &spec.name, &spec.doc, &spec.operands,
                          &spec.expression))
        return NULL;
    return py_op_to_capsule(ct_op_define_with(spec));
}

static bool py_op_append_since(PyObject *list, const ct_op *last) {
    for (const ct_op *op = ct_op_next(last); op; op = ct_op_next(op)) {
        if (!list_append(list, py_op_to_capsule(op))) return false;
    }
    return true;
}
// _op_load(path): loads a library and returns the ops that it defined. If it was loaded before, it defines
// them again.
static PyObject *py_op_load(PyObject *Py_UNUSED(module), PyObject *args) {
    const ct_loc here = api_enter();
    PyObject *bytes;
    if (!PyArg_ParseTuple(args, "O&:_op_load", PyUnicode_FSConverter, &bytes)) return NULL;
    const ct_op *last = NULL;
    for (const ct_op *op = ct_op_next(NULL); op; op = ct_op_next(op)) last = op;
    PyObject *list = PyList_New(0);
    if (list && !ct_op_load_at(PyBytes_AsString(bytes), here)) {
        Py_CLEAR(list);
        raise_error();
    }
    Py_DECREF(bytes);
    if (list && !py_op_append_since(list, last)) Py_CLEAR(list);
    return list;
}

// _op_info(op): returns name, doc, operands, attributes, n_in, n_out.
static PyObject *py_op_info(PyObject *Py_UNUSED(module), PyObject *o) {
    const ct_op *op = py_op_from_capsule(o);
    if (!op) return NULL;
    const ct_op_properties a = *ct_op_info(op);
    return Py_BuildValue("(ssssii)", a.name, a.doc, a.operands, a.attributes, a.n_in, a.n_out);
}

static bool py_library_parse_operands(PyObject *args, ct_tensor *in, ct_loc here) {
    const Py_ssize_t n = PyTuple_Size(args);
    bool all_numbers = true;
    for (Py_ssize_t i = 0; i < n; i++)
        all_numbers = all_numbers && is_number(PyTuple_GetItem(args, i));
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *o = PyTuple_GetItem(args, i);
        if (!(all_numbers ? operand_parse_strong(o, &in[i], here) : operand_parse(o, &in[i], here)))
            return false;
    }
    return true;
}
// _op_call(op, operands, attributes): returns a Tensor, or a tuple of several.
static PyObject *py_op_call(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *o, *operands, *attributes;
    const ct_loc here = api_enter();
    if (!PyArg_ParseTuple(args, "OO!O:_op_call", &o, &PyTuple_Type, &operands, &attributes))
        return NULL;
    const ct_op *op = py_op_from_capsule(o);
    if (!op) return NULL;
    const ct_op_properties a = *ct_op_info(op);
    ct_tensor in[CT_CUSTOM_OP_MAX_OPERANDS], out[CT_CUSTOM_OP_MAX_RESULTS];
    int64_t v[CT_CUSTOM_OP_MAX_ATTRIBUTES];
    size_t n;
    if (PyTuple_Size(operands) != a.n_in)
        return PyErr_Format(PyExc_TypeError, "%s() takes %d tensors, not %zd", a.name, a.n_in,
                            PyTuple_Size(operands));
    if (!ints_parse(attributes, v, CT_CUSTOM_OP_MAX_ATTRIBUTES, &n, a.name) ||
        !py_library_parse_operands(operands, in, here))
        return NULL;
    ct_op_call_at(op, in, (size_t)a.n_in, (ct_ints){(int64_t)n, v}, out, (size_t)a.n_out, here);
    if (a.n_out == 1) return tensor_new(out[0], here);
    PyObject *list = PyTuple_New(a.n_out);
    for (int i = 0; list && i < a.n_out; i++)
        if (!tuple_set(list, i, tensor_new_without_run(out[i], here))) Py_CLEAR(list);
    return list;
}

// Parses pairs (name, tensor). NULL with an exception set.
static ct_named_tensor *py_library_parse_named(PyObject *pairs, size_t *n) {
    *n = (size_t)PyTuple_Size(pairs);
    ct_named_tensor *names = PyMem_Malloc((*n + 1) * sizeof *names);
    if (!names) PyErr_NoMemory();
    for (size_t i = 0; names && i < *n; i++) {
        PyObject *t;
        if (PyArg_ParseTuple(PyTuple_GetItem(pairs, (Py_ssize_t)i), "sO!:_write_c", &names[i].name,
                             tensor_type, &t)) {
            names[i].tensor = tensor_handle(t);
        } else {
            PyMem_Free(names);
            names = NULL;
        }
    }
    return names;
}
// _write_c(path, names, others, embed): calls ct_compile for what is pending.
static PyObject *py_library_write_c(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *path, *pairs, *more;
    int embed;
    ct_compile_args to = {.here = api_enter()};
    if (!PyArg_ParseTuple(args, "O&O!O!p:_write_c", PyUnicode_FSConverter, &path, &PyTuple_Type,
                          &pairs, &PyTuple_Type, &more, &embed))
        return NULL;
    ct_named_tensor *names = py_library_parse_named(pairs, &to.names.n),
                    *others = py_library_parse_named(more, &to.optional_names.n);
    bool ok = names && others;
    to.path = PyBytes_AsString(path);
    to.names.v = names, to.optional_names.v = others;
    to.embed_all_params = embed;
    if (ok && !ct_compile_with(to)) ok = raise_error();
    PyMem_Free(names);
    PyMem_Free(others);
    Py_DECREF(path);
    return none_if(ok);
}

PyMethodDef library_methods[] = {
    {"_op_define", py_op_define, METH_VARARGS, NULL},
    {"_op_load", py_op_load, METH_VARARGS, NULL},
    {"_op_info", py_op_info, METH_O, NULL},
    {"_op_call", py_op_call, METH_VARARGS, NULL},
    {"_write_c", py_library_write_c, METH_VARARGS, NULL},
    {0},
};

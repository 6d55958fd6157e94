// cotan._core: the extension over the public headers and io/pickle.h, for the stable ABI of Python 3.11.
//
// All functions run with the GIL held, except plans (run.c). A function that returns NULL or false has set a
// Python exception; one that returns a tensor returns a poisoned one in that case.
#ifndef COTAN_PYTHON_CORE_H
#define COTAN_PYTHON_CORE_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>
#include <structmember.h>

#include "cotan/binding.h"
#include "cotan/cotan.h"
#include "cotan/custom_op.h"

// ------------------------------------------------------------------------------------ where.c
// Begins each call from Python: sets the thread's context current, and frees what other threads gave back.
// Returns the user's line: that of the innermost frame whose file is not in the package.
ct_loc api_enter(void);
bool where_init(PyObject *folder); // the package's folder, with a slash at the end

// ----------------------------------------------------------------------------------- errors.c
bool errors_init(PyObject *module);
// Raises the context's error, clears it there, and returns NULL. An exception that is already set stays: it
// is the reason why the tensor is missing that the context's error reports.
PyObject *raise_error(void);
typedef struct library_error {
    ct_code code;
    char text[2048];
} library_error;
void take_error(library_error *to); // takes the context's error and clears it there
PyObject *raise_message(ct_code code, const char *text);
void errors_log(ct_log_kind kind, const char *text, void *user);
// Between these two calls messages are queued: the Python functions that receive them let other threads run.
void errors_log_defer(void);
void errors_log_flush(void);
// Gives back references to objects, each of which may be NULL.
#define release(...)                                                                               \
    release_all((PyObject *const[]){__VA_ARGS__},                                                  \
                sizeof((PyObject *const[]){__VA_ARGS__}) / sizeof(PyObject *))
void release_all(PyObject *const *objects, size_t n);
PyObject *none_if(bool ok); // None, or NULL where an exception is set
// Both take a new object, which is NULL if an exception is set; then they return false.
bool list_append(PyObject *list, PyObject *item);
bool tuple_set(PyObject *tuple, Py_ssize_t i, PyObject *item);

// ---------------------------------------------------------------------------------- wording.c
// a new string: the library's message with Python's names in it
PyObject *wording_translate(const char *message);

// -------------------------------------------------------------------------------------- run.c
// Reads that may run a plan: they release the GIL, and Ctrl-C interrupts them.
// run_borrow: valid until ct_borrow_end; NULL with an exception set.
const void *run_borrow(ct_tensor t, ct_borrowed **borrowed, ct_loc here);
bool run_eval(const ct_tensor *t, size_t n, ct_loc here);
struct thread;
// evaluates tensors of another thread in its context
bool run_eval_in_thread(struct thread *owner, const ct_tensor *t, size_t n, ct_loc here);

// ------------------------------------------------------------------------------------ dtype.c
bool dtype_init(PyObject *module);
PyObject *dtype_to_object(ct_dtype dtype); // a new reference
// Parses a dtype, NumPy's dtype, a Python type, a string, or None (0). Returns false with a TypeError set.
bool dtype_parse(PyObject *o, ct_dtype *dtype);
const char *dtype_python_name(ct_dtype dtype); // "float32"
const char *dtype_format(ct_dtype dtype);      // the buffer protocol's format; NULL if it has none
const char *dtype_storage(ct_dtype dtype);     // NumPy's name of a dtype of the same bits
PyObject *dtype_to_numpy(ct_dtype dtype);      // a new reference to NumPy's dtype
ct_dtype dtype_from_name(const char *name);    // CT_DEFAULT if no dtype has the name
ct_dtype dtype_from_format(const char *format, Py_ssize_t bytes, bool *swapped);
char dtype_kind(ct_dtype dtype); // b bool, i and u integers, f floats, c complex
// 0 bool, 1 integers, 2 floats, 3 complex: a dtype cannot hold one of a higher category.
int dtype_category(ct_dtype dtype);

// ----------------------------------------------------------------------------------- tensor.c
extern PyTypeObject *tensor_type;
bool tensor_init(PyObject *module);
// Returns a new Tensor that pins t, or raises the context's error. It may run a plan if many nodes are
// pending.
PyObject *tensor_new(ct_tensor t, ct_loc here);
// the same without running a plan, for several results of which the others are not pinned yet
PyObject *tensor_new_without_run(ct_tensor t, ct_loc here);
bool tensor_check(PyObject *o);
// tensor_handle() returns the current value of a Tensor, for reads; tensor_value() returns it as an operand,
// which has no history where none is kept. A value of another thread is evaluated first, and has no history
// in this thread: as an operand it is an error where histories are kept. CT_NONE with an exception set.
ct_tensor tensor_handle(PyObject *o);
ct_tensor tensor_value(PyObject *o, ct_loc here);
// Returns the handle for its shape and dtype only: nothing runs. CT_NONE with an exception set.
ct_tensor tensor_peek(PyObject *o);
bool tensor_is_usable_here(PyObject *o); // true if it is this thread's, or a variable
PyObject *tensor_shape(ct_tensor t);     // returns a cotan.Size
// Returns the sizes of its axes, written to dim (moves.c).
ct_ints tensor_dims(ct_tensor t, int64_t dim[CT_MAX_RANK]);
// sets the Python classes cotan.Size and that of Tensor.size
PyObject *tensor_set_classes(PyObject *size, PyObject *count);

// ------------------------------------------------------------------------------------- make.c
extern ct_dtype default_float; // the dtype of Python's floats; f32 unless it was set
// Makes a tensor of an operand: a Tensor, a number (weak dtype), or an array, a buffer, a list (copied).
bool operand_parse(PyObject *o, ct_tensor *t, ct_loc here);
// The same for a value that is written to a tensor of dtype `target`.
bool operand_parse_for(PyObject *o, ct_dtype target, ct_tensor *t, ct_loc here);
// true for operands of operators: not for lists or buffers of bytes
bool is_operand(PyObject *o);
// Makes a tensor of the default dtypes or of `dtype`; a number does not stay weak.
bool tensor_parse(PyObject *o, ct_dtype dtype, ct_tensor *t, ct_loc here);
// casts few elements at once, without a plan
ct_tensor cast_data_eagerly(ct_tensor t, ct_dtype want, ct_loc here);
bool operand_parse_strong(PyObject *o, ct_tensor *t, ct_loc here);
bool is_number(PyObject *o);
// Copies a view of elements of a dtype, perhaps of the other byte order, whatever its format says.
bool make_from_view(Py_buffer *view, ct_dtype dtype, bool swapped, ct_tensor *t, ct_loc here);
// Parses whole numbers: one, a sequence or None (n 0). `what` names the argument in errors.
bool ints_parse(PyObject *o, int64_t *to, size_t capacity, size_t *n, const char *what);
bool int_parse(PyObject *o, int64_t *to, const char *what);
PyObject *numpy_module(void); // borrowed; imported on first use

// ------------------------------------------------------------------------------------- read.c
PyObject *read_item(ct_tensor t, ct_loc here);
PyObject *read_tolist(PyObject *self, PyObject *unused);
PyObject *read_numpy(PyObject *self, ct_loc here);
int read_buffer(PyObject *self, Py_buffer *view, int flags);
void read_release(PyObject *self, Py_buffer *view);
extern PyMethodDef read_methods[];

// ----------------------------------------------------------------------------------- dlpack.c
bool check_device_is_cpu(PyObject *device); // true for "cpu" and None; else raises ValueError
// Imports another library's array, sharing its memory where that is possible; `copy` is None, True or False.
bool dlpack_import(PyObject *x, PyObject *copy, ct_tensor *t, ct_loc here);
void dlpack_flush(void); // frees memory of other libraries that is no longer used
extern PyMethodDef dlpack_methods[], dlpack_functions[];

// -------------------------------------------------------------------------------- operators.c
extern PyType_Slot operator_slots[]; // ends with {0}
// Promotes both operands as PyTorch does: a 0-d Tensor's dtype counts only if its category is higher.
void promote_operands(PyObject *a, PyObject *b, ct_tensor in[2], ct_loc here);
extern PyMethodDef operator_functions[];

// ------------------------------------------------------------------------------------- call.c
bool call_init(PyObject *module);
extern PyMethodDef make_methods[];

// ---------------------------------------------------------------------------------- library.c
extern PyMethodDef library_methods[], profile_methods[];

// ------------------------------------------------------------------------------------ files.c
extern PyMethodDef file_functions[];

// ----------------------------------------------------------------------------------- pickle.c
extern PyMethodDef pickle_functions[];

// ----------------------------------------------------------------------------------- device.c
// a device's name as a C string; NULL with an exception set
const char *device_parse_name(PyObject *name);
// t on the device of `other`
ct_tensor move_to_device_of(ct_tensor t, ct_tensor other, ct_loc here);
extern PyMethodDef device_methods[], device_functions[];

#endif

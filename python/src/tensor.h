// The object of cotan.Tensor, and what the files that implement it share.
#ifndef COTAN_PYTHON_TENSOR_H
#define COTAN_PYTHON_TENSOR_H

#include "core.h"
#include "threads.h"

typedef struct view_op view_op; // in views.c

typedef struct tensor_object {
    PyObject_HEAD ct_tensor handle;
    // The thread in whose context it is pinned; for a variable, the thread that assigned it last.
    thread *owner;
    ct_tensor shared;       // the value for other threads, once one has read it
    ct_params *params;      // of a variable; NULL for other values
    PyObject *params_owner; // the model that owns `params`; NULL: the tensor owns them
    uint64_t version;       // the number of writes in place
    PyObject *grad, *dict, *weak;
    // A view is view ops applied to another tensor's value: a write to one is seen in the other.
    struct tensor_object *parent; // NULL if it is no view
    // Its history is not the parent's, and gradients do not know its writes.
    bool is_detached;
    bool holds_parent;                     // holds a reference to the parent
    struct tensor_object *children;        // its views; each of them is in this list
    struct tensor_object *next, *previous; // the parent's other children
    // The value without its history. Views of it are what detach() returns: they need not hold the history.
    struct tensor_object *detached;
    bool traced;             // made inside a traced function
    uint64_t parent_version; // the parent's version of which the handle was made
    view_op *view_ops;       // (n_view_ops) from the parent's value to this one
    size_t n_view_ops;
} tensor_object;

// Returns a new object of the class, Tensor or a subclass.
PyObject *tensor_new_of_type(PyTypeObject *type, ct_tensor t, ct_loc here);
void tensor_release_handle(tensor_object *self);                       // unpins the handle
bool tensor_set_handle(tensor_object *self, ct_tensor t, ct_loc here); // pins another value

// moves.c
// Ops that make views: of whole axes or parts of them, in order; the result is never the operand itself. A
// slice goes from `start` in steps, which may be negative, up to but not including `stop`; it is in bounds.
struct view_op {
    enum {
        VIEW_SLICE,
        VIEW_PERMUTE,
        VIEW_RESHAPE,
        VIEW_EXPAND,
        VIEW_DIAGONAL, // of the last two axes
        VIEW_UNFOLD,   // windows along an axis, which may overlap; they become a new last axis
        VIEW_REAL,     // from here on the elements change
        VIEW_IMAG,
        VIEW_CONJ,
        VIEW_COMPLEX_AS_REAL, // complex numbers to a last axis of 2
        VIEW_REAL_AS_COMPLEX, // the other way round
        VIEW_BITCAST,         // as another dtype of the same size
    } kind;
    size_t n; // length of each list
    // SLICE: axes, start, stop, step; UNFOLD: {axis, size, step}; DIAGONAL: {offset}; BITCAST: {dtype};
    // otherwise sizes or axes.
    int64_t *list[4];
};
// Copies the lists; returns false if memory is out.
bool view_op_new(view_op *to, int kind, const int64_t *const lists[4], size_t n);
void view_ops_free(view_op *ops, size_t n);
ct_tensor view_op_apply(const view_op *m, ct_tensor t, ct_loc here);
ct_tensor view_op_inverse(const view_op *m, ct_tensor before, ct_tensor part, ct_loc here);
// True if an element may occur several times.
bool view_ops_can_repeat(const view_op *ops, size_t n);
ct_tensor view_ops_scatter(const view_op *ops, size_t n, ct_tensor base, ct_tensor part,
                           ct_loc here);
// Which elements of the base tensor a view has, as sizes and steps.
typedef struct layout {
    int rank;
    int64_t size[CT_MAX_RANK + 1], step[CT_MAX_RANK + 1];
    // Expanded: elements may occur several times; unknown: the layout is not followed further.
    bool expanded, unknown;
} layout;
void layout_init(layout *l, ct_tensor t);
void layout_apply(layout *l, const view_op *m);
bool layout_has_overlap(const layout *l); // true if several elements may be the same
// Parses a tuple; the result is for free(); NULL with an exception set.
view_op *view_ops_parse(PyObject *list, size_t *n);
bool has_same_shape(ct_tensor a, ct_tensor b);
ct_tensor reshape_or_expand_as(ct_tensor t, ct_tensor of, bool expand, ct_loc here);
// The same value with a new handle, since a handle has one Tensor.
ct_tensor new_handle_of(ct_tensor t, ct_loc here);

// views.c
// Returns a view of o; takes ownership of the ops, which malloc made.
PyObject *view_new(PyObject *o, view_op *ops, size_t n, ct_loc here);
// Returns the value without a history, as an object of the class; writes are seen in both.
PyObject *view_detached(PyObject *o, PyTypeObject *type, ct_loc here);
void view_unlink(tensor_object *self); // called when the tensor is deallocated
bool view_refresh(tensor_object *self, ct_loc here);
// Writes the value, broadcast and cast, in place: to o and to all tensors of which o is a view.
bool tensor_write(PyObject *o, ct_tensor value, ct_loc here);
// The same for the view that the ops make of o; the part has the view's sizes and o's dtype.
bool tensor_write_view(PyObject *o, const view_op *ops, size_t n, ct_tensor part, ct_loc here);
// True if o is the view of the parent by these ops, and has its latest value.
bool view_matches(PyObject *o, PyObject *parent, const view_op *ops, size_t n);
extern PyMethodDef view_functions[], view_methods[];

// indexing.c
extern PyMethodDef indexing_methods[];
PyObject *index_get(PyObject *self, PyObject *key);
int index_set(PyObject *self, PyObject *key, PyObject *value); // value NULL: del

// join.c
extern PyMethodDef join_functions[];

// functions.c
// The number of threads that record what traced functions capture.
extern int trace_capture_listeners;
void trace_note_capture(PyObject *o); // records an operand from outside a traced function
bool trace_is_active(void);           // true inside a traced function, where nothing runs
extern PyMethodDef trace_functions[];

// hooks.c
void hooks_flush(void); // releases the owners of hooks whose nodes are gone
extern PyMethodDef hook_functions[];

// autograd.c
static inline bool grad_enabled(void) { return !thread_get()->no_grad; }
void autograd_remove_leaf(tensor_object *self);
bool autograd_has_hooks(const tensor_object *self);
bool autograd_notify_write(tensor_object *self); // called after a write in place
bool tensor_make_variable(PyObject *o, bool tracked, ct_loc here);
// Returns the Tensor of a variable in a set that params_owner owns.
PyObject *tensor_from_param(ct_tensor variable, ct_params *params, PyObject *params_owner,
                            bool tracked, ct_loc here);
extern PyMethodDef autograd_methods[];
extern PyGetSetDef autograd_getters[];
bool autograd_init(PyObject *module);

#endif

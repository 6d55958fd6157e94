// What an op is: one record, defined in one file of src/ops; everything else is derived from it.
#ifndef COTAN_GRAPH_OP_H
#define COTAN_GRAPH_OP_H

#include <stdatomic.h>

#include "graph/index.h"
#include "graph/type.h"
#include "kir/kir.h"

struct ct_val;
typedef struct ct_node ct_node;
typedef struct ct_opdef ct_opdef;
typedef struct ct_body ct_body;
struct ct_loop;
struct ct_contraction;

// What ops of one kind have in common: a record in one file of src/kinds (kinds/kind.h). Passes ask
// it for properties. The structural kinds alone are named by passes:
typedef struct ct_kind ct_kind;
extern const ct_kind ct__kind_leaf; // a value from outside: data, constant, variable, parameter
extern const ct_kind ct__kind_composition; // owns a body, built when a plan is made
extern const ct_kind ct__kind_transform;   // a function of the graph itself: grad
extern const ct_kind ct__kind_loop;        // owns bodies that run as they are: scan, while, cond

// ------------------------------------------------------------------------------------ attributes

// One field list gives struct, copy, equality, hash and print:
//     #define SUM_ATTRS(F, op) F(op, axes, axes) F(op, bool, keepdims)
//     CT_ATTRS(sum, SUM_ATTRS);           // typedef struct sum_attrs, and its fields
// Equality goes field by field, never by memcmp of the struct.
typedef enum ct_field_kind {
    CT_FIELD_i64,
    CT_FIELD_f64,
    CT_FIELD_num, // a number that may be absent
    CT_FIELD_bool,
    CT_FIELD_dtype,
    CT_FIELD_ints,
    CT_FIELD_body,   // a traced body; counts by its own record
    CT_FIELD_bodies, // several, of a node that stays where it is until it runs (a loop)
    CT_FIELD_data,   // bytes; count by content
    CT_FIELD_type,   // a dtype and shape
    // of the meanings below
    CT_FIELD_axis = CT_FIELD_i64,
    CT_FIELD_leading = CT_FIELD_i64,
    CT_FIELD_count = CT_FIELD_i64,
    CT_FIELD_turns = CT_FIELD_i64,
    CT_FIELD_mode = CT_FIELD_i64,
    CT_FIELD_layout = CT_FIELD_i64,
    CT_FIELD_reverse = CT_FIELD_bool,
    CT_FIELD_unique = CT_FIELD_bool,
    CT_FIELD_sorted = CT_FIELD_bool,
    CT_FIELD_axes = CT_FIELD_ints,
    CT_FIELD_permutation = CT_FIELD_ints,
    CT_FIELD_sizes = CT_FIELD_ints,
    CT_FIELD_offsets = CT_FIELD_ints,
    CT_FIELD_limits = CT_FIELD_ints,
    CT_FIELD_strides = CT_FIELD_ints,
    CT_FIELD_gaps = CT_FIELD_ints,
    CT_FIELD_extents = CT_FIELD_ints,
    CT_FIELD_places = CT_FIELD_ints,
} ct_field_kind;

// What the number or the list of a field means. Kinds find by it what their kernels need, and how a
// node's attributes change where its operands get another axis. A field of a meaning is written
// F(op, axis, name), one without by its type, F(op, i64, name). Axes, and lists of one number an
// axis, are of operand 0 (without operands: of the output); the op's shape rule brings them to their
// normal form: counted from the front, a number for each axis.
typedef enum ct_meaning {
    CT_MEANS_i64, // no more than its type
    CT_MEANS_f64 = 0,
    CT_MEANS_num = 0,
    CT_MEANS_bool = 0,
    CT_MEANS_dtype = 0,
    CT_MEANS_ints = 0,
    CT_MEANS_body = 0,
    CT_MEANS_bodies = 0,
    CT_MEANS_data = 0,
    CT_MEANS_type = 0,
    CT_MEANS_layout = 0,  // a ct_layout
    CT_MEANS_axis,        // one axis
    CT_MEANS_axes,        // axes, each once
    CT_MEANS_permutation, // all axes, each once
    CT_MEANS_sizes,       // of the output, one an axis
    CT_MEANS_offsets,     // one an axis; 0 where an axis stays as it is
    CT_MEANS_limits,      // one an axis; CT_END where an axis stays as it is
    CT_MEANS_strides,     // one an axis; 1 where an axis stays as it is
    CT_MEANS_gaps,        // one an axis; 0 where an axis stays as it is; always literal
    CT_MEANS_extents,     // of the output, one for each of the node's `axes`
    CT_MEANS_leading,     // how many axes in front operands 0 and 1 share
    CT_MEANS_turns,       // how often a body runs
    CT_MEANS_places,      // one number an operand or a result, or some of these: any length
    CT_MEANS_reverse,     // along the axis from its end; of an order: from the largest; the right
    CT_MEANS_count,       // of the elements along the axis that are kept
    CT_MEANS_mode,        // of indices outside, a ct_index_mode
    CT_MEANS_unique,      // a promise: no index stands twice
    CT_MEANS_sorted,      // a promise: indices do not fall
} ct_meaning;
typedef struct ct_data_bytes {
    const void *bytes;
    size_t n;
} ct_data_bytes;
typedef struct ct_bodies {
    size_t n;
    ct_body **v;
} ct_bodies;
typedef int64_t ct_attr_i64, ct_attr_axis, ct_attr_leading, ct_attr_count, ct_attr_mode,
    ct_attr_layout, ct_attr_turns;
typedef double ct_attr_f64;
typedef ct_num ct_attr_num;
typedef bool ct_attr_bool, ct_attr_reverse, ct_attr_unique, ct_attr_sorted;
typedef ct_dtype ct_attr_dtype;
typedef ct_ints ct_attr_ints, ct_attr_axes, ct_attr_permutation, ct_attr_sizes, ct_attr_offsets,
    ct_attr_limits, ct_attr_strides, ct_attr_gaps, ct_attr_extents, ct_attr_places;
typedef ct_body *ct_attr_body;
typedef ct_bodies ct_attr_bodies;
typedef ct_data_bytes ct_attr_data;
typedef ct_type ct_attr_type;

typedef struct ct_field {
    const char *name;
    ct_field_kind kind;
    ct_meaning means;
    size_t offset;
} ct_field;
#define CT_ATTR_MEMBER(op, kind, name) ct_attr_##kind name;
#define CT_ATTR_FIELD(op, kind, name)                                                              \
    {#name, CT_FIELD_##kind, CT_MEANS_##kind, offsetof(struct op##_attrs, name)},
// LIST(F, op) is a macro that calls F(op, kind, name) for each field.
#define CT_ATTRS(op, LIST)                                                                         \
    typedef struct op##_attrs {                                                                    \
        LIST(CT_ATTR_MEMBER, op)                                                                   \
    } op##_attrs;                                                                                  \
    static const ct_field op##_fields[] = {LIST(CT_ATTR_FIELD, op)}
// For ops whose attributes several files read: the struct here, in a header; the fields beside the
// definition.
#define CT_ATTRS_SHARED(op, LIST)                                                                  \
    typedef struct op##_attrs {                                                                    \
        LIST(CT_ATTR_MEMBER, op)                                                                   \
    } op##_attrs
#define CT_ATTR_FIELDS(op, LIST) static const ct_field op##_fields[] = {LIST(CT_ATTR_FIELD, op)}
// In the record of an op with attributes.
#define CT_FIELDS(op)                                                                              \
    .fields = op##_fields, .n_fields = sizeof op##_fields / sizeof *op##_fields,                   \
    .attr_size = sizeof(op##_attrs)

// ------------------------------------------------------------------------------------------- calls

// What a shape rule sees: operands' types and attributes; it fills the outputs' types. A failing
// rule reports with ct__call_err and returns false.
typedef struct ct_call {
    const ct_opdef *op;
    void *attrs; // the node's own copy: a rule may bring it to its normal form (axes counted from
                 // the front, sorted)
    int n_in;
    const ct_type *const *in; // (n_in)
    int n_out;                // from the record; where that says -1, the rule calls ct__call_outs
    ct_type *out;             // (n_out) zeroed
    ct_arena *arena;
    ct_err *err;
    ct_loc here;
    const ct_tensor *whole;    // (n_in) the operands, where bare integers meet tensors of integers
    bool compares;             // the rule says so: nothing of the operands' dtype comes out
    bool marks;                // a plan is being made: types have marks
    const struct ct_val *vals; // (n_in) the operands, whose numbers may be known; NULL: types alone
} ct_call;
// Does operand `operand` fit the dtype that the rule makes of it? A bare integer (ct_i) that an
// integer dtype cannot hold is reported: it would wrap unseen.
bool ct__call_bare_fits(ct_call *call, int operand, ct_dtype dtype);
static inline bool ct__call_fits(ct_call *call, int operand, ct_dtype dtype) {
    return !call->whole || ct__call_bare_fits(call, operand, dtype);
}
bool ct__call_err(ct_call *call, ct_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Adds what to do to the error that was reported last; false, for `return`.
bool ct__call_hint(ct_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));
int64_t *ct__call_dims(ct_call *call, int rank); // room for sizes; NULL (and an error): no memory
bool ct__call_outs(ct_call *call, int n);        // room for n outputs' types

// What differentiation rules and bodies see. Handles are of the trace being built; a tensor that is
// absent (CT_NONE) is a zero tangent or cotangent. Rules are written with the public ops.
typedef struct ct_rule {
    const ct_node *node;
    const void *attrs;
    int n_in, n_out;
    const ct_tensor *in, *out; // primal operands and outputs (a body sees no outputs)
    const ct_tensor *t_in;     // jvp: tangents of the operands
    ct_tensor *t_out;          // jvp: to fill, tangents of the outputs
    const ct_tensor *c_out;    // transpose and vjp: cotangents of the outputs
    ct_tensor *c_in;           // transpose and vjp: to fill, cotangents of the operands
    const bool *linear;        // transpose: the operands that want a cotangent
    ct_tensor *body_out;       // body: to fill
} ct_rule;

// Calls piece(arg, begin, end, worker) for parts of 0 .. n - 1, on the threads that there are.
typedef void (*ct_parallel_for)(void (*piece)(void *arg, int64_t begin, int64_t end, int worker),
                                void *arg, int64_t n);

// What a reference evaluation sees: dense row-major operands and outputs in host memory.
typedef struct ct_ref {
    const ct_node *node;
    const void *attrs;
    int n_in, n_out;
    const ct_type *in_type; // (n_in)
    const void *const *in;
    const ct_type *out_type; // (n_out)
    void *const *out;
    const atomic_bool *stop; // asked by what may take long; NULL: never
    ct_parallel_for spread;  // shares work among the cores; NULL: there are none to share it with
    ct_err *err;
} ct_ref;

// Where an element of a movement, gather or source node comes from, for the kernels. The op sees the index
// of the wanted element as expressions (graph/index.h) and answers with expressions:
//   movement, gather: pieces in order: the first one whose condition `valid` holds (CT_IX_NONE: always)
//             gives the element: operand `operand` at index `from`, or, where operand is -1, the
//             number `fill`. One piece must hold everywhere: the last one is usually without
//             condition. `from` of a piece whose condition fails may be anything.
//   source: `value`: the element itself, an integer that is converted to the node's dtype.
// Positions that are operands (dynamic slices) are read with ct__map_load and clamped with
// ct__ix_min and ct__ix_max. Sizes are asked for with ct__map_in_size and ct__map_out_size, never
// taken from the type: a dynamic one is an argument of the kernel. So are positions in attributes
// that CT_DYN marks: they are asked for with ct__map_attr (ops/rules.h).
enum { CT_MAP_PIECES = 64 };
typedef struct ct_map_piece {
    int operand;
    double fill;
    ct_ix valid;
    uint32_t cut; // axes of the operand at which the result may end earlier
    ct_ix from[CT_MAX_RANK];
} ct_map_piece;
typedef struct ct_map {
    const ct_node *node;
    ct_ix_pool *pool;
    const ct_ix *at;     // (rank of the output)
    int n_pieces;        // to fill; starts at 0
    ct_map_piece *piece; // (CT_MAP_PIECES)
    ct_ix value;
    bool in_order; // to fill: the elements of operand 0 in their order, none left out
    ct_ix (*size)(struct ct_map *map, int operand, int axis); // operand -1: the output
    ct_ix (*load)(struct ct_map *map, int operand, const ct_ix *at);
    ct_ix (*attr)(struct ct_map *map, const int64_t *where); // a marked entry of a list
    void *user;
} ct_map;
// The next piece, with operand, valid = CT_IX_NONE and fill = 0 set; NULL: there are too many (ops
// with more operands than CT_MAP_PIECES must be cut by their constructor).
ct_map_piece *ct__map_piece(ct_map *map, int operand);
static inline ct_ix ct__map_in_size(ct_map *map, int operand, int axis) {
    return map->size(map, operand, axis);
}
static inline ct_ix ct__map_out_size(ct_map *map, int axis) { return map->size(map, -1, axis); }
// The element of an integer operand at an index (NULL for a rank-0 operand).
static inline ct_ix ct__map_load(ct_map *map, int operand, const ct_ix *at) {
    return map->load(map, operand, at);
}

// What an elementwise op sees when a kernel is written: one element, as values of the kernel IR. It
// answers with the value of its result, built from them.
typedef struct ct_elem {
    ct_kir *k;
    const ct_node *node;
    const ct_kval *x; // operands in `dtype` (a condition: bool), as it is held (kir.h)
    ct_dtype dtype;   // in which it computes (ct__compute_dtype)
} ct_elem;

// What kernels must know of a node's attributes, found by their meanings.
typedef struct ct_along {
    uint32_t axes; // mask of the axes named, one or a list
    int axis, leading;
    bool reverse, unique, sorted;
    int64_t count;
    ct_index_mode mode;
} ct_along;
ct_along ct__along(const ct_node *node);

// A node of which some operands have one axis more, the batch, in front: what batching asks a kind
// to record, with the public ops.
typedef struct ct_batching {
    const ct_node *node; // as it is without the batch
    const void *attrs;   // in their normal form
    int n_in, n_out;
    const ct_tensor *in; // (n_in) of the batched ones, one at least, axis 0 is the batch
    const bool *batched; // (n_in)
    int64_t size;        // of the batch; CT_DYN marks a dynamic one
    ct_tensor *out;      // (n_out) to fill: the results, of which axis 0 is the batch
    bool *out_batched;   // (n_out) true; false may be set of a result that is the same for all
} ct_batching;

// What a scan puts elements together by, where no reduction says it: a state of as many values as
// the op has operands, of which the last is the result.
typedef struct ct_monoid {
    // to = what came before, e->x[0 .. n_in), then an element, e->x[n_in .. 2 n_in).
    void (*join)(const ct_elem *e, ct_kval *to);
    double start[2]; // the state before all elements, which changes none
} ct_monoid;

// A node as it was recorded, which a plan may put into one with those behind whose values nobody else reads.
typedef struct ct_match {
    const ct_node *node;
    ct_tensor (*operand)(void *env, struct ct_val of); // what stands for a value in the plan
    bool (*is_alone)(void *env, struct ct_val of);     // is it computed here, and read once?
    void *env;
} ct_match;

// From where generated tests draw operands, and how exact an answer must be.
typedef struct ct_samples {
    double lo, hi; // both 0: -2 to 2
    bool integers; // whole numbers only
    bool jumps;    // at some points of the range: a small error of an operand shows as a large one
    bool kinks; // finite differences fail at some points of the range (max, abs): ties are avoided
    double ulp; // f32 bound against the reference; 0: exact
    double largest; // |x| of an op of one operand from which on nothing is promised; 0: of all
} ct_samples;

// A number that, as one of two operands, leaves the other one unchanged in every bit.
typedef struct ct_neutral {
    double number;
    bool left, right; // as operand 0, as operand 1
} ct_neutral;

// What autocasting makes of an op's floats of f16, bf16 and f32 where it is switched on (PyTorch's lists: docs/design/
// mixed-precision.md); f64 and bare numbers stay as they are. All others take what they get.
typedef enum {
    CT_CAST_NONE,
    CT_CAST_LOW,    // the low dtype: products, whose sums are f32
    CT_CAST_F32,    // f32: what is large, or a sum of many
    CT_CAST_WIDEST, // the widest dtype among them, where the op itself wants them equal
} ct_cast_class;

// `work` of what is one slow instruction of a machine, and of exp, tanh and their like.
enum { CT_DIVISION_WORK = 8, CT_FUNCTION_WORK = 20 };

struct ct_opdef {
    uint32_t id; // CT_OP_...: its number in records and hashes, made from its name
    const char *name, *doc;
    const ct_kind *kind;
    int8_t n_in, n_out; // -1: any number (n_out: the shape rule says)
    const ct_field *fields;
    size_t n_fields, attr_size;
    ct_dtypes accepts; // elementwise: of the promoted operands
    bool (*infer)(ct_call *call);
    // Reference evaluation. Elementwise: of one element, floats in double, other dtypes in i64 (the
    // result wraps to the dtype), u64 by its bits; comparisons and casts use the one that fits
    // their operands. Other kinds: of the whole node.
    double (*eval_f64)(const double *x);
    int64_t (*eval_i64)(const int64_t *x, ct_dtype dtype);
    bool (*eval)(const ct_ref *ref);
    // Differentiation: the forward rule; and, for ops linear in operands, how a cotangent goes back
    // to those. False: a sub-call failed, its error stands in the context.
    bool (*jvp)(ct_rule *rule);
    bool (*transpose)(ct_rule *rule);
    bool (*vjp)(ct_rule *rule);    // compositions may carry their own: cotangents of all operands
    bool (*body)(ct_rule *rule);   // compositions: records the body
    bool (*batch)(ct_batching *b); // where the kind has no rule that serves; CT_NO_VMAP: none can
    // Loops: what the node does with its bodies (transform/loop.h).
    void (*loop)(const ct_node *node, struct ct_loop *loop);
    // Of a dtype that has parts (base/dtype.h): records the same of its parts, as a body does.
    bool (*split)(ct_rule *rule);
    uint32_t data; // of ct__split_each: mask of the operands that have parts, ~0 for all
    // Transforms: records what the node stands for, its operands being `in`.
    bool (*expand)(ct_ctx *ctx, const ct_node *node, const struct ct_val *in, ct_tensor *out);
    // Records what stands for the node and others together; CT_NONE: nothing does.
    ct_tensor (*larger)(const ct_match *match);
    // Kernels.
    ct_kval (*emit)(const ct_elem *elem); // elementwise: one element
    ct_kred reduction;                    // reduce, scatter, scan: how elements are put together
    ct_monoid monoid;                     // scan, where that is no reduction
    bool (*map)(ct_map *map);             // movement, source: where elements come from
    // contraction: which axes are multiplied, summed over and kept (kinds/contraction.h); `to` is zero.
    void (*contraction)(const ct_node *node, struct ct_contraction *to);
    int8_t core
        [8]; // call, and what batches as they do: how many axes behind the batch its operands have
    const char
        *symbol; // call: the function's name in C that is written ahead of time; NULL: it has none
    bool scattered;    // operands may lie on several devices; where results lie the shape rule says
    bool moves;        // the result is the operand on another device
    bool waits;        // movement: operands behind the first are only waited for
    bool fills;        // movement: an element may be a number that no operand has
    bool condition;    // elementwise: operand 0 is a bool that does not promote with the others
    bool widens;       // compositions: 16-bit floats are made f32, and its results rounded once
    bool converts;     // elementwise: the operand in another dtype
    bool reinterprets; // elementwise: the result is the operand's bits, in memory too
    int part; // elementwise: the result is this part, from 1 on, of the operand as it lies in memory
    ct_cast_class autocast;
    const char *onnx, *stablehlo;
    int work; // vector operations where they are many: worth a buffer rather than twice; 0: one
    // Algebra that keeps every bit.
    ct_neutral neutral;                     // x + number = x
    bool (*unchanged)(const ct_node *node); // of the operand's type, the result is operand 0
    bool involution;                        // f(f(x)) = x
    bool outermost;                         // f(f(x, any), attributes) = f(x, attributes)
    const ct_opdef *undoes; // f(g(a, b, ...)) = the operand `part` of g, from 1 on, for this g
    ct_samples samples;
    // What an operand that is a number is called: a name in C, or NULL.
    const char *(*operand_name)(const ct_node *node, int operand);
    const char *varies; // what to do where an attribute changes from step to step, for a hint
};

bool ct__always_unchanged(const ct_node *node); // for `unchanged`
// An explicit "has no gradient" (integer results, comparisons): tangents are zero.
bool ct__no_grad(ct_rule *rule);
#define CT_NO_GRAD ct__no_grad

// Attributes, generically by the field list.
void *ct__attrs_copy(ct_arena *arena, const ct_opdef *op,
                     const void *attrs); // deep; NULL: no memory
bool ct__attrs_equal(const ct_opdef *op, const void *a, const void *b);
bool ct__field_equal(const ct_field *field, const void *a,
                     const void *b); // of two nodes' attributes
void ct__attrs_print(ct_text *text, const ct_opdef *op, const void *attrs);
void ct__attr_print(ct_text *text, ct_field_kind kind, const void *attr); // one of them

#endif

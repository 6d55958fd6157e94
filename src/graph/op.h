// The definition of an op: one record in one file of src/ops; everything else is derived from it.
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

// The common properties of a family of ops: a record in one file of src/kinds (kinds/kind.h). Passes query
// its properties; only the structural kinds are named by passes:
typedef struct ct_kind ct_kind;
extern const ct_kind ct__kind_leaf; // a value from outside: data, constant, variable, parameter
extern const ct_kind ct__kind_composition; // has a body, recorded when a plan is built
extern const ct_kind ct__kind_transform;   // a function of the graph itself: grad
extern const ct_kind ct__kind_loop;        // has bodies run as they are: scan, while, cond

// ------------------------------------------------------------------------------------ attributes

// One field list generates struct, copy, equality, hash and printing:
//     #define SUM_ATTRS(F, op) F(op, axes, axes) F(op, bool, keepdims)
//     CT_ATTRS(sum, SUM_ATTRS);           // typedef struct sum_attrs, and its fields
// Equality compares the fields, never the struct by memcmp.
typedef enum ct_field_kind {
    CT_FIELD_i64,
    CT_FIELD_f64,
    CT_FIELD_num, // an optional number
    CT_FIELD_bool,
    CT_FIELD_dtype,
    CT_FIELD_ints,
    CT_FIELD_body,   // a traced body; compared and hashed by its record
    CT_FIELD_bodies, // several, of a node that is not expanded before it runs (a loop)
    CT_FIELD_data,   // bytes; compared by content
    CT_FIELD_type,   // a dtype and shape
    // with one of the meanings below
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
    CT_FIELD_positions = CT_FIELD_ints,
} ct_field_kind;

// The meaning of a field's number or list. Kinds derive from it what their kernels need, and how batching
// changes the attributes. A field with a meaning is written F(op, axis, name), one without by its type, F(op,
// i64, name). Axes, and lists with one number per axis, refer to operand 0 (without operands: to the output);
// the op's shape rule normalises them: counted from the front, one number per axis.
typedef enum ct_meaning {
    CT_MEANS_i64, // nothing beyond its type
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
    CT_MEANS_axes,        // axes, without duplicates
    CT_MEANS_permutation, // all axes, in some order
    CT_MEANS_sizes,       // of the output, one per axis
    CT_MEANS_offsets,     // one per axis; 0 leaves an axis unchanged
    CT_MEANS_limits,      // one per axis; CT_END leaves an axis unchanged
    CT_MEANS_strides,     // one per axis; 1 leaves an axis unchanged
    CT_MEANS_gaps,        // one per axis; 0 leaves an axis unchanged; never dynamic
    CT_MEANS_extents,     // of the output, one for each of the node's `axes`
    CT_MEANS_leading,     // number of leading axes that operands 0 and 1 share
    CT_MEANS_turns,       // number of iterations of a body
    CT_MEANS_positions,   // one number for each operand or result, or some of these: any length
    CT_MEANS_reverse,     // along the axis from its end; of a sort: descending; of a search: the
                          // right side
    CT_MEANS_count,       // number of elements kept along the axis
    CT_MEANS_mode,        // treatment of indices out of range, a ct_index_mode
    CT_MEANS_unique,      // a promise: no duplicate indices
    CT_MEANS_sorted,      // a promise: indices are in ascending order
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
    ct_attr_limits, ct_attr_strides, ct_attr_gaps, ct_attr_extents, ct_attr_positions;
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
// For ops whose attributes are read in several files: the struct, in a header; the fields are beside the
// definition.
#define CT_ATTRS_SHARED(op, LIST)                                                                  \
    typedef struct op##_attrs {                                                                    \
        LIST(CT_ATTR_MEMBER, op)                                                                   \
    } op##_attrs
#define CT_ATTR_FIELDS(op, LIST) static const ct_field op##_fields[] = {LIST(CT_ATTR_FIELD, op)}
// Begins the definition of an op that is in no family: number, name, kind, numbers of operands and results.
#define CT_OP(ID, op, of_kind, ins, outs)                                                          \
    .id = CT_OP_##ID, .name = #op, .kind = &ct__kind_##of_kind, .n_in = ins, .n_out = outs
// The same for one that is composed of others, by rules of its own.
#define CT_COMPOSED(ID, op, ins, outs)                                                             \
    CT_OP(ID, op, composition, ins, outs), .infer = op##_infer, .body = op##_body
// Used in the definition of an op with attributes.
#define CT_FIELDS(op)                                                                              \
    .fields = op##_fields, .n_fields = sizeof op##_fields / sizeof *op##_fields,                   \
    .attr_size = sizeof(op##_attrs)

// ------------------------------------------------------------------------------------------- calls

// The argument of a shape rule: operands' types and attributes, and the outputs' types to fill. A failing
// rule reports an error with ct__call_err and returns false.
typedef struct ct_call {
    const ct_opdef *op;
    void *attrs; // the node's own copy: a rule may normalise it (axes counted from the front,
                 // sorted)
    int n_in;
    const ct_type *const *in; // (n_in)
    int n_out;                // as in the op's definition; if that is -1, the rule calls
                              // ct__call_outs
    ct_type *out;             // (n_out) zeroed
    ct_arena *arena;
    ct_err *err;
    ct_loc here;
    const ct_tensor *whole;    // (n_in) the operands, where bare integers are combined with
                               // integer tensors
    bool compares;             // set by the rule: a comparison, whose result is not of the
                               // operands' dtype
    bool marks;                // a plan is being built: types have marks
    const struct ct_val *vals; // (n_in) the operands, whose numbers may be known; NULL: types only
} ct_call;
// True if operand `operand` fits the dtype that the rule converts it to. A bare integer (ct_i) that an
// integer dtype cannot represent is an error: it would wrap silently.
bool ct__call_bare_fits(ct_call *call, int operand, ct_dtype dtype);
static inline bool ct__call_fits(ct_call *call, int operand, ct_dtype dtype) {
    return !call->whole || ct__call_bare_fits(call, operand, dtype);
}
bool ct__call_err(ct_call *call, ct_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
// Adds a hint to the error reported last; returns false, for `return`.
bool ct__call_hint(ct_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));
int64_t *ct__call_dims(ct_call *call, int rank); // NULL (and an error): out of memory
bool ct__call_outs(ct_call *call, int n);        // allocates n outputs' types

// The argument of differentiation rules and bodies. Handles belong to the trace being built; an absent tensor
// (CT_NONE) is a zero tangent or cotangent. Rules are written with the public ops.
typedef struct ct_rule {
    const ct_node *node;
    const void *attrs;
    int n_in, n_out;
    const ct_tensor *in, *out; // primal operands and outputs (a body sees no outputs)
    const ct_tensor *t_in;     // jvp: tangents of the operands
    ct_tensor *t_out;          // jvp: to fill, tangents of the outputs
    const ct_tensor *c_out;    // transpose and vjp: cotangents of the outputs
    ct_tensor *c_in;           // transpose and vjp: to fill, cotangents of the operands
    const bool *linear;        // transpose: the operands that need a cotangent
    ct_tensor *body_out;       // body: to fill
} ct_rule;
// The end of a rule that fills one element: sets it, and returns true.
static inline bool ct__set_tangent(ct_rule *r, ct_tensor t) { return r->t_out[0] = t, true; }
static inline bool ct__set_cotangent(ct_rule *r, ct_tensor t) { return r->c_in[0] = t, true; }
static inline bool ct__set_body(ct_rule *r, ct_tensor t) { return r->body_out[0] = t, true; }

// Calls piece(arg, begin, end, worker) for parts of 0 .. n - 1, on the available threads.
typedef void (*ct_parallel_for)(void (*piece)(void *arg, int64_t begin, int64_t end, int worker),
                                void *arg, int64_t n);

// The argument of a reference evaluation: dense row-major operands and outputs in host memory.
typedef struct ct_ref {
    const ct_node *node;
    const void *attrs;
    int n_in, n_out;
    const ct_type *in_type; // (n_in)
    const void *const *in;
    const ct_type *out_type; // (n_out)
    void *const *out;
    const atomic_bool *stop; // polled by long computations; NULL: never
    ct_parallel_for spread;  // distributes work over the cores; NULL: single-threaded
    ct_err *err;
} ct_ref;

// Maps an element of a movement, gather or source node to its origin, for the kernels. The op gets the index
// of the element as expressions (graph/index.h) and returns expressions:
//   movement, gather: pieces in order: the first one whose condition `valid` is true (CT_IX_NONE: always)
//             gives the element: operand `operand` at index `from`, or, if operand is -1, the number
//             `fill`. One piece must apply everywhere: usually the last one has no condition. `from` of
//             a piece whose condition is false may be anything.
//   source: `value`: the element itself, an integer that is converted to the node's dtype.
// Positions that are operands (dynamic slices) are read with ct__map_load and clamped with ct__ix_min and
// ct__ix_max. Sizes are obtained by ct__map_in_size and ct__map_out_size, never from the type: a dynamic one
// is an argument of the kernel. So are positions in attributes marked by CT_DYN: they are obtained by
// ct__map_attr (ops/rules.h).
enum { CT_MAP_PIECES = 64 };
typedef struct ct_map_piece {
    int operand;
    double fill;
    ct_ix valid;
    uint32_t cut; // axes of the operand that the result may end before
    ct_ix from[CT_MAX_RANK];
} ct_map_piece;
typedef struct ct_map {
    const ct_node *node;
    ct_ix_pool *pool;
    const ct_ix *at;     // (rank of the output)
    int n_pieces;        // to fill; starts at 0
    ct_map_piece *piece; // (CT_MAP_PIECES)
    ct_ix value;
    bool in_order; // to fill: all elements of operand 0 in their order
    ct_ix (*size)(struct ct_map *map, int operand, int axis); // operand -1: the output
    ct_ix (*load)(struct ct_map *map, int operand, const ct_ix *at);
    ct_ix (*attr)(struct ct_map *map, const int64_t *where); // a marked entry of a list
    void *user;
} ct_map;
// Adds a piece with operand, valid = CT_IX_NONE and fill = 0 set; NULL: too many (the constructor of an op
// with more operands than CT_MAP_PIECES must split it).
ct_map_piece *ct__map_piece(ct_map *map, int operand);
static inline ct_ix ct__map_in_size(ct_map *map, int operand, int axis) {
    return map->size(map, operand, axis);
}
static inline ct_ix ct__map_out_size(ct_map *map, int axis) { return map->size(map, -1, axis); }
// Loads an element of an integer operand at an index (NULL for a rank-0 operand).
static inline ct_ix ct__map_load(ct_map *map, int operand, const ct_ix *at) {
    return map->load(map, operand, at);
}

// The argument of an elementwise op when a kernel is generated: one element, as values of the kernel IR. The
// op returns the value of its result.
typedef struct ct_elem {
    ct_kir *k;
    const ct_node *node;
    const ct_kval *x; // operands in the compute dtype of `dtype` (kir.h); a condition is bool
    ct_dtype dtype;   // in which it computes (ct__compute_dtype)
} ct_elem;

// The attributes that kernels need, found by their meanings.
typedef struct ct_along {
    uint32_t axes; // mask of the named axes, one or a list
    int axis, leading;
    bool reverse, unique, sorted;
    int64_t count;
    ct_index_mode mode;
} ct_along;
ct_along ct__along(const ct_node *node);

// A node some of whose operands have an additional leading axis, the batch: the argument of a batching rule,
// which records the batched node with the public ops.
typedef struct ct_batching {
    const ct_node *node; // without the batch
    const void *attrs;   // normalised
    int n_in, n_out;
    const ct_tensor *in; // (n_in) axis 0 of a batched one is the batch; at least one is batched
    const bool *batched; // (n_in)
    int64_t size;        // of the batch; CT_DYN marks a dynamic one
    ct_tensor *out;      // (n_out) to fill: results with the batch as axis 0
    bool *out_batched;   // (n_out) true; may be set to false for a result that is the same for all
} ct_batching;

// The combine function of a scan that is not a reduction: its state has as many values as the op has
// operands, the last of which is the result.
typedef struct ct_monoid {
    // to = combine(state e->x[0 .. n_in), element e->x[n_in .. 2 n_in)).
    void (*join)(const ct_elem *e, ct_kval *to);
    double start[2]; // the initial state, the identity
} ct_monoid;

// A recorded node, which a plan may fuse with operands that nothing else uses.
typedef struct ct_match {
    const ct_node *node;
    ct_tensor (*operand)(void *env, struct ct_val of); // the plan's tensor for a value
    bool (*is_alone)(void *env, struct ct_val of);     // true if it is computed here and used once
    void *env;
} ct_match;

// How generated tests sample operands, and the accuracy required.
typedef struct ct_samples {
    double lo, hi; // both 0: -2 to 2
    bool integers; // integers only
    bool jumps;    // discontinuous at some points of the range: a small error of an operand may
                   // give a large one
    bool kinks; // finite differences fail at some points of the range (max, abs): ties are avoided
    double ulp; // f32 bound against the reference; 0: exact
    double largest; // |x| of a unary op from which on nothing is guaranteed; 0: no limit
} ct_samples;

// An identity element: a number that, as one of two operands, leaves the other one unchanged bit by bit.
typedef struct ct_neutral {
    double number;
    bool left, right; // as operand 0, as operand 1
} ct_neutral;

// How autocasting casts an op's operands of f16, bf16 and f32, if it is on (PyTorch's lists:
// docs/design/mixed-precision.md); f64 and bare numbers stay as they are.
typedef enum {
    CT_CAST_NONE,
    CT_CAST_LOW,    // the low dtype: products, with f32 sums
    CT_CAST_F32,    // f32: large values, or long sums
    CT_CAST_WIDEST, // the widest of their dtypes, for an op that needs them equal
} ct_cast_class;

// `work` of a slow machine instruction, and of exp, tanh and similar functions.
enum { CT_DIVISION_WORK = 8, CT_FUNCTION_WORK = 20 };

struct ct_opdef {
    uint32_t id; // CT_OP_...: its number in records and hashes, derived from its name
    const char *name, *doc;
    const ct_kind *kind;
    int8_t n_in, n_out; // -1: any number (n_out: set by the shape rule)
    const ct_field *fields;
    size_t n_fields, attr_size;
    ct_dtypes accepts; // elementwise: after promotion
    bool (*infer)(ct_call *call);
    // Reference evaluation. Elementwise: of one element, floats in double, other dtypes in i64 (the result
    // wraps to the dtype), u64 by its bits; comparisons and casts use the one that fits their operands. Other
    // kinds: of the whole node.
    double (*eval_f64)(const double *x);
    int64_t (*eval_i64)(const int64_t *x, ct_dtype dtype);
    bool (*eval)(const ct_ref *ref);
    // Differentiation: the forward rule; and, for ops that are linear in operands, the transpose rule. False:
    // a sub-call failed, and its error is in the context.
    bool (*jvp)(ct_rule *rule);
    bool (*transpose)(ct_rule *rule);
    bool (*vjp)(ct_rule *rule);    // compositions may have their own: cotangents of all operands
    bool (*body)(ct_rule *rule);   // compositions: records the body
    bool (*batch)(ct_batching *b); // if the kind's rule does not apply; CT_NO_VMAP: not possible
    // Loops: how the node runs its bodies (transform/loop.h).
    void (*loop)(const ct_node *node, struct ct_loop *loop);
    // For a dtype with parts (base/dtype.h): records the same op on the parts, as a body does.
    bool (*split)(ct_rule *rule);
    uint32_t data; // of ct__split_each: mask of the operands with parts, ~0 for all
    // Transforms: records what the node means for the operands `in`.
    bool (*expand)(ct_ctx *ctx, const ct_node *node, const struct ct_val *in, ct_tensor *out);
    // Records a replacement of the node and others together; CT_NONE: none applies.
    ct_tensor (*larger)(const ct_match *match);
    // Kernels.
    ct_kval (*emit)(const ct_elem *elem); // elementwise: one element
    int instruction;   // of an emit that is one instruction or function: its ct_kop or ct_kmath
    ct_kred reduction; // reduce, scatter, scan: the reduction
    ct_monoid monoid;  // scan, if it is not a reduction
    bool (*map)(ct_map *map); // movement, source: where elements come from
    // contraction: the multiplied, summed and kept axes (kinds/contraction.h); `to` is zeroed.
    void (*contraction)(const ct_node *node, struct ct_contraction *to);
    int8_t core[8]; // call, and ops batched like it: number of axes of each operand after the batch
    const char *symbol; // call: the C function's name in ahead-of-time code; NULL: none
    bool scattered;     // operands may be on several devices; the shape rule sets the results'
                        // devices
    bool moves;         // the result is the operand on another device
    bool waits;         // movement: operands after the first are only dependencies
    bool fills;         // movement: an element may be a constant that is in no operand
    bool condition;     // elementwise: operand 0 is a bool that does not promote with the others
    bool widens;        // compositions: 16-bit floats are computed in f32, and results rounded once
    bool converts;      // elementwise: the operand in another dtype
    bool reinterprets;  // elementwise: the result has the operand's bits, in memory too
    int part;           // elementwise: the result is this part, from 1 on, of the operand's memory
    ct_cast_class autocast;
    const char *onnx, *stablehlo;
    int work; // vector operations, if many: storing beats computing it twice; 0: one
    // Algebraic identities that preserve every bit.
    ct_neutral neutral;                     // x + number = x
    bool (*unchanged)(const ct_node *node); // for an operand of the result's type: the result is
                                            // operand 0
    bool involution;                        // f(f(x)) = x
    bool outermost;                         // f(f(x, any), attributes) = f(x, attributes)
    const ct_opdef *undoes; // f(g(a, b, ...)) = operand number `part` of g, from 1 on, for this g
    ct_samples samples;
    // The name, in C, of an operand that is a number; or NULL.
    const char *(*operand_name)(const ct_node *node, int operand);
    const char *varies; // for a hint: what to do if an attribute changes from step to step
};

bool ct__always_unchanged(const ct_node *node); // for `unchanged`
// Explicitly no gradient (integer results, comparisons): tangents are zero.
bool ct__no_grad(ct_rule *rule);
#define CT_NO_GRAD ct__no_grad

// Attributes, generic by field list.
void *ct__attrs_copy(ct_arena *arena, const ct_opdef *op,
                     const void *attrs); // deep; NULL: out of memory
bool ct__attrs_equal(const ct_opdef *op, const void *a, const void *b);
bool ct__field_equal(const ct_field *field, const void *a,
                     const void *b); // of two nodes' attributes
void ct__attrs_print(ct_text *text, const ct_opdef *op, const void *attrs);
void ct__attr_print(ct_text *text, ct_field_kind kind, const void *attr); // one attribute

#endif

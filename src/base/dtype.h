// Dtypes: one table describes each of them; everything else follows from it.
#ifndef COTAN_BASE_DTYPE_H
#define COTAN_BASE_DTYPE_H

#include "cotan/cotan.h"

typedef enum ct_class {
    CT_CLASS_NONE, // not a dtype
    CT_CLASS_BOOL,
    CT_CLASS_UINT,
    CT_CLASS_INT,
    CT_CLASS_FLOAT,
    CT_CLASS_COMPLEX,
} ct_class;

// Which of a float's codes are not finite numbers.
typedef enum ct_special {
    CT_IEEE,    // all exponent bits set: infinity, or NaN if the mantissa is not 0
    CT_ONE_NAN, // all exponent and mantissa bits set: NaN; there is no infinity
    CT_FINITE,  // none
} ct_special;

typedef struct ct_dtype_info {
    const char *name; // "f32", for CT_F32
    uint8_t class;    // ct_class
    uint8_t bits;     // of an element
    // A float is sign, exponent and mantissa, highest bit first. The exponent's bias is 2^(exponent
    // - 1) - 1; exponent 0 is that of subnormal numbers.
    uint8_t exponent, mantissa; // bits, without the mantissa's leading 1
    uint8_t special;            // ct_special
    uint8_t compute;            // ct_dtype in which kernels compute: itself, or a wider one
    // ct_dtype of the components that kernels use instead: for 4 bits the code, as a u8; for a
    // complex number its real and imaginary part. When a plan is made, an op on it becomes ops on
    // components. CT_DEFAULT: it has none.
    uint8_t part;
    char numpy;              // letter of NumPy's descr, before the size in bytes; 0: NumPy has none
    const char *safetensors; // its name in a safetensors file; NULL: none
} ct_dtype_info;

extern const ct_dtype_info ct__dtypes[CT_DTYPE_COUNT];

// Returns the record of a dtype; for another value, one with 0 bits, named "?".
static inline const ct_dtype_info *ct__dtype(ct_dtype d) {
    return &ct__dtypes[(unsigned)d < CT_DTYPE_COUNT ? d : CT_DEFAULT];
}
static inline bool ct__is_dtype(ct_dtype d) { return d > CT_DEFAULT && d < CT_DTYPE_COUNT; }

static inline bool ct__is_float(ct_dtype d) { return ct__dtype(d)->class == CT_CLASS_FLOAT; }
static inline bool ct__is_signed(ct_dtype d) { return ct__dtype(d)->class == CT_CLASS_INT; }
static inline bool ct__is_unsigned(ct_dtype d) { return ct__dtype(d)->class == CT_CLASS_UINT; }
static inline bool ct__is_int(ct_dtype d) { return ct__is_signed(d) || ct__is_unsigned(d); }
static inline bool ct__is_complex(ct_dtype d) { return ct__dtype(d)->class == CT_CLASS_COMPLEX; }
static inline bool ct__has_parts(ct_dtype d) { return ct__dtype(d)->part != CT_DEFAULT; }
static inline ct_dtype ct__part(ct_dtype d) { return (ct_dtype)ct__dtype(d)->part; }
// True if derivatives are defined. Not for 4-bit dtypes, which are for storage.
static inline bool ct__is_differentiable(ct_dtype d) {
    return ct__is_complex(d) || (ct__is_float(d) && !ct__has_parts(d));
}
// True if kernels compute with it in another dtype.
static inline bool ct__is_narrow(ct_dtype d) { return ct__dtype(d)->compute != (uint8_t)d; }
// True for a float narrower than f32: computed in f32 and rounded after each op.
static inline bool ct__is_narrow_float(ct_dtype d) {
    return ct__is_float(d) && !ct__has_parts(d) && ct__is_narrow(d);
}

// The least and greatest integer of a dtype (bool: 0 and 1); of u64, its bit pattern.
static inline int64_t ct__int_min(ct_dtype d) {
    return ct__is_signed(d) ? INT64_MIN >> (64 - ct__dtype(d)->bits) : 0;
}
static inline int64_t ct__int_max(ct_dtype d) {
    if (d == CT_BOOL) return 1;
    return (int64_t)(UINT64_MAX >> (64 - ct__dtype(d)->bits + ct__is_signed(d)));
}

// Converts a float of 32 bits or fewer to its code, the bits in memory. Rounds to nearest even,
// whatever the thread's floating-point mode is. What is too large becomes infinity, or NaN if the
// dtype has none, or else the largest number; a NaN that the dtype lacks becomes zero with the
// other sign (as in ml_dtypes). A NaN keeps its sign, and in 16 bits as much of its payload as
// fits.
uint32_t ct__encode_float(ct_dtype d, double value);
double ct__decode_float(ct_dtype d, uint32_t code);
// The largest number and the smallest normal number of a float dtype.
double ct__float_max(ct_dtype d);
double ct__float_min_normal(ct_dtype d);

enum { CT_MAX_ELEMENT_BYTES = 16 }; // of an element
// Returns the bytes of n contiguous elements; bits are rounded up.
static inline size_t ct__dtype_bytes(ct_dtype d, int64_t n) {
    size_t bits = ct__dtype(d)->bits;
    return bits % 8 ? ((size_t)n * bits + 7) / 8 : (size_t)n * (bits / 8);
}

// The result dtype of two operands: jax.numpy.promote_types. `weak`: a number without a dtype of
// its own (JAX's weak type); it takes the other's dtype, but a weak float and an integer give f32.
// CT_DEFAULT: there is none, one operand must be cast.
ct_dtype ct__promote(ct_dtype a, bool a_weak, ct_dtype b, bool b_weak);
// The same for any number of operands, added one after the other to CT_PROMOTION_START.
typedef struct ct_promotion {
    uint64_t above; // (set of nodes) what each operand may become
} ct_promotion;
#define CT_PROMOTION_START ((ct_promotion){UINT64_MAX})
ct_promotion ct__promotion_add(ct_promotion others, ct_dtype dtype, bool weak);
ct_dtype ct__promotion_result(ct_promotion all);

// Sets of dtypes that an op accepts.
typedef uint64_t ct_dtypes;
_Static_assert(CT_DTYPE_COUNT <= 64, "a set of dtypes has a bit for each");
#define CT_MASK(dtype) ((ct_dtypes)1 << (dtype))
#define CT_HALVES (CT_MASK(CT_F16) | CT_MASK(CT_BF16))
#define CT_F8S (CT_MASK(CT_F8E4M3) | CT_MASK(CT_F8E5M2))
#define CT_FLOATS (CT_F8S | CT_HALVES | CT_MASK(CT_F32) | CT_MASK(CT_F64))
#define CT_UNSIGNED (CT_MASK(CT_U8) | CT_MASK(CT_U16) | CT_MASK(CT_U32) | CT_MASK(CT_U64))
#define CT_SIGNED (CT_MASK(CT_I8) | CT_MASK(CT_I16) | CT_MASK(CT_I32) | CT_MASK(CT_I64))
#define CT_INTEGERS (CT_UNSIGNED | CT_SIGNED)
#define CT_NUMBERS (CT_FLOATS | CT_INTEGERS)
#define CT_BITS (CT_INTEGERS | CT_MASK(CT_BOOL))
#define CT_PACKED (CT_MASK(CT_U4) | CT_MASK(CT_I4) | CT_MASK(CT_F4))
#define CT_COMPLEX (CT_MASK(CT_C64) | CT_MASK(CT_C128))
// Dtypes that LAPACK supports.
#define CT_LINALG (CT_MASK(CT_F32) | CT_MASK(CT_F64) | CT_COMPLEX)
#define CT_ANY (CT_NUMBERS | CT_MASK(CT_BOOL) | CT_PACKED | CT_COMPLEX)

#endif

// Dtypes: one table says what each of them is; everything else about them follows from it.
#ifndef COTAN_BASE_DTYPE_H
#define COTAN_BASE_DTYPE_H

#include "cotan/cotan.h"

typedef enum ct_class {
    CT_CLASS_NONE, // of a value that is no dtype
    CT_CLASS_BOOL,
    CT_CLASS_UINT,
    CT_CLASS_INT,
    CT_CLASS_FLOAT,
    CT_CLASS_COMPLEX,
} ct_class;

// What of a float's codes is no number.
typedef enum ct_special {
    CT_IEEE, // those with all bits of the exponent: infinity, and NaN where the mantissa is not 0
    CT_ONE_NAN, // the one with all bits of exponent and mantissa is NaN; there is no infinity
    CT_FINITE,  // none
} ct_special;

typedef struct ct_dtype_info {
    const char *name; // "f32"; CT_F32 is the same in capitals
    uint8_t class;    // ct_class
    uint8_t bits;     // an element's
    // A float is sign, exponent and mantissa, highest bit first; the exponent's bias is
    // 2^(exponent - 1) - 1, and exponent 0 is that of subnormal numbers.
    uint8_t exponent, mantissa; // bits; the mantissa's leading 1 is not among them
    uint8_t special;            // ct_special
    uint8_t held;               // ct_dtype in which kernels compute with it: itself, or a wider one
    // ct_dtype of what kernels have in its place: of 4 bits the code, as a u8; of a complex
    // number its two parts. An op of it becomes ops of its parts when a plan is made. CT_DEFAULT: it is computed with as it is.
    uint8_t part;
    char numpy; // letter of NumPy's descr, which the size in bytes follows; 0: NumPy has none
    const char *safetensors; // its name in a safetensors file; NULL: none
} ct_dtype_info;

extern const ct_dtype_info ct__dtypes[CT_DTYPE_COUNT];

// The record of a dtype; for a value that is none one with 0 bits, named "?".
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
// Do derivatives pass through it? Not through 4 bits, which are storage.
static inline bool ct__has_slope(ct_dtype d) {
    return ct__is_complex(d) || (ct__is_float(d) && !ct__has_parts(d));
}
// Kernels have values of another dtype for it.
static inline bool ct__is_narrow(ct_dtype d) { return ct__dtype(d)->held != (uint8_t)d; }
// A float narrower than f32: computed in f32 and rounded after each op.
static inline bool ct__is_narrow_float(ct_dtype d) {
    return ct__is_float(d) && !ct__has_parts(d) && ct__is_narrow(d);
}

// The least and the greatest integer of a dtype (bool: 0 and 1), a u64 by its bits.
static inline int64_t ct__least(ct_dtype d) {
    return ct__is_signed(d) ? INT64_MIN >> (64 - ct__dtype(d)->bits) : 0;
}
static inline int64_t ct__greatest(ct_dtype d) {
    if (d == CT_BOOL) return 1;
    return (int64_t)(UINT64_MAX >> (64 - ct__dtype(d)->bits + ct__is_signed(d)));
}

// A float of 32 bits or fewer and its code, the bits as they lie in memory. Rounds to nearest even,
// whatever the thread's floating-point mode is. What is too large becomes infinity, else NaN, else
// the largest number, whichever the dtype has first; NaN, where it has none, zero with the other sign.
// (So ml_dtypes does.) Of a NaN the sign is kept, and in 16 bits as much else as fits.
uint32_t ct__encode_float(ct_dtype d, double value);
double ct__decode_float(ct_dtype d, uint32_t code);
// The largest number, and the smallest one that is not subnormal, of any float.
double ct__largest(ct_dtype d);
double ct__smallest_normal(ct_dtype d);

enum { CT_MOST_BYTES = 16 }; // of an element
// Bytes of n elements that lie one behind the other: of bits rounded up.
static inline size_t ct__dtype_bytes(ct_dtype d, int64_t n) {
    size_t bits = ct__dtype(d)->bits;
    return bits % 8 ? ((size_t)n * bits + 7) / 8 : (size_t)n * (bits / 8);
}

// The dtype in which operands of two dtypes meet: jax.numpy.promote_types. `bare`: a number without a
// dtype of its own, which JAX calls weak; it takes the other's, unless it is a float beside
// integers: then both become f32. CT_DEFAULT: they do not meet, one is to be cast.
ct_dtype ct__promote(ct_dtype a, bool a_bare, ct_dtype b, bool b_bare);
// The same of any number of operands, one after the other from CT_NOBODY_YET on.
typedef struct ct_meeting {
    uint64_t above; // what each of them may become
} ct_meeting;
#define CT_NOBODY_YET ((ct_meeting){UINT64_MAX})
ct_meeting ct__meet(ct_meeting others, ct_dtype dtype, bool bare);
ct_dtype ct__met(ct_meeting all);

// Sets of dtypes, for what an op accepts.
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
// What LAPACK has.
#define CT_LINALG (CT_MASK(CT_F32) | CT_MASK(CT_F64) | CT_COMPLEX)
#define CT_ANY (CT_NUMBERS | CT_MASK(CT_BOOL) | CT_PACKED | CT_COMPLEX)

#endif

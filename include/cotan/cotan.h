// Cotan: deep learning in C. This header is the library's whole face, in the order of its manual.
#ifndef COTAN_COTAN_H
#define COTAN_COTAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CT_API __attribute__((visibility("default")))
#define CT_MUST_USE __attribute__((warn_unused_result))

// ------------------------------------------------------------------------------------ source lines

// A line of the user's program. Macros pass it to the exported function behind them.
typedef struct ct_loc {
    const char *file; // NULL: unknown
    uint32_t line;
} ct_loc;
#ifdef __cplusplus
#define CT_HERE (ct_loc{__FILE__, __LINE__})
#define CT_NOWHERE (ct_loc{nullptr, 0})
#else
#define CT_HERE ((ct_loc){__FILE__, __LINE__})
#define CT_NOWHERE ((ct_loc){0, 0})
#endif

// ------------------------------------------------------------------------------------------ errors

typedef enum ct_code {
    CT_OK = 0,
#define CT_CODE(number, name, title, fix) CT_E_##name = number,
#include "cotan/errors.inc"
#undef CT_CODE
} ct_code;

CT_API const char *ct_code_title(ct_code code); // a few words, never NULL
CT_API const char *ct_code_fix(ct_code code);   // what mends it, never NULL

// ------------------------------------------------------------------------------------------ dtypes

// Element types. 0 means "the default" wherever an option takes a dtype.
typedef enum ct_dtype {
    CT_DEFAULT = 0,
    CT_BOOL, // one byte, 0 or 1
    CT_U8,
    CT_I32,
    CT_U32,
    CT_I64,
    CT_F16,  // storage: IEEE binary16
    CT_BF16, // storage: the upper half of an f32
    CT_F32,
    CT_F64,
    CT_DTYPE_COUNT
} ct_dtype;

CT_API const char *ct_dtype_name(ct_dtype dtype); // "f32"; "?" for a value that is no dtype
CT_API size_t ct_dtype_size(ct_dtype dtype); // bytes an element; 0 for a value that is no dtype

#ifdef __cplusplus
}
#endif

#endif

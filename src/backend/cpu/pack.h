// Packed kernels: a file of kernels that were compiled before, for several levels of processors, which is loaded
// without a compiler and without the dynamic linker (docs/design/packed-kernels.md).
//
// The file: a header (ct_pack_header), for each level a ct_pack_level, and the levels' sections, each of which is tables
// (ct_pack_section says how many of what) and the bytes of code and constants. All is little-endian, as x86-64 has it.
#ifndef COTAN_BACKEND_CPU_PACK_H
#define COTAN_BACKEND_CPU_PACK_H

#include "backend/cpu/build.h"
#include "base/text.h"
#include "kir/target.h"

enum { CT_PACK_LEVELS = 3, CT_PACK_MOST_CORES = 64, CT_PACK_PAGE = 4096 };

// What a processor must have, and what kernels are written and compiled with for it. Later ones are better.
typedef struct ct_level {
    const char *name;
    const char *options[4]; // of the compiler; NULL behind the last
    ct_target target;       // but for the cores
} ct_level;
extern const ct_level ct__levels[CT_PACK_LEVELS];

// Products of pairs of bf16 (ct_target.pairs) are in no kernel of a level, or its kernels are of processors without
// them, or with them.
typedef enum { CT_PAIRS_ANY, CT_PAIRS_WITHOUT, CT_PAIRS_WITH } ct_pack_pairs;

typedef struct ct_pack_header {
    char magic[8];
    uint64_t bytes; // of the file
    char version[32], numerics[64];
    ct_hash prelude;
    uint64_t n_levels;
    ct_hash hash; // of the ct_pack_level that follow, and of all above
} ct_pack_header;

typedef struct ct_pack_level {
    uint32_t level;        // of ct__levels
    uint32_t pairs;        // ct_pack_pairs
    uint64_t cores;        // bit i: kernels for machines of 2^i cores are there
    uint64_t begin, bytes; // of its section in the file
    ct_hash hash;          // of the section
} ct_pack_level;

typedef struct ct_pack_section {
    uint64_t span; // bytes of memory
    uint64_t n_kernels, n_parts, n_bases, n_imports;
} ct_pack_section;
typedef struct ct_pack_kernel { // in the order of their keys
    ct_hash key;                // of its text
    uint64_t at;                // in the span
} ct_pack_kernel;
typedef struct ct_pack_part { // of the span, by address; two share no page
    uint64_t at, bytes;
    uint64_t from; // in the section
    uint64_t runs; // 1: code; 0: constants, and addresses that are put in when it is loaded
} ct_pack_part;
typedef struct ct_pack_base { // an address within the span
    uint64_t at, value;
} ct_pack_base;
typedef struct ct_pack_import { // the address of a function of the C library's
    uint64_t at;
    char name[24];
} ct_pack_import;

// The section's tables, checked: no number in them leads out of the section or the span.
typedef struct ct_pack_tables {
    const ct_pack_section *section;
    const ct_pack_kernel *kernels;
    const ct_pack_part *parts;
    const ct_pack_base *bases;
    const ct_pack_import *imports;
} ct_pack_tables;

extern const char ct__pack_magic[8];
void ct__pack_identity(ct_pack_header *h); // magic, version, numerics and prelude of this program
ct_hash
ct__pack_header_hash(const ct_pack_header *h); // what its hash is to be, with the levels behind it

// Are the n bytes a pack of this program's? `path` begins the error.
bool ct__pack_header(const void *bytes, size_t n, const char *path, const ct_pack_level **levels,
                     size_t *n_levels, ct_err *err);
bool ct__pack_tables(const void *section, size_t n, const char *path, ct_pack_tables *tables,
                     ct_err *err);
ct_hash ct__pack_key(const char *text);
// The address of a function that kernels call; NULL: they may call no such.
void *ct__pack_function(const char *name);

// Loads the pack for the process (ct_kernels_load). Several are asked one after the other; all must be of one level and
// for equal numbers of cores. False: none of it is used.
bool ct__pack_load(const char *path, ct_err *err);
// Those that COTAN_KERNELS names, colons between, once.
bool ct__pack_environment(ct_err *err);
// What kernels are to be written for so that packed ones are found; NULL: no pack is there.
const ct_target *ct__pack_target(void);
const char *ct__pack_level(void); // its name; NULL
// The packed kernel of a text; NULL: there is none.
ct__kernel_fn ct__pack_find(const char *text);
void ct__pack_end(void); // unloads all

// ---------------------------------------------------------------------------------------- making one

// Kernels of one level, to be compiled.
typedef struct ct_pack_texts {
    struct ct_pack_text {
        char *name, *text;
        ct_hash key;
    } * v; // (n)
    size_t n, cap;
} ct_pack_texts;
bool ct__pack_note(ct_pack_texts *texts, const char *name, const char *text, ct_err *err);
void ct__pack_texts_free(ct_pack_texts *texts);

typedef struct ct_pack_job {
    ct_pack_texts texts[CT_PACK_LEVELS];
    bool pairs; // the last level has others than the one before, since there are products of pairs
    uint64_t cores;                                          // as ct_pack_level.cores
    void (*progress)(int64_t done, int64_t all, void *user); // kernels; NULL: nobody hears
    void *user;
    int threads;
} ct_pack_job;
// Compiles and writes them; the file stands there whole or not at all. *kernels, *bytes: that were written.
bool ct__pack_write(const ct_pack_job *job, const char *path, size_t *kernels, size_t *bytes,
                    ct_err *err);

// The code of a shared object, as one piece behind what the span has so far (pack_elf.c).
typedef struct ct_pack_span {
    ct_pack_section section; // so far
    ct_text kernels, parts, bases, imports, code;
} ct_pack_span;
bool ct__pack_object(ct_pack_span *span, const char *bytes, size_t n,
                     const struct ct_pack_text *kernels, size_t n_kernels, ct_err *err);

#endif

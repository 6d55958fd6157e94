// Packed kernels: a file of kernels compiled in advance for several levels of processors. It is
// loaded without a compiler and without the dynamic linker (docs/design/packed-kernels.md).
//
// The file: a header (ct_pack_header), a ct_pack_level for each level, and the levels' sections. A
// section is its tables (ct_pack_section has their lengths) and the bytes of code and constants.
// All is little-endian, as on x86-64.
#ifndef COTAN_BACKEND_CPU_PACK_H
#define COTAN_BACKEND_CPU_PACK_H

#include "backend/cpu/build.h"
#include "base/text.h"
#include "kir/target.h"

enum { CT_PACK_LEVELS = 3, CT_PACK_MOST_CORES = 64, CT_PACK_PAGE = 4096 };

// The features that a processor must have, and the target and options for its kernels. Later levels
// are better.
typedef struct ct_level {
    const char *name;
    const char *options[4]; // of the compiler; ends with NULL
    ct_target target;       // without the number of cores
} ct_level;
extern const ct_level ct__levels[CT_PACK_LEVELS];

// Whether a level has products of pairs of bf16 (ct_target.pairs): none of its kernels uses such
// products; or they do, compiled for processors without that instruction, or with it.
typedef enum { CT_PAIRS_ANY, CT_PAIRS_WITHOUT, CT_PAIRS_WITH } ct_pack_pairs;

typedef struct ct_pack_header {
    char magic[8];
    uint64_t bytes; // of the file
    char version[32], numerics[64];
    ct_hash prelude;
    uint64_t n_levels;
    ct_hash hash; // of the ct_pack_level entries that follow and all fields above
} ct_pack_header;

typedef struct ct_pack_level {
    uint32_t level;        // index in ct__levels
    uint32_t pairs;        // ct_pack_pairs
    uint64_t cores;        // bit i: has kernels for machines of 2^i cores
    uint64_t begin, bytes; // of its section in the file
    ct_hash hash;          // of the section
} ct_pack_level;

typedef struct ct_pack_section {
    uint64_t span; // bytes of memory
    uint64_t n_kernels, n_segments, n_relocations, n_imports;
} ct_pack_section;
typedef struct ct_pack_kernel { // ordered by key
    ct_hash key;                // of its source text
    uint64_t at;                // offset in the span
} ct_pack_kernel;
typedef struct ct_pack_segment { // of the span, by address; no two share a page
    uint64_t at, bytes;
    uint64_t from;       // offset in the section
    uint64_t executable; // 1: code; 0: constants, and addresses that are set when it is loaded
} ct_pack_segment;
typedef struct ct_pack_relocation { // an address within the span
    uint64_t at, value;
} ct_pack_relocation;
typedef struct ct_pack_import { // the address of a C library function
    uint64_t at;
    char name[24];
} ct_pack_import;

// The section's tables, checked: no offset in them leads out of the section or the span.
typedef struct ct_pack_tables {
    const ct_pack_section *section;
    const ct_pack_kernel *kernels;
    const ct_pack_segment *segments;
    const ct_pack_relocation *relocations;
    const ct_pack_import *imports;
} ct_pack_tables;

extern const char ct__pack_magic[8];
void ct__pack_identity(ct_pack_header *h); // magic, version, numerics and prelude of this program
ct_hash ct__pack_header_hash(const ct_pack_header *h); // of the header and the levels after it

// Checks that the n bytes are a pack of this program. `path` begins the error message.
bool ct__pack_check_header(const void *bytes, size_t n, const char *path,
                           const ct_pack_level **levels, size_t *n_levels, ct_err *err);
bool ct__pack_check_tables(const void *section, size_t n, const char *path, ct_pack_tables *tables,
                           ct_err *err);
ct_hash ct__pack_key(const char *text);
// Returns the address of a library function that kernels may call; NULL for other names.
void *ct__pack_import_address(const char *name);

// Loads the pack for the process (ct_kernels_load). Several packs are searched one after
// the other; all must be of one level and for the same numbers of cores. After a failure nothing of
// the file is used.
bool ct__pack_load(const char *path, ct_err *err);
// Loads the files in COTAN_KERNELS, separated by colons, once.
bool ct__pack_environment(ct_err *err);
// Returns the target that kernels must be rendered for to match packed ones; NULL if no pack is
// loaded.
const ct_target *ct__pack_target(void);
const char *ct__pack_level(void); // its name, or NULL
// Returns the packed kernel of a source text; NULL if there is none.
ct__kernel_fn ct__pack_find(const char *text);
void ct__pack_end(void); // unloads all packs

// ---------------------------------------------------------------------------------------- making one

// The kernels of one level, to be compiled.
typedef struct ct_pack_texts {
    struct ct_pack_text {
        char *name, *text;
        ct_hash key;
    } * v; // (n)
    size_t n, cap;
} ct_pack_texts;
bool ct__pack_add_text(ct_pack_texts *texts, const char *name, const char *text, ct_err *err);
void ct__pack_texts_free(ct_pack_texts *texts);

typedef struct ct_pack_job {
    ct_pack_texts texts[CT_PACK_LEVELS];
    bool pairs;     // the last level has its own kernels, with products of pairs
    uint64_t cores; // as ct_pack_level.cores
    void (*progress)(int64_t done, int64_t all, void *user); // counts kernels; may be NULL
    void *user;
    int threads;
} ct_pack_job;
// Compiles the kernels and writes the file, completely or not at all. Sets *kernels and *bytes to
// what was written.
bool ct__pack_write(const ct_pack_job *job, const char *path, size_t *kernels, size_t *bytes,
                    ct_err *err);

// Appends the code of a shared object to the span (pack_elf.c).
typedef struct ct_pack_span {
    ct_pack_section section; // grows with each object
    ct_text kernels, segments, relocations, imports, code;
} ct_pack_span;
bool ct__pack_add_object(ct_pack_span *span, const char *bytes, size_t n,
                         const struct ct_pack_text *kernels, size_t n_kernels, ct_err *err);

#endif

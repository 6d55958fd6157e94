// Files of cases, which Python tests write and read: little-endian words of 8 bytes, data padded to
// whole words.
#ifndef COTAN_TESTS_SUPPORT_CASE_FILE_H
#define COTAN_TESTS_SUPPORT_CASE_FILE_H

#include <stdio.h>

#include "ops/opcode.h"

typedef struct {
    const int64_t *at, *end;
} reader;

// A file that ends early, or asks for what cannot be, ends the program.
int64_t read_word(reader *r);
double read_number(reader *r);
const void *read_bytes(reader *r, size_t n);
ct_ints read_list(reader *r);
void read_attrs(reader *r, const ct_opdef *op, char *attrs);
// A leaf: as it is, behind a permute (its bytes lie reversed), or expanded.
ct_tensor read_operand(reader *r);

void write_word(FILE *out, int64_t word);
void write_bytes(FILE *out, const void *bytes, size_t n);
void write_tensor(FILE *out, ct_tensor t);
// What a case gives: the n tensors, or the context's error, which is cleared.
void write_results(FILE *out, const ct_tensor *t, size_t n, bool ok);

// Calls `next` for each case of a file, on a device; the program's exit status.
int run_cases(const char *device, const char *from, const char *to,
              void (*next)(reader *r, FILE *out));

#endif

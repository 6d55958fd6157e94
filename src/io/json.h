// Writes JSON so that equal values give equal bytes in any locale: metrics, config.json and the
// headers of safetensors files.
#ifndef COTAN_IO_JSON_H
#define COTAN_IO_JSON_H

#include "base/text.h"

struct json_t;
struct json_error_t;

// Parses JSON by the JSON library. A zero byte is an error; the library alone would take it for the
// end of the text. Returns NULL with `fault` set on an error.
struct json_t *ct__json_read(const char *text, size_t n, size_t flags, struct json_error_t *fault);
// Does the same for files that Python wrote, whose integers are unbounded (model_max_length of
// tokenizer_config.json is 10^30): if there is such an integer, it becomes a real, and other whole
// reals up to 2^53 become integers.
struct json_t *ct__json_read_bigint(const char *text, size_t n, size_t flags,
                                    struct json_error_t *fault);

void ct__json_string(ct_text *text, const char *s,
                     size_t n); // quoted, with as few escapes as possible
// Writes the shortest digits that read back as the same double. JSON has no numbers for nan and the
// infinities: they become the strings "nan", "inf" and "-inf".
void ct__json_real(ct_text *text, double value);
// Writes a value of the JSON library, indented by two spaces a level, lists of scalars on one line,
// keys in the order in which they were set.
void ct__json_tree(ct_text *text, const struct json_t *value);
// Writes equal values as equal text: keys in byte order, 1.0 as 1.
void ct__json_canonical(ct_text *text, const struct json_t *value);

#endif

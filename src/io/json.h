// JSON written so that equal values give equal bytes, whatever the locale: metrics, config.json and
// the headers of safetensors files.
#ifndef COTAN_IO_JSON_H
#define COTAN_IO_JSON_H

#include "base/text.h"

struct json_t;
struct json_error_t;

// A JSON text by the JSON library, which itself takes a zero byte for the end of the text: here it
// is a fault. NULL: see fault.
struct json_t *ct__json_read(const char *text, size_t n, size_t flags, struct json_error_t *fault);
// The same of files that Python wrote, whose whole numbers have no end (model_max_length of tokenizer_config.json is
// 10^30): in a text with such a one, these are reals, and whole reals up to 2^53 are whole numbers.
struct json_t *ct__json_read_long(const char *text, size_t n, size_t flags,
                                  struct json_error_t *fault);

void ct__json_string(ct_text *text, const char *s, size_t n); // in quotes, least escaped
// The shortest digits that read back as the same double. JSON has no words for the others: they
// become the strings "nan", "inf" and "-inf".
void ct__json_real(ct_text *text, double value);
// A tree of the JSON library, two spaces a level, lists of plain values on one line, keys in the
// order in which they were set.
void ct__json_tree(ct_text *text, const struct json_t *value);
// One text for equal values, whoever wrote them: keys in the order of their bytes, 1.0 as 1.
void ct__json_canonical(ct_text *text, const struct json_t *value);

#endif

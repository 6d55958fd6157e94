// config.json: typed values with sentences for what is missing, of another type or out of range.
#ifndef COTAN_IO_CONFIG_H
#define COTAN_IO_CONFIG_H

#include "base/error.h"

typedef struct ct_config {
    char *path;
    struct json_t *root; // an object
    bool failed;         // a value could not be set; ct__config_write reports it
} ct_config;

bool ct__config_read(const char *path, ct_config *config, ct_err *err);
void ct__config_close(ct_config *config); // also after a failure

bool ct__config_has(const ct_config *config, const char *key);
bool ct__config_null(const ct_config *config, const char *key); // it is there, as null
// Each of these fails when the key is missing or its value is of another type or out of range.
bool ct__config_int(const ct_config *config, const char *key, int64_t low, int64_t high,
                    int64_t *value, ct_err *err);
bool ct__config_real(const ct_config *config, const char *key, double low, double high,
                     double *value, ct_err *err); // integers are reals too
bool ct__config_bool(const ct_config *config, const char *key, bool *value, ct_err *err);
bool ct__config_string(const ct_config *config, const char *key, const char **value, size_t *n,
                       ct_err *err); // valid until the config is closed
// One of the NULL-terminated names, as its index.
bool ct__config_choice(const ct_config *config, const char *key, const char *const *names,
                       int *value, ct_err *err);

// An object inside, read as a configuration of its own; and the i-th text of a list.
bool ct__config_child(const ct_config *config, const char *key, ct_config *child, ct_err *err);
bool ct__config_list(const ct_config *config, const char *key, size_t *n, ct_err *err);
bool ct__config_list_text(const ct_config *config, const char *key, size_t i, const char **text,
                          ct_err *err);

bool ct__config_new(const char *path, ct_config *config, ct_err *err);
void ct__config_set_int(ct_config *config, const char *key, int64_t value);
void ct__config_set_real(ct_config *config, const char *key, double value); // finite
void ct__config_set_bool(ct_config *config, const char *key, bool value);
void ct__config_set_string(ct_config *config, const char *key, const char *value, size_t n);
void ct__config_set_child(ct_config *config, const char *key, const ct_config *child);
void ct__config_set_list(ct_config *config, const char *key, const char *const *texts, size_t n);
// A checksum of all other values, whatever their order and spelling, as key "crc32c".
void ct__config_seal(ct_config *config);
// Have they still that checksum? A file without any passes unless it is `required`.
bool ct__config_verify(const ct_config *config, bool required, ct_err *err);
// Replaces the file at once; keys in the order in which they were first set.
bool ct__config_write(const ct_config *config, ct_err *err);

#endif

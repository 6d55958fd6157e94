// SHA-256 (FIPS 180-4), by which the Hub names large files.
#ifndef COTAN_CLI_SHA256_H
#define COTAN_CLI_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct sha256 {
    uint32_t h[8];
    uint8_t block[64];
    uint64_t n; // bytes so far
} sha256;
void sha256_init(sha256 *s);
void sha256_update(sha256 *s, const void *bytes, size_t n);
void sha256_finish_hex(sha256 *s, char hex[65]); // finishes the hash

#endif

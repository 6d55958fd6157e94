// CRC-32C (Castagnoli; RFC 3720): the checksum of tensors in safetensors files. It detects every
// change within 32 consecutive bits.
#ifndef COTAN_IO_CRC32C_H
#define COTAN_IO_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t ct__crc32c(const void *bytes, size_t n);
// Continues a checksum: `before` is that of the preceding bytes.
uint32_t ct__crc32c_extend(uint32_t before, const void *bytes, size_t n);

#endif

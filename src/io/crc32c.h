// CRC-32C (Castagnoli; RFC 3720): the checksum of tensors in safetensors files. It finds every
// change within 32 bits in a row.
#ifndef COTAN_IO_CRC32C_H
#define COTAN_IO_CRC32C_H

#include <stddef.h>
#include <stdint.h>

uint32_t ct__crc32c(const void *bytes, size_t n);
// Of bytes whose first ones have the checksum `before`, and the n that follow them.
uint32_t ct__crc32c_more(uint32_t before, const void *bytes, size_t n);

#endif

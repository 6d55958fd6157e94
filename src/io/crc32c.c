// Eight bytes a step, with eight tables: table k has the effect of a byte k bytes later.
#include "io/crc32c.h"

#include <pthread.h>

static uint32_t table[8][256];

static void crc32c_fill_tables(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++) c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0);
        table[0][i] = c;
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++)
            table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 255];
}

uint32_t ct__crc32c_extend(uint32_t before, const void *bytes, size_t n) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, crc32c_fill_tables);
    const unsigned char *p = bytes;
    uint32_t c = ~before;
    for (; n >= 8; n -= 8, p += 8) {
        c ^= (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
        c = table[7][c & 255] ^ table[6][c >> 8 & 255] ^ table[5][c >> 16 & 255] ^
            table[4][c >> 24] ^ table[3][p[4]] ^ table[2][p[5]] ^ table[1][p[6]] ^ table[0][p[7]];
    }
    for (; n; n--) c = c >> 8 ^ table[0][(c ^ *p++) & 255];
    return ~c;
}

uint32_t ct__crc32c(const void *bytes, size_t n) { return ct__crc32c_extend(0, bytes, n); }

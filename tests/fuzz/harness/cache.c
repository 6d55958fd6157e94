// The trailer that closes a compiled object in the cache. As it is, the input is refused unless its
// hash fits, and as a file it is never given to the dynamic linker; sealed, it is accepted, and
// refused again with a bit flipped or its end missing.
#include "backend/cpu/cache.h"
#include "fuzz/harness/harness.h"

enum { TRAILER = 32 };

static uint8_t *seal(const uint8_t *bytes, size_t n) {
    uint8_t *file = malloc(n + TRAILER);
    EXPECT(file);
    uint64_t length = n;
    ct_hash hash = ct__hash_bytes(bytes, n, (ct_hash){0, 0});
    if (n) memcpy(file, bytes, n);
    memcpy(file + n, "cotanso1", 8);
    memcpy(file + n + 8, &length, 8);
    memcpy(file + n + 16, &hash, 16);
    return file;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    if (ct__cache_is_intact(bytes, n)) {
        EXPECT(n > TRAILER && memcmp(bytes + n - TRAILER, "cotanso1", 8) == 0);
        n -= TRAILER;
    } else {
        char why[CT_CACHE_WHY];
        ct_cache none;
        ct__cache_disable(&none);
        EXPECT(!ct__cache_load_file(&none, harness_file(bytes, n), why));
        EXPECT(strcmp(why, "the file is damaged") == 0);
    }
    if (n < 3) return 0;
    uint8_t *file = seal(bytes, n);
    size_t whole = n + TRAILER, at = (bytes[0] | (size_t)bytes[1] << 8) % whole;
    EXPECT(ct__cache_is_intact(file, whole));
    EXPECT(!ct__cache_is_intact(file, at));
    file[at] ^= (uint8_t)(1 << bytes[2] % 8);
    EXPECT(!ct__cache_is_intact(file, whole));
    free(file);
    return 0;
}

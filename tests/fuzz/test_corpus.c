// Each file of tests/fuzz/corpus goes through its harness: what `make fuzz` once found, or found
// interesting, stays harmless.
#define _GNU_SOURCE // memfd_create, for the harnesses
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>

#define HARNESS(name) int fuzz_##name(const uint8_t *bytes, size_t n)
HARNESS(safetensors);
HARNESS(npy);
HARNESS(npz);
HARNESS(json);
HARNESS(cache);
HARNESS(gguf);
HARNESS(gguf_text);
HARNESS(pickle);
HARNESS(torch);
HARNESS(tokenizer_json);
HARNESS(sentencepiece);
HARNESS(encode);
HARNESS(jinja);
HARNESS(chat_parser);
HARNESS(kernels);

#define LLVMFuzzerTestOneInput fuzz_safetensors
#include "fuzz/harness/safetensors.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_npy
#include "fuzz/harness/npy.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_npz
#include "fuzz/harness/npz.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_json
#include "fuzz/harness/json.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_cache
#include "fuzz/harness/cache.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_gguf
#include "fuzz/harness/gguf.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_gguf_text
#include "fuzz/harness/gguf_text.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_pickle
#include "fuzz/harness/pickle.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_torch
#include "fuzz/harness/torch.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_tokenizer_json
#include "fuzz/harness/tokenizer_json.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_sentencepiece
#include "fuzz/harness/sentencepiece.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_encode
#include "fuzz/harness/encode.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_jinja
#include "fuzz/harness/jinja.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_chat_parser
#include "fuzz/harness/chat_parser.c"
#undef LLVMFuzzerTestOneInput
#define LLVMFuzzerTestOneInput fuzz_kernels
#include "fuzz/harness/kernels.c"
#undef LLVMFuzzerTestOneInput

static void replay(const char *name, int (*harness)(const uint8_t *, size_t)) {
    char folder[256], path[1024];
    size_t files = 0;
    snprintf(folder, sizeof folder, "tests/fuzz/corpus/%s", name);
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        static uint8_t room[1 << 16];
        size_t n = fread(room, 1, sizeof room, f);
        fclose(f);
        uint8_t *exact = malloc(n ? n : 1); // a sanitizer sees reads beyond
        assert_non_null(exact);
        memcpy(exact, room, n);
        assert_int_equal(harness(exact, n), 0);
        free(exact);
        files++;
    }
    closedir(dir);
    assert_true(files > 0);
}

static void tokenizer_json(void **state) {
    (void)state, replay("tokenizer_json", fuzz_tokenizer_json);
}
static void sentencepiece(void **state) {
    (void)state, replay("sentencepiece", fuzz_sentencepiece);
}
static void encode(void **state) { (void)state, replay("encode", fuzz_encode); }
static void safetensors(void **state) { (void)state, replay("safetensors", fuzz_safetensors); }
static void npy(void **state) { (void)state, replay("npy", fuzz_npy); }
static void npz(void **state) { (void)state, replay("npz", fuzz_npz); }
static void json(void **state) { (void)state, replay("json", fuzz_json); }
static void cache(void **state) { (void)state, replay("cache", fuzz_cache); }
static void gguf(void **state) { (void)state, replay("gguf", fuzz_gguf); }
static void gguf_text(void **state) { (void)state, replay("gguf_text", fuzz_gguf_text); }
static void pickle(void **state) { (void)state, replay("pickle", fuzz_pickle); }
static void torch(void **state) { (void)state, replay("torch", fuzz_torch); }
static void jinja(void **state) { (void)state, replay("jinja", fuzz_jinja); }
static void chat_parser(void **state) { (void)state, replay("chat_parser", fuzz_chat_parser); }
static void kernels(void **state) { (void)state, replay("kernels", fuzz_kernels); }

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(safetensors),   cmocka_unit_test(npy),
        cmocka_unit_test(npz),           cmocka_unit_test(json),
        cmocka_unit_test(cache),         cmocka_unit_test(gguf),
        cmocka_unit_test(gguf_text),     cmocka_unit_test(pickle),
        cmocka_unit_test(torch),         cmocka_unit_test(tokenizer_json),
        cmocka_unit_test(sentencepiece), cmocka_unit_test(encode),
        cmocka_unit_test(jinja),         cmocka_unit_test(chat_parser),
        cmocka_unit_test(kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

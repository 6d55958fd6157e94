// Names in the C that a plan is written as: what cannot be one, and one for any text.
#define _GNU_SOURCE // dladdr
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "compile/ahead/ahead.h"

enum { LONGEST = 60 };

// Words of C and C++, macros of compilers, and what the files name themselves.
static const char *const taken[] = {"alignas",
                                    "alignof",
                                    "and",
                                    "and_eq",
                                    "arena",
                                    "asm",
                                    "auto",
                                    "bitand",
                                    "bitor",
                                    "bool",
                                    "break",
                                    "case",
                                    "catch",
                                    "char",
                                    "char16_t",
                                    "char32_t",
                                    "char8_t",
                                    "class",
                                    "co_await",
                                    "co_return",
                                    "co_yield",
                                    "compl",
                                    "concept",
                                    "const",
                                    "const_cast",
                                    "consteval",
                                    "constexpr",
                                    "constinit",
                                    "continue",
                                    "decltype",
                                    "default",
                                    "delete",
                                    "do",
                                    "double",
                                    "dynamic_cast",
                                    "else",
                                    "enum",
                                    "errno",
                                    "explicit",
                                    "export",
                                    "extern",
                                    "false",
                                    "float",
                                    "for",
                                    "friend",
                                    "goto",
                                    "if",
                                    "inline",
                                    "int",
                                    "linux",
                                    "long",
                                    "main",
                                    "mutable",
                                    "namespace",
                                    "new",
                                    "noexcept",
                                    "not",
                                    "not_eq",
                                    "nullptr",
                                    "operator",
                                    "or",
                                    "or_eq",
                                    "private",
                                    "protected",
                                    "public",
                                    "register",
                                    "reinterpret_cast",
                                    "requires",
                                    "restrict",
                                    "return",
                                    "scalars",
                                    "short",
                                    "signed",
                                    "sizeof",
                                    "static",
                                    "static_assert",
                                    "static_cast",
                                    "struct",
                                    "switch",
                                    "template",
                                    "this",
                                    "thread_local",
                                    "throw",
                                    "true",
                                    "try",
                                    "typedef",
                                    "typeid",
                                    "typename",
                                    "typeof",
                                    "union",
                                    "unix",
                                    "unsigned",
                                    "using",
                                    "virtual",
                                    "void",
                                    "volatile",
                                    "wchar_t",
                                    "while",
                                    "xor",
                                    "xor_eq",
                                    "NULL",
                                    "EOF",
                                    "offsetof",
                                    "strdupa",
                                    "strndupa"};

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool is_taken(const char *name) {
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (strcmp(taken[i], name) == 0) return true;
    return false;
}

// Types and macros of the system's headers (size_t, INT32_MAX, UINT64_C, FE_DFL_ENV), and the
// file's own.
static bool is_of_headers(const char *name) {
    static const char *const ends[] = {"_t",    "_MAX",         "_MIN",    "_WIDTH",
                                       "_PLAN", "_ARENA_BYTES", "_COTAN_H"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ct__ends_with(name, ends[i])) return true;
    const char *unsign = name[0] == 'U' ? name + 1 : name;
    if (strncmp(unsign, "INT", 3) == 0 && ct__ends_with(name, "_C")) return true;
    return strncmp(name, "FE_", 3) == 0 || strncmp(name, "FP_", 3) == 0;
}

// The functions of fenv.h, string.h, stdlib.h and stdio.h, and of math.h, where each is there for
// float and long double too.
static const char others[] =
    " feclearexcept fegetexceptflag feraiseexcept fesetexceptflag fetestexcept fegetround "
    "fesetround fegetenv feholdexcept fesetenv feupdateenv "
    "memchr memcmp memcpy memmove memset strcat strchr strcmp strcoll strcpy strcspn strdup "
    "strerror strlen strncat strncmp strncpy strndup strpbrk strrchr strspn strstr strtok strxfrm "
    "abort abs aligned_alloc at_quick_exit atexit atof atoi atol atoll bsearch calloc div exit "
    "free getenv labs ldiv llabs lldiv malloc mblen mbstowcs mbtowc qsort quick_exit rand realloc "
    "srand strtod strtof strtol strtold strtoll strtoul strtoull system wcstombs wctomb "
    "clearerr fclose feof ferror fflush fgetc fgetpos fgets fopen fprintf fputc fputs fread "
    "freopen fscanf fseek fsetpos ftell fwrite getc getchar perror printf putc putchar puts "
    "remove rename rewind scanf setbuf setvbuf snprintf sprintf sscanf tmpfile tmpnam ungetc "
    "vfprintf vfscanf vprintf vscanf vsnprintf vsprintf vsscanf ";
static const char math[] =
    " acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 "
    "fabs fdim floor fma fmax fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 "
    "log1p log2 logb lrint lround modf nan nearbyint nextafter nexttoward pow remainder remquo "
    "rint round scalbln scalbn sin sinh sqrt tan tanh tgamma trunc ";

// A word of at most 60 letters, cut to n of them, among words?
static bool among(const char *words, const char *name, size_t n) {
    char word[LONGEST + 3];
    snprintf(word, sizeof word, " %.*s ", (int)n, name);
    return strstr(words, word) != NULL;
}

bool ct__ahead_declared(const char *name) {
    size_t n = strlen(name);
    if (among(others, name, n) || among(math, name, n)) return true;
    return n > 1 && (name[n - 1] == 'f' || name[n - 1] == 'l') && among(math, name, n - 1);
}

// A function of libc or libm? Headers declare some, compilers know more, and kernels may call one
// that then was the user's. In a program that is linked statically no symbol is found.
static bool is_library_function(const char *name) {
    static const char *const parts[] = {"strlen", "fmaf"}; // one of libc, one of libm
    void *symbol = dlsym(RTLD_DEFAULT, name);
    Dl_info found, part;
    if (!symbol || !dladdr(symbol, &found)) return false;
    for (int i = 0; i < 2; i++) {
        void *of_part = dlsym(RTLD_DEFAULT, parts[i]);
        if (of_part && dladdr(of_part, &part) && part.dli_fbase == found.dli_fbase) return true;
    }
    return false;
}

bool ct__ahead_function_name(const char *name) {
    return ct__ahead_name(name) && !ct__ahead_declared(name) && !is_library_function(name);
}

bool ct__ahead_name(const char *name) {
    size_t n = 0;
    if (!is_letter(name[0])) return false; // those with _ in front are the compiler's
    for (; name[n]; n++)
        if ((!is_letter(name[n]) && !is_digit(name[n]) && name[n] != '_') || n >= LONGEST)
            return false;
    return !is_taken(name) && !is_of_headers(name);
}

bool ct__ahead_bad_name(ct_err *err, ct_code code, ct_loc here, const char *name) {
    ct__err(err, code, here, "compile", "\"%.100s\" cannot be a name in C", name);
    ct__err_hint(err, "up to 60 letters, digits and _, a letter first; no word of the "
                      "language or its library");
    return false;
}

size_t ct__ahead_spell(const char *was, char name[CT_SPELLED]) {
    size_t n = 0;
    if (!is_letter(was[0])) name[n++] = 'v';
    for (; *was && n < CT_SPELLED - 2; was++)
        name[n++] = is_letter(*was) || is_digit(*was) ? *was : '_';
    name[n] = '\0';
    if (is_taken(name) || is_of_headers(name)) name[n++] = '_', name[n] = '\0';
    return n;
}

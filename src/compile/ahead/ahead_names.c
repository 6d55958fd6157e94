// Names in generated C code: which are not allowed, and how to make one from any text.
#define _GNU_SOURCE // dladdr
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "compile/ahead/ahead.h"

enum { AHEAD_MAX_NAME = 60 };

// Keywords of C and C++, macros of compilers, and names in the generated files.
static const char ahead_reserved_words[] =
    " alignas alignof and and_eq arena asm auto bitand bitor bool break case catch char "
    "char16_t char32_t char8_t class co_await co_return co_yield compl concept const "
    "const_cast consteval constexpr constinit continue decltype default delete do double "
    "dynamic_cast else enum errno explicit export extern false float for friend goto if "
    "inline int linux long main mutable namespace new noexcept not not_eq nullptr operator or "
    "or_eq private protected public register reinterpret_cast requires restrict return "
    "scalars short signed sizeof static static_assert static_cast struct switch template this "
    "thread_local throw true try typedef typeid typename typeof union unix unsigned using "
    "virtual void volatile wchar_t while xor xor_eq NULL EOF offsetof strdupa strndupa ";

static bool ahead_is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool ahead_is_digit(char c) { return c >= '0' && c <= '9'; }

// True for types and macros of the system's headers (size_t, INT32_MAX, UINT64_C, FE_DFL_ENV), and for
// those of the generated file.
static bool ahead_is_header_name(const char *name) {
    static const char *const ends[] = {"_t",    "_MAX",         "_MIN",    "_WIDTH",
                                       "_PLAN", "_ARENA_BYTES", "_COTAN_H"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ct__ends_with(name, ends[i])) return true;
    const char *signed_name = name[0] == 'U' ? name + 1 : name;
    if (strncmp(signed_name, "INT", 3) == 0 && ct__ends_with(name, "_C")) return true;
    return strncmp(name, "FE_", 3) == 0 || strncmp(name, "FP_", 3) == 0;
}

// The functions of fenv.h, string.h, stdlib.h and stdio.h; and those of math.h, each of which also exists
// for float and long double.
static const char ahead_libc_functions[] =
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
static const char ahead_math_functions[] =
    " acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 "
    "fabs fdim floor fma fmax fmin fmod frexp hypot ilogb ldexp lgamma llrint llround log log10 "
    "log1p log2 logb lrint lround modf nan nearbyint nextafter nexttoward pow remainder remquo "
    "rint round scalbln scalbn sin sinh sqrt tan tanh tgamma trunc ";

// True if the first n (at most 60) letters of `name` are one of the words.
static bool ahead_is_in_list(const char *words, const char *name, size_t n) {
    char word[AHEAD_MAX_NAME + 3];
    snprintf(word, sizeof word, " %.*s ", (int)n, name);
    return strstr(words, word) != NULL;
}

bool ct__ahead_is_declared(const char *name) {
    size_t n = strlen(name);
    if (ahead_is_in_list(ahead_libc_functions, name, n) ||
        ahead_is_in_list(ahead_math_functions, name, n))
        return true;
    return n > 1 && (name[n - 1] == 'f' || name[n - 1] == 'l') &&
           ahead_is_in_list(ahead_math_functions, name, n - 1);
}

// True for functions of libc and libm, beyond those that headers declare: compilers know more of them, and
// a kernel could call the user's function instead. A statically linked program finds no symbols.
static bool ahead_is_library_function(const char *name) {
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

bool ct__ahead_is_valid_name(const char *name) {
    size_t n = 0;
    // names that begin with _ are reserved for the compiler
    if (!ahead_is_letter(name[0])) return false;
    for (; name[n]; n++)
        if ((!ahead_is_letter(name[n]) && !ahead_is_digit(name[n]) && name[n] != '_') ||
            n >= AHEAD_MAX_NAME)
            return false;
    return !ahead_is_in_list(ahead_reserved_words, name, strlen(name)) &&
           !ahead_is_header_name(name);
}

bool ct__ahead_report_name(ct_err *err, ct_code code, ct_loc here, const char *name) {
    ct__err(err, code, here, "compile", "\"%.100s\" cannot be a name in C", name);
    return ct__err_hint(err, "up to 60 letters, digits and _, a letter first; no word of the "
                             "language or its library");
}

bool ct__check_function_name(const char *path, ct_code code, ct_loc here, ct_err *err) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    return (ct__ahead_is_valid_name(name) && !ct__ahead_is_declared(name) &&
            !ahead_is_library_function(name)) ||
           ct__ahead_report_name(err, code, here, name);
}

size_t ct__ahead_make_identifier(const char *user_name, char name[CT_AHEAD_IDENTIFIER]) {
    size_t n = 0;
    if (!ahead_is_letter(user_name[0])) name[n++] = 'v';
    for (; *user_name && n < CT_AHEAD_IDENTIFIER - 2; user_name++)
        name[n++] = ahead_is_letter(*user_name) || ahead_is_digit(*user_name) ? *user_name : '_';
    name[n] = '\0';
    if (ahead_is_in_list(ahead_reserved_words, name, strlen(name)) || ahead_is_header_name(name))
        name[n++] = '_', name[n] = '\0';
    return n;
}

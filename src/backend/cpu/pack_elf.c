// Converts a shared object to segments of a pack and the addresses to be set in them. The loader of
// packs knows nothing of ELF: the file is parsed here, where the pack is made.
#include <elf.h>
#include <string.h>

#include "backend/cpu/pack.h"

#if defined(__x86_64__)

typedef struct {
    const char *bytes;
    size_t n;
    const Elf64_Ehdr *head;
    const Elf64_Phdr *segments;
    const Elf64_Sym *symbols;
    const char *names;
    uint64_t base; // its offset in the span
} object;

// Returns n bytes at an address of the object; NULL if it does not have them.
static const void *elf_at_address(const object *o, uint64_t at, uint64_t n) {
    for (int i = 0; i < o->head->e_phnum; i++) {
        const Elf64_Phdr *s = &o->segments[i];
        if (s->p_type == PT_LOAD && at >= s->p_vaddr && at - s->p_vaddr <= s->p_filesz &&
            n <= s->p_filesz - (at - s->p_vaddr))
            return o->bytes + s->p_offset + (at - s->p_vaddr);
    }
    return NULL;
}

static bool elf_refuse(ct_err *err, const char *what) {
    return ct__err(err, CT_E_COMPILER, CT_NOWHERE, "kernels",
                   "what the compiler made cannot be packed: %s", what);
}

static bool elf_read_object(object *o, ct_err *err) {
    o->head = (const Elf64_Ehdr *)o->bytes;
    if (o->n < sizeof *o->head || memcmp(o->head->e_ident, ELFMAG, SELFMAG) != 0 ||
        o->head->e_ident[EI_CLASS] != ELFCLASS64 || o->head->e_machine != EM_X86_64 ||
        o->head->e_phentsize != sizeof *o->segments || o->head->e_phoff > o->n ||
        o->head->e_phnum > (o->n - o->head->e_phoff) / sizeof *o->segments)
        return elf_refuse(err, "it is no shared object for x86-64");
    o->segments = (const Elf64_Phdr *)(o->bytes + o->head->e_phoff);
    for (int i = 0; i < o->head->e_phnum; i++) {
        const Elf64_Phdr *s = &o->segments[i];
        if (s->p_offset > o->n || s->p_filesz > o->n - s->p_offset)
            return elf_refuse(err, "a segment leads out of the file");
        if (s->p_type == PT_TLS) return elf_refuse(err, "it has variables of threads");
        if (s->p_type == PT_LOAD && s->p_memsz != s->p_filesz)
            return elf_refuse(err, "it has variables, and kernels have none");
    }
    return true;
}

static const Elf64_Dyn *elf_find_dynamic(const object *o) {
    for (int i = 0; i < o->head->e_phnum; i++)
        if (o->segments[i].p_type == PT_DYNAMIC)
            return elf_at_address(o, o->segments[i].p_vaddr, o->segments[i].p_filesz);
    return NULL;
}

static uint64_t elf_dynamic_value(const Elf64_Dyn *d, int64_t tag) {
    for (; d->d_tag != DT_NULL; d++)
        if (d->d_tag == tag) return d->d_un.d_val;
    return 0;
}

static void elf_add_segments(const object *o, ct_pack_span *span, uint64_t *end) {
    for (int i = 0; i < o->head->e_phnum; i++) {
        const Elf64_Phdr *s = &o->segments[i];
        if (s->p_type != PT_LOAD || !s->p_filesz) continue;
        const ct_pack_segment part = {.at = o->base + s->p_vaddr,
                                      .bytes = s->p_filesz,
                                      .from = span->code.n,
                                      .executable = (s->p_flags & PF_X) != 0};
        ct__text_bytes(&span->segments, &part, sizeof part);
        ct__text_bytes(&span->code, o->bytes + s->p_offset, s->p_filesz);
        span->section.n_segments++;
        if (s->p_vaddr + s->p_filesz > *end) *end = s->p_vaddr + s->p_filesz;
    }
}

static bool elf_add_base_relocation(ct_pack_span *span, uint64_t at, uint64_t value) {
    const ct_pack_relocation base = {at, value};
    ct__text_bytes(&span->relocations, &base, sizeof base);
    span->section.n_relocations++;
    return true;
}

static bool elf_add_import(ct_pack_span *span, uint64_t at, const char *name, ct_err *err) {
    ct_pack_import import = {.at = at};
    if (!ct__pack_import_address(name))
        return ct__err(err, CT_E_COMPILER, CT_NOWHERE, "kernels",
                       "what the compiler made cannot be packed: it calls %.60s", name);
    memcpy(import.name, name, strlen(name)); // one of the imports' names, which are short
    ct__text_bytes(&span->imports, &import, sizeof import);
    span->section.n_imports++;
    return true;
}

static bool elf_add_relocation(const object *o, ct_pack_span *span, const Elf64_Rela *r,
                               ct_err *err) {
    const uint64_t at = o->base + r->r_offset;
    const Elf64_Sym *symbol = &o->symbols[ELF64_R_SYM(r->r_info)];
    switch (ELF64_R_TYPE(r->r_info)) {
    case R_X86_64_RELATIVE:
        return elf_add_base_relocation(span, at, o->base + (uint64_t)r->r_addend);
    case R_X86_64_64:
    case R_X86_64_GLOB_DAT:
    case R_X86_64_JUMP_SLOT:
        if (symbol->st_shndx != SHN_UNDEF)
            return elf_add_base_relocation(span, at,
                                           o->base + symbol->st_value + (uint64_t)r->r_addend);
        if (ELF64_ST_BIND(symbol->st_info) == STB_WEAK)
            return true; // an undefined weak symbol stays NULL
        return elf_add_import(span, at, o->names + symbol->st_name, err);
    default: return elf_refuse(err, "it has a relocation of another kind");
    }
}

static bool elf_add_relocations(const object *o, ct_pack_span *span, uint64_t at, uint64_t bytes,
                                ct_err *err) {
    const Elf64_Rela *r = elf_at_address(o, at, bytes);
    if (bytes && !r) return elf_refuse(err, "its relocations are not there");
    for (uint64_t i = 0; i < bytes / sizeof *r; i++)
        if (!elf_add_relocation(o, span, &r[i], err)) return false;
    return true;
}

// Returns the address of a symbol. The symbol table ends where the names begin, as linkers lay them
// out.
static uint64_t elf_symbol_address(const object *o, const char *name) {
    const size_t n = (size_t)(o->names - (const char *)o->symbols) / sizeof *o->symbols;
    for (size_t i = 1; i < n; i++)
        if (o->symbols[i].st_shndx != SHN_UNDEF &&
            strcmp(o->names + o->symbols[i].st_name, name) == 0)
            return o->symbols[i].st_value;
    return 0;
}

bool ct__pack_add_object(ct_pack_span *span, const char *bytes, size_t n,
                         const struct ct_pack_text *kernels, size_t n_kernels, ct_err *err) {
    object o = {.bytes = bytes, .n = n, .base = span->section.span};
    uint64_t end = 0;
    if (!elf_read_object(&o, err)) return false;
    const Elf64_Dyn *d = elf_find_dynamic(&o);
    if (!d) return elf_refuse(err, "it is not linked");
    o.symbols = elf_at_address(&o, elf_dynamic_value(d, DT_SYMTAB), 0);
    o.names = elf_at_address(&o, elf_dynamic_value(d, DT_STRTAB), elf_dynamic_value(d, DT_STRSZ));
    if (!o.symbols || !o.names || o.names < (const char *)o.symbols)
        return elf_refuse(err, "it has no symbols");
    elf_add_segments(&o, span, &end);
    for (size_t i = 0; i < n_kernels; i++) {
        const ct_pack_kernel kernel = {.key = kernels[i].key,
                                       .at = o.base + elf_symbol_address(&o, kernels[i].name)};
        if (kernel.at == o.base) return elf_refuse(err, "it lacks a kernel");
        ct__text_bytes(&span->kernels, &kernel, sizeof kernel);
        span->section.n_kernels++;
    }
    span->section.span = o.base + (end + CT_PACK_PAGE - 1) / CT_PACK_PAGE * CT_PACK_PAGE;
    return elf_add_relocations(&o, span, elf_dynamic_value(d, DT_RELA),
                               elf_dynamic_value(d, DT_RELASZ), err) &&
           elf_add_relocations(&o, span, elf_dynamic_value(d, DT_JMPREL),
                               elf_dynamic_value(d, DT_PLTRELSZ), err);
}

#else

bool ct__pack_add_object(ct_pack_span *span, const char *bytes, size_t n,
                         const struct ct_pack_text *kernels, size_t n_kernels, ct_err *err) {
    (void)span, (void)bytes, (void)n, (void)kernels, (void)n_kernels;
    return ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, "kernels",
                   "kernels are packed for x86-64, and by it");
}

#endif

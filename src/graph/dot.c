#include "graph/dot.h"

#include <string.h>

enum { MAX_ATTRS_TEXT = 120 };

// Text in a quoted string: names and paths come from the user and may contain any character.
static void dot_put_escaped(ct_text *text, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (c == '"' || c == '\\')
            ct__textf(text, "\\%c", c);
        else
            ct__textf(text, "%c", (unsigned char)c < ' ' || c == 127 ? '?' : c);
    }
}

static void dot_put_attrs(ct_text *text, const ct_node *node) {
    CT_TEXT attrs = {0};
    ct__attrs_print(&attrs, node->op, node->attrs);
    size_t n = attrs.n < MAX_ATTRS_TEXT ? attrs.n : MAX_ATTRS_TEXT;
    ct__text_add(text, "\\n");
    if (attrs.s) dot_put_escaped(text, attrs.s, n);
    if (n < attrs.n) ct__text_add(text, "...");
    text->failed = text->failed || attrs.failed;
}

static void dot_put_node(ct_text *text, const ct_node *node) {
    bool leaf = node->op->kind == &ct__kind_leaf || node->value;
    ct__textf(text, "  n%u [label=\"%s", node->index, node->op->name);
    if (node->var && node->var->name) {
        ct__text_add(text, " ");
        dot_put_escaped(text, node->var->name, strlen(node->var->name));
    }
    if (node->op->n_fields && node->attrs && !leaf) dot_put_attrs(text, node);
    for (int k = 0; k < node->n_out; k++) {
        ct__text_add(text, "\\n");
        ct__print_type(text, &node->out[k]);
    }
    if (node->here.file) {
        ct__text_add(text, "\\n");
        dot_put_escaped(text, node->here.file, strlen(node->here.file));
        ct__textf(text, ":%u", node->here.line);
    }
    ct__textf(text, "\"%s];\n", leaf ? " shape=ellipse" : "");
}

static void dot_put_edge(ct_text *text, ct_val from, const char *to, size_t number) {
    ct__textf(text, "  n%u -> %s%zu", from.node->index, to, number);
    if (from.node->n_out > 1) ct__textf(text, " [label=\"%u\"]", from.out);
    ct__text_add(text, ";\n");
}

void ct__dot_begin(ct_text *text, const char *title, ct_node *const *nodes, size_t n) {
    uint64_t epoch = ct__new_epoch();
    ct__text_add(text, "digraph \"");
    dot_put_escaped(text, title, strlen(title));
    ct__text_add(text, "\" {\n  node [shape=box fontname=\"monospace\"];\n");
    for (size_t i = 0; i < n; i++) {
        nodes[i]->epoch = epoch;
        nodes[i]->index = (uint32_t)i;
        dot_put_node(text, nodes[i]);
    }
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < nodes[i]->n_in; k++)
            if (nodes[i]->in[k].node->epoch == epoch) dot_put_edge(text, nodes[i]->in[k], "n", i);
}

void ct__dot_root(ct_text *text, size_t number, ct_root_kind kind, ct_val val, const char *name) {
    static const char *const kinds[] = {
        [CT_ROOT_KEEP] = "keep",     [CT_ROOT_READ] = "read",   [CT_ROOT_ASSIGN] = "assign",
        [CT_ROOT_METRIC] = "metric", [CT_ROOT_STORE] = "store", [CT_ROOT_EXTRA] = "extra"};
    _Static_assert(sizeof kinds / sizeof *kinds == CT_ROOT_EXTRA + 1, "a name for each kind");
    ct__textf(text, "  root%zu [label=\"%s", number, kinds[kind]);
    if (name) {
        ct__text_add(text, " ");
        dot_put_escaped(text, name, strlen(name));
    }
    ct__text_add(text, "\" shape=plain];\n");
    dot_put_edge(text, val, "root", number);
}

void ct__dot_end(ct_text *text) { ct__text_add(text, "}\n"); }

// Tool calls, by kind of format. Each state continues in p->input at p->at.
#include <jansson.h>
#include <string.h>

#include "io/json.h"
#include "text/chat_parser.h"

static ct_flow calls_json_begin(ct_chat_parser *p);
static ct_flow calls_json_key(ct_chat_parser *p);
static ct_flow calls_json_after_value(ct_chat_parser *p);
static ct_flow calls_parameter(ct_chat_parser *p);
static ct_flow calls_python_begin(ct_chat_parser *p);
static ct_flow calls_python_arguments(ct_chat_parser *p);
static ct_flow calls_python_after_value(ct_chat_parser *p);

static ct_flow calls_set_state(ct_chat_parser *p, ct_chat_state *state) {
    p->state = state;
    return CT_FLOW_NEXT;
}

// Changes the state, whose token starts here.
static ct_flow calls_begin_token(ct_chat_parser *p, ct_chat_state *state) {
    p->from = p->at;
    return calls_set_state(p, state);
}

static ct_flow calls_skip_byte(ct_chat_parser *p, ct_chat_state *state) {
    p->at++;
    return calls_set_state(p, state);
}

// --------------------------------------------------------------------------------------- reporting

ct_flow ct__chat_flush_arguments(ct_chat_parser *p, bool all) {
    size_t n = p->out.n;
    if (!all) { // an incomplete character at the end waits for the rest of its bytes
        size_t back = 0;
        while (back < 3 && back < n && ((unsigned char)p->out.s[n - 1 - back] & 0xc0) == 0x80)
            back++;
        if (back < n) {
            const unsigned char lead = (unsigned char)p->out.s[n - 1 - back];
            const size_t needs = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
            if (needs > back + 1) n -= back + 1;
        }
    }
    if (!n) return CT_FLOW_NEXT;
    const ct_flow flow = ct__chat_report(p, CT_CHAT_ARGUMENTS, p->out.s, n);
    memmove(p->out.s, p->out.s + n, p->out.n - n);
    p->out.n -= n;
    return flow;
}

// The description of the tool of this name.
static const json_t *calls_find_description(const ct_chat_parser *p) {
    json_t *tool;
    size_t i;
    json_array_foreach(p->descriptions, i, tool) {
        json_t *function = json_object_get(tool, "function");
        if (!function) function = tool;
        const json_t *name = json_object_get(function, "name");
        if (json_is_string(name) && json_string_length(name) == p->name.n &&
            memcmp(json_string_value(name), p->name.s, p->name.n) == 0)
            return function;
    }
    return NULL;
}

// Reports the call's name: it is a call from here on. Without a mark its name must be that of a
// known tool.
static ct_flow calls_report_call(ct_chat_parser *p) {
    if (p->bare && p->descriptions && !calls_find_description(p)) return CT_FLOW_FAIL;
    p->calls++;
    p->reported = true;
    p->tail = p->at;
    return ct__chat_report(p, CT_CHAT_CALL, p->name.s, p->name.n);
}

static ct_flow calls_end_call(ct_chat_parser *p, ct_chat_state *then) {
    const ct_flow flow = ct__chat_flush_arguments(p, true);
    p->reported = false;
    p->tail = p->at;
    p->state = then;
    return flow;
}

static void calls_reset_call(ct_chat_parser *p) {
    p->reported = p->complete = p->closed = p->given = false;
    p->name.n = p->token.n = p->out.n = p->parameters = 0;
}

static void calls_set_text(ct_text *text, const char *s, size_t n) {
    text->n = 0;
    ct__text_bytes(text, s, n);
}

// Sets the name: as it is, or from functions.NAME:0.
static bool calls_set_name(ct_chat_parser *p, const char *s, size_t n) {
    static const char prefix[] = "functions.";
    while (n && (unsigned char)s[n - 1] <= ' ') n--;
    while (n && (unsigned char)*s <= ' ') s++, n--;
    if (p->form->ids) {
        size_t digits = 0;
        while (digits < n && s[n - 1 - digits] >= '0' && s[n - 1 - digits] <= '9') digits++;
        if (digits && digits < n && s[n - 1 - digits] == ':') n -= digits + 1;
        if (n > strlen(prefix) && memcmp(s, prefix, strlen(prefix)) == 0) {
            s += strlen(prefix);
            n -= strlen(prefix);
        }
    }
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] <= ' ' || strchr("<>{}()[]\"'`,;", s[i])) return false;
    calls_set_text(&p->name, s, n);
    return n > 0 && n <= CT_MAX_NAME && !p->name.failed;
}

// ------------------------------------------------------------------------------------- JSON values

// Reads more of a value into `to`. NEXT: the value has ended.
static ct_flow calls_read_value(ct_chat_parser *p, ct_text *to) {
    p->at += ct__value_read(&p->value, p->input + p->at, p->n - p->at, to);
    if (p->value.state == CT_VALUE_FAILED) return CT_FLOW_FAIL;
    return p->value.state == CT_VALUE_DONE ? CT_FLOW_NEXT : CT_FLOW_MORE;
}

// The same for a call's arguments, which are reported as they arrive.
static ct_flow calls_read_arguments(ct_chat_parser *p) {
    const ct_flow flow = calls_read_value(p, &p->out);
    if (!p->reported) return flow;
    p->tail = p->at - ct__value_pending(&p->value);
    const ct_flow reported = ct__chat_flush_arguments(p, false);
    return reported == CT_FLOW_STOP ? reported : flow;
}

static ct_flow calls_object_arguments(ct_chat_parser *p) {
    const ct_flow flow = calls_read_arguments(p);
    return flow == CT_FLOW_NEXT ? calls_end_call(p, ct__chat_after_mark) : flow;
}

static ct_flow calls_object_begin(ct_chat_parser *p) {
    if (!ct__chat_skip_space(p)) return CT_FLOW_MORE;
    if (p->input[p->at] != '{') return CT_FLOW_FAIL;
    ct__value_begin(&p->value, p->form->style);
    p->state = calls_object_arguments;
    return calls_report_call(p);
}

// Decodes a JSON string, as written, with its quotes.
static json_t *calls_decode_string(const ct_text *text) {
    json_error_t error;
    return text->n ? ct__json_read(text->s, text->n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error)
                   : NULL;
}

static bool calls_key_is(const ct_text *key, const char *a, const char *b) {
    return key->n && key->s && (strcmp(key->s, a) == 0 || strcmp(key->s, b) == 0);
}

// -------------------------------------------------------------------- {"name": f, "arguments": {}}

static ct_flow calls_json_next(ct_chat_parser *p) {
    if (!ct__chat_skip_space(p)) return CT_FLOW_MORE;
    const char c = p->input[p->at];
    if (p->list && c == ',') return calls_skip_byte(p, calls_json_begin);
    if (p->list && c == ']') {
        p->at++;
        p->tail = p->at;
    }
    return calls_set_state(p, ct__chat_after_mark);
}

// Reports arguments that came before the name, or that are absent.
static ct_flow calls_report_given(ct_chat_parser *p) {
    const ct_flow flow = calls_report_call(p);
    return flow == CT_FLOW_NEXT ? ct__chat_flush_arguments(p, true) : flow;
}

static ct_flow calls_json_end(ct_chat_parser *p) {
    ct_flow flow = CT_FLOW_NEXT;
    if (!p->name.n || (p->bare && !p->given)) return CT_FLOW_FAIL;
    p->at++;
    if (!p->reported) {
        if (!p->given) calls_set_text(&p->out, "{}", 2);
        flow = calls_report_given(p);
    }
    return flow == CT_FLOW_NEXT ? calls_end_call(p, calls_json_next) : flow;
}

static ct_flow calls_json_after_value(ct_chat_parser *p) {
    if (!ct__chat_skip_space(p)) return CT_FLOW_MORE;
    if (p->input[p->at] == ',') return calls_skip_byte(p, calls_json_key);
    return p->input[p->at] == '}' ? calls_json_end(p) : CT_FLOW_FAIL;
}

// The value of a key is complete.
static ct_flow calls_json_use_value(ct_chat_parser *p) {
    json_t *value = NULL, *inner = NULL;
    bool ok = true;
    p->state = calls_json_after_value;
    if (p->field == CT_FIELD_NAME) {
        value = calls_decode_string(&p->token);
        ok = value && calls_set_name(p, json_string_value(value), json_string_length(value));
    } else if (p->field == CT_FIELD_ARGUMENTS_STRING) { // arguments as a JSON string
        json_error_t error;
        value = calls_decode_string(&p->token);
        if (value) calls_set_text(&p->out, json_string_value(value), json_string_length(value));
        inner =
            value && p->out.n ? ct__json_read(p->out.s, p->out.n, JSON_ALLOW_NUL, &error) : NULL;
        ok = json_is_object(inner);
    }
    json_decref(value);
    json_decref(inner);
    if (!ok) return CT_FLOW_FAIL;
    p->given |= p->field == CT_FIELD_ARGUMENTS_STRING || p->field == CT_FIELD_ARGUMENTS;
    p->complete |= p->given;
    return p->given && p->name.n && !p->reported ? calls_report_given(p) : CT_FLOW_NEXT;
}

static ct_flow calls_json_value(ct_chat_parser *p) {
    ct_flow flow;
    if (p->field == CT_FIELD_ARGUMENTS) {
        flow = calls_read_arguments(p);
    } else {
        flow = calls_read_value(p, &p->token);
        if (p->field == CT_FIELD_OTHER) p->token.n = 0;
    }
    return flow == CT_FLOW_NEXT ? calls_json_use_value(p) : flow;
}

static ct_flow calls_json_value_begin(ct_chat_parser *p) {
    if (!ct__chat_skip_space(p)) return CT_FLOW_MORE;
    const char c = p->input[p->at];
    const bool named = calls_key_is(&p->token, "\"name\"", "\"tool_name\"");
    const bool arguments = calls_key_is(&p->token, "\"arguments\"", "\"parameters\"") && !p->given;
    p->field = CT_FIELD_OTHER;
    if (p->form->keyed && !p->name.n) {
        json_t *key = calls_decode_string(&p->token);
        const bool ok =
            key && c == '{' && calls_set_name(p, json_string_value(key), json_string_length(key));
        json_decref(key);
        if (!ok) return CT_FLOW_FAIL;
        p->field = CT_FIELD_ARGUMENTS;
    } else if (named && c == '"' && !p->name.n) {
        p->field = CT_FIELD_NAME;
    } else if (arguments && c == '"') {
        p->field = CT_FIELD_ARGUMENTS_STRING;
    } else if (arguments && c == '{') {
        p->field = CT_FIELD_ARGUMENTS;
    }
    p->token.n = 0;
    ct__value_begin(&p->value, CT_VALUE_JSON);
    p->state = calls_json_value;
    return p->field == CT_FIELD_ARGUMENTS && p->name.n ? calls_report_call(p) : CT_FLOW_NEXT;
}

static ct_flow calls_json_colon(ct_chat_parser *p) {
    if (!ct__chat_skip_space(p)) return CT_FLOW_MORE;
    return p->input[p->at] == ':' ? calls_skip_byte(p, calls_json_value_begin) : CT_FLOW_FAIL;
}

static ct_flow calls_json_key_string(ct_chat_parser *p) {
    const ct_flow flow = calls_read_value(p, &p->token);
    return flow == CT_FLOW_NEXT ? calls_set_state(p, calls_json_colon) : flow;
}

static ct_flow calls_json_key(ct_chat_parser *p) {
    if (!ct__chat_skip_space(p)) return CT_FLOW_MORE;
    if (p->input[p->at] == '}') return calls_json_end(p);
    if (p->input[p->at] != '"') return CT_FLOW_FAIL;
    ct__value_begin(&p->value, CT_VALUE_JSON);
    p->token.n = 0;
    return calls_set_state(p, calls_json_key_string);
}

static ct_flow calls_json_begin(ct_chat_parser *p) {
    if (!ct__chat_skip_space(p)) return CT_FLOW_MORE;
    p->json = true;
    if (p->input[p->at] == '[' && !p->list) {
        p->list = true;
        return calls_skip_byte(p, calls_json_begin);
    }
    if (p->input[p->at] != '{') return CT_FLOW_FAIL;
    calls_reset_call(p);
    return calls_skip_byte(p, calls_json_key);
}

// ----------------------------------------------------------------------- f, a separator, arguments

static ct_chat_state *calls_arguments_state(const ct_chat_form *f) {
    return f->kind == CT_CALL_PARAMETERS ? calls_parameter : calls_object_begin;
}

static ct_flow calls_skip_to_arguments(ct_chat_parser *p) {
    const char *const marks[CT_FORM_MARKS] = {p->form->arguments_begin};
    const ct_flow flow = ct__chat_scan_to_mark(p, marks);
    if (flow != CT_FLOW_NEXT) return flow;
    p->at += strlen(p->mark);
    return calls_set_state(p, calls_arguments_state(p->form));
}

static bool calls_mark_is_reread(const ct_chat_form *f, const char *mark) {
    if (strcmp(mark, "{") == 0) return true;
    for (int i = 0; i < CT_FORM_MARKS; i++)
        if ((f->key_begin[i] && strcmp(f->key_begin[i], mark) == 0) ||
            (f->call_end[i] && strcmp(f->call_end[i], mark) == 0))
            return true;
    return false;
}

static ct_flow calls_name(ct_chat_parser *p) {
    const ct_chat_form *f = p->form;
    const ct_flow flow = ct__chat_scan_to_mark(p, f->name_end);
    if (flow != CT_FLOW_NEXT) return flow;
    const bool more = calls_mark_is_reread(f, p->mark),
               ok = calls_set_name(p, p->input + p->from, p->at - p->from);
    if (!more) p->at += strlen(p->mark);
    if (!ok) return CT_FLOW_FAIL;
    if (f->text_name && strcmp(p->name.s, f->text_name) == 0) {
        p->tail = p->at;
        p->start = false;
        return calls_set_state(p, ct__chat_text);
    }
    const bool there = more || !f->arguments_begin || strcmp(p->mark, f->arguments_begin) == 0;
    return there ? calls_set_state(p, calls_arguments_state(f))
                 : calls_begin_token(p, calls_skip_to_arguments);
}

static ct_flow calls_before_name(ct_chat_parser *p) {
    const char *const marks[CT_FORM_MARKS] = {p->form->before_name};
    const ct_flow flow = ct__chat_scan_to_mark(p, marks);
    if (flow != CT_FLOW_NEXT) return flow;
    p->at += strlen(p->mark);
    return calls_begin_token(p, calls_name);
}

ct_flow ct__chat_call_named(ct_chat_parser *p, const char *s, size_t n) {
    calls_reset_call(p);
    return calls_set_name(p, s, n) ? calls_set_state(p, calls_object_begin) : CT_FLOW_FAIL;
}

// ------------------------------------------------------------------------------ parameters as text

// Whether a schema requires a string: 1, 0, or -1 if it does not say or allows both. null among
// other types is ignored.
static int calls_schema_is_string(const json_t *schema) {
    const json_t *type = json_object_get(schema, "type"), *any = json_object_get(schema, "anyOf");
    const json_t *list = json_is_array(type) ? type : any, *item;
    size_t i;
    int all = 2;
    if (json_is_string(type)) return strcmp(json_string_value(type), "string") == 0;
    json_array_foreach(list, i, item) {
        const json_t *name = json_is_string(item) ? item : json_object_get(item, "type");
        if (!json_is_string(name)) return -1;
        const int one = strcmp(json_string_value(name), "string") == 0;
        if (strcmp(json_string_value(name), "null") == 0) continue;
        if (all != 2 && all != one) return -1;
        all = one;
    }
    if (all != 2) return all;
    return json_is_string(json_array_get(json_object_get(schema, "enum"), 0)) ? 1 : -1;
}

// Whether the schema of this parameter requires a string.
static int calls_parameter_is_string(const ct_chat_parser *p, const char *key) {
    const json_t *parameters = json_object_get(calls_find_description(p), "parameters");
    return calls_schema_is_string(json_object_get(json_object_get(parameters, "properties"), key));
}

// Writes the text as JSON if it is a JSON value or a literal of Python, else as a string.
static void calls_write_parameter(ct_chat_parser *p, const char *s, size_t n, bool quoted) {
    const char *at = s, *end = s + n;
    while (at < end && (unsigned char)*at <= ' ') at++;
    while (at < end && (unsigned char)end[-1] <= ' ') end--;
    const size_t out = p->out.n, length = (size_t)(end - at);
    const bool literal = length && (quoted || (*at != '"' && *at != '\''));
    for (int style = CT_VALUE_JSON; style <= CT_VALUE_PYTHON && literal; style++) {
        ct__value_begin(&p->value, (ct_value_style)style);
        const size_t used = ct__value_read(&p->value, at, length, &p->out);
        if (used == length) ct__value_read(&p->value, " ", 1, &p->out); // ends a number
        if (used == length && p->value.state == CT_VALUE_DONE) return;
        p->out.n = out;
    }
    ct__json_string(&p->out, s, n);
}

// Writes a part of a string.
static void calls_write_escaped(ct_chat_parser *p, const char *s, size_t n) {
    p->token.n = 0;
    ct__json_string(&p->token, s, n);
    if (p->token.n > 2) ct__text_bytes(&p->out, p->token.s + 1, p->token.n - 2);
}

static void calls_write_key(ct_chat_parser *p) {
    ct__text_add(&p->out, p->parameters++ ? ", " : "{");
    ct__text_bytes(&p->out, p->token.s, p->token.n);
    ct__text_add(&p->out, ": ");
}

// Writes the part of the string before `at`, which certainly belongs to the value.
static ct_flow calls_write_string_part(ct_chat_parser *p) {
    calls_write_escaped(p, p->input + p->tail, p->at - p->tail);
    p->tail = p->at;
    return ct__chat_flush_arguments(p, false);
}

static ct_flow calls_parameter_value(ct_chat_parser *p) {
    int found = 0;
    for (; p->at < p->n && !(found = ct__chat_match_marks(p, p->form->value_end)); p->at++)
        continue;
    if (p->string) {
        const ct_flow flow = calls_write_string_part(p);
        if (flow != CT_FLOW_NEXT) return flow;
    }
    if (found != 1) return CT_FLOW_MORE;
    if (p->string) {
        ct__text_add(&p->out, "\"");
    } else {
        calls_write_key(p);
        calls_write_parameter(p, p->input + p->from, p->at - p->from,
                              p->form->key_end[1] || p->given);
    }
    p->at += strlen(p->mark);
    p->tail = p->at;
    const ct_flow flow = ct__chat_flush_arguments(p, false);
    return flow == CT_FLOW_NEXT ? calls_set_state(p, calls_parameter) : flow;
}

static ct_flow calls_parameter_value_begin(ct_chat_parser *p) {
    if (p->form->own_lines) {
        if (p->at == p->n) return CT_FLOW_MORE;
        if (p->input[p->at] == '\n') p->at++;
    }
    if (p->string) {
        calls_write_key(p);
        ct__text_add(&p->out, "\"");
        p->tail = p->at;
    }
    return calls_begin_token(p, calls_parameter_value);
}

static ct_flow calls_parameter_value_mark(ct_chat_parser *p) {
    const char *const marks[CT_FORM_MARKS] = {p->form->value_begin};
    if (!ct__chat_skip_space(p)) return CT_FLOW_MORE;
    const int found = ct__chat_match_marks(p, marks);
    if (found != 1) return found ? CT_FLOW_MORE : CT_FLOW_FAIL;
    p->at += strlen(p->mark);
    return calls_set_state(p, calls_parameter_value_begin);
}

static ct_flow calls_parameter_key(ct_chat_parser *p) {
    const ct_chat_form *f = p->form;
    const ct_flow flow = ct__chat_scan_to_mark(p, f->key_end);
    if (flow != CT_FLOW_NEXT) return flow;
    char key[CT_MAX_NAME + 2];
    const char *s = p->input + p->from;
    size_t n = p->at - p->from;
    while (n && (unsigned char)s[n - 1] <= ' ') n--;
    while (n && (unsigned char)*s <= ' ') s++, n--;
    if (!n || memchr(s, '\0', n)) return CT_FLOW_FAIL;
    memcpy(key, s, n);
    key[n] = '\0';
    const int string =
        f->key_end[1] ? strcmp(p->mark, f->key_end[1]) == 0 : calls_parameter_is_string(p, key);
    p->string = string > 0;
    p->given = string == 0; // known not to be a string
    p->token.n = 0;
    ct__json_string(&p->token, s, n);
    p->at += strlen(p->mark);
    return calls_set_state(p, f->value_begin ? calls_parameter_value_mark
                                             : calls_parameter_value_begin);
}

static ct_flow calls_parameter(ct_chat_parser *p) {
    const ct_chat_form *f = p->form;
    if (!ct__chat_skip_space(p)) return CT_FLOW_MORE;
    const int key = ct__chat_match_marks(p, f->key_begin),
              close = key == 1 ? 0 : ct__chat_match_marks(p, f->call_end);
    if (key != 1 && close != 1) return key || close ? CT_FLOW_MORE : CT_FLOW_FAIL;
    const ct_flow flow = p->reported ? CT_FLOW_NEXT : calls_report_call(p);
    if (flow != CT_FLOW_NEXT) return flow;
    if (key == 1) {
        ct__chat_match_marks(p, f->key_begin);
        p->at += strlen(p->mark);
        return calls_begin_token(p, calls_parameter_key);
    }
    ct__text_add(&p->out, p->parameters ? "}" : "{}");
    return calls_end_call(p, ct__chat_after_mark);
}

// ---------------------------------------------------------------------------------------- [f(a=1)]

static bool calls_is_identifier_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
}

// Reads an identifier and the byte `then`; `at` is after both.
static ct_flow calls_read_identifier(ct_chat_parser *p, char then, size_t *n) {
    while (p->at < p->n && calls_is_identifier_byte(p->input[p->at])) p->at++;
    *n = p->at - p->from;
    if (*n > CT_MAX_NAME) return CT_FLOW_FAIL;
    if (p->at == p->n) return CT_FLOW_MORE;
    if (!*n || p->input[p->at] != then) return CT_FLOW_FAIL;
    p->at++;
    return CT_FLOW_NEXT;
}

static ct_flow calls_python_next(ct_chat_parser *p) {
    if (!ct__chat_skip_space(p)) return CT_FLOW_MORE;
    const char c = p->input[p->at];
    if (c == ',' && p->list) return calls_skip_byte(p, calls_python_begin);
    if (c == ']' && p->list) {
        p->at++;
        p->tail = p->at;
    }
    return calls_set_state(p, ct__chat_after_mark);
}

static ct_flow calls_python_end(ct_chat_parser *p) {
    const ct_flow flow = p->reported ? CT_FLOW_NEXT : calls_report_call(p);
    if (flow != CT_FLOW_NEXT) return flow;
    p->at++;
    ct__text_add(&p->out, p->parameters ? "}" : "{}");
    return calls_end_call(p, calls_python_next);
}

static ct_flow calls_python_after_value(ct_chat_parser *p) {
    if (!ct__chat_skip_space(p)) return CT_FLOW_MORE;
    if (p->input[p->at] == ',') return calls_skip_byte(p, calls_python_arguments);
    return p->input[p->at] == ')' ? calls_python_end(p) : CT_FLOW_FAIL;
}

static ct_flow calls_python_value(ct_chat_parser *p) {
    const ct_flow flow = calls_read_arguments(p);
    return flow == CT_FLOW_NEXT ? calls_set_state(p, calls_python_after_value) : flow;
}

static ct_flow calls_python_key(ct_chat_parser *p) {
    size_t n;
    ct_flow flow = calls_read_identifier(p, '=', &n);
    if (flow != CT_FLOW_NEXT) return flow;
    p->token.n = 0;
    ct__json_string(&p->token, p->input + p->from, n);
    flow = p->reported ? CT_FLOW_NEXT : calls_report_call(p);
    if (flow != CT_FLOW_NEXT) return flow;
    calls_write_key(p);
    ct__value_begin(&p->value, CT_VALUE_PYTHON);
    return calls_set_state(p, calls_python_value);
}

static ct_flow calls_python_arguments(ct_chat_parser *p) {
    if (!ct__chat_skip_space(p)) return CT_FLOW_MORE;
    return p->input[p->at] == ')' ? calls_python_end(p) : calls_begin_token(p, calls_python_key);
}

static ct_flow calls_python_name(ct_chat_parser *p) {
    size_t n;
    const ct_flow flow = calls_read_identifier(p, '(', &n);
    if (flow != CT_FLOW_NEXT) return flow;
    return calls_set_name(p, p->input + p->from, n) ? calls_set_state(p, calls_python_arguments)
                                                    : CT_FLOW_FAIL;
}

static ct_flow calls_python_begin(ct_chat_parser *p) {
    if (!ct__chat_skip_space(p)) return CT_FLOW_MORE;
    if (p->input[p->at] == '[' && !p->list) {
        p->list = true;
        return calls_skip_byte(p, calls_python_begin);
    }
    calls_reset_call(p);
    return calls_begin_token(p, calls_python_name);
}

// ------------------------------------------------------------------------------------ entry points

static ct_flow calls_body(ct_chat_parser *p) {
    const ct_chat_form *f = p->form;
    if (!ct__chat_skip_space(p)) return CT_FLOW_MORE;
    if (f->kind == CT_CALL_JSON) return calls_set_state(p, calls_json_begin);
    if (f->kind == CT_CALL_PYTHON) return calls_set_state(p, calls_python_begin);
    const char c = p->input[p->at];
    if (!f->call_begin && (c == '[' || c == '{')) return calls_set_state(p, calls_json_begin);
    return calls_begin_token(p, f->before_name ? calls_before_name : calls_name);
}

ct_flow ct__chat_call_begin(ct_chat_parser *p) {
    calls_reset_call(p);
    p->json = p->list = p->bare = false;
    p->start = false;
    return calls_set_state(p, calls_body);
}

static ct_flow calls_next_call(ct_chat_parser *p) {
    const char *const marks[CT_FORM_MARKS] = {p->form->call_begin};
    if (!ct__chat_skip_space(p)) return CT_FLOW_MORE;
    if (p->input[p->at] == '{') return calls_set_state(p, calls_json_begin);
    const int found = ct__chat_match_marks(p, marks);
    if (found != 1) return found ? CT_FLOW_MORE : CT_FLOW_FAIL;
    p->at += strlen(p->mark);
    return calls_set_state(p, calls_body);
}

ct_flow ct__chat_calls_begin(ct_chat_parser *p) {
    const ct_flow flow = ct__chat_call_begin(p);
    if (p->form->call_begin) p->state = calls_next_call;
    return flow;
}

ct_flow ct__chat_bare_begin(ct_chat_parser *p) {
    const bool bare = p->form->bare != 0 && (p->start || p->bare);
    ct__chat_call_begin(p);
    p->bare = bare;
    return calls_set_state(p,
                           p->form->kind == CT_CALL_PYTHON ? calls_python_begin : calls_json_begin);
}

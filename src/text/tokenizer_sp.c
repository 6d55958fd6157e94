// The reader of SentencePiece's .model files: a protocol buffer with the pieces and the settings of
// the normalizer.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text/ranks.h"

typedef enum {
    PIECE_NORMAL = 1,
    PIECE_UNKNOWN = 2,
    PIECE_CONTROL = 3,
    PIECE_USER_DEFINED = 4,
    PIECE_UNUSED = 5,
    PIECE_BYTE = 6
} piece_type;

// -------------------------------------------------------------------------------- protocol buffers

typedef struct proto_message {
    const unsigned char *at, *end;
} proto_message;
typedef struct proto_field {
    uint64_t number, value; // value: of a varint, or the bits of a fixed-size field
    proto_message bytes;    // of a length-delimited field
    int wire;
} proto_field;

static bool proto_read_varint(proto_message *m, uint64_t *value) {
    *value = 0;
    for (int shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        unsigned char byte = *m->at++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

// Returns 1: a field; 0: end of the message; -1: malformed.
static int proto_next_field(proto_message *m, proto_field *f) {
    uint64_t tag;
    if (m->at == m->end) return 0;
    if (!proto_read_varint(m, &tag) || tag >> 3 == 0) return -1;
    f->number = tag >> 3;
    f->wire = (int)(tag & 7);
    size_t left = (size_t)(m->end - m->at), n = f->wire == 1 ? 8 : 4;
    switch (f->wire) {
    case 0: return proto_read_varint(m, &f->value) ? 1 : -1;
    case 1:
    case 5:
        if (left < n) return -1;
        f->value = 0;
        memcpy(&f->value, m->at, n);
        m->at += n;
        return 1;
    case 2:
        if (!proto_read_varint(m, &f->value) || f->value > (size_t)(m->end - m->at)) return -1;
        f->bytes = (proto_message){m->at, m->at + f->value};
        m->at += f->value;
        return 1;
    default: return -1;
    }
}

// ---------------------------------------------------------------------------------------- messages

typedef struct sp_reader {
    ct_tokenizer *t;
    ct_err *err;
    const unsigned char *begin;
    int32_t n; // pieces so far
    ct_pieces pieces;
    uint64_t kind; // model type; 1: unigram, 2: BPE, 4: characters
    bool byte_fallback, suffix;
    int64_t bos, eos, pad;
    ct_step *normalizer;
    proto_message charsmap;
} sp_reader;

static bool sp_error(sp_reader *r, const char *part, const proto_message *at) {
    return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->t->label,
                   "sentencepiece: %s is broken at byte %td", part, at->at - r->begin);
}

static bool sp_read_piece(sp_reader *r, proto_message m) {
    proto_field f;
    int more;
    float score = 0;
    uint64_t type = PIECE_NORMAL;
    proto_message text = {m.at, m.at};
    while ((more = proto_next_field(&m, &f)) > 0) {
        if (f.number == 1 && f.wire == 2) text = f.bytes;
        if (f.number == 2 && f.wire == 5) memcpy(&score, &f.value, 4);
        if (f.number == 3 && f.wire == 0) type = f.value;
    }
    if (more < 0) return sp_error(r, "a piece", &m);
    size_t n = (size_t)(text.end - text.at);
    if (!n || !isfinite(score) || type < PIECE_NORMAL || type > PIECE_BYTE ||
        ct__utf8_bad(text.at, n) < n)
        return ct__err(
            r->err, CT_E_FORMAT, CT_NOWHERE, r->t->label,
            "sentencepiece: piece %d is empty, no UTF-8, of no finite score, or of no known type",
            r->n);
    if (r->n + 1 >= CT_MAX_IDS)
        return ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->t->label,
                       "sentencepiece: there are more than 16777215 pieces");
    if (!CT_GROW(r->pieces.scores, r->pieces.scores_cap, (size_t)r->n + 1) ||
        !CT_GROW(r->pieces.types, r->pieces.types_cap, (size_t)r->n + 1) ||
        !ct__lexicon_add(&r->t->model.vocab, (const char *)text.at, n, r->n))
        return ct__tokenizer_memory_error(r->t, r->err);
    r->pieces.scores[r->n] = score;
    r->pieces.types[r->n++] = (unsigned char)type;
    return true;
}

static bool sp_read_trainer(sp_reader *r, proto_message m) {
    proto_field f;
    int more;
    while ((more = proto_next_field(&m, &f)) > 0) {
        if (f.wire != 0) continue;
        switch (f.number) {
        case 3: r->kind = f.value; break;
        case 24: r->suffix = f.value; break;
        case 35: r->byte_fallback = f.value; break;
        case 41: r->bos = (int32_t)f.value; break;
        case 42: r->eos = (int32_t)f.value; break;
        case 43: r->pad = (int32_t)f.value; break;
        default: break;
        }
    }
    return more == 0 || sp_error(r, "its training settings", &m);
}

static bool sp_read_normalizer(sp_reader *r, proto_message m) {
    proto_field f;
    int more;
    ct_step *s = r->normalizer;
    while ((more = proto_next_field(&m, &f)) > 0) {
        if (f.number == 2 && f.wire == 2) r->charsmap = f.bytes;
        if (f.number == 3 && f.wire == 0) s->dummy_prefix = f.value;
        if (f.number == 4 && f.wire == 0) s->remove_extra_spaces = f.value;
        if (f.number == 5 && f.wire == 0) s->escape = f.value;
    }
    return more == 0 || sp_error(r, "its normalizer settings", &m);
}

static bool sp_read_model(sp_reader *r, proto_message m) {
    proto_field f;
    int more;
    while ((more = proto_next_field(&m, &f)) > 0) {
        if (f.wire != 2) continue;
        bool ok = f.number == 1   ? sp_read_piece(r, f.bytes)
                  : f.number == 2 ? sp_read_trainer(r, f.bytes)
                  : f.number == 3 ? sp_read_normalizer(r, f.bytes)
                                  : true;
        if (!ok) return false;
    }
    if (more < 0) return sp_error(r, "the file", &m);
    return r->n || ct__err(r->err, CT_E_FORMAT, CT_NOWHERE, r->t->label,
                           "sentencepiece: there are no pieces");
}

// ------------------------------------------------------------------------------ building the model

static int sp_compare_scores(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return x > y ? -1 : x < y;
}

// Ranks merges by score, the highest first; equal scores have equal ranks.
static bool sp_set_merges(ct_tokenizer *t, const ct_pieces *p, size_t n, ct_err *err) {
    float *sorted = ct__malloc((n + 1) * sizeof *sorted);
    uint32_t *ranks = ct__malloc((n + 1) * sizeof *ranks);
    bool ok = (sorted && ranks) || ct__tokenizer_memory_error(t, err);
    if (ok) {
        memcpy(sorted, p->scores, n * sizeof *sorted);
        qsort(sorted, n, sizeof *sorted, sp_compare_scores);
        for (size_t i = 0; i < n; i++) {
            size_t low = 0, high = n; // the first score that is not higher
            while (low < high) {
                size_t middle = (low + high) / 2;
                if (sorted[middle] > p->scores[i])
                    low = middle + 1;
                else
                    high = middle;
            }
            bool merged = p->types[i] == PIECE_NORMAL || p->types[i] == PIECE_USER_DEFINED ||
                          p->types[i] == PIECE_UNUSED || p->merge_all_types;
            ranks[i] = merged ? (uint32_t)low : UINT32_MAX;
        }
        ok = ct__bpe_set_merges_by_rank(t, ranks, err);
    }
    ct__free(sorted);
    ct__free(ranks);
    return ok;
}

static bool sp_build_unigram(ct_tokenizer *t, const ct_pieces *p, size_t n, ct_err *err) {
    ct_model *m = &t->model;
    float min_score = INFINITY, max_score = -INFINITY;
    m->scores = ct__arena(&t->arena, n * sizeof *m->scores);
    m->unused = ct__arena_zero(&t->arena, n);
    m->user_defined = ct__arena_zero(&t->arena, n);
    if (!m->scores || !m->unused || !m->user_defined) return ct__tokenizer_memory_error(t, err);
    for (size_t i = 0; i < n; i++) {
        m->scores[i] = p->scores[i];
        m->unused[i] = p->types[i] == PIECE_UNUSED;
        m->user_defined[i] = p->types[i] == PIECE_USER_DEFINED;
        if (p->types[i] == PIECE_NORMAL && p->scores[i] < min_score) min_score = p->scores[i];
        if (p->types[i] == PIECE_NORMAL && p->scores[i] > max_score) max_score = p->scores[i];
        size_t length;
        const char *s = ct__lexicon_text(&m->vocab, (int64_t)i, &length);
        bool in_text = p->types[i] == PIECE_NORMAL || p->types[i] == PIECE_USER_DEFINED ||
                       p->types[i] == PIECE_UNUSED;
        if (in_text && !ct__trie_add(&m->trie, s, length, (int32_t)i))
            return ct__tokenizer_memory_error(t, err);
    }
    m->trie_built = true;
    m->unk_score = (double)(min_score - 10.0f);
    m->max_score = max_score;
    m->float_scores = true;
    return true;
}

bool ct__pieces_build_model(ct_tokenizer *t, const ct_pieces *p, ct_err *err) {
    ct_model *m = &t->model;
    size_t n = m->vocab.n_ids;
    ct_trie *unchanged = ct__arena_zero(&t->arena, sizeof *unchanged);
    if (!unchanged) return ct__tokenizer_memory_error(t, err);
    t->normalizers.v[0].unchanged = unchanged;
    for (size_t i = 0; i < n; i++) {
        size_t length;
        const char *s = ct__lexicon_text(&m->vocab, (int64_t)i, &length);
        if (!s || p->types[i] == PIECE_NORMAL || p->types[i] == PIECE_UNUSED ||
            p->types[i] == PIECE_BYTE)
            continue;
        ct_added a = {.text = ct__tokenizer_copy_string(t, s, length, err),
                      .n = length,
                      .id = (int32_t)i,
                      .literal = true};
        if (!a.text) return false;
        a.special = p->types[i] != PIECE_USER_DEFINED;
        a.hidden = !p->match_in_text && (a.special || m->kind == CT_MODEL_UNIGRAM);
        a.normalized = !p->match_in_text;
        a.normal = p->types[i] == PIECE_UNKNOWN     ? " \xe2\x81\x87 "
                   : a.special && !p->match_in_text ? ""
                                                    : a.text;
        a.normal_n = strlen(a.normal);
        if (a.normal == a.text) a.normal_n = length;
        if (p->types[i] == PIECE_UNKNOWN) m->unk = (int32_t)i;
        if (!ct__tokenizer_add_token(t, &a, err)) return false;
        if (!a.special && !ct__trie_add(unchanged, s, length, (int32_t)i))
            return ct__tokenizer_memory_error(t, err);
    }
    if (m->unk < 0)
        return ct__err(err, CT_E_FORMAT, CT_NOWHERE, t->label, "there is no unknown piece");
    if (m->byte_fallback) ct__model_find_byte_tokens(m);
    m->fuse_unk = true;
    return m->kind == CT_MODEL_UNIGRAM ? sp_build_unigram(t, p, n, err)
                                       : p->no_merges || sp_set_merges(t, p, n, err);
}

bool ct__tokenizer_read_sentencepiece(ct_tokenizer *t, const void *bytes, size_t n, ct_err *err) {
    sp_reader r = {.t = t, .err = err, .begin = bytes, .kind = 1, .bos = 1, .eos = 2, .pad = -1};
    r.normalizer = ct__step_add(t, &t->normalizers, CT_STEP_SENTENCEPIECE, err);
    ct_step *decoder = ct__step_add(t, &t->decoders, CT_STEP_SENTENCEPIECE_TEXT, err);
    if (!r.normalizer || !decoder) return false;
    r.normalizer->dummy_prefix = r.normalizer->remove_extra_spaces = r.normalizer->escape = true;
    bool ok = sp_read_model(&r, (proto_message){bytes, (const unsigned char *)bytes + n});
    if (ok && r.kind != 1 && r.kind != 2 && r.kind != 4)
        ok = ct__err(err, CT_E_UNSUPPORTED, CT_NOWHERE, t->label,
                     "sentencepiece: the model is of kind %u; known are 1 (unigram), 2 (BPE), 4 "
                     "(characters)",
                     (unsigned)r.kind);
    size_t map = (size_t)(r.charsmap.end - r.charsmap.at);
    if (ok && map)
        ok = ct__charsmap_read(t->label, r.charsmap.at, map, &t->arena, &r.normalizer->map, err);
    r.normalizer->suffix = r.suffix;
    decoder->dummy_prefix = r.normalizer->dummy_prefix || r.normalizer->remove_extra_spaces;
    decoder->suffix = r.suffix;
    decoder->escape = r.normalizer->escape;
    t->model.kind = r.kind == 1 ? CT_MODEL_UNIGRAM : CT_MODEL_BPE;
    t->model.byte_fallback = r.byte_fallback;
    r.pieces.no_merges = r.kind == 4;
    ok = ok && ct__pieces_build_model(t, &r.pieces, err);
    if (ok) {
        t->special[CT_BOS] = r.bos < r.n ? r.bos : -1;
        t->special[CT_EOS] = r.eos < r.n ? r.eos : -1;
        t->special[CT_PAD] = r.pad < r.n ? r.pad : -1;
    }
    ct__free(r.pieces.scores);
    ct__free(r.pieces.types);
    return ok;
}

"""libcotan's tokenizers by ctypes."""
import ctypes
import os
from ctypes import POINTER, Structure, byref, c_bool, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_void_p
from pathlib import Path

BUILD = Path(os.environ.get("COTAN_BUILD", Path(__file__).resolve().parents[2] / "build"))


class Loc(Structure):
    _fields_ = [("file", c_char_p), ("line", c_uint32)]


class Span(Structure):
    _fields_ = [("begin", c_uint32), ("end", c_uint32)]


class Encoding(Structure):
    _fields_ = [("ids", POINTER(c_int32)), ("n", c_size_t), ("bytes", POINTER(Span)), ("chars", POINTER(Span)), ("added", POINTER(c_bool)),
                ("cap", c_size_t * 4)]


class EncodeOptions(Structure):
    _fields_ = [("add_special", c_bool), ("plain", c_bool), ("offsets", c_bool), ("here", Loc)]


class TiktokenOptions(Structure):
    _fields_ = [("name", c_char_p), ("pattern", c_char_p), ("specials", POINTER(c_char_p)), ("here", Loc)]


class Gguf(Structure):
    _fields_ = [("model", c_char_p), ("pre", c_char_p), ("tokens", POINTER(c_char_p)), ("lengths", POINTER(c_size_t)), ("n", c_size_t),
                ("scores", POINTER(c_float)), ("types", POINTER(c_int32)), ("merges", POINTER(c_char_p)), ("n_merges", c_size_t),
                ("charsmap", c_void_p), ("charsmap_n", c_size_t), ("bos", c_int64), ("eos", c_int64), ("unk", c_int64), ("pad", c_int64),
                ("add_bos", c_int), ("add_eos", c_int), ("add_space_prefix", c_int), ("remove_extra_whitespaces", c_int)]


lib = ctypes.CDLL(str(BUILD / "libcotan.so"))
for name, result, args in [
        ("ct_error_text", c_char_p, []), ("ct_error_clear", None, []), ("ct_tokenizer_load_at", c_void_p, [c_char_p, Loc]),
        ("ct_tokenizer_free", None, [c_void_p]), ("ct_tokenizer_tiktoken_with", c_void_p, [c_char_p, TiktokenOptions]),
        ("ct_tokenizer_from_gguf_at", c_void_p, [POINTER(Gguf), Loc]), ("ct_tokenizer_size", c_int64, [c_void_p]),
        ("ct_tokenizer_piece", c_void_p, [c_void_p, c_int64, POINTER(c_size_t)]), ("ct_tokenizer_id", c_int64, [c_void_p, c_char_p, c_size_t]),
        ("ct_tokenizer_is_special", c_bool, [c_void_p, c_int64]), ("ct_tokenizer_special", c_int64, [c_void_p, c_int]),
        ("ct_tokenizer_eos_ids", c_size_t, [c_void_p, POINTER(c_int64), c_size_t]),
        ("ct_tokenizer_encode_with", c_bool, [c_void_p, c_char_p, c_size_t, POINTER(Encoding), EncodeOptions]),
        ("ct_encoding_free", None, [POINTER(Encoding)]), ("ct_decoder_new_at", c_void_p, [c_void_p, c_bool, Loc]),
        ("ct_decoder_free", None, [c_void_p]), ("ct_decoder_all", c_void_p, [c_void_p, POINTER(c_int32), c_size_t, POINTER(c_size_t)]),
        ("ct_decoder_next", c_void_p, [c_void_p, c_int32, POINTER(c_size_t)]), ("ct_decoder_end", c_void_p, [c_void_p, POINTER(c_size_t)])]:
    function = getattr(lib, name)
    function.restype, function.argtypes = result, args


class Error(Exception):
    pass


def failed():
    text = lib.ct_error_text().decode()
    lib.ct_error_clear()
    return Error(text)


class Tokenizer:
    def __init__(self, path=None, handle=None):
        self.handle = handle or lib.ct_tokenizer_load_at(str(path).encode(), Loc())
        if not self.handle:
            raise failed()
        self.encoding = Encoding()

    def __del__(self):
        if self.handle:
            lib.ct_encoding_free(byref(self.encoding))
            lib.ct_tokenizer_free(self.handle)

    def run(self, text, add_special=False, plain=False, offsets=False):
        data = text if isinstance(text, bytes) else text.encode()
        if not lib.ct_tokenizer_encode_with(self.handle, data, len(data), byref(self.encoding), EncodeOptions(add_special, plain, offsets, Loc())):
            raise failed()
        return self.encoding

    def ids(self, text, **options):
        e = self.run(text, **options)
        return e.ids[:e.n]

    def spans(self, text, which="chars", **options):
        e = self.run(text, offsets=True, **options)
        return [(s.begin, s.end) for s in getattr(e, which)[:e.n]]

    def piece(self, token):
        n = c_size_t()
        at = lib.ct_tokenizer_piece(self.handle, token, byref(n))
        return ctypes.string_at(at, n.value) if at else None

    def decode(self, ids, skip_special=False):
        return self.decoder(skip_special).all(ids)

    def decoder(self, skip_special=False):
        return Decoder(self, skip_special)


class Decoder:
    def __init__(self, tokenizer, skip_special):
        self.tokenizer, self.handle = tokenizer, lib.ct_decoder_new_at(tokenizer.handle, skip_special, Loc())

    def __del__(self):
        lib.ct_decoder_free(self.handle)

    def said(self, at, n):
        if not at:
            raise failed()
        return ctypes.string_at(at, n.value)

    def all(self, ids):
        n = c_size_t()
        return self.said(lib.ct_decoder_all(self.handle, (c_int32 * len(ids))(*ids), len(ids), byref(n)), n).decode()

    def next(self, token):
        n = c_size_t()
        return self.said(lib.ct_decoder_next(self.handle, token, byref(n)), n)

    def end(self):
        n = c_size_t()
        return self.said(lib.ct_decoder_end(self.handle, byref(n)), n)

"""Eight tokenizer.json files and two SentencePiece models, trained here and now: made(folder) gives the names of the eight."""
import io

from support.tokenizers_texts import lines
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIALS = ["<|endoftext|>", "<s>", "</s>", "[CLS]", "[SEP]", "[MASK]", "<extra>"]


def bpe(**options):
    return Tokenizer(models.BPE(**options))


def gpt2(texts, size):
    t = bpe()
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=True)
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, special_tokens=["<|endoftext|>"], show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def llama3(texts, size):
    t = bpe(ignore_merges=True)
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, special_tokens=["<s>", "</s>"], show_progress=False,
                                                     initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                            processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])])
    return t


def llama2(texts, size):
    t = bpe(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=True)  # for the training alone
    alphabet = [f"<0x{i:02X}>" for i in range(256)]
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, special_tokens=["<unk>", "<s>", "</s>"] + alphabet, limit_alphabet=250,
                                                     show_progress=False))
    t.pre_tokenizer = None
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    import json  # the bytes are tokens of the model, and no added tokens
    whole = json.loads(t.to_str())
    whole["added_tokens"] = [a for a in whole["added_tokens"] if not a["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(whole))


def t5(sp):
    model = proto(sp)
    t = Tokenizer(models.Unigram([(p.piece, p.score) for p in model.pieces], unk_id=0, byte_fallback=False))
    t.normalizer = normalizers.Sequence([normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap), normalizers.Replace(Regex(" {2,}"), " ")])
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    t.decoder = decoders.Metaspace()
    t.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    t.add_special_tokens(["<unk>", "<s>", "</s>"])
    t.add_tokens([AddedToken("<extra>", lstrip=True, rstrip=True, normalized=False)])
    return t


def bert(texts, size):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    t.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=size, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False))
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True, special=True, normalized=False)])
    t.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return t


def words(texts, size):
    t = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    t.normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip(),
                                         normalizers.Nmt(), normalizers.Replace("ß", "ss")])
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.Punctuation("contiguous")])
    t.train_from_iterator(texts, trainers.WordLevelTrainer(vocab_size=size, special_tokens=["[UNK]"], show_progress=False))
    t.add_tokens([AddedToken("Fox", single_word=True, normalized=True), AddedToken("dog", single_word=True), "CAFÉ"])
    return t


def clip(texts, size):
    t = bpe(unk_token="<|endoftext|>", end_of_word_suffix="</w>", continuing_subword_prefix="")
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    pattern = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "removed", invert=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, special_tokens=["<|endoftext|>"], end_of_word_suffix="</w>",
                                                     show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.decoder = decoders.BPEDecoder("</w>")
    t.post_processor = processors.RobertaProcessing(("<|endoftext|>", 0), ("<|endoftext|>", 0), trim_offsets=True, add_prefix_space=False)
    return t


def deepseek(texts, size):
    t = bpe()
    t.normalizer = normalizers.NFKC()
    split = pre_tokenizers.Split
    t.pre_tokenizer = pre_tokenizers.Sequence([
        split(Regex(r"\p{N}{1,3}"), "isolated"), split(Regex("[一-龥぀-ゟ゠-ヿ]+"), "merged_with_next"),
        split(Regex(r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""),
              "isolated"), split("://", "merged_with_previous"),
        pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, special_tokens=["<|endoftext|>"], show_progress=False))
    t.post_processor = processors.ByteLevel(trim_offsets=True, add_prefix_space=True)
    return t


def proto(model):
    from sentencepiece import sentencepiece_model_pb2 as pb
    m = pb.ModelProto()
    m.ParseFromString(model)
    return m


def sentencepiece_model(texts, **options):
    import sentencepiece as spm
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(sentence_iterator=iter(texts), model_writer=model, minloglevel=2, num_threads=1, **options)
    return model.getvalue()


def made(folder, texts=None, size=3000, rules=None):
    """rules: the file of a small table of replacements for SentencePiece, instead of the whole of NFKC."""
    texts = texts or lines(3000, seed=1)
    sp_lines = [x.replace("\0", "") for x in texts]
    table = {"normalization_rule_tsv": rules} if rules else {}
    unigram = sentencepiece_model(sp_lines, model_type="unigram", vocab_size=size // 2, character_coverage=0.985, hard_vocab_limit=False,
                                  user_defined_symbols=["<extra>", "fox"], **table)
    pieces = sentencepiece_model(sp_lines, model_type="bpe", vocab_size=size * 3 // 5 + 200, byte_fallback=True, character_coverage=0.98,
                                 normalization_rule_name="identity", remove_extra_whitespaces=False, user_defined_symbols=["dogs", "::"])
    (folder / "unigram.model").write_bytes(unigram)
    (folder / "bpe.model").write_bytes(pieces)
    for name, make in [("gpt2", gpt2), ("llama3", llama3), ("llama2", llama2), ("bert", bert), ("words", words), ("clip", clip), ("deepseek", deepseek)]:
        make(texts, size).save(str(folder / f"{name}.json"), pretty=False)
    t5(unigram).save(str(folder / "t5.json"), pretty=False)
    return ["gpt2", "llama3", "llama2", "t5", "bert", "words", "clip", "deepseek"]

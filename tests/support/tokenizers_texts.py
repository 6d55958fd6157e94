"""Lines of text for tokenizers, in many scripts and with what breaks them; the same ones for the same seed."""
import random
import unicodedata

WORDS = {
    "latin": "the quick brown fox jumps over lazy dogs and don't we'll I'VE they're It's state-of-the-art naïve café Zürich "
             "Übergröße façade Ångström straße ſharp ﬁrst ﬂow ①② ㎏ ½ Ⅷ İstanbul ISTANBUL ıI Łódź Đorđe œuvre".split(),
    "greek": "ΟΔΥΣΣΕΥΣ καλημέρα κόσμε Ἀθῆναι ᾳ ΰ ὕδωρ Σίσυφος".split(),
    "cyrillic": "привет мир Быстрая ЛИСА прыгает через ленивую собаку ёжик Йод".split(),
    "hebrew": "שלום עולם בְּרֵאשִׁית בָּרָא אֱלֹהִים".split(),
    "arabic": "مرحبا بالعالم السَّلَامُ عَلَيْكُم ١٢٣ ﷺ لا إله".split(),
    "indic": "नमस्ते दुनिया हिन्दी क्षत्रिय বাংলা ভাষা தமிழ் மொழி తెలుగు ಕನ್ನಡ മലയാളം ગુજરાતી ਪੰਜਾਬੀ".split(),
    "thai": "สวัสดีชาวโลก ภาษาไทย กำลัง ๑๒๓ ພາສາລາວ ខ្មែរ မြန်မာ".split(),
    "cjk": "你好，世界。 漢字仮名交じり文 こんにちは世界 カタカナー ｶﾀｶﾅ 한국어 안녕하세요 각 𠮷野家 ㄅㄆㄇ １２３ ＡＢＣ".split(),
    "other": "ኢትዮጵያ Հայաստան საქართველო ᏣᎳᎩ ᠮᠣᠩᠭᠣᠯ ⵜⴰⵎⴰⵣⵉⵖⵜ ⠃⠗⠁⠊ ᚠᚢᚦ 𐍈 𝔘𝔫𝔦 𝟙𝟚 ℌ ℵ".split(),
    "emoji": "😀 👍🏽 👩‍👩‍👧‍👦 🏳️‍🌈 🇩🇪🇫🇷 1️⃣ ❤️ 🤷🏻‍♂️ ☃ ✈︎ 🫠".split(),
    "code": "int main(void){return 0;} x+=1; a->b def f(x):  <div class=\"a\"> https://a.b/c?d=e#f me@x.org C:\\dir $9.99 100% #tag @you "
            "0x1F 3.14159 1234567890 1,000,000 a_b_c --flag ... !!! ??? `tick` ~/x {[()]} <|x|> </w> ## [UNK] <unk> ▁ ▁▁x Ġ <0x41>".split(),
    "marks": ["e\u0301", "e\u0323\u0301", "e\u0301\u0323", "A\u030a", "q\u0307\u0323", "\u1112\u1161\u11ab", "\uac00\u11a8", "a" + "\u0301" * 5,
              "\u0344", "\u0958", "\u2126", "\ufb1d", "o\u0308\u0304", "\u0301x", "\u3099か"],
    "controls": ["\x00", "\x01", "\x07", "\x0b", "\x0c", "\x1b[0m", "\x7f", "\x85", "\u200b", "\u200d", "\u200e", "\u2028", "\u2029", "\u2060",
                 "\ufeff", "\ufffd", "\ufffe", "\U0010ffff", "\ue000", "\xad", "\u180e", "\u061c"],
}
# What came to Unicode after 3.2, which libraries know as far as they are new: up to 6, 8, 9, 14, 15, 16 and 17.
NEW = ("👩🏽‍🚀 🏴󠁧󠁢󠁳󠁣󠁴󠁿 🧑‍🦰 🫠 🫨 🩵 🪿 🩷 𞤀𞤣𞤤𞤢𞤥 𞥑𞥒 𠀀 𪚥 𱍐 𲎯 𮯰 𝔄𝓑𝟘 𝕏 𐐀 Ꮿ ᲀ Ა 㐀 ㋿ 🄬 🯰 ⸺ ⹊ ⹝ ⃀ ꟊ ౝ ꧞ ᪿ࣊ 𖩀 𐓀 𞄀 𑤰𑤵 𞀰 𑽐 𑽱 Ᲊ Ɤ 𐵐 𐵀 "
       "𜳰 𖵰 \ua7ce \U00016ea0 \U00011de0").split()
SPACES = [" "] * 24 + ["  ", "   ", "\t", "\n", "\n\n", " \n", "\r\n", "\n ", "\u00a0", "\u3000", "\u2003", "\u202f", " \t ", "", "", "\u1680"]


def character(rng):
    """One that Unicode 3.2 knows: libraries differ in how new a Unicode they have."""
    while True:
        c = chr(rng.choice([rng.randint(0x20, 0x24f), rng.randint(0x250, 0x2fff), rng.randint(0x3000, 0xd7ff), rng.randint(0x10000, 0x1faff)]))
        if unicodedata.ucd_3_2_0.category(c) != "Cn":
            return c


def new_lines(count, seed):
    rng = random.Random(seed)
    words = NEW + WORDS["latin"][:9] + WORDS["cjk"][:3] + WORDS["marks"][:4] + ["1", "12", ".", "!"]
    return ["".join(x for _ in range(rng.randint(1, 20)) for x in (rng.choice(words), rng.choice(SPACES))) for _ in range(count)]


def lines(count, seed=2026, specials=()):
    rng = random.Random(seed)
    kinds = list(WORDS)
    everything = [w for kind in kinds for w in WORDS[kind]]
    out = []
    for i in range(count):
        kind = rng.choice(kinds)
        words = WORDS[kind] if rng.random() < 0.5 else everything
        parts = []
        for _ in range(rng.randint(0, 24)):
            word = rng.choice(words)
            how = rng.random()
            if how < 0.06:
                word = word.upper()
            elif how < 0.12:
                word = word.capitalize()
            elif how < 0.16:
                word = "".join(rng.sample(word, len(word)))
            elif how < 0.19:
                word = word * rng.randint(2, 9)
            elif how < 0.22 and specials:
                word = rng.choice(specials)
            elif how < 0.24:
                word = character(rng)
            parts += [word, rng.choice(SPACES)]
        line = "".join(parts)
        if i % 97 == 0:
            line += rng.choice("a .e\n1!é中▁") * rng.randint(50, 400)
        out.append(line)
    return out

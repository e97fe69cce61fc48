#!/usr/bin/env python3
"""Ids and texts of random tokenizers on random texts are those of the package `tokenizers`. Skipped where it is missing.

usage: originals_test.py PROGRAM [TOKENIZERS [TEXTS [SEED]]]     a tokenizer_program; how many; of each; the first seed
"""
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

SKIPPED = 77  # Meson's status
try:
    from tokenizers import Tokenizer
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(SKIPPED)

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
REGEXES = [GPT2, LLAMA3, r"\s+", r"\w+|[^\w\s]+", r"\d", r"\bt", r"[a-c]+", r"(?=[A-Z])", r"a*", r"[[:alpha:]]+", r"\p{Lu}?\p{Ll}+",
           r"(?i)the|he", r"[^\S\n]+", r".", r"^t|e$", r"\h+", r"\S+\s", r"\w\B", r"\p{Han}", r"[[:punct:]]", r"\p{Alnum}+", r"[^[:space:]]+", r"'(?:[sdmt]|ll|ve|re)"]
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
# Characters that normalizers, patterns and properties treat differently.
PIECES = (["the", "he", "The", "THE", "a", "b", "c", " ", " ", "  ", "\n", "\r\n", "\t", "'s", "'LL", "'re", "don't", " do not", ".", ",", " .",
           "!", "?", "-", "_", "#", "##", "12", "3", "4567", "½", "²", "Ⅷ", "٣", "é", "e\u0301", "Å", "ñ", "ß", "İ", "ı", "ſ", "Σ", "ς", "Ω", "ﬁ",
           "ＡＢ", "①", "㎏", "日本", "語", "한국", "ก็", "ا", "ّ", "अ", "ि", "क्ष", "😀", "👩\u200d👩", "\u200b", "\u200d", "\u00a0", "\u2003", "\u3000",
           "\u2028", "\u0085", "\u180e", "\x00", "\x1f", "\x7f", "\ufeff", "\ufffd", "\u00ad", "\ue000", "▁", "Ġ", "«", "—", "€", "$", "+", "<", "|",
           "`", "~", "^", "\u0300", "\u20dd", "\U0001d7d8", "\U00020000", "<0x41>", "</w>", "x" * 101, "<unk>", "ʼn", "ŉ", "ǅ"])
TOKENS = ["<s>", "</s>", "<mask>", "[SEP]", "the he", "Thé", "ab", "12", "▁x", " lead", "trail ", "É", "日", "<|x|>"]
# Of which all versions of Unicode say the same: the original has tables of several versions, all old.
OLD = [c for c in map(chr, range(0x20, 0x3100))
       if unicodedata.ucd_3_2_0.category(c) == unicodedata.category(c) and unicodedata.category(c) != "Cn"]


def text(rng):
    kind = rng.random()
    if kind < 0.05:
        return ""
    if kind < 0.2:
        return "".join(rng.choice(OLD) for _ in range(rng.randrange(1, 12)))
    return "".join(rng.choice(PIECES if rng.random() < 0.85 else TOKENS) for _ in range(rng.randrange(1, 25)))


def find(rng):
    if rng.random() < 0.4:
        return {"String": rng.choice(["a", " ", "the", ".", "é", "▁", "e", "  "])}
    return {"Regex": rng.choice(REGEXES)}


def normalizer(rng, depth=0):
    kind = rng.choice(["BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Strip", "StripAccents", "Prepend", "Replace",
                       "ByteLevel"] + ["Sequence"] * 3 * (depth < 2))
    more = {
        "BertNormalizer": lambda: {"clean_text": flip(rng), "handle_chinese_chars": flip(rng), "lowercase": flip(rng),
                                   "strip_accents": rng.choice([None, True, False])},
        "Strip": lambda: {"strip_left": flip(rng), "strip_right": flip(rng)},
        "Prepend": lambda: {"prepend": rng.choice(["▁", " ", "a"])},
        "Replace": lambda: {"pattern": find(rng), "content": rng.choice(["", "▁", "xy", "é"])},
        "Sequence": lambda: {"normalizers": [normalizer(rng, depth + 1) for _ in range(rng.randrange(3))]},
    }
    return {"type": kind, **more.get(kind, dict)()}


def flip(rng):
    return rng.random() < 0.5


def pre_tokenizer(rng, depth=0):
    kind = rng.choice(["ByteLevel", "BertPreTokenizer", "Whitespace", "WhitespaceSplit", "Punctuation", "Digits", "Split", "Split",
                       "Metaspace", "CharDelimiterSplit"] + ["Sequence"] * 3 * (depth < 2))
    more = {
        "ByteLevel": lambda: {"add_prefix_space": flip(rng), "trim_offsets": flip(rng), "use_regex": flip(rng)},
        "Punctuation": lambda: {"behavior": rng.choice(BEHAVIORS)},
        "Digits": lambda: {"individual_digits": flip(rng)},
        "Split": lambda: {"pattern": find(rng), "behavior": rng.choice(BEHAVIORS), "invert": flip(rng)},
        "Metaspace": lambda: metaspace(rng),
        "CharDelimiterSplit": lambda: {"delimiter": rng.choice(["-", " ", "é"])},
        "Sequence": lambda: {"pretokenizers": [pre_tokenizer(rng, depth + 1) for _ in range(rng.randrange(4))]},
    }
    return {"type": kind, **more.get(kind, dict)()}


def metaspace(rng):
    return {"replacement": rng.choice(["▁", "_"]), "prepend_scheme": rng.choice(["always", "first", "never"]), "split": flip(rng)}


def decoder(rng, depth=0):
    kind = rng.choice(["ByteLevel", "WordPiece", "Metaspace", "BPEDecoder", "Replace", "ByteFallback", "Fuse", "Strip"]
                      + ["Sequence"] * 4 * (depth < 2))
    more = {
        "ByteLevel": lambda: {"add_prefix_space": flip(rng), "trim_offsets": True, "use_regex": True},
        "WordPiece": lambda: {"prefix": rng.choice(["##", "a"]), "cleanup": flip(rng)},
        "Metaspace": lambda: metaspace(rng),
        "BPEDecoder": lambda: {"suffix": "</w>"},
        "Replace": lambda: {"pattern": find(rng), "content": rng.choice(["", " ", "z"])},
        "Strip": lambda: {"content": rng.choice([" ", "a"]), "start": rng.randrange(3), "stop": 0},
        "Sequence": lambda: {"decoders": [decoder(rng, depth + 1) for _ in range(rng.randrange(4))]},
    }
    return {"type": kind, **more.get(kind, dict)()}


def byte_characters():
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b if b in visible else next(others)) for b in range(256)]


def bpe(rng):
    prefix, suffix = rng.choice([None, None, "##"]), rng.choice([None, None, "</w>"])
    letters = list("abcdehtTHEs.,'#12▁Ġé") + (byte_characters() if flip(rng) else [])
    tokens = dict.fromkeys(["<unk>", *letters])
    if prefix or suffix:
        tokens.update(dict.fromkeys([(prefix or "") + letter for letter in letters] + [letter + (suffix or "") for letter in letters]
                                    + [(prefix or "") + letter + (suffix or "") for letter in letters]))
    if flip(rng):
        tokens.update(dict.fromkeys(f"<0x{b:02X}>" for b in range(256) if b != 0xC3 or flip(rng)))
    merges = []
    for _ in range(rng.randrange(80)):
        left, right = (rng.choice([t for t in tokens if not t.startswith("<")]) for _ in range(2))
        if prefix and not right.startswith(prefix):
            continue
        tokens[left + right[len(prefix or ""):]] = None
        merges.append([left, right])
    rng.shuffle(merges)
    if flip(rng) and not any(" " in token for merge in merges for token in merge):
        merges = [" ".join(merge) for merge in merges]
    return {"type": "BPE", "dropout": None, "unk_token": rng.choice([None, "<unk>"]), "continuing_subword_prefix": prefix,
            "end_of_word_suffix": suffix, "fuse_unk": flip(rng), "byte_fallback": flip(rng), "ignore_merges": flip(rng),
            "vocab": {token: k for k, token in enumerate(tokens)}, "merges": merges}


def word_piece(rng):
    prefix = rng.choice(["##", "", "▁"])
    stems = ["the", "he", "a", "b", "t", "h", "e", "é", "e\u0301", "12", "1", "日", "x", ".", "'", "s", "re", "İ", "i"]
    tokens = dict.fromkeys(["[UNK]", *stems, *(prefix + stem for stem in stems)])
    return {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": prefix, "max_input_chars_per_word": rng.choice([100, 5, 0]),
            "vocab": {token: k for k, token in enumerate(tokens)}}


def word_level(rng):
    tokens = dict.fromkeys(["<unk>", *rng.sample(PIECES, 40)])
    return {"type": "WordLevel", "unk_token": "<unk>", "vocab": {token: k for k, token in enumerate(tokens)}}


def post_processor(rng, added):
    ids = {token["content"]: token["id"] for token in added}
    if len(ids) < 2 or rng.random() < 0.2:
        return rng.choice([None, {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}])
    first, last = list(ids)[:2]

    def special(token, kind=0):
        return {"SpecialToken": {"id": token, "type_id": kind}}

    def sequence(name, kind):
        return {"Sequence": {"id": name, "type_id": kind}}

    around = {"sep": [last, ids[last]], "cls": [first, ids[first]]}
    template = {"type": "TemplateProcessing", "single": [special(first), sequence("A", rng.randrange(2)), special(last, 1)],
                "pair": [sequence("B", 1), special(last), sequence("A", 0), special(first, rng.randrange(3))],
                "special_tokens": {token: {"id": token, "ids": [ids[token]] * rng.randrange(1, 3), "tokens": [token]} for token in ids}}
    for entry in template["special_tokens"].values():
        entry["tokens"] = entry["tokens"] * len(entry["ids"])
    chosen = rng.choice([template, {"type": "BertProcessing", **around},
                         {"type": "RobertaProcessing", **around, "trim_offsets": False, "add_prefix_space": False}])
    if flip(rng):
        chosen = {"type": "Sequence", "processors": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
                                                     chosen]}
    return chosen


def added_tokens(rng, vocabulary):
    size, added = len(vocabulary), []
    for content in rng.sample(TOKENS, rng.randrange(len(TOKENS))):
        number = vocabulary.get(content)
        if number is None:
            number, size = size, size + 1
        added.append({"id": number, "content": content, "special": flip(rng), "normalized": flip(rng), "single_word": rng.random() < 0.3,
                      "lstrip": rng.random() < 0.3, "rstrip": rng.random() < 0.3})
    return added


def document(rng):
    model = rng.choice([bpe, bpe, word_piece, word_level])(rng)
    added = added_tokens(rng, model["vocab"])
    if rng.random() < 0.1:
        del model["type"]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
            "normalizer": normalizer(rng) if flip(rng) else None, "pre_tokenizer": pre_tokenizer(rng) if rng.random() < 0.8 else None,
            "post_processor": post_processor(rng, added), "decoder": decoder(rng) if rng.random() < 0.8 else None, "model": model}


def requests(rng, tokenizer, count):
    ids = range(tokenizer.get_vocab_size() + 3)
    for _ in range(count):
        if rng.random() < 0.3:
            yield {"ids": [rng.choice(ids) for _ in range(rng.randrange(12))], "skip": flip(rng)}
            continue
        request = {"text": text(rng), "special": flip(rng)}
        if rng.random() < 0.2:
            request["pair"] = text(rng)
        yield request


def original(tokenizer, request):
    if "ids" in request:
        return tokenizer.decode(request["ids"], skip_special_tokens=request["skip"])
    y = tokenizer.encode(request["text"], request.get("pair"), add_special_tokens=request["special"])
    return {"ids": y.ids, "types": y.type_ids}


def unless_panic(function):
    """None where the original panics."""
    try:
        return function()
    except BaseException as panic:  # Rust's is no Exception
        if type(panic).__name__ != "PanicException":
            raise
        return None


def compare(program, seed, count, folder):
    """What differs for the tokenizer of a seed."""
    rng = random.Random(seed)
    made = document(rng)
    file = pathlib.Path(folder) / "tokenizer.json"
    file.write_text(json.dumps(made), encoding="utf-8")
    tokenizer = unless_panic(lambda: Tokenizer.from_str(json.dumps(made)))
    if tokenizer is None:
        return
    if tokenizer.normalizer:
        texts = unless_panic(lambda: [tokenizer.normalizer.normalize_str(token["content"]) for token in made["added_tokens"]
                                      if token["normalized"]])
        if texts is None or "" in texts or len(set(texts)) < len(texts):
            return  # the original panics, or finds one of them by chance
    asked = list(requests(rng, tokenizer, count))
    run = subprocess.run([program, file], input="\n".join(json.dumps(request) for request in asked), capture_output=True,
                         encoding="utf-8", check=False)
    answers = [json.loads(line) for line in run.stdout.split("\n") if line]
    if len(answers) != len(asked):
        yield f"seed {seed}: {run.stdout[-300:]} {run.stderr[-300:]}"
        return
    for request, ours in zip(asked, answers):
        theirs = unless_panic(lambda: original(tokenizer, request))
        if theirs is None:
            continue
        if ours != theirs:
            yield f"seed {seed}: {request}\n  ours   {ours}\n  theirs {theirs}"


def main(program, tokenizers=40, texts=50, first=0):
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(int(first), int(first) + int(tokenizers)):
            found += compare(program, seed, int(texts), folder)
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

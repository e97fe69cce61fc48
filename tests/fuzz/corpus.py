#!/usr/bin/env python3
"""Writes what the fuzzers begin with: small files of every kind that their parsers read.

Usage: corpus.py FOLDER

Makes a folder for each fuzzer in FOLDER. Ledgers are in ledger_corpus.
"""

import base64
import gzip
import io
import json
import pathlib
import shutil
import struct
import sys
import tarfile
import zipfile
import zlib

EVENTS = [
    {"mechanism": "gaussian", "noise_multiplier": 1.1, "sampling": "poisson", "sampling_rate": 0.01},
    {"mechanism": "gaussian", "noise_multiplier": 4, "sampling": "full_batch", "sampling_rate": 1},
    {"mechanism": "gaussian", "noise_multiplier": 2, "sampling": "truncated_poisson", "sampling_rate": 0.1, "cut": 1e-9},
    {"mechanism": "gaussian", "noise_multiplier": 2, "sampling": "balls_and_bins", "sampling_rate": 1, "batches": 4,
     "paid": False},
]
SETTINGS = {
    "accountant": "pld", "accumulation": None, "activation": "tanh", "adaptive quantile": None, "average": None,
    "average warmup": False, "batch": 8.0, "checkpoint": None, "clip bound": 0.1, "clip groups": "flat", "clip rule": "minimum",
    "data from files": False, "delta": 1e-05, "epochs": 20.0, "epsilon": None, "largest batch": 0, "learning rate": 0.5,
    "memory limit": 0, "momentum": 0.9, "noise multiplier": 1.0, "normalize": False, "optimizer": "sgd",
    "passes": "auto", "physical batch": None, "precision": "auto", "privacy": True, "sampling": "poisson",
    "schedule": "constant", "seed": 0, "steps": 3, "test size": 10, "train size": 40,
    "unit": "one sample", "validation": 0.0, "warmup": 0,
}
MARK = {"bytes": 715, "chain": "f" * 64, "ledger": "a" * 32, "lines": 4, "releases": 3, "run": "b" * 32}
STATISTICS = {
    "norms": [{"clip_bound": 0.1, "clipped_fraction": 1.0, "counts": [0, 3], "edges": [0.0, 0.5, 1.0], "step": 2}],
    "points": [[2, 2.3, 1.0], [3, 2.2, None]], "private": False, "seconds": 0.07,
}
TEXTS = {
    "b": ["4096", "2GiB", "1.5 MB", "0.1kB"],
    "c": ["auto", "none", "3"],
    "d": ["cpu", "cuda", "cuda:1"],
    "e": [json.dumps(event) for event in EVENTS],
    "p": ["auto", "bf16"],
    "x": [
        "noise-multiplier=1.1,dataset-size=60000,batch-size=256,epochs=20",
        "noise-multiplier=1,sampling=balls_and_bins,dataset-size=1000,batches-per-epoch=4,steps=8",
        "noise-multiplier=1,sampling=truncated_poisson,sampling-rate=0.01,dataset-size=1000,max-batch-size=20,steps=5",
        "noise-multiplier=2,sampling=truncated_poisson,sampling-rate=0.01,dataset-size=1000,truncation-probability=1e-9,steps=5",
    ],
}

# 8 x 8 pixels, grey; and in colours, progressive, with an orientation.
JPEG = """
/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAFA3PEY8MlBGQUZaVVBfeMiCeG5uePWvuZHI////////////////////////////////////////////////
////wAALCAAIAAgBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAAAP/EABcQAAMBAAAAAAAAAAAAAAAAAAABBGH/2gAIAQEAAD8AKXD/2Q==
"""
PROGRESSIVE_JPEG = """
/9j/4AAQSkZJRgABAQAAAQABAAD/4QAiRXhpZgAATU0AKgAAAAgAAQESAAMAAAABAAYAAAAAAAD/2wBDAFA3PEY8MlBGQUZaVVBfeMiCeG5uePWvuZHI
////////////////////////////////////////////////////2wBDAVVaWnhpeOuCguv/////////////////////////////////////////////
////////////////////////////wgARCAAIAAgDASIAAhEBAxEB/8QAFAABAAAAAAAAAAAAAAAAAAAAAP/EABUBAQEAAAAAAAAAAAAAAAAAAAAC/9oA
DAMBAAIQAxAAAAEFf//EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQEAAQUCf//EABYRAAMAAAAAAAAAAAAAAAAAAAABEv/aAAgBAwEBPwGUf//EABQR
AQAAAAAAAAAAAAAAAAAAAAD/2gAIAQIBAT8Bf//EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQEABj8Cf//EABUQAQEAAAAAAAAAAAAAAAAAAAAR/9oA
CAEBAAE/Ia//2gAMAwEAAgADAAAAEA//xAAVEQEBAAAAAAAAAAAAAAAAAAAAAf/aAAgBAwEBPxCL/8QAFREBAQAAAAAAAAAAAAAAAAAAABH/2gAIAQIB
AT8Qj//EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQEAAT8Qf//Z
"""


def tensors(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def safetensors():
    def entry(dtype, shape, begin, end):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    yield tensors({}, b"")
    # The checksum does not fit.
    yield tensors({"__metadata__": {"format": "pt", "sotto.xxh64": "0123456789abcdef"}}, b"")
    yield tensors({"w": entry("F32", [1, 2], 0, 8), "b": entry("BOOL", [2], 8, 10), "e": entry("F64", [0], 10, 10)},
                  b"\0" * 10)
    for dtype, size in {"F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1}.items():
        yield tensors({dtype: entry(dtype, [], 0, size)}, b"\1" * size)


def idx():
    images = struct.pack(">IIII", 0x0803, 2, 3, 2) + bytes(range(12))
    labels = struct.pack(">II", 0x0801, 4) + bytes(range(4))
    for plain in (images, labels):
        yield plain
        yield gzip.compress(plain, mtime=0)
    yield gzip.compress(labels[:6], mtime=0) + gzip.compress(labels[6:], mtime=0)


def table():
    columns = [{"name": "a", "kind": "number", "min": 0, "max": 1, "missing": 0.5},
               {"name": "b", "kind": "category", "categories": ["x", ["y", "z"]], "other": True, "missing": True},
               {"name": "n", "kind": "ignore"}, {"name": "c", "kind": "label", "categories": ["no", "yes"]},
               {"name": "d", "kind": "user"}]
    price = [{"name": "a", "kind": "number", "mean": 1.5, "deviation": 2}, {"name": "c", "kind": "label", "min": 0, "max": 9, "log": True}]
    files = ["a,b,c,d\n0.5,x,no,me\n?,y,yes,you\n", '\ufeffd,c,b,a\r\n"me ""I""",yes, z ,1e-3\r\n\r\nme,no,"q\n,",-7',
             "a,b,n,c,d\n1,,,no,1\n", "# x\na,b,c,d,\n1,x,no,e,\n#\n\x1a", "sep=;\n;a;b;c;d\n0;1;x;no;e\n",
             "a,b,c,d\nr1,0,x,no,me\nr2,1,y,yes,you\n", ",1990,1991\n0,1,2\n1,3,4\n", "red,a\nblue,b\nred,b\n"]
    for text in files:
        yield b"\0" + text.encode()
        yield json.dumps({"columns": columns}).encode() + b"\0" + text.encode()
    yield b"\0" + gzip.compress(files[0].encode(), mtime=0)
    yield json.dumps({"columns": price, "header": False, "delimiter": "\t", "missing": "-"}).encode() + b"\x001\t2\n3\t4\n"


def cifar():
    ten, hundred = b"\3" + bytes(3072), b"\x13\x63" + bytes(3072)
    yield from (ten, ten * 2, hundred, gzip.compress(hundred * 2, mtime=0))
    for name, records, form in (("cifar-10-batches-bin/test_batch.bin", ten * 2, tarfile.USTAR_FORMAT),
                                ("cifar-100-binary/test.bin", hundred, tarfile.GNU_FORMAT)):
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w", format=form) as tar:
            entry = tarfile.TarInfo(name)
            entry.size = len(records)
            tar.addfile(entry, io.BytesIO(records))
        yield archive.getvalue()
        yield gzip.compress(archive.getvalue(), mtime=0)


def picture():
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    def png(bits, color, rows, *chunks, interlaced=0):
        header = struct.pack(">IIBBBBB", 2, len(rows), bits, color, 0, 0, interlaced)
        pixels = zlib.compress(b"".join(b"\0" + row for row in rows))
        return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunks) + chunk(b"IDAT", pixels)
                + chunk(b"IEND", b""))

    exif = b"II*\0" + struct.pack("<IHHHIHHI", 8, 1, 0x0112, 3, 1, 5, 0, 0)
    yield png(8, 0, [b"\1\2", b"\3\4"], chunk(b"eXIf", exif))
    yield png(16, 2, [bytes(12)])
    yield png(1, 3, [b"\x40"], chunk(b"PLTE", bytes(6)), chunk(b"tRNS", b"\x7f"))
    yield png(8, 6, [bytes(8)])
    for text in (JPEG, PROGRESSIVE_JPEG):
        yield base64.b64decode(text)


def text():
    for options in range(4):
        yield bytes([options + 32]) + "ab\r\n\né|€\n \nb😀".encode()


def options():
    for option, texts in TEXTS.items():
        for text in texts:
            yield (option + text).encode()


def engine_state():
    sampler = {"event": {**EVENTS[3], "noise_multiplier": 0, "sampling_rate": 1, "batches": 3, "paid": True},
               "epoch": 1, "expected_size": 4.0, "number": 2, "pass": 0, "place": 2, "population": 12, "secure": True}
    state = {"bounds": [1.0], "data": [], "facts": [], "good_steps": 0, "ledger": "LEDGER", "loss_scale": 1.0,
             "means_released": 0, "noise_multiplier": 1.0, "run": "RUN", "sampler": sampler, "steps_made": 2}
    yield json.dumps(state).encode()
    yield json.dumps({**state, "sampler": {**sampler, "number": 1, "place": 1}, "steps_made": 1}).encode()


def checkpoint():
    def lines(*objects):
        return "\n".join(json.dumps(o) for o in objects).encode()

    section = {"data": ["0123456789abcdef", ""], "history": [[2, 0.5, 2.9], [3, 0.4, None]], "ledger_file": "m.ledger",
               "noise_multiplier": 1.0, "program": "mnist", "requested_test_size": 10, "requested_train_size": 40,
               "settings": SETTINGS, "step": 3}
    ordinary = {**SETTINGS, "privacy": False, "noise multiplier": None}
    yield lines(section, MARK, STATISTICS)
    yield lines({**section, "settings": ordinary}, None, STATISTICS)
    yield lines({**section, "settings": {**SETTINGS, "sampling": "balls_and_bins", "accountant": "rdp"}}, MARK, STATISTICS)


def gguf():
    def text(value):
        return struct.pack("<Q", len(value)) + value

    for version in (2, 3):
        keys = [text(b"general.architecture") + struct.pack("<I", 8) + text(b"llama"),
                text(b"general.alignment") + struct.pack("<II", 4, 32),
                text(b"tokens") + struct.pack("<IIQ", 9, 8, 2) + text(b"a") + text("Ġb".encode()),
                text(b"lists") + struct.pack("<IIQIQ", 9, 9, 1, 0, 3) + b"\1\2\3",
                text(b"bool") + struct.pack("<I?", 7, True), text(b"f64") + struct.pack("<Id", 12, 0.5)]
        # F32 [2, 2], Q8_0 [2, 32], Q4_K [256], and a type that is not read, Q2_K [256].
        tensors = [(b"w", 0, (2, 2), 0), (b"q", 8, (32, 2), 32), (b"k", 12, (256,), 128), (b"other", 10, (256,), 288)]
        start = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys)
        for name, kind, sizes, offset in tensors:
            start += text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind, offset)
        yield start + bytes(-len(start) % 32) + bytes(288 + 96)


def torch_files():
    def number(value):
        return b"\x8a\x08" + struct.pack("<q", value)

    def text(value):
        return b"X" + struct.pack("<I", len(value)) + value

    def tensor(kind, key, count, offset, sizes, strides):
        storage = (b"(" + text(b"storage") + b"ctorch\n" + kind + b"\n" + text(key) + text(b"cpu") + number(count) + b"tQ")
        tuples = b"".join(b"(" + b"".join(map(number, numbers)) + b"t" for numbers in (sizes, strides))
        return (b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + number(offset) + tuples
                + b"\x89ccollections\nOrderedDict\n)RtR")

    def whole(value):
        return b"\x80\x02" + value + b"."

    names = (text(b"w") + tensor(b"FloatStorage", b"0", 4, 0, (2, 2), (1, 2)) + b"q\1"
             + text(b"n") + tensor(b"LongStorage", b"1", 1, 0, (), ()) + text(b"again") + b"h\1")
    plain = b"}(" + names + b"u"
    nested = (b"}(" + text(b"epoch") + b"K\3" + text(b"lr") + b"G" + struct.pack(">d", 0.1)
              + text(b"state_dict") + b"ccollections\nOrderedDict\n)R(" + names + b"u}b" + b"u")
    storages = {"0": bytes(16), "1": bytes(8)}
    magic = b"\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
    for value in (plain, nested):
        yield (whole(magic) + whole(number(1001)) + whole(b"}" + text(b"little_endian") + b"\x88s") + whole(value)
               + whole(b"](" + text(b"0") + text(b"1") + b"e") + number(4)[2:] + storages["0"] + number(1)[2:] + storages["1"])
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            archive = io.BytesIO()
            with zipfile.ZipFile(archive, "w", method) as entries:
                entries.writestr("m/data.pkl", whole(value))
                entries.writestr("m/byteorder", "little")
                for key, data in storages.items():
                    entries.writestr(f"m/data/{key}", data)
            yield archive.getvalue()


def weights():
    yield from safetensors()
    yield from gguf()
    yield from torch_files()
    yield b'{"metadata":{"total_size":4},"weight_map":{"w":"model-00001-of-00001.safetensors"}}'


def tokenizer():
    added = [{"id": 0, "content": "<s>", "special": True, "normalized": False, "lstrip": True}]
    bytes_ = {"added_tokens": added, "pre_tokenizer": {"type": "ByteLevel"}, "decoder": {"type": "ByteLevel"},
              "post_processor": {"type": "RobertaProcessing", "cls": ["<s>", 0], "sep": ["<s>", 0]},
              "model": {"type": "BPE", "vocab": {"<s>": 0, "a": 1, "b": 2, "ab": 3, "Ġ": 4}, "merges": ["a b"]}}
    words = {"normalizer": {"type": "Sequence", "normalizers": [
                 {"type": "BertNormalizer"}, {"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": "\\s+|[a-c]"}, "content": "_"}]},
             "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                 {"type": "Whitespace"}, {"type": "Digits", "individual_digits": True}, {"type": "Metaspace", "prepend_scheme": "first"},
                 {"type": "Split", "pattern": {"String": "x"}, "behavior": "MergedWithNext", "invert": True}]},
             "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Strip", "content": " ", "start": 1}, {"type": "Fuse"}]},
             "model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {"[UNK]": 0, "a": 1, "##b": 2}}}
    gguf = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["<unk>", "<s>", "a", "b", "ab"], "tokenizer.ggml.token_type": [2, 3, 1, 1, 1],
            "tokenizer.ggml.scores": [0, 0, -1, -1, -2], "tokenizer.ggml.bos_token_id": 1}
    for kind, document in ((b"t", bytes_), (b"t", words), (b"g", gguf)):
        yield kind + json.dumps(document).encode() + "\0 ab<s> É1".encode()


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    for make in (safetensors, idx, cifar, picture, table, text, tokenizer, options, engine_state, checkpoint,
                 weights):
        place = folder / make.__name__
        place.mkdir(parents=True, exist_ok=True)
        for number, content in enumerate(make()):
            (place / f"seed_{number}").write_bytes(content)
    ledgers = pathlib.Path(__file__).parent / "ledger_corpus"
    shutil.copytree(ledgers, folder / "ledger", dirs_exist_ok=True)


if __name__ == "__main__":
    main()

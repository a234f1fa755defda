"""Hostile and broken models: each is a change of a good one, with the words that must refuse it."""

import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models

from tests.tiny_models import tiny_tokenizer

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
Change = Callable[[Path], None]


class Bomb:
    """Unpickled, it would run a program."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("false",)


def written(name: str, content: bytes | str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return change


def without(name: str) -> Change:
    return lambda folder: (folder / name).unlink()


def configured(**changes: Any) -> Change:
    def change(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))
    return change


def template(source: str) -> Change:
    return written("chat_template.jinja", source)


def safetensors_bytes(header: dict[str, Any] | bytes, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(start: int, stop: int, shape: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [start, stop]}


def header(tensors: dict[str, Any] | bytes, data: int = 16) -> Change:
    """Put a file with this header, and so many bytes of data, in place of the weights."""
    return written(WEIGHTS, safetensors_bytes(tensors, bytes(data)))


def giant_header(folder: Path) -> None:
    """A file of 200 MB on paper whose header claims 150 MB of it."""
    with (folder / WEIGHTS).open("wb") as file:
        file.write(struct.pack("<Q", 150_000_001) + b"{")
        file.truncate(200_000_000)


def crowded_header(folder: Path) -> None:
    """95 MB of header, as long as the format allows: a million and more tensors without content."""
    tensors = b",".join(b'"t%d":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}' % number
                        for number in range(1_500_000))
    (folder / WEIGHTS).write_bytes(safetensors_bytes(b"{" + tensors + b"}"))


def changed_tensors(change: Callable[[dict[str, np.ndarray]], None]) -> Change:
    def apply(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        change(tensors)
        save_file(tensors, folder / WEIGHTS)
    return apply


def sharded(change: Callable[[Path, dict[str, str]], None]) -> Change:
    """Split the weights in two shards with an index, and spoil them."""
    def apply(folder: Path) -> None:
        tensors = load_file(folder / WEIGHTS)
        (folder / WEIGHTS).unlink()
        places = {}
        for number in (1, 2):
            shard = f"model-0000{number}-of-00002.safetensors"
            own = dict(sorted(tensors.items())[number - 1 :: 2])
            save_file(own, folder / shard)
            places |= dict.fromkeys(own, shard)
        change(folder, places)
        (folder / INDEX).write_text(json.dumps({"weight_map": places}))
    return apply


def _set(places: dict[str, str], name: str, shard: str) -> None:
    places[name] = shard


def long_path(folder: Path) -> None:
    deep = folder / ("x" * 200) / ("y" * 100)
    deep.mkdir(parents=True)
    (deep / "z").write_text("z")


def zipped_pickle(folder: Path) -> None:
    with zipfile.ZipFile(folder / "notes.dat", "w") as archive:
        archive.writestr("inner/data.pkl", pickle.dumps(Bomb()))


def too_many_ids(folder: Path) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens([f"new token {number}" for number in range(5)])
    tokenizer.save(str(folder / "tokenizer.json"))


def empty_tokenizer(folder: Path) -> None:
    Tokenizer(models.BPE({}, [])).save(str(folder / "tokenizer.json"))


LOOPS = ("{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}"
         "{% endfor %}")
DOUBLING = "{% set ns = namespace(x='ab') %}{% for i in range(40) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}"
A, B = "model.norm.weight", "model.embed_tokens.weight"

MODELS: dict[str, tuple[Change, str]] = {
    # weights: what isn't safetensors
    "pickle as safetensors": (written(WEIGHTS, pickle.dumps(Bomb())), "model.safetensors: is a pickle or a zip"),
    "zip as safetensors": (written(WEIGHTS, b"PK\x03\x04" + bytes(100)), "model.safetensors: is a pickle or a zip"),
    "empty weights": (written(WEIGHTS, b""), "model.safetensors: is empty"),
    "LFS pointer": (written(WEIGHTS, b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"),
                    "model.safetensors: is a Git LFS pointer"),
    "no weights": (without(WEIGHTS), "holds no safetensors and no GGUF"),
    "second set of weights": (written("other.safetensors", safetensors_bytes({})), "holds 2 safetensors files but no"),
    "text as weights": (written(WEIGHTS, "these are not weights"), "the header claims .* bytes but the file has"),
    # weights: headers
    "header of 2^60 bytes": (written(WEIGHTS, struct.pack("<Q", 2**60) + b"{}"), "header claims 1,152,921,504,606,846"),
    "header over 100 MB": (giant_header, "header claims 150,000,001 bytes, more than the 100,000,000"),
    "header of a million tensors": (crowded_header, "header lists .* values, more than the"),
    "header that is not JSON": (header(b"{nonsense}"), "is not valid JSON"),
    "header nested without end": (header(b'{"a":' + b"[" * 200_000), "is not valid JSON"),
    "duplicate keys": (header(b'{"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},'
                              b'"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'), "the key 'a' appears twice"),
    "overlapping tensors": (header({"a": entry(0, 16, [4]), "b": entry(8, 24, [4])}, 24), "'b' overlaps the tensor"),
    "gap between tensors": (header({"a": entry(0, 16, [4]), "b": entry(20, 36, [4])}, 36), "'b' leaves a gap"),
    "bytes behind the tensors": (header({"a": entry(0, 16, [4])}, 20), "4 bytes follow the last tensor"),
    "truncated file": (lambda folder: os.truncate(folder / WEIGHTS, 5000), "cut short"),
    "bytes are not shape × dtype": (header({"a": entry(0, 16, [5])}), "takes 20 bytes but data_offsets give it 16"),
    "shape of 2^62": (header({"a": entry(0, 16, [2**62, 2**62])}), "takes .* bytes but data_offsets give it 16"),
    "negative offsets": (header({"a": entry(-16, 0, [4])}), "data_offsets that are not two rising"),
    "offsets that fall": (header({"a": entry(16, 0, [4])}), "data_offsets that are not two rising"),
    "negative shape": (header({"a": entry(0, 16, [-4])}), "shape that is not a short list of whole numbers"),
    "fraction in a shape": (header({"a": entry(0, 16, [4.0])}), "shape that is not a short list of whole numbers"),
    "unknown dtype": (header({"a": entry(0, 16, [4], "F4096")}), "unknown dtype 'F4096'"),
    "metadata that is no text": (header({"__metadata__": {"a": 1}, "a": entry(0, 16, [4])}), "__metadata__ is not"),
    # weights: shards
    "missing shard": (sharded(lambda folder, places: os.remove(folder / places[A])), "named by .* but missing"),
    "unindexed shard": (sharded(lambda folder, places: save_file({"x": np.zeros(1)}, folder / "extra.safetensors")),
                        "extra.safetensors: is not named by"),
    "truncated shard": (sharded(lambda folder, places: os.truncate(folder / places[A], 1500)), "cut short|claims"),
    "shard outside the folder": (sharded(lambda folder, places: _set(places, A, "../../x.safetensors")),
                                 "not a plain .safetensors file name"),
    "shard by an absolute path": (sharded(lambda folder, places: _set(places, A, "/etc/x.safetensors")),
                                  "not a plain .safetensors file name"),
    "tensor in another shard": (sharded(lambda folder, places: _set(places, A, places[B])),
                                "lacks tensor|does not place there"),
    "tensor that no shard has": (sharded(lambda folder, places: _set(places, "ghost", places[A])),
                                 "lacks tensor 'ghost'"),
    # architecture
    "missing tensor": (changed_tensors(lambda tensors: tensors.__delitem__(A)), "'model.norm.weight' is missing"),
    "misshapen tensor": (changed_tensors(lambda tensors: tensors.update({A: np.zeros(65, np.float32)})),
                         r"'model.norm.weight' has the shape \[65\], expected \[64\]"),
    "foreign tensor": (changed_tensors(lambda tensors: tensors.update({"evil": np.zeros(4, np.float32)})),
                       "'evil' is not one of a llama decoder"),
    "integers for weights": (changed_tensors(lambda tensors: tensors.update({A: np.zeros(64, np.int64)})),
                             "'model.norm.weight' is stored as I64, which can't be read"),
    "more layers than tensors": (configured(num_hidden_layers=3), "'model.layers.2.* is missing"),
    # configuration
    "negative layers": (configured(num_hidden_layers=-2), "num_hidden_layers is '?-2"),
    "huge number of layers": (configured(num_hidden_layers=10**9), "num_hidden_layers is '?1000000000"),
    "number beyond 64 bits": (configured(hidden_size=10**40), "hidden_size is '?1000"),
    "number with 5,000 digits": (written("config.json", '{"model_type": "llama", "hidden_size": ' + "9" * 5000 + "}"),
                                 "config.json: (is not valid JSON|hidden_size)"),
    "text for a number": (configured(hidden_size="64"), "hidden_size is '64'"),
    "list for a number": (configured(vocab_size=[1, 2]), "vocab_size is "),
    "no heads": (configured(num_attention_heads=0), "num_attention_heads is '?0"),
    "heads that don't divide": (configured(num_key_value_heads=3), "num_heads|num_attention_heads"),
    "NaN in the configuration": (written("config.json", '{"model_type": "llama", "rms_norm_eps": NaN}'),
                                 "NaN is not a JSON number"),
    "configuration of 5 MB": (written("config.json", b'{"a": "' + b"x" * 5_000_000 + b'"}'), "is larger than"),
    "configuration that is a list": (written("config.json", "[]"), "config.json: is not a JSON object"),
    "double key in the configuration": (written("config.json", '{"model_type": "llama", "model_type": "llama"}'),
                                        "'model_type' appears twice"),
    "no configuration": (without("config.json"), "config.json: can't be read"),
    "unknown architecture": (configured(model_type="evilformer"), "architecture 'evilformer' is not supported"),
    "no architecture": (configured(model_type=None), "model_type is missing"),
    "remote code": (configured(auto_map={"AutoModel": "modeling_x.Evil"}), "auto_map asks for .* never run"),
    "remote tokenizer code": (written("tokenizer_config.json", '{"auto_map": {"AutoTokenizer": ["x.Y", null]}}'),
                              "tokenizer_config.json: auto_map asks for .* never run"),
    # tokenizer
    "no tokenizer": (without("tokenizer.json"), "tokenizer.json: is missing"),
    "broken tokenizer": (written("tokenizer.json", "{}"), "tokenizer.json: is not a tokenizer"),
    "tokenizer nested without end": (written("tokenizer.json", "[" * 500_000), "tokenizer.json: is not a tokenizer"),
    "tokenizer without tokens": (empty_tokenizer, "gives no tokens at all"),
    "ids beyond the embedding": (too_many_ids, r"gives ids up to 267, but the embedding has 263 rows"),
    "end id beyond the vocabulary": (written("generation_config.json", '{"eos_token_id": [2, 263]}'),
                                     "generation_config.json: eos_token_id"),
    "negative padding id": (configured(pad_token_id=-1), "config.json: pad_token_id is -1"),
    # chat template
    "template that reads __globals__": (template("{{ messages.__init__.__globals__ }}"), "reads Python's own '__"),
    "template that reads __globals__ as an item": (template("{{ messages['__class__'] }}"), "Python's own '__class__'"),
    "template that reads __globals__ by a filter": (template("{% set x = messages|attr('__class__') %}"),
                                                    "Python's own '__class__'"),
    "template that loops": (template(LOOPS), "ran for more than 2 seconds"),
    "template that prints 1 GB": (template("{% for a in range(90000) %}{{ 'x' * 12000 }}{% endfor %}"),
                                  "writes more than|ran for more than"),
    "template that multiplies a text": (template("{{ 'x' * 10**9 }}"), "fails on a plain chat"),
    "template that doubles a text": (template(DOUBLING), "fails on a plain chat"),
    "template with a giant width": (template("{{ '{:>999999999}'.format('x') }}"), "fails on a plain chat"),
    "template that calls itself": (template("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"),
                                    "fails on a plain chat"),
    "template that can't be compiled": (template("{% for %}"), "line 1 of the chat template"),
    "template that fails": (template("{{ 1 / 0 }}"), "fails on a plain chat"),
    # files
    "Python code": (written("modeling_x.py", "print()"), "modeling_x.py: is program code"),
    "ELF program": (written("helper", b"\x7fELF" + bytes(60)), "helper: is an ELF program"),
    "shell script": (written("setup", "#!/bin/sh\nrm -rf /\n"), "setup: is a script"),
    "pickle by suffix": (written("pytorch_model.bin", b"x"), "pytorch_model.bin: is a pickle by its suffix"),
    "pickle in another file": (written("extra/notes.json", pickle.dumps(Bomb())), "extra/notes.json: is a pickle"),
    "pickle of the first protocol": (written("vocab.txt", pickle.dumps(Bomb(), protocol=0)), "vocab.txt: is a pickle"),
    "pickle in a zip": (zipped_pickle, "notes.dat: is a pickle"),
    "link to a file": (lambda folder: (folder / "x.json").symlink_to("/etc/passwd"), "x.json: is a link"),
    "link to a folder": (lambda folder: (folder / "sub").symlink_to("/etc"), "sub: is a link"),
    "pipe": (lambda folder: os.mkfifo(folder / "pipe"), "pipe: is not a plain file"),
    "path too long": (long_path, "longer than 255 characters"),
    "name with a line break": (written("a\nb", "x"), "control characters"),
}  # fmt: skip


def gguf_header(tensors: int, fields: int, rest: bytes = b"") -> Change:
    def change(folder: Path) -> None:
        for path in folder.iterdir():
            path.unlink()
        (folder / "m.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, tensors, fields) + rest)
    return change


def _key(name: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name


def spoiled_gguf(change: Callable[[bytes], bytes]) -> Change:
    """Put a good GGUF file, spoiled, in place of everything."""
    def apply(folder: Path) -> None:
        from tests.tiny_models import write_tiny_gguf

        for path in folder.iterdir():
            path.unlink()
        write_tiny_gguf(folder / "m.gguf")
        (folder / "m.gguf").write_bytes(change((folder / "m.gguf").read_bytes()))
    return apply


GGUF: dict[str, tuple[Change, str]] = {
    "GGUF of 2^60 tensors": (gguf_header(2**60, 0), "claims 1,152,921,504,606,846,976 tensors"),
    "GGUF of 2^60 fields": (gguf_header(0, 2**60), "claims 1,152,921,504,606,846,976 metadata fields"),
    "GGUF name of 2^60 bytes": (gguf_header(0, 1, struct.pack("<Q", 2**60)), "a metadata key claims"),
    "GGUF list of 2^60 items": (gguf_header(0, 1, _key(b"a") + struct.pack("<IIQ", 9, 4, 2**60)), "items, more than"),
    "GGUF list of two million texts": (gguf_header(0, 1, _key(b"a") + struct.pack("<IIQ", 9, 8, 2 * 10**6)
                                                   + bytes(16 * 10**6)), "claims 2,000,000 items, more than"),
    "GGUF list in a list": (gguf_header(0, 1, _key(b"a") + struct.pack("<IIQ", 9, 9, 4)), "unsupported type 9"),
    "GGUF that is cut short": (spoiled_gguf(lambda data: data[: len(data) // 2]), "cut short|past the end"),
    "GGUF of another architecture": (spoiled_gguf(lambda data: data.replace(_key(b"llama"), _key(b"xlama"), 1)),
                                     "'xlama'"),
    "GGUF with a huge tensor": (gguf_header(1, 0, _key(b"t") + struct.pack("<IQQIQ", 2, 2**40, 2**22, 0, 0)),
                                "cut short|impossible shape"),
    "not GGUF at all": (lambda folder: [path.unlink() for path in folder.iterdir()] and None
                        or written("m.gguf", b"nonsense" * 9)(folder), "does not begin with GGUF"),
}  # fmt: skip

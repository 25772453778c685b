"""Trains small tokenizers of four kinds on the rows' words."""

import json
import os

import rows
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SPECIAL = ["<unk>", "<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>"]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")


def texts():
    for row in rows.rows("squad", 300, 1):
        yield without_special("Context: " + row["context"] + " Question: " + row["question"] + " Answer: ")
    for row in rows.rows("chat", 100, 2):
        yield without_special(json.dumps(row, ensure_ascii=False))


def without_special(text):
    for token in SPECIAL:
        text = text.replace(token, "")
    return text


def byte_level(bos):
    made = Tokenizer(models.BPE(ignore_merges=True))
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                                  pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(texts(), trainers.BpeTrainer(
        vocab_size=640, special_tokens=SPECIAL, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False))
    if bos:
        made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    else:
        made.post_processor = processors.ByteLevel(trim_offsets=False)
    return made


def pieces():
    """Returns a tokenizer like Llama 2: byte fallback, and a space before the text."""
    made = Tokenizer(models.BPE(fuse_unk=True, byte_fallback=True, unk_token="<unk>"))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    made.train_from_iterator((text.replace(" ", "\u2581") for text in texts()), trainers.BpeTrainer(
        vocab_size=560, special_tokens=SPECIAL + [f"<0x{byte:02X}>" for byte in range(256)], limit_alphabet=60,
        max_token_length=12, show_progress=False))
    made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                      decoders.Strip(" ", 1, 0)])
    made.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    data = json.loads(made.to_str())
    data["added_tokens"] = data["added_tokens"][:len(SPECIAL)]  # byte tokens are plain tokens
    return Tokenizer.from_str(json.dumps(data))


def unigram():
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.train_from_iterator(texts(), trainers.UnigramTrainer(
        vocab_size=400, special_tokens=["<pad>", "</s>", "<unk>", "<s>", "<|im_start|>", "<|im_end|>"], unk_token="<unk>",
        show_progress=False))
    made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return made


def words():
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "<|im_start|>", "<|im_end|>"]
    made.train_from_iterator(texts(), trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, show_progress=False))
    made.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return made


def write(folder):
    os.makedirs(folder, exist_ok=True)
    for name, made in (("bytes", byte_level(True)), ("bytes_plain", byte_level(False)), ("pieces", pieces()),
                       ("unigram", unigram()), ("words", words())):
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as stream:
            json.dump(json.loads(made.to_str()), stream, ensure_ascii=False, separators=(",", ":"))

"""Makes four small tokenizers of the kinds that published models use, and a mixed text, with the library `tokenizers`."""

import json
import random
import subprocess
import unicodedata

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

# Character ranges with names: Latin, Greek, Cyrillic, Hebrew, Arabic, Devanagari, Thai, kana, Han, Hangul, symbols.
SCRIPTS = [(0xC0, 0x17F), (0x391, 0x3C9), (0x410, 0x44F), (0x5D0, 0x5EA), (0x620, 0x64A), (0x904, 0x94D), (0xE01, 0xE3A),
           (0x3042, 0x30F6), (0x4E00, 0x4F00), (0xAC00, 0xAD00), (0x2190, 0x21FF), (0x1F600, 0x1F64F)]
# All kinds of whitespace, combining marks, ligatures, full width, joined emoji, code, text that looks like special tokens.
ODD = ["  ", "\t\t", "\n\n", " \n ", "\r\n", "\u00a0", "\u2003", "\u3000", "e\u0301", "a\u030a\u0323", "\ufb01", "\uff21\uff22",
       "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u200b", "x = {'k': [1, 2]};", "it's they'LL", "3.14159e-10", "</s", "<s>", "[SEP]", "</s>"]


def mixed_text(characters):
    """Returns a deterministic text: the first book of the Bible, and words of many scripts."""
    verses = subprocess.run(["bible", "-f", "gen1:1-gen20:18"], capture_output=True, text=True, check=True).stdout
    draw = random.Random(11)
    parts, size = [verses], len(verses)
    while size < characters:
        kind = draw.random()
        if kind < 0.5:
            first, last = draw.choice(SCRIPTS)
            word = "".join(chr(draw.randint(first, last)) for _ in range(draw.randint(1, 9)))
        elif kind < 0.6:
            word = draw.choice(ODD)
        else:
            word = unicodedata.name(chr(draw.randint(0x41, 0x2000)), "unnamed").lower()
        parts.append(word + draw.choice([" ", " ", " ", ", ", ".\n"]))
        size += len(parts[-1])
    return "".join(parts)


def byte_level_bpe(lines):
    """Returns a tokenizer like Llama 3 and Qwen: bytes, a split pattern, a BOS token."""
    tokenizer = Tokenizer(models.BPE())
    pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=1200, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|begin|>", "<|end|>"]))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin|> $A", special_tokens=[("<|begin|>", tokenizer.token_to_id("<|begin|>"))])
    return tokenizer, "<|end|>"


def sentencepiece_bpe(lines):
    """Returns a tokenizer like Llama 2: no pre-tokenization, spaces as a character, byte fallback."""
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=1200, limit_alphabet=200, show_progress=False))
    model = json.loads(trained.to_str())["model"]
    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *sorted(model["vocab"], key=model["vocab"].get)]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = Tokenizer(models.BPE(vocabulary, [tuple(pair) for pair in model["merges"]], unk_token="<unk>", fuse_unk=True,
                                     byte_fallback=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer, "</s>"


def unigram(lines):
    """Returns a tokenizer like T5: piece probabilities, normalized text, an end token from the post-processor."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(lines, trainers.UnigramTrainer(
        vocab_size=2500, show_progress=False, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>"))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", tokenizer.token_to_id("</s>"))])
    return tokenizer, "</s>"


def wordpiece(lines):
    """Returns a tokenizer like BERT: lower case, no accents, a special token on either side."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(lines, trainers.WordPieceTrainer(
        vocab_size=1200, show_progress=False, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"]))
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(word, tokenizer.token_to_id(word)) for word in ("[CLS]", "[SEP]")])
    return tokenizer, "[SEP]"


KINDS = {"byte_level_bpe": byte_level_bpe, "sentencepiece_bpe": sentencepiece_bpe, "unigram": unigram, "wordpiece": wordpiece}


def save(tokenizer, end, folder):
    """Saves the tokenizer files of a model directory, with a truncation setting that heddle must ignore."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.enable_truncation(16)
    tokenizer.save(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": end}))

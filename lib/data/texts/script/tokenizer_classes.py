"""Selects the class that transformers 5.12.1 uses for a tokenizer's directory, and applies its overrides of the file.

A class of transformers with its own __init__ reads vocabulary, merges and post-processor from tokenizer.json, and defines
normalizer, pre-tokenizer and options of the model in its code. Every other class uses the file unchanged."""

import json
import re

from faults import Fault
from tokenizer_files import content

QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
         r"|\s+(?!\S)|\s+")
QWEN35 = QWEN2.replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]+", r"[^\s\p{L}\p{M}\p{N}]+")
END = "<|endoftext|>"
# Class that is registered for a model_type. If a file names another class, that class is used, or the file unchanged.
REGISTERED = {
    "GPT2Tokenizer":
        "dbrx gpt2 gpt_bigcode gpt_neo gptj jais2 opt phi starcoder2 codegen flex_olmo emu3 blip-2",
    "GPTNeoXTokenizer":
        "falcon_mamba gpt_neox mamba mamba2 mpt olmo olmo2 olmoe rwkv stablelm xlstm",
    "GemmaTokenizer":
        "diffusion_gemma gemma gemma2 gemma3 gemma3_text gemma3n gemma3n_text recurrent_gemma shieldgemma2 "
        "t5gemma",
    "Qwen2Tokenizer":
        "qwen2 qwen2_5_omni qwen2_5_vl qwen2_audio qwen2_moe qwen2_vl qwen3 qwen3_moe qwen3_next "
        "qwen3_omni_moe qwen3_vl qwen3_vl_moe audioflamingo3 colqwen2 cosmos3_omni internvl ovis2 qianfan_ocr",
    "Qwen3_5Tokenizer":
        "qwen3_5 qwen3_5_moe",
    "CohereTokenizer":
        "cohere cohere2 aya_vision",
    "LlamaTokenizer":
        "idefics idefics2",
    "T5Tokenizer":
        "mt5 musicgen musicgen_melody pix2struct switch_transformers t5 umt5",
    "BertTokenizer":
        "align bark bert blip bros chinese_clip convbert distilbert electra ernie flava git grounding-dino "
        "layoutlm megatron-bert mm-grounding-dino mra nezha nomic_bert qdqbert realm retribert squeezebert "
        "tvp vilt visual_bert",
    "RobertaTokenizer":
        "bart bridgetower clap data2vec-text ibert lilt longformer mega roberta roberta-prelayernorm",
    "TokenizersBackend":
        "glm glm4 glm4_moe glm4_moe_lite glm4v glm4v_moe glm_image glmasr got_ocr2 granite granitemoe "
        "granitemoehybrid granitemoeshared minicpmv4_6 ministral ministral3 mistral mistral3 mixtral olmo3 "
        "olmo_hybrid pixtral voxtral voxtral_realtime arctic chameleon chatlm deepseek_v2 deepseek_v3 "
        "deepseek_v32 deepseek_v4 deepseek_vl deepseek_vl_hybrid deepseek_vl_v2 deepseek_ocr deepseek_ocr2 "
        "fuyu h2ovl_chat hyperclovax_vlm internlm2 jamba janus llava llava_next minicpmv minimax_m2 "
        "modernbert molmo molmo2 nemotron nvfp4 opencua openvla phi3 phi3_v phimoe step3p5 step3_vl vipllava "
        "cohere_asr"}
BY_TYPE = {kind: name for name, kinds in REGISTERED.items() for kind in kinds.split()}
OVERRULED = {"qwen2"}  # model types whose registered class always wins
UNKNOWN = {name + "Tokenizer" for name in (
    "XLNet Barthez Udop MarkupLM LayoutLMv3 Albert Deberta RemBert Pegasus Funnel MPNet SeamlessM4T "
    "Splinter Whisper CodeLlama Lasr LayoutXLM XLMRoberta CLIP Camembert MBart50 DebertaV2 LayoutLMv2 "
    "BigBird MBart Herbert MLuke Nllb Luke Blenderbot CodeGen Nougat OpenAIGPT XGLM Siglip2 Reformer ").split()}
GENERAL = ("TokenizersBackend", "PreTrainedTokenizer", "PythonBackend")


def sequence(*parts):
    return {"type": "Sequence", "pretokenizers": list(parts)}


def split(pattern, kind="Regex", behavior="Isolated"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": False}


def byte_level(prefix, regex=True):
    return {"type": "ByteLevel", "add_prefix_space": bool(prefix), "trim_offsets": True, "use_regex": regex}


NFC = {"type": "NFC"}
BYTES = {"type": "BPE", "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
         "byte_fallback": False, "ignore_merges": False, "dropout": None}


def gpt2(settings):
    return BYTES, None, byte_level(settings.get("add_prefix_space", False))


def gpt_neox(settings):
    return BYTES, NFC, {**byte_level(settings.get("add_prefix_space", False)),
                        "trim_offsets": settings.get("trim_offsets", True)}


def qwen2(settings, pattern=QWEN2):
    return BYTES, NFC, sequence(split(pattern), byte_level(settings.get("add_prefix_space") or False, False))


def qwen35(settings):
    return qwen2(settings, QWEN35)


def cohere(settings):
    return BYTES, NFC, sequence({"type": "Digits", "individual_digits": True},
                                byte_level(settings.get("add_prefix_space", False)))


PIECES = {**BYTES, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": True,
          "byte_fallback": True}


def llama(settings):
    prefix = settings.get("add_prefix_space")
    scheme = "never" if prefix is not None and not prefix else "always" if settings.get("legacy", False) else "first"
    return PIECES, None, {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": False}


def gemma(settings):
    return ({**PIECES, "unk_token": "unk_token"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
            split(" ", "String", "MergedWithPrevious"))


def t5(settings):
    return ({"type": "Unigram", "unk_id": 2, "byte_fallback": False}, "charsmap",
            sequence({"type": "WhitespaceSplit"},
                     {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}))


def bert(settings):
    return ({"type": "WordPiece", "unk_token": "unk_token", "continuing_subword_prefix": "##",
             "max_input_chars_per_word": 100},
            {"type": "BertNormalizer", "clean_text": True, "strip_accents": settings.get("strip_accents"),
             "handle_chinese_chars": settings.get("tokenize_chinese_chars", True),
             "lowercase": settings.get("do_lower_case", True)}, {"type": "BertPreTokenizer"})


# Parts that each class defines, and its default special tokens.
CLASSES = {
    "GPT2Tokenizer": (gpt2, {"unk_token": END, "bos_token": END, "eos_token": END, "pad_token": None}),
    "GPTNeoXTokenizer": (gpt_neox, {"unk_token": END, "bos_token": END, "eos_token": END, "pad_token": "<|padding|>"}),
    "Qwen2Tokenizer": (qwen2, {"unk_token": END, "eos_token": END, "pad_token": END}),
    "Qwen3_5Tokenizer": (qwen35, {"unk_token": END, "eos_token": END, "pad_token": END}),
    "CohereTokenizer": (cohere, {"unk_token": "<UNK>", "bos_token": "<BOS_TOKEN>", "eos_token": "<|END_OF_TURN_TOKEN|>",
                                 "pad_token": "<PAD>", "cls_token": "<CLS>", "sep_token": "<SEP>",
                                 "mask_token": "<MASK_TOKEN>"}),
    "LlamaTokenizer": (llama, {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}),
    "GemmaTokenizer": (gemma, {"unk_token": "<unk>", "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>",
                               "mask_token": "<mask>"}),
    "T5Tokenizer": (t5, {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}),
    "BertTokenizer": (bert, {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]",
                             "mask_token": "[MASK]"}),
    "RobertaTokenizer": (gpt2, {"bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>",
                                "unk_token": "<unk>", "pad_token": "<pad>", "mask_token": "<mask>"})}


class AsWritten:
    """A class that uses tokenizer.json unchanged."""

    rebuilt = False

    def backend(self, library, files, file):
        return library.Tokenizer.from_file(file)

    def defaults(self):
        return {}

    def finish(self, tokenizer):
        pass


class Rebuilt(AsWritten):
    """A class that overrides parts of the file."""

    rebuilt = True

    def __init__(self, name):
        self.name, (self.parts, self.tokens) = name, CLASSES[name]

    def defaults(self):
        return dict(self.tokens)

    def backend(self, library, files, file):
        with open(file, encoding="utf-8") as stream:
            data = json.load(stream)
        options, normalizer, pre_tokenizer = self.parts(files.settings)
        model = data.get("model", {})
        if model.get("type", options["type"]) != options["type"]:
            raise Fault(f"has a {model.get('type')} model, and its class {self.name} is {options['type']}", file,
                        "tokenizer_class in tokenizer_config.json names the class")
        names = {**self.tokens, **{key: content(value) for key, value in files.special.items() if value}}
        options = {key: names[value] if value == "unk_token" else value for key, value in options.items()}
        if normalizer == "charsmap":
            normalizer = charsmap(data.get("normalizer"))
        if not files.in_config:
            files.added.update((token.pop("id"), token) for token in data.get("added_tokens", []))
        if not files.extra and self.name == "T5Tokenizer":
            files.extra = [f"<extra_id_{i}>" for i in range(files.settings.get("extra_ids", 100))]
        model = {**{key: model[key] for key in ("vocab", "merges") if key in model}, **options}
        data.update(model=model, normalizer=normalizer, pre_tokenizer=pre_tokenizer, added_tokens=[])
        return library.Tokenizer.from_str(json.dumps(data, ensure_ascii=False))

    def finish(self, tokenizer):
        library, backend = tokenizer.library, tokenizer.backend
        if self.name == "Qwen2Tokenizer":
            backend.add_tokens([library.AddedToken(token, special=True) for token in tokenizer.all_special()])
        special = {key: (tokenizer.special.get(key + "_token"), tokenizer.id(tokenizer.special.get(key + "_token")))
                   for key in ("cls", "sep", "eos")}
        if self.name == "T5Tokenizer":
            backend.post_processor = library.processors.TemplateProcessing(
                single=["$A", "</s>"], pair=["$A", "</s>", "$B", "</s>"], special_tokens=[("</s>", special["eos"][1])])
        elif self.name == "BertTokenizer":
            backend.post_processor = library.processors.TemplateProcessing(
                single="{}:0 $A:0 {}:0".format(special["cls"][0], special["sep"][0]), pair=None,
                special_tokens=[special["cls"], special["sep"]])
        elif self.name == "RobertaTokenizer":
            backend.post_processor = library.processors.RobertaProcessing(sep=special["sep"], cls=special["cls"])


def charsmap(normalizer):
    """Returns the Precompiled normalizer of a file, if any."""
    parts = normalizer.get("normalizers", [normalizer]) if normalizer else []
    return next((part for part in parts if part.get("type") == "Precompiled"), None)


def chosen(files, model_type):
    """Returns the class that AutoTokenizer uses."""
    hub, registered = re.sub("Fast$", "", files.hub_class or ""), BY_TYPE.get(model_type)
    name = hub
    if not hub:
        name = registered
    elif registered is not None and registered != hub and not files.remote:
        name = None if registered in GENERAL else registered if model_type in OVERRULED else hub
    if name in UNKNOWN:
        files.warnings.append(f"the tokenizer's class {name} has parts of its own in transformers, which heddle does "
                              "not know: tokenizer.json is taken as it stands")
    return Rebuilt(name) if name in CLASSES else AsWritten()

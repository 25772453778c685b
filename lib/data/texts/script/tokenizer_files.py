"""Reads the settings in the files of a tokenizer's directory like transformers 5.12.1."""

import json
import os

from faults import Fault

NAMED = ["bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"]
LARGEST = 256 << 20  # maximum bytes of a JSON file
LARGEST_TEXT = 4 << 20  # maximum bytes of a template
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def read_json(directory, name):
    """Returns the file as an object, or None if it does not exist."""
    file = os.path.join(directory, name)
    if not os.path.isfile(file):
        return None
    if os.path.getsize(file) > LARGEST:
        raise Fault(f"is larger than {LARGEST >> 20} MiB", file, "check that it is a tokenizer file")
    try:
        with open(file, encoding="utf-8") as stream:
            value = json.load(stream)
    except (ValueError, RecursionError) as error:
        raise Fault(f"is not JSON: {error}", file) from None
    if not isinstance(value, dict):
        raise Fault("is not a JSON object", file)
    return value


def read_text(file):
    if not os.path.isfile(file) or os.path.getsize(file) > LARGEST_TEXT:
        raise Fault(f"is no file of at most {LARGEST_TEXT >> 20} MiB", file, "check that it is a chat template")
    try:
        with open(file, encoding="utf-8") as stream:
            return stream.read()
    except (OSError, UnicodeDecodeError) as error:
        raise Fault(f"cannot be read: {error}", file) from None


def content(token):
    """Returns the text of a token, which may be an object in the file."""
    return token.get("content", "") if isinstance(token, dict) else token


class Files:
    """The files of a tokenizer's directory. settings: tokenizer_config.json and its overrides. special: the named tokens.
    extra: further special tokens. added: tokens by id. templates: None, a text, or a dict of texts by name."""

    def __init__(self, directory, arguments):
        self.directory, self.warnings = directory, []
        if not os.path.isfile(os.path.join(directory, "tokenizer.json")):
            raise Fault("has no tokenizer.json", directory, "tokenizer.model, tekken.json and tiktoken.model are not "
                        "read; save the tokenizer with transformers as a tokenizer.json")
        self.settings = read_json(directory, "tokenizer_config.json") or {}
        self.model = read_json(directory, "config.json") or {}
        self.hub_class = self.settings.pop("tokenizer_class", None) or self.model.get("tokenizer_class")
        self.remote = "auto_map" in self.settings
        self.settings.update(arguments)
        if "additional_special_tokens" in self.settings:
            self.settings.setdefault("extra_special_tokens", self.settings.pop("additional_special_tokens"))
        self.read_templates()
        self.read_tokens(arguments)

    def read_templates(self):
        templates = {}
        file = os.path.join(self.directory, "chat_template.jinja")
        if os.path.isfile(file):
            templates["default"] = read_text(file)
        folder = os.path.join(self.directory, "additional_chat_templates")
        for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else []:
            if name.endswith(".jinja"):
                templates[name[:-len(".jinja")]] = read_text(os.path.join(folder, name))
        if list(templates) == ["default"]:
            self.settings["chat_template"] = templates["default"]
        elif templates:
            self.settings["chat_template"] = templates
        template = self.settings.pop("chat_template", None)
        if isinstance(template, list):
            template = {entry["name"]: entry["template"] for entry in template}
        self.templates = template

    def read_tokens(self, arguments):
        self.in_config = "added_tokens_decoder" in self.settings
        added = self.settings.pop("added_tokens_decoder", None) or {}
        self.added = {int(index): token for index, token in added.items()}
        if not self.in_config:
            for key, value in (read_json(self.directory, "special_tokens_map.json") or {}).items():
                if not arguments.get(key):
                    self.settings["extra_special_tokens" if key == "additional_special_tokens" else key] = value
            named = {content(value) for key, value in self.settings.items() if key in NAMED and value}
            for text, index in (read_json(self.directory, "added_tokens.json") or {}).items():
                self.added[index] = {"content": text, "normalized": text not in named, "special": text in named}
        extra = self.settings.pop("extra_special_tokens", None) or []
        own = dict(extra) if isinstance(extra, dict) else {}
        own.update((key, value) for key, value in self.settings.items()
                   if key.endswith("_token") and key not in NAMED and isinstance(value, (str, dict)))
        self.extra = [] if isinstance(extra, dict) else list(extra)
        self.special = {key: self.settings.pop(key) for key in NAMED if key in self.settings}
        self.own = own  # tokens that the model defines, such as image_token

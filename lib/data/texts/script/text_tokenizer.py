"""Tokenizes texts with the tokenizer in a directory, like AutoModel's tokenizer under transformers 5.12.1."""

import os

import tokenizer_classes
from faults import Fault, package
from tokenizer_files import FLAGS, LARGEST, NAMED, Files, content

ENDLESS = 10**20  # model_max_length above this value means no limit
GROUP = 1 << 20  # characters per call of the tokenizer
LONGEST = 2 << 20  # maximum characters of a text
STRATEGIES = ("do_not_truncate", "longest_first", "only_first")


def added_token(library, token, **flags):
    """Returns an AddedToken for a text, or for an object in a file."""
    if isinstance(token, str):
        return library.AddedToken(token, **flags)
    return library.AddedToken(content(token), **{**{key: token[key] for key in FLAGS if key in token}, **flags})


class TextTokenizer:
    def __init__(self, directory, model_type="", arguments=None):
        try:
            import tokenizers
        except ImportError as error:
            raise package(error, "texts are tokenized with it") from None
        arguments = dict(arguments or {})
        self.nemo, self.library, self.directory = arguments.pop("use_nemo", True), tokenizers, directory
        self.warnings, self.count = [], None
        ends = {key: arguments.pop(key, None) for key in ("add_bos_token", "add_eos_token")}
        files = Files(directory, {key: value for key, value in arguments.items() if key != "trust_remote_code"})
        self.shape = tokenizer_classes.chosen(files, model_type)
        self.backend = self.load(files)
        self.settings, self.templates = files.settings, files.templates
        self.name_tokens(files)
        self.add_tokens(files)
        self.warnings += files.warnings
        if self.nemo:
            self.shape.finish(self)
            self.set_ends({key for key, value in ends.items() if value and self.special.get(key[4:])})
        else:  # passes the arguments to the class, which may override them
            self.set_ends({key for key, value in ends.items() if value is not None}, ends)
            self.shape.finish(self)
        if self.nemo and self.pad_id is None:
            self.warnings.append("the tokenizer has no pad token: token 0 is taken, as AutoModel does")
            self.set_token("pad_token", self.backend.id_to_token(0))

    def load(self, files):
        file = os.path.join(files.directory, "tokenizer.json")
        if os.path.getsize(file) > LARGEST:
            raise Fault(f"is larger than {LARGEST >> 20} MiB", file, "check that it is a tokenizer file")
        try:
            return self.shape.backend(self.library, files, file)
        except Fault:
            raise
        except Exception as error:
            raise Fault(f"is not a tokenizer that tokenizers {self.library.__version__} reads: {error}", file) from None

    def name_tokens(self, files):
        baked, filling = self.backend.truncation or {}, self.backend.padding or {}
        self.backend.no_padding()
        self.backend.no_truncation()
        given = {**self.shape.defaults(), **files.special}
        if filling:
            given.setdefault("pad_token", filling["pad_token"])
        self.special = {key: content(given[key]) for key in NAMED if given.get(key) is not None}
        self.special.update((key, content(value)) for key, value in files.own.items())
        self.extra = [content(token) for token in files.extra]
        length = files.settings.get("model_max_length", files.settings.get("max_len"))
        self.longest = ENDLESS + 1 if length is None else self.whole(length)
        self.truncation_side = files.settings.get("truncation_side", baked.get("direction", "right"))
        self.given = given

    def whole(self, length):
        """Returns model_max_length as a number of tokens; Infinity means no limit."""
        if isinstance(length, bool) or not isinstance(length, (int, float)) or not length >= 0:
            raise Fault(f"model_max_length is {length!r}, not a number of tokens",
                        os.path.join(self.directory, "tokenizer_config.json"),
                        "write a number from 0 on, or remove the key: the tokenizer then has no longest text")
        return ENDLESS + 1 if length > ENDLESS else int(length)

    def add_tokens(self, files):
        """Adds tokens that the settings name and tokenizer.json lacks, at the end of the vocabulary."""
        known = {repr(token) for token in self.backend.get_added_tokens_decoder().values()}
        new = [added_token(self.library, token) for _, token in sorted(files.added.items())]
        new = [token for token in new if repr(token) not in known]
        there = {token.content for token in self.backend.get_added_tokens_decoder().values()}
        there.update(token.content for token in new)
        for token in [*map(self.given.get, NAMED), *files.own.values(), *files.extra]:
            if token is not None and content(token) not in there:
                new.append(added_token(self.library, token, special=True))
                there.add(content(token))
        if new:
            self.backend.add_tokens(new)

    def set_ends(self, given, values=None):
        """Applies `add_bos_token` and `add_eos_token` of the recipe. These keys in the directory's files are ignored."""
        on = {key for key in given if (values is None or values[key]) and self.special.get(key[4:])}
        self.adds_bos, self.adds_eos = "add_bos_token" in on, "add_eos_token" in on
        if not given and self.backend.post_processor is not None:
            return
        words, special = ["$A:0"], []
        if self.adds_bos:
            words.insert(0, self.special["bos_token"] + ":0")
            special.append((self.special["bos_token"], self.bos_id))
        if self.adds_eos:
            words.append(self.special["eos_token"] + ":0")
            special.append((self.special["eos_token"], self.eos_id))
        self.backend.post_processor = self.library.processors.TemplateProcessing(
            single=words, pair=None, special_tokens=special)

    def id(self, token):
        """Returns the id of a token, or of the unknown token if it is missing; None without an unknown token."""
        if token is None:
            return None
        found = self.backend.token_to_id(token)
        unknown = self.special.get("unk_token")
        return self.backend.token_to_id(unknown) if found is None and unknown is not None else found

    def set_token(self, name, token):
        if token is not None:
            self.special[name] = token

    bos_id = property(lambda self: self.id(self.special.get("bos_token")))
    eos_id = property(lambda self: self.id(self.special.get("eos_token")))
    pad_id = property(lambda self: self.id(self.special.get("pad_token")))

    @property
    def fill_id(self):
        """Returns the padding id: the pad token, or eos if the tokenizer has no pad token."""
        return self.eos_id if self.pad_id is None else self.pad_id

    def fill_pad(self):
        """Sets eos as the pad token of a tokenizer without one, as AutoModel does before it formats a row."""
        if self.pad_id is None:
            self.set_token("pad_token", self.special.get("eos_token"))

    def named(self):
        """Returns the variables of a chat template."""
        return dict(self.special)

    def special_ids(self):
        return {self.id(token) for token in self.all_special()}

    def all_special(self):
        return list(dict.fromkeys([*self.special.values(), *self.extra]))

    def size(self):
        if self.count is None:
            self.count = max(self.backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        return self.count

    def limit(self, truncation, seq_length):
        """Returns (strategy, length) of the recipe's truncation, or None without truncation."""
        if truncation is None and seq_length is not None:
            truncation = "longest_first"
        strategy = {False: STRATEGIES[0], None: STRATEGIES[0], True: STRATEGIES[1]}.get(truncation, truncation)
        if strategy not in STRATEGIES:
            raise Fault(f"truncation: {truncation} is not one of {', '.join(STRATEGIES)}", "dataset.truncation",
                        kind="config")
        length = self.longest if seq_length is None else seq_length
        return None if strategy == STRATEGIES[0] or length > ENDLESS else (strategy, length)

    def encode(self, texts, special=True, limit=None, offsets=False):
        """Returns encodings of texts, computed on all cores. special: whether to add the tokens of the post-processor."""
        for index, text in enumerate(texts):
            if isinstance(text, str) and len(text) > LONGEST:
                raise about_text(f"a text of {len(text) / (1 << 20):.1f} million characters; the most is {LONGEST >> 20}",
                                 index, "split or remove the row: a tokenizer takes 500 bytes for each character")
        if limit is None:
            self.backend.no_truncation()
        else:
            self.backend.enable_truncation(limit[1], strategy=limit[0], direction=self.truncation_side)
        function = self.backend.encode_batch if offsets else self.backend.encode_batch_fast
        try:
            return function(texts, add_special_tokens=special)
        except (UnicodeEncodeError, TypeError):
            raise refused(texts) from None
        except Exception as error:  # the library raises plain exceptions, for example for an unknown token
            raise Fault(f"the tokenizer fails: {error}", self.directory) from None

    def ids(self, texts, special=True):
        """Returns ids of texts, with at most about GROUP characters per call."""
        out, group, size = [], [], 0
        for index, text in enumerate(texts):
            group.append(text)
            size += len(text) if isinstance(text, str) else 0
            if size > GROUP or index + 1 == len(texts):
                try:
                    out += [encoding.ids for encoding in self.encode(group, special)]
                except Fault as fault:
                    fault.index = len(out) + (fault.index or 0)
                    raise
                group, size = [], 0
        return out


def about_text(what, index, hint=""):
    """Returns a fault of the text with this index."""
    fault = Fault(what, hint=hint)
    fault.index = fault.text = index
    return fault


def refused(texts):
    """Returns the fault for which the library rejected `texts`."""
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            return about_text(f"{type(text).__name__} where a text was expected", index)
        if any("\ud800" <= character <= "\udfff" for character in text):
            return about_text("has half of a surrogate pair (\\ud800 to \\udfff), which is no character", index)
    return Fault("texts that the library does not take")

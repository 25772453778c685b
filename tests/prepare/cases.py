"""Cases that have golden files: tokenizer directories, data set sections and rows. Used by make_golden.py, which runs
AutoModel, and by test_golden.py, which runs heddle."""

CHATML = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
          "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
          "<|im_end|>\n{% endfor %}")
TOOLS = ("{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson(indent=1) }}\n{% endfor %}<|im_end|>\n"
         "{% endif %}" + CHATML)
TRACE = ("{% if tools %}{{ tools | tojson }}\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }} {{ m.name }} "
         "{{ m.tool_call_id }}\n{{ m.content }}{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}<|im_end|>\n"
         "{% endfor %}")
THINK = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{% if message.reasoning_content %}<think>"
         "{{ message.reasoning_content }}</think>{% endif %}{{ message.content }}<|im_end|>\n{% endfor %}")
GENERATION = ("{{ bos_token }}{%- for message in messages %}\n<|im_start|>{{ message['role'] }}\n"
              "{%- if message['role'] == 'assistant' %}{%- generation -%}{% if message.reasoning_content %}<think>"
              "{{ message.reasoning_content }}</think>{% endif %}{{ message['content'] | trim }}"
              "{% for call in message.tool_calls or [] %}{{ call.function.name }}({{ call.function.arguments }}){% endfor %}"
              "<|im_end|>{%- endgeneration %}\n{%- else %}{{ message['content'] }}<|im_end|>{% endif %}{% endfor %}")
TWICE = ("{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content[:9] }}{% endgeneration %}|"
         "{% generation %}{{ m.content[9:] }}{% endgeneration %}{% else %}[{{ m.role }}] {{ m.content }}{% endif %}{{ '\\n' }}"
         "{% endfor %}")
INST = ("{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}"
        "{% endif %}{% if m.role == 'assistant' %}{{ ' ' + m.content | trim + ' ' + eos_token }}{% else %}"
        "{{ '[INST] ' + m.content | trim + ' [/INST]' }}{% endif %}{% endfor %}")
ENDS = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% if loop.last %}{{ eos_token }}{% endif %}{% endfor %}"
DATED = "Today: {{ strftime_now('%d %b %Y') }}\n" + CHATML

SQUAD = {"split": "train", "limit_dataset_samples": None, "seq_length": None, "padding": False, "truncation": False,
         "chat_template": None}
SWAG = {"split": "train", "num_samples_limit": None, "pad_to_max_length": False}
CHAT = {"split": None, "seq_length": None, "padding": "do_not_pad", "truncation": "do_not_truncate", "chat_template": None,
        "shuffle_seed": None, "mask_reasoning_content": False, "mask_history": False, "skip_invalid_samples": False}
COLUMNS = {"split": "train", "answer_only_loss_mask": True, "seq_length": None, "padding": "do_not_pad",
           "truncation": "do_not_truncate", "limit_dataset_samples": None, "use_hf_chat_template": False,
           "column_mapping": {"context": "ctx", "question": "ask", "answer": "say"}}
AGENT = {"split": "train", "filter_no_assistant": False, "filter_overlong": False, "trim_incomplete_last_turn": False,
         "chat_template": TRACE, "seq_length": None, "limit_dataset_samples": None, "padding": False, "truncation": False,
         "mask_reasoning_content": False, "train_on_last_turn_only": False, "drop_history_reasoning_content": False,
         "truncate_history": False}
XLAM = {"split": "train", "limit_dataset_samples": None, "seq_length": None, "padding": False, "truncation": False}

# kind: heddle's format module, arguments of AutoModel's class with defaults, kind of rows, whether they are a local JSON file
KINDS = {"squad": ("plugins/squad/squad.py", SQUAD, "squad", False),
         "hellaswag": ("plugins/hellaswag/hellaswag.py", SWAG, "swag", False),
         "chat": ("plugins/chat/chat.py", CHAT, "chat", True), "hub_chat": ("plugins/chat/chat.py", CHAT, "plain", False),
         "columns": ("plugins/columns/columns.py", COLUMNS, "columns", True),
         "hub_columns": ("plugins/columns/columns.py", COLUMNS, "columns", False),
         "agent": ("plugins/agent/agent.py", AGENT, "agent", True), "xlam": ("plugins/agent/xlam.py", XLAM, "xlam", False),
         "sentences": ("tests/prepare/sentences.py", {"num_sentences": 10, "mean_len": 20.0, "std_len": 6.0,
                                                     "vocab_size": 100, "max_sentence_len": 64, "seed": 0}, None, False)}

FAST = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>", "model_max_length": 4096}
# name: tokenizer.json of golden/, tokenizer_config.json, model_type, further recipe arguments
TOKENIZERS = {
    "bytes": ("bytes", FAST, "llama", {}),  # the post-processor adds BOS
    "bytes_plain": ("bytes_plain", {**FAST, "pad_token": "<pad>"}, "llama", {}),
    "bytes_auto": ("bytes_plain", FAST, "llama", {"use_nemo": False}),
    "bytes_ends": ("bytes_plain", FAST, "llama", {"add_bos_token": True, "add_eos_token": True}),
    "bytes_left": ("bytes", {**FAST, "truncation_side": "left", "pad_token": "</s>"}, "llama", {}),
    "qwen": ("bytes_plain", {"tokenizer_class": "Qwen2Tokenizer", "eos_token": "<|im_end|>", "pad_token": "<pad>",
                             "additional_special_tokens": ["<|im_start|>", "<|im_end|>"]}, "qwen2", {}),
    "gpt2": ("bytes_plain", {"tokenizer_class": "GPT2Tokenizer", "bos_token": "</s>", "eos_token": "</s>",
                             "unk_token": "</s>"}, "gpt2", {}),
    "neox": ("bytes_plain", {"tokenizer_class": "GPTNeoXTokenizerFast", "bos_token": "</s>", "eos_token": "</s>",
                             "unk_token": "</s>"}, "gpt_neox", {}),
    "pieces": ("pieces", FAST, "mistral", {}),  # tokenizer.json unchanged
    "llama": ("pieces", {**FAST, "tokenizer_class": "LlamaTokenizer", "unk_token": "<unk>"}, "llama", {}),
    "llama_legacy": ("pieces", {**FAST, "tokenizer_class": "LlamaTokenizerFast", "unk_token": "<unk>", "legacy": True,
                                "add_bos_token": True}, "llama", {}),
    "llama_no_space": ("pieces", {**FAST, "tokenizer_class": "LlamaTokenizer", "add_prefix_space": False}, "llama", {}),
    "gemma": ("pieces", {**FAST, "tokenizer_class": "GemmaTokenizer", "unk_token": "<unk>", "pad_token": "<pad>"},
              "gemma", {}),
    "unigram": ("unigram", FAST, "llama", {}),
    "t5": ("unigram", {"tokenizer_class": "T5Tokenizer", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>",
                       "extra_ids": 3}, "t5", {}),
    "t5_bos": ("unigram", {"tokenizer_class": "T5Tokenizer", "bos_token": "<s>", "extra_ids": 0}, "t5",
               {"use_nemo": False, "add_bos_token": True}),
    "added": ("bytes_plain", {"tokenizer_class": "GPT2Tokenizer", "pad_token": "<new pad>", "eos_token": "<new end>",
                              "bos_token": "<new begin>", "image_token": "<image>", "added_tokens_decoder": {
                                  "650": {"content": "river", "lstrip": True}, "5": {"content": "<|im_end|>"}}}, "gpt2", {}),
    "words": ("words", {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]", "pad_token": "[PAD]",
                        "cls_token": "[CLS]", "sep_token": "[SEP]", "eos_token": "[SEP]"}, "llama", {}),
    "bert_bos": ("words", {"tokenizer_class": "BertTokenizer", "bos_token": "[CLS]"}, "bert",
                 {"use_nemo": False, "add_bos_token": True}),
    "bert": ("words", {"tokenizer_class": "BertTokenizer", "do_lower_case": False, "strip_accents": True,
                       "eos_token": "[SEP]"}, "bert", {})}

CUT = {"seq_length": 48, "truncation": True}
CASES = [(kind, name, {}) for name in TOKENIZERS for kind in ("squad", "hellaswag", "columns")] + [
    (kind, name, changes) for name in ("bytes", "bytes_plain", "bytes_auto", "llama", "qwen", "unigram", "words")
    for kind, changes in (
        ("squad", {"chat_template": CHATML}), ("chat", {"chat_template": TOOLS}), ("chat", {"chat_template": GENERATION}),
        ("xlam", {"template": TRACE}), ("agent", {}))] + [
    ("squad", "bytes", {"split": "train[8:20]"}), ("squad", "bytes", {"split": "train[:30%]+train[-4:]"}),
    ("squad", "bytes", {"limit_dataset_samples": 7}), ("squad", "bytes", {"split": "train[5:9]", "limit_dataset_samples": 2}),
    ("squad", "bytes", {**CUT, "padding": "max_length"}), ("squad", "bytes_ends", {**CUT, "truncation": "longest_first"}),
    ("squad", "bytes_left", CUT), ("squad", "t5", CUT), ("squad", "bytes", {"seq_length": 40, "truncation": None}),
    ("squad", "bytes", {"chat_template": DATED}),
    ("hellaswag", "bytes", {"num_samples_limit": 9, "pad_to_max_length": True}),
    ("chat", "bytes", {"chat_template": TWICE}), ("chat", "bytes", {"chat_template": INST}),
    ("chat", "llama", {"chat_template": INST}), ("chat", "bytes", {"chat_template": ENDS}),
    ("chat", "bytes", {"chat_template": GENERATION, **CUT}), ("chat", "bytes_left", {"chat_template": GENERATION, **CUT}),
    ("chat", "bytes", {"chat_template": TOOLS, **CUT}), ("chat", "bytes", {"chat_template": TOOLS, "mask_history": True}),
    ("chat", "bytes", {"chat_template": THINK, "mask_reasoning_content": True}),
    ("chat", "bytes", {"chat_template": THINK, "mask_reasoning_content": True, "mask_history": True}),
    ("chat", "bytes", {"chat_template": THINK, "mask_reasoning_content": True, **CUT}),
    ("chat", "bytes_left", {"chat_template": GENERATION, "mask_reasoning_content": True, "seq_length": 60,
                            "truncation": True}),
    ("hub_chat", "bytes", {"chat_template": CHATML, "split": "train[4:22]", "shuffle_seed": 7}),
    ("hub_chat", "qwen", {"chat_template": CHATML, "split": "train", "shuffle_seed": 1234}),
    ("columns", "bytes", {"column_mapping": {"question": "ask", "answer": "say"}, **CUT, "truncation": "longest_first"}),
    ("columns", "bytes", {"column_mapping": {"context": "ctx", "answer": "say"}, "answer_only_loss_mask": False}),
    ("columns", "bytes", {"seq_length": 14, "truncation": True}),
    ("columns", "qwen", {"use_hf_chat_template": True, "template": CHATML}),
    ("columns", "qwen", {"use_hf_chat_template": True, "template": CHATML, "answer_only_loss_mask": False}),
    ("hub_columns", "bytes", {"split": "train[3:]", "limit_dataset_samples": 5}),
    ("agent", "bytes", {"chat_template": THINK, "mask_reasoning_content": True, "train_on_last_turn_only": True}),
    ("agent", "bytes", {"drop_history_reasoning_content": True, "chat_template": THINK, "trim_incomplete_last_turn": True}),
    ("agent", "bytes", {"filter_no_assistant": True, "limit_dataset_samples": 20}),
    ("agent", "bytes", {"truncate_history": True, "seq_length": 120, "truncation": True, "filter_overlong": True,
                        "trim_incomplete_last_turn": True}),
    ("xlam", "bytes", {"template": GENERATION, "split": "train[2:6]"}), ("sentences", None, {}),
    ("chat", "bytes", {"template": [{"name": "default", "template": CHATML}, {"name": "tool_use", "template": TOOLS}]}),
    ("sentences", None, {"seed": 3, "num_sentences": 25, "vocab_size": 40, "std_len": 30.0})]


def title(case):
    kind, tokenizer, changes = case
    names = {TRACE: "TRACE", CHATML: "CHATML", TOOLS: "TOOLS", THINK: "THINK", GENERATION: "GENERATION", TWICE: "TWICE", INST: "INST",
             ENDS: "ENDS", DATED: "DATED"}
    words = [f"{key}={names.get(value, value) if isinstance(value, str) else 'several' if key == 'template' else value}" for key, value in changes.items()]
    return " ".join([kind, str(tokenizer), *words])

"""The ten kinds of recipes that check_losses.py trains: overrides, and settings for transformers."""

import dataclasses
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "prepare"))
import cases  # noqa: E402

# Data set names in the recipes, and the synthetic rows that replace them.
TEXTS = ("rajpurkar/squad", "rowan/hellaswag", "Salesforce/xlam-function-calling-60k")
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 2048}
MOCK_LENGTH, MOCK_VOCABULARY, MOCK_SAMPLES = 24, 96, 100000
MASK = (1 << 64) - 1
ORDER_ROUNDS = 6


def seed_of(recipe):
    found = re.search(r"^seed: (\d+)", recipe.read_text(), re.M)
    return int(found[1]) if found else 42


def mixed(x):
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def sample_at(value, size, seed):
    """Reimplements lib/data/sample_order.cpp: the sample at a position of the first epoch, for data sets without texts."""
    half = next(bits for bits in range(64) if 1 << (2 * bits) >= size)
    keys, state = [], mixed(mixed(seed))
    for _ in range(ORDER_ROUNDS):
        state = mixed(state)
        keys.append(state)
    while True:
        left, right = value >> half, value & ((1 << half) - 1)
        for key in keys:
            left, right = right, left ^ (mixed(right ^ key) & ((1 << half) - 1))
        value = (left << half) | right
        if value < size:
            return value


@dataclasses.dataclass
class Kind:
    recipe: str
    rows: str | None = None  # kind of rows in tests/prepare/rows.py
    model: str = "llama"
    model_name: str | None = None  # model name in the recipe
    sizes: dict = dataclasses.field(default_factory=lambda: dict(SMALL))
    template: str | None = None
    local: bool = False  # the recipe names its row files by path
    overrides: dict = dataclasses.field(default_factory=dict)
    model_key: str | None = "model.torch_dtype"
    ranks: int = 1
    steps: int = 6
    batch: int = 8
    shuffle: bool = True
    pack: int = 0
    adam: bool = True
    optimizer: dict = dataclasses.field(default_factory=lambda: {"betas": (0.9, 0.999), "eps": 1e-8})
    benchmark: bool = False
    random: bool = False  # random initialization
    tokens: str | None = None  # "file" or "mock"; None: texts
    length: int = MOCK_LENGTH
    vocabulary: int = MOCK_VOCABULARY
    rate: float = 0
    whole_validation: int = 1  # drop_last of validation_dataloader: drops samples beyond a multiple of this number
    seed: int = 42

    def __post_init__(self):
        sizes = {"global_batch_size": self.batch, "max_steps": self.steps, "num_epochs": 9, "local_batch_size": 2}
        if self.model_name and self.rows:
            sizes.update(val_every_steps=4, ckpt_every_steps=100)
        self.overrides = {**{f"step_scheduler.{key}": value for key, value in sizes.items()}, **self.overrides}

    def row(self, row):
        """Returns a synthetic row with the column names of the recipe."""
        return {"prompt": row["ask"], "completion": row["say"] or "nothing"} if self.rows == "columns" else row

    def stream(self, folder):
        """Returns rows of length + 1 tokens."""
        if self.tokens == "mock":
            return [self.mock(sample_at(i, MOCK_SAMPLES, self.seed)) for i in range(self.steps * self.batch)]
        import numpy
        tokens = numpy.fromfile(folder / "train.bin", dtype=numpy.uint16, offset=1024).astype(int).tolist()
        return [tokens[i:i + self.length + 1] for i in range(0, len(tokens) - self.length, self.length)]

    def mock(self, sample):
        """Reimplements plugins/mock/draws.h. The last label is ignored."""
        key = mixed(mixed(self.seed) ^ sample)
        drawn = [(mixed(key ^ mixed(i)) * self.vocabulary) >> 64 for i in range(self.length)]
        return drawn + [-100]


COLUMNS = {"rows": "columns", "local": True, "optimizer": {"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}}
KINDS = {
    "squad": Kind("llm_finetune/llama3_2/llama3_2_1b_squad.yaml", "squad", model_name="meta-llama/Llama-3.2-1B",
                  shuffle=False, ranks=2),
    "hellaswag": Kind("llm_finetune/llama3_2/llama3_2_1b_hellaswag.yaml", "swag", model_name="meta-llama/Llama-3.2-1B",
                      ranks=2),
    "chat": Kind("llm_finetune/llama3_2/customizer_llama_3_2_1b_full_sft_chat.yaml", "plain", local=True,
                 model_name="meta-llama/Llama-3.2-1B-Instruct",
                 optimizer={"betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01}),
    "columns": Kind("llm_finetune/llama3_2/customizer_llama_3_2_1b_full_sft.yaml",
                    model_name="meta-llama/Llama-3.2-1B-Instruct", **COLUMNS),
    "xlam": Kind("llm_finetune/gemma/functiongemma_xlam.yaml", "xlam", "gemma3_text", "google/functiongemma-270m-it",
                 {**SMALL, "head_dim": 8, "sliding_window": 64}, cases.TOOLS, shuffle=False, ranks=2),
    "mock benchmark": Kind("llm_benchmark/llama3_1/llama3_1_8b_quack_rope_baseline.yaml", model_name=None, random=True,
                           benchmark=True, tokens="mock", shuffle=False, rate=1e-4, ranks=2, overrides={
                               "model.config": str({"model_type": "llama", "vocab_size": MOCK_VOCABULARY, **SMALL}),
                               "dataset.seq_len": MOCK_LENGTH, "benchmark.warmup_steps": 2}),
    "pipeline": Kind("llm_finetune/llama3_1/llama3_1_8b_hellaswag_pp.yaml", "swag", model_name="meta-llama/Llama-3.1-8B",
                     sizes={**SMALL, "num_hidden_layers": 4}, ranks=2, overrides={
                         "step_scheduler.local_batch_size": 4, "distributed.pipeline.pp_microbatch_size": 1},
                     whole_validation=4),
    "tensor": Kind("llm_finetune/llama3_1/customizer_llama_3_1_8b_full_sft_tp.yaml", ranks=2,
                   model_name="meta-llama/Llama-3.1-8B-Instruct", **COLUMNS),
    "packed experts": Kind("llm_finetune/qwen/qwen3_moe_30b_te_packed_sequence.yaml", "swag", "qwen3_moe",
                           "Qwen/Qwen3-30B-A3B", {**SMALL, "head_dim": 8, "num_experts": 8, "num_experts_per_tok": 2,
                                                  "moe_intermediate_size": 16, "norm_topk_prob": True,
                                                  "router_aux_loss_coef": 0.0}, ranks=2, pack=128,  # transformers excludes it
                           optimizer={"betas": (0.9, 0.999), "eps": 1e-7}, batch=4, overrides={
                               "distributed.ep_size": 2, "packed_sequence.packed_sequence_size": 128,
                               "step_scheduler.val_every_steps": 4}),
    "pretraining": Kind("llm_pretrain/nanogpt_pretrain.yaml", model_key=None, random=True, tokens="file", shuffle=False,
                        adam=False, ranks=2, optimizer={"betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}, overrides={
                            "model.vocab_size": MOCK_VOCABULARY, "model.n_positions": 64, "model.n_embd": 32,
                            "model.n_layer": 2, "model.n_head": 4, "dataset.seq_len": MOCK_LENGTH}),
}
KINDS["tensor"].overrides["distributed.dp_size"] = 1

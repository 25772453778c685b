"""Makes rotary/golden.json: RoPE frequencies and scaling factors computed by transformers.

Run by hand when a case is added (needs torch 2.11 and transformers 5; no test runs it):

    python3 tests/golden/make_rotary.py
"""

import json
import pathlib

from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

HERE = pathlib.Path(__file__).parent

YARN = {"rope_type": "yarn", "original_max_position_embeddings": 4096}

# head_dim and rope_parameters
CASES = [
    (64, {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}),
    (64, {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}),
    (64, {**YARN, "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False}),
    (64, {**YARN, "rope_theta": 10000.0, "factor": 40.0, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707,
          "mscale_all_dim": 0.5}),
    (128, {**YARN, "rope_theta": 1000000.0, "factor": 4.0}),
    (128, {**YARN, "rope_theta": 1000000.0, "factor": 4.0, "attention_factor": 1.5, "partial_rotary_factor": 0.5}),
    (24, {**YARN, "rope_theta": 10000.0, "factor": 0.5, "beta_fast": 3.0, "beta_slow": 2.0,
          "original_max_position_embeddings": 100}),
    # The two bounds of the ramp are equal.
    (6, {**YARN, "rope_theta": 10000.0, "factor": 8.0, "beta_fast": 1.5, "beta_slow": 1.5, "truncate": False,
         "original_max_position_embeddings": 64}),
]


def main():
    out = []
    for head_dim, rope in CASES:
        config = LlamaConfig(hidden_size=4 * head_dim, num_attention_heads=4, head_dim=head_dim, rope_parameters=dict(rope),
                             max_position_embeddings=131072)
        frequencies, factor = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, device="cpu")
        out.append({"head_dim": head_dim, "rope_parameters": rope, "frequencies": frequencies.tolist(), "factor": factor})
    (HERE / "rotary").mkdir(exist_ok=True)
    (HERE / "rotary" / "golden.json").write_text(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()

"""Makes the golden files of muse_glimmer, which transformers has only as a model of text and images.

Run by hand (needs torch 2.11 and transformers 5; no test runs it):

    python3 tests/golden/make_muse.py

The folder has the format of make_golden.py. The weights include a small vision tower, which heddle skips.
"""

import json
import shutil

import torch
from transformers import MuseGlimmerConfig, MuseGlimmerForConditionalGeneration

from make_golden import BATCH, HERE, SEQUENCE, STEPS, train

# A window shorter than the sequence in two of three layers. The second layer has no RoPE.
TEXT = dict(vocab_size=61, hidden_size=28, intermediate_size=38, num_hidden_layers=3, num_attention_heads=4,
            num_key_value_heads=2, head_dim=10, max_position_embeddings=256, sliding_window=5, attention_bias=True,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"], layer_rope_theta=[500.0, 0, 500.0],
            rope_parameters={"rope_type": "default", "rope_theta": 500.0}, qk_scale_factor=1.7, output_multiplier=0.4,
            final_logit_softcapping=3.0, rms_norm_eps=1e-5, post_norm_eps=1e-3, tie_word_embeddings=False,
            initializer_range=0.3)
VISION = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, patch_size=2,
              pos_emb_height=2, pos_emb_width=2)


def main():
    torch.set_num_threads(1)
    folder = HERE / "muse_glimmer"
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(3002)
    config = MuseGlimmerConfig(text_config=TEXT, vision_config=VISION, out_hidden_size=32, projector_hidden_size=8,
                               tie_word_embeddings=False)
    model = MuseGlimmerForConditionalGeneration._from_config(config, dtype=torch.float32).train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    data = torch.randint(TEXT["vocab_size"], (STEPS, BATCH, SEQUENCE + 1))
    losses, _, norms, _ = train(model, data)
    (folder / "golden.json").write_text(json.dumps({"batch": BATCH, "sequence": SEQUENCE, "tokens": data.flatten().tolist(),
                                                    "loss": losses, "grad_norm": norms}))
    (folder / "generation_config.json").unlink(missing_ok=True)
    print(losses[0], losses[-1], norms[0])


if __name__ == "__main__":
    main()

"""Small models of transformers with random weights that are equal on every rank, and their batches."""
try:
    import torch
except ImportError:  # the tests are then skipped
    torch = None


def llama(layers=3, tied=False, width=32, **more):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=64, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                         tie_word_embeddings=tied, **more)
    return LlamaForCausalLM(config)


def tokens(step, rank, rows=2, length=12, vocabulary=64):
    """Returns the tokens of a step on a rank, [rows, length]."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randint(0, vocabulary, (rows, length), generator=generator)


SMALL = dict(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4)
KEYS = dict(num_key_value_heads=2)
# architecture: config class, model class, keys of the config
TEXT = {
    "Llama": ("LlamaConfig", "LlamaForCausalLM", {**SMALL, **KEYS}),
    "Qwen2": ("Qwen2Config", "Qwen2ForCausalLM", {**SMALL, **KEYS}),
    "Qwen3-MoE": ("Qwen3MoeConfig", "Qwen3MoeForCausalLM",
                  {**SMALL, **KEYS, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "head_dim": 8}),
    "Mixtral": ("MixtralConfig", "MixtralForCausalLM", {**SMALL, **KEYS, "num_local_experts": 4}),
    "Gemma 2": ("Gemma2Config", "Gemma2ForCausalLM", {**SMALL, **KEYS, "head_dim": 8, "sliding_window": 8}),
    "Phi-3": ("Phi3Config", "Phi3ForCausalLM", {**SMALL, **KEYS, "pad_token_id": 0}),
    "GPT-2": ("GPT2Config", "GPT2LMHeadModel", dict(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64)),
    "GPT-NeoX": ("GPTNeoXConfig", "GPTNeoXForCausalLM", SMALL),
    "Falcon": ("FalconConfig", "FalconForCausalLM", dict(vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4)),
    "BLOOM": ("BloomConfig", "BloomForCausalLM", dict(vocab_size=64, hidden_size=32, n_layer=2, n_head=4)),
    "OPT": ("OPTConfig", "OPTForCausalLM", dict(vocab_size=64, hidden_size=32, ffn_dim=64, num_hidden_layers=2,
                                                num_attention_heads=4, word_embed_proj_dim=32, max_position_embeddings=64)),
    "BERT": ("BertConfig", "BertForMaskedLM", SMALL),
    "T5": ("T5Config", "T5ForConditionalGeneration", dict(vocab_size=64, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4,
                                                          decoder_start_token_id=0)),
}
VISION = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, image_size=16, patch_size=8)
ARCHITECTURES = (*TEXT, "Gemma 3", "CLIP", "Qwen2-VL")


def make(name):
    """Returns a model in evaluation mode, so that dropout is off."""
    import transformers

    torch.manual_seed(1)
    if name in TEXT:
        config, model, keys = TEXT[name]
        made = getattr(transformers, model)(getattr(transformers, config)(**keys))
    elif name == "Gemma 3":
        config = transformers.Gemma3Config(
            text_config={**SMALL, **KEYS, "head_dim": 8, "sliding_window": 8}, vision_config={**VISION, "vision_use_head": False},
            mm_tokens_per_image=4, image_token_index=60, boi_token_index=61, eoi_token_index=62)
        made = transformers.Gemma3ForConditionalGeneration(config)
    elif name == "CLIP":
        config = transformers.CLIPConfig(text_config={**SMALL, "max_position_embeddings": 16, "eos_token_id": 63, "bos_token_id": 0},
                                         vision_config=VISION, projection_dim=16)
        made = transformers.CLIPModel(config)
    else:
        config = transformers.Qwen2VLConfig(
            text_config={**SMALL, **KEYS, "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]}},
            vision_config=dict(depth=2, embed_dim=32, hidden_size=32, num_heads=4, patch_size=4, mlp_ratio=2, spatial_merge_size=2,
                               temporal_patch_size=2), image_token_id=60, video_token_id=61, vision_start_token_id=62,
            vision_end_token_id=63)
        made = transformers.Qwen2VLForConditionalGeneration(config)
    return made.eval()


def batch(name, step, rank, images=True):
    """Returns keyword arguments of a forward with a loss. `images`: whether the batch of a vision model has images."""
    ids = tokens(step, rank, vocabulary=56)
    generator = torch.Generator().manual_seed(77 + 10 * step + rank)
    if name == "T5":
        return {"input_ids": ids, "labels": tokens(step + 50, rank)}
    if name == "CLIP":
        ids[:, -1] = 63
        return {"input_ids": ids, "pixel_values": torch.randn(2, 3, 16, 16, generator=generator), "return_loss": True}
    given = {"input_ids": ids, "labels": ids.clone()}
    if name == "Gemma 3":
        given["token_type_ids"] = torch.zeros_like(ids)
        if images:
            ids[:, 2:6] = 60
            given["token_type_ids"][:, 2:6] = 1
            given["pixel_values"] = torch.randn(2, 3, 16, 16, generator=generator)
    if name == "Qwen2-VL" and images:
        ids[:, 2:6] = 60
        given.update(pixel_values=torch.randn(2 * 16, 3 * 2 * 4 * 4, generator=generator),
                     image_grid_thw=torch.tensor([[1, 4, 4]] * 2), mm_token_type_ids=(ids == 60).int())
    return given

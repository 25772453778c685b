"""Makes the golden files of this folder: tiny Hugging Face models, token data, and the results of transformers.

Run by hand when a case is added (no test runs it). torch and transformers take 5 GB:

    python3 -m venv .deps/golden && .deps/golden/bin/pip install torch==2.11.0 'transformers>=5'
    .deps/golden/bin/python tests/golden/make_golden.py CASE...

Add new cases at the end of CASES, because a case's index is the seed of its weights and tokens.

Each case is a folder with config.json, the weights as safetensors, and golden.json: the tokens (12 steps of `batch` rows of
`sequence` + 1), and per step the loss (sum of token losses / labels) and the gradient norm before clipping, for AdamW in
fp32 (lr 1e-3, betas 0.9 0.95, eps 1e-8, decay 0.1 on every parameter, clip 1.0). `auxiliary` is the auxiliary loss of a
mixture of experts. The loss excludes it, the gradient norm includes it. Tokens are drawn until all choices of the model
(top-k, clamps) keep a distance from their borders (choices.py). Some cases have gradients.safetensors (the gradients of
step 0) and final.safetensors (the parameters at the end).
"""

import json
import math
import pathlib
import re
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, Mistral4ForCausalLM

import choices

HERE = pathlib.Path(__file__).parent
STEPS, BATCH, SEQUENCE = 12, 2, 17

LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 64}

YARN_ROPE = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "beta_fast": 8.0, "beta_slow": 1.0,
             "original_max_position_embeddings": 64}

DEEPSEEK_ROPE = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 40.0, "beta_fast": 8.0, "beta_slow": 1.0,
                 "mscale": 1.0, "mscale_all_dim": 0.7, "original_max_position_embeddings": 64}

MAMBA = {"mamba_num_heads": 6, "mamba_head_dim": 5, "ssm_state_size": 7, "n_groups": 2, "conv_kernel": 3,
         "chunk_size": 16, "time_step_limit": [0.001, math.inf]}  # transformers reads time_step_min, which is 0.001

FALCON_MULTIPLIERS = {"embedding_multiplier": 1.7, "lm_head_multiplier": 0.4, "key_multiplier": 0.6,
                      "attention_in_multiplier": 0.8, "attention_out_multiplier": 1.3, "ssm_in_multiplier": 1.25,
                      "ssm_out_multiplier": 0.7, "ssm_multipliers": [0.9, 1.4, 0.5, 0.8, 1.6],
                      "mlp_multipliers": [1.2, 0.3]}

AUXILIARY = {"output_router_logits": True, "router_aux_loss_coef": 0.05}

CASES = {
    # Grouped-query attention; the case with saved gradients and final parameters.
    "llama": dict(model_type="llama", vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                  num_attention_heads=4, num_key_value_heads=2),
    # Sizes without common divisors, biases everywhere, llama3 RoPE scaling, sharded weights.
    "llama_odd": dict(model_type="llama", vocab_size=131, hidden_size=42, intermediate_size=57, num_hidden_layers=3,
                      num_attention_heads=3, num_key_value_heads=1, head_dim=24, attention_bias=True, mlp_bias=True,
                      rope_parameters=LLAMA3_ROPE),
    "llama_tied": dict(model_type="llama", vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=4, tie_word_embeddings=True, pad_token_id=5,
                       rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}),
    "qwen2": dict(model_type="qwen2", vocab_size=67, hidden_size=32, intermediate_size=44, num_hidden_layers=2,
                  num_attention_heads=4, num_key_value_heads=2),
    "qwen2_tied": dict(model_type="qwen2", vocab_size=64, hidden_size=36, intermediate_size=50, num_hidden_layers=2,
                       num_attention_heads=6, num_key_value_heads=3, tie_word_embeddings=True,
                       rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}),
    "qwen3": dict(model_type="qwen3", vocab_size=131, hidden_size=40, intermediate_size=56, num_hidden_layers=2,
                  num_attention_heads=3, num_key_value_heads=1, head_dim=24),
    "qwen3_tied": dict(model_type="qwen3", vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=2, head_dim=16, attention_bias=True,
                       tie_word_embeddings=True),
    # Mixtures of experts, trained with their auxiliary loss.
    "qwen3_moe": dict(model_type="qwen3_moe", vocab_size=61, hidden_size=30, intermediate_size=44, num_hidden_layers=3,
                      num_attention_heads=3, num_key_value_heads=1, head_dim=10, moe_intermediate_size=18, num_experts=5,
                      num_experts_per_tok=3, norm_topk_prob=True, mlp_only_layers=[1], **AUXILIARY),
    "mixtral": dict(model_type="mixtral", vocab_size=64, hidden_size=32, intermediate_size=36, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, num_local_experts=6, num_experts_per_tok=2,
                    **AUXILIARY),
    "olmoe": dict(model_type="olmoe", vocab_size=64, hidden_size=32, intermediate_size=20, num_hidden_layers=2,
                  num_attention_heads=4, num_key_value_heads=4, num_experts=8, num_experts_per_tok=8, **AUXILIARY),
    "qwen2_moe": dict(model_type="qwen2_moe", vocab_size=67, hidden_size=28, intermediate_size=40, num_hidden_layers=3,
                      num_attention_heads=2, num_key_value_heads=1, moe_intermediate_size=18,
                      shared_expert_intermediate_size=26, num_experts=7, num_experts_per_tok=1, decoder_sparse_step=2,
                      tie_word_embeddings=True, **AUXILIARY),
    # Latent attention: expert groups and a correction bias; no query latent; plain and group-limited top-k.
    "deepseek_v3": dict(model_type="deepseek_v3", vocab_size=61, hidden_size=30, intermediate_size=44,
                        num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=3, q_lora_rank=14,
                        kv_lora_rank=10, qk_nope_head_dim=9, qk_rope_head_dim=6, v_head_dim=7, n_routed_experts=9,
                        num_experts_per_tok=3, n_group=3, topk_group=2, n_shared_experts=2, moe_intermediate_size=10,
                        first_k_dense_replace=1, rope_parameters=DEEPSEEK_ROPE),
    "deepseek_v2": dict(model_type="deepseek_v2", vocab_size=64, hidden_size=32, intermediate_size=40,
                        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=4, q_lora_rank=None,
                        kv_lora_rank=12, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=10, n_routed_experts=8,
                        num_experts_per_tok=2, topk_method="group_limited_greedy", n_group=4, topk_group=2,
                        n_shared_experts=1, moe_intermediate_size=11, routed_scaling_factor=1.5, attention_bias=True,
                        rope_parameters={**DEEPSEEK_ROPE, "mscale": 0.5}),
    "glm4_moe_lite": dict(model_type="glm4_moe_lite", vocab_size=67, hidden_size=28, intermediate_size=36,
                          num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=2, q_lora_rank=12,
                          kv_lora_rank=8, qk_nope_head_dim=6, qk_rope_head_dim=8, v_head_dim=9, n_routed_experts=6,
                          num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=13, rope_interleave=False,
                          mlp_layer_types=["sparse", "dense", "sparse"]),
    # Alternating windows shorter than the sequence, sinks, yarn within the sequence, odd expert count and width.
    "gpt_oss": dict(model_type="gpt_oss", vocab_size=61, hidden_size=30, intermediate_size=18, num_hidden_layers=3,
                    num_attention_heads=6, num_key_value_heads=2, head_dim=10, num_local_experts=5, num_experts_per_tok=3,
                    sliding_window=5, swiglu_limit=1.5, rope_parameters={**YARN_ROPE, "truncate": False}, **AUXILIARY),
    "glm4_moe": dict(model_type="glm4_moe", vocab_size=61, hidden_size=30, intermediate_size=44, num_hidden_layers=3,
                     num_attention_heads=3, num_key_value_heads=1, head_dim=12, moe_intermediate_size=18,
                     n_routed_experts=6, num_experts_per_tok=3, n_group=3, topk_group=2, n_shared_experts=2,
                     routed_scaling_factor=1.7, attention_bias=True, use_qk_norm=True),
    "minimax_m2": dict(model_type="minimax_m2", vocab_size=64, hidden_size=32, intermediate_size=20,
                       num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=12, rotary_dim=6,
                       num_local_experts=6, num_experts_per_tok=2),
    # Sliding windows in all layers, and in some layers.
    "mixtral_window": dict(model_type="mixtral", vocab_size=64, hidden_size=32, intermediate_size=20,
                           num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, num_local_experts=4,
                           num_experts_per_tok=2, sliding_window=6),
    "qwen2_window": dict(model_type="qwen2", vocab_size=67, hidden_size=32, intermediate_size=44, num_hidden_layers=3,
                         num_attention_heads=4, num_key_value_heads=2, use_sliding_window=True, sliding_window=4,
                         max_window_layers=1),
    "qwen2_moe_window": dict(model_type="qwen2_moe", vocab_size=64, hidden_size=28, intermediate_size=40,
                             num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, moe_intermediate_size=18,
                             shared_expert_intermediate_size=26, num_experts=4, num_experts_per_tok=2,
                             use_sliding_window=True, sliding_window=4, max_window_layers=3),
    "qwen3_moe_window": dict(model_type="qwen3_moe", vocab_size=61, hidden_size=30, intermediate_size=44,
                             num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, head_dim=10,
                             moe_intermediate_size=18, num_experts=4, num_experts_per_tok=2, use_sliding_window=True,
                             sliding_window=4),
    # Fused q, k, v and fused gate, up; partial RoPE; sliding windows in all layers.
    "phi3": dict(model_type="phi3", vocab_size=61, hidden_size=40, intermediate_size=46, num_hidden_layers=2,
                 num_attention_heads=4, num_key_value_heads=2, pad_token_id=3, partial_rotary_factor=0.6),
    "phi3_window": dict(model_type="phi3", vocab_size=64, hidden_size=32, intermediate_size=44, num_hidden_layers=2,
                        num_attention_heads=4, num_key_value_heads=4, pad_token_id=None, sliding_window=5,
                        tie_word_embeddings=True),
    # Soft caps, norms before and after each block, alternating windows shorter than the sequence.
    "gemma2": dict(model_type="gemma2", vocab_size=61, hidden_size=32, intermediate_size=46, num_hidden_layers=3,
                   num_attention_heads=4, num_key_value_heads=2, head_dim=10, query_pre_attn_scalar=7, sliding_window=5,
                   attn_logit_softcapping=2.0, final_logit_softcapping=4.0),
    "gemma2_untied": dict(model_type="gemma2", vocab_size=64, hidden_size=32, intermediate_size=44, num_hidden_layers=2,
                          num_attention_heads=4, num_key_value_heads=2, head_dim=8, sliding_window=6, pad_token_id=None,
                          attention_bias=True, tie_word_embeddings=False),
    "gemma": dict(model_type="gemma", vocab_size=64, hidden_size=32, intermediate_size=44, num_hidden_layers=2,
                  num_attention_heads=4, num_key_value_heads=1, head_dim=12),
    # A window shorter than the sequence, a head dimension independent of the hidden size.
    "mistral": dict(model_type="mistral", vocab_size=61, hidden_size=28, intermediate_size=38, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, head_dim=10, sliding_window=5),
    # Query scaling that grows within the sequence, yarn.
    "ministral3": dict(model_type="ministral3", vocab_size=61, hidden_size=28, intermediate_size=38, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=2, head_dim=10, pad_token_id=None,
                       rope_parameters={**YARN_ROPE, "original_max_position_embeddings": 4, "mscale": 1.0,
                                        "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.3}),
    # Two RoPE bases, windows shorter than the sequence in two of three layers, norms of q and k.
    "gemma3_text": dict(model_type="gemma3_text", vocab_size=61, hidden_size=28, intermediate_size=38, num_hidden_layers=3,
                        num_attention_heads=4, num_key_value_heads=2, head_dim=10, query_pre_attn_scalar=7, sliding_window=5,
                        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                        rope_parameters={"full_attention": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 2.0},
                                         "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}),
    "gemma3_untied": dict(model_type="gemma3_text", vocab_size=64, hidden_size=24, intermediate_size=32, num_hidden_layers=2,
                          num_attention_heads=2, num_key_value_heads=2, head_dim=8, sliding_window=6, pad_token_id=None,
                          sliding_window_pattern=2, attention_bias=True,
                          final_logit_softcapping=3.0, tie_word_embeddings=False),
    "granite": dict(model_type="granite", vocab_size=61, hidden_size=24, intermediate_size=38, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, attention_bias=True, mlp_bias=True,
                    embedding_multiplier=6.0, logits_scaling=4.0, residual_multiplier=0.22, attention_multiplier=0.3),
    "olmo2": dict(model_type="olmo2", vocab_size=61, hidden_size=24, intermediate_size=38, num_hidden_layers=2,
                  num_attention_heads=4, num_key_value_heads=2),
    "starcoder2": dict(model_type="starcoder2", vocab_size=61, hidden_size=24, intermediate_size=38, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=2, sliding_window=5),
    "starcoder2_untied": dict(model_type="starcoder2", vocab_size=64, hidden_size=24, intermediate_size=36,
                              num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, use_bias=False,
                              tie_word_embeddings=False),
    "phi": dict(model_type="phi", vocab_size=61, hidden_size=40, intermediate_size=38, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, partial_rotary_factor=0.4),
    "glm": dict(model_type="glm", vocab_size=61, hidden_size=28, intermediate_size=38, num_hidden_layers=2,
                num_attention_heads=4, num_key_value_heads=2, head_dim=12, pad_token_id=None),
    "glm4": dict(model_type="glm4", vocab_size=61, hidden_size=28, intermediate_size=38, num_hidden_layers=2,
                 num_attention_heads=4, num_key_value_heads=2, head_dim=12, pad_token_id=None),
    "seed_oss": dict(model_type="seed_oss", vocab_size=61, hidden_size=28, intermediate_size=38, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=2, head_dim=10, attention_dropout=0.0,
                     residual_dropout=0.0),
    # The second layer has full attention and no RoPE.
    "cohere2": dict(model_type="cohere2", vocab_size=61, hidden_size=40, intermediate_size=38, num_hidden_layers=3,
                    num_attention_heads=4, num_key_value_heads=2, logit_scale=0.4, sliding_window=5, pad_token_id=3,
                    layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
    "ernie4_5": dict(model_type="ernie4_5", vocab_size=61, hidden_size=28, intermediate_size=38, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=2, head_dim=10, use_bias=True),
    # The exact gelu, as build_gpt2_model uses it, and the default gelu; a custom MLP width; an untied head.
    "gpt2_exact": dict(model_type="gpt2", vocab_size=61, n_embd=28, n_layer=2, n_head=4, n_positions=32,
                       activation_function="gelu", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
    "gpt2_inner": dict(model_type="gpt2", vocab_size=64, n_embd=24, n_layer=2, n_head=2, n_inner=38, n_positions=32,
                       resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, tie_word_embeddings=False),
    # Gated DeltaNet in two of three layers, with value heads that share key heads; gated attention outputs.
    "qwen3_next": dict(model_type="qwen3_next", vocab_size=61, hidden_size=28, intermediate_size=38, num_hidden_layers=3,
                       num_attention_heads=4, num_key_value_heads=2, head_dim=12, partial_rotary_factor=0.5,
                       layer_types=["linear_attention", "full_attention", "linear_attention"], linear_num_key_heads=2,
                       linear_num_value_heads=4, linear_key_head_dim=22, linear_value_head_dim=13, num_experts=5,
                       num_experts_per_tok=3, moe_intermediate_size=18, shared_expert_intermediate_size=14,
                       mlp_only_layers=[0], **AUXILIARY),
    # Rows longer than one DeltaNet chunk, three value heads per key head, a convolution of width three.
    "qwen3_5": dict(model_type="qwen3_5_text", vocab_size=61, hidden_size=28, intermediate_size=38, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2, head_dim=16, full_attention_interval=2,
                    linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=21, linear_value_head_dim=11,
                    linear_conv_kernel_dim=3, attention_bias=True),
    "qwen3_5_tied": dict(model_type="qwen3_5_text", vocab_size=64, hidden_size=24, intermediate_size=36,
                         num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=8,
                         full_attention_interval=2, linear_num_key_heads=2, linear_num_value_heads=2,
                         linear_key_head_dim=24, linear_value_head_dim=8, tie_word_embeddings=True),
    "qwen3_5_moe": dict(model_type="qwen3_5_moe_text", vocab_size=61, hidden_size=28, num_hidden_layers=3,
                        num_attention_heads=4, num_key_value_heads=2, head_dim=12, partial_rotary_factor=0.5,
                        full_attention_interval=3, linear_num_key_heads=2, linear_num_value_heads=4,
                        linear_key_head_dim=22, linear_value_head_dim=13, num_experts=6, num_experts_per_tok=2,
                        moe_intermediate_size=18, shared_expert_intermediate_size=14, **AUXILIARY),
    # Alternating Mamba-2, attention without RoPE and MLPs; biases, clamped time steps; rows longer than one chunk.
    "nemotron_h": dict(model_type="nemotron_h", vocab_size=61, hidden_size=28, intermediate_size=38,
                       layers_block_type=["linear_attention", "full_attention", "mlp", "linear_attention"],
                       num_attention_heads=4, num_key_value_heads=2, head_dim=10, use_bias=True,
                       mlp_bias=True, **MAMBA),
    # Experts in groups, and experts with a latent input.
    "nemotron_h_moe": dict(model_type="nemotron_h", vocab_size=61, hidden_size=28, intermediate_size=38,
                           layers_block_type=["linear_attention", "moe", "full_attention", "moe"],
                           num_attention_heads=4, num_key_value_heads=2, head_dim=10, n_routed_experts=6,
                           num_experts_per_tok=2, n_group=3, topk_group=2, moe_intermediate_size=18,
                           moe_shared_expert_intermediate_size=14, routed_scaling_factor=1.7, use_conv_bias=False,
                           **MAMBA),
    "nemotron_h_latent": dict(model_type="nemotron_h", vocab_size=61, hidden_size=28, intermediate_size=38,
                              layers_block_type=["linear_attention", "moe", "full_attention"], num_attention_heads=2,
                              num_key_value_heads=1, head_dim=12, n_routed_experts=5, num_experts_per_tok=3,
                              moe_latent_size=11, moe_intermediate_size=18, moe_shared_expert_intermediate_size=14,
                              **MAMBA),
    # Fewer selected keys than tokens; layers that share a selection. Many heads make ties between scores impossible,
    # because transformers breaks ties arbitrarily.
    "deepseek_v32": dict(model_type="deepseek_v32", vocab_size=61, hidden_size=30, intermediate_size=44,
                         num_hidden_layers=3, num_attention_heads=3, num_key_value_heads=3, q_lora_rank=14,
                         kv_lora_rank=10, qk_nope_head_dim=9, qk_rope_head_dim=6, v_head_dim=7, n_routed_experts=8,
                         num_experts_per_tok=3, n_group=4, topk_group=2, n_shared_experts=2, moe_intermediate_size=10,
                         first_k_dense_replace=1, index_topk=5, index_n_heads=17, index_head_dim=10,
                         rope_parameters=DEEPSEEK_ROPE),
    "glm_moe_dsa": dict(model_type="glm_moe_dsa", vocab_size=67, hidden_size=28, intermediate_size=36,
                        num_hidden_layers=4, num_attention_heads=2, num_key_value_heads=2, q_lora_rank=12,
                        kv_lora_rank=8, qk_nope_head_dim=6, qk_rope_head_dim=8, v_head_dim=9, n_routed_experts=6,
                        num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=13, index_topk=4,
                        index_n_heads=16, index_head_dim=8, mlp_layer_types=["dense", "sparse", "dense", "sparse"],
                        indexer_types=["full", "full", "shared", "shared"]),
    # A correction bias; expert groups; head counts and layer types that differ by layer.
    "hy_v3": dict(model_type="hy_v3", vocab_size=61, hidden_size=30, intermediate_size=44, num_hidden_layers=3,
                  num_attention_heads=4, num_key_value_heads=2, head_dim=10, moe_intermediate_size=18, num_experts=6,
                  num_experts_per_tok=3, num_shared_experts=2, router_scaling_factor=1.7, attention_bias=True),
    "ernie4_5_moe": dict(model_type="ernie4_5_moe", vocab_size=64, hidden_size=32, intermediate_size=40,
                         num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, moe_k=2, moe_num_experts=6,
                         moe_num_shared_experts=1, moe_intermediate_size=18, moe_layer_interval=2),
    "mimo_v2_flash": dict(model_type="mimo_v2_flash", vocab_size=61, hidden_size=30, intermediate_size=44,
                          num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, head_dim=12, v_head_dim=10,
                          layer_types=["sliding_attention", "full_attention", "sliding_attention"], sliding_window=5,
                          attention_bias=True, moe_intermediate_size=18, n_routed_experts=6, num_experts_per_tok=3,
                          n_group=3, topk_group=2, routed_scaling_factor=1.7),
    "laguna": dict(model_type="laguna", vocab_size=61, hidden_size=28, intermediate_size=38, num_hidden_layers=3,
                   num_attention_heads=4, num_key_value_heads=2, head_dim=12, num_attention_heads_per_layer=[4, 8, 2],
                   layer_types=["full_attention", "sliding_attention", "full_attention"], sliding_window=5,
                   rope_parameters={"full_attention": {**YARN_ROPE, "partial_rotary_factor": 0.5},
                                    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0,
                                                          "partial_rotary_factor": 1.0}},
                   moe_intermediate_size=18, shared_expert_intermediate_size=14, num_experts=6, num_experts_per_tok=2,
                   moe_routed_scaling_factor=1.7),
    "laguna_elements": dict(model_type="laguna", vocab_size=64, hidden_size=24, intermediate_size=36,
                            num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=16,
                            gating="per-element", attention_bias=True, moe_intermediate_size=12,
                            shared_expert_intermediate_size=16, num_experts=4, num_experts_per_tok=2),
    # Latent attention with query scaling that grows within the sequence, expert groups by softmax scores.
    "mistral4": dict(model_type="mistral4", vocab_size=61, hidden_size=30, intermediate_size=44, num_hidden_layers=3,
                     num_attention_heads=3, num_key_value_heads=3, q_lora_rank=14, kv_lora_rank=10, qk_nope_head_dim=9,
                     qk_rope_head_dim=6, v_head_dim=7, n_routed_experts=6, num_experts_per_tok=3, n_group=3,
                     topk_group=2, n_shared_experts=2, moe_intermediate_size=10, first_k_dense_replace=1,
                     routed_scaling_factor=1.7,
                     rope_parameters={**YARN_ROPE, "original_max_position_embeddings": 4, "llama_4_scaling_beta": 0.3}),
    # Parallel attention and Mamba-2 with every multiplier; without and with a gated norm (gate before the norm).
    "falcon_h1": dict(model_type="falcon_h1", vocab_size=61, hidden_size=32, intermediate_size=38, num_hidden_layers=2,
                      num_attention_heads=4, num_key_value_heads=2, mamba_d_ssm=30, mamba_n_heads=6, mamba_n_groups=1,
                      mamba_d_state=7, mamba_d_conv=3, mamba_chunk_size=16, **FALCON_MULTIPLIERS),
    "falcon_h1_norm": dict(model_type="falcon_h1", vocab_size=64, hidden_size=24, intermediate_size=36,
                           num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=2, head_dim=10,
                           mamba_d_ssm=None, mamba_expand=2, mamba_n_heads=4, mamba_n_groups=2, mamba_d_state=5,
                           mamba_rms_norm=True, mamba_conv_bias=False, mamba_proj_bias=True, projectors_bias=True,
                           attention_bias=True, mlp_bias=True, tie_word_embeddings=True, pad_token_id=3,
                           time_step_limit=[0.3, 2.0], **FALCON_MULTIPLIERS),
    # Delta attention with per-channel decay, longer than one chunk; latent attention without RoPE; expert groups and
    # a correction bias.
    "kimi_linear": dict(model_type="kimi_linear", vocab_size=61, hidden_size=28, intermediate_size=38, num_hidden_layers=3,
                        num_attention_heads=2, num_key_value_heads=2, kv_lora_rank=9, qk_nope_head_dim=7,
                        qk_rope_head_dim=5, v_head_dim=6, num_local_experts=6, num_experts_per_tok=2, n_group=3,
                        topk_group=2, n_shared_experts=2, moe_intermediate_size=18, pad_token_id=None,
                        linear_head_dim=11, linear_num_heads=3, linear_conv_kernel_dim=3,
                        layer_types=["linear_attention", "full_attention", "linear_attention"]),
    # Gemma 4: head dimensions and key head counts by layer type, values equal to keys, partial RoPE, windows shorter
    # than the sequence; in the format of the text model and of the 12B model; experts in parallel with the MLP.
    "gemma4_text": dict(model_type="gemma4_text", vocab_size=61, hidden_size=28, intermediate_size=38, num_hidden_layers=3,
                        num_attention_heads=4, num_key_value_heads=4, head_dim=10, global_head_dim=14,
                        num_global_key_value_heads=2, attention_k_eq_v=True, sliding_window=5,
                        layer_types=["sliding_attention", "full_attention", "full_attention"],
                        hidden_size_per_layer_input=0, final_logit_softcapping=3.0,
                        rope_parameters={"full_attention": {"rope_type": "proportional", "rope_theta": 1000.0,
                                                            "partial_rotary_factor": 0.45, "factor": 2.0},
                                         "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}),
    "gemma4_untied": dict(model_type="gemma4_unified_text", vocab_size=64, hidden_size=24, intermediate_size=32,
                          num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8, global_head_dim=12,
                          sliding_window=6, pad_token_id=None, attention_bias=True, tie_word_embeddings=False),
    "gemma4_moe": dict(model_type="gemma4_text", vocab_size=61, hidden_size=28, intermediate_size=38, num_hidden_layers=2,
                       num_attention_heads=4, num_key_value_heads=2, head_dim=10, global_head_dim=12, sliding_window=5,
                       hidden_size_per_layer_input=0, enable_moe_block=True, num_experts=6, top_k_experts=2,
                       moe_intermediate_size=18, tie_word_embeddings=False),
    # Per-layer inputs; layers that reuse the keys of earlier layers, with a wider MLP.
    "gemma4_shared": dict(model_type="gemma4_text", vocab_size=61, hidden_size=28, intermediate_size=19, num_hidden_layers=5,
                          num_attention_heads=4, num_key_value_heads=2, head_dim=10, global_head_dim=12, sliding_window=5,
                          layer_types=["sliding_attention", "full_attention", "sliding_attention", "sliding_attention",
                                       "full_attention"],
                          num_kv_shared_layers=2, use_double_wide_mlp=True, hidden_size_per_layer_input=22,
                          vocab_size_per_layer_input=61, tie_word_embeddings=False),
    # All layer types, experts by token table and by score, clamped gates; many heads, so that no two entries of the
    # indexer have equal scores.
    "deepseek_v4": dict(model_type="deepseek_v4", vocab_size=61, hidden_size=26, moe_intermediate_size=10,
                        num_hidden_layers=4, num_attention_heads=6, head_dim=12, partial_rotary_factor=0.5,
                        q_lora_rank=14, o_groups=2, o_lora_rank=7, sliding_window=5, index_n_heads=12, index_head_dim=8,
                        index_topk=3, hc_mult=3, hc_sinkhorn_iters=5, n_routed_experts=6, num_experts_per_tok=2,
                        swiglu_limit=1.5, pad_token_id=None,
                        layer_types=["sliding_attention", "compressed_sparse_attention",
                                     "heavily_compressed_attention", "compressed_sparse_attention"],
                        compress_rates={"compressed_sparse_attention": 2, "heavily_compressed_attention": 5},
                        mlp_layer_types=["hash_moe", "hash_moe", "moe", "moe"],
                        rope_parameters={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}),
    # Norms without a weight, and clamped queries, keys and values.
    "olmo": dict(model_type="olmo", vocab_size=61, hidden_size=24, intermediate_size=38, num_hidden_layers=2,
                 num_attention_heads=4, num_key_value_heads=2, clip_qkv=0.8),
    # An activation with parameters, and norms of each query and key head.
    "apertus": dict(model_type="apertus", vocab_size=61, hidden_size=24, intermediate_size=38, num_hidden_layers=2,
                    num_attention_heads=4, num_key_value_heads=2),
    # The opposite direction of rotation, norms without a weight, a soft cap that acts.
    "nanochat": dict(model_type="nanochat", vocab_size=61, hidden_size=24, intermediate_size=38, num_hidden_layers=2,
                     num_attention_heads=4, num_key_value_heads=2, final_logit_softcapping=4.0),
}
SEQUENCES = {"qwen3_5": 70, "nemotron_h": 70, "falcon_h1": 70, "kimi_linear": 70}  # default: SEQUENCE
KEEP_GRADIENTS, KEEP_FINAL = ("llama", "qwen3_moe"), ("llama",)
SHARDED = ("llama_odd", "qwen2_moe")
DENSE_NAMES = ("kimi_linear",)  # MLPs of dense layers as in the published files; transformers writes the experts' name
DENSE = re.compile(r"\.block_sparse_moe\.((?:gate|up|down)_proj)")
# Published names. transformers writes other prefixes, and names the norm of keys after the norm of entries.
PUBLISHED = {"deepseek_v4": (("model.embed_tokens", "embed"), ("model.hc_head.hc_", "hc_head_"), (".attn.norm.", ".attn.kv_norm."),
                             ("model.", ""))}
STACKED = ("qwen3_5_moe", "mistral4")  # one tensor for all experts as published; transformers writes one each


def loss_sum(model, tokens):
    """Returns the sum of the token losses, and the scaled auxiliary loss (0 if the model has none)."""
    out = model(tokens[:, :-1], use_cache=False)
    loss = torch.nn.functional.cross_entropy(out.logits.float().flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")
    auxiliary = getattr(out, "aux_loss", None)
    return loss, 0.0 if auxiliary is None else model.config.router_aux_loss_coef * auxiliary


def make_model(fields, seed):
    torch.manual_seed(seed)
    fields = dict(fields)
    if fields["model_type"] != "gpt2":
        fields["max_position_embeddings"] = 256
    config = AutoConfig.for_model(fields.pop("model_type"), **fields, initializer_range=0.3)
    # The loop over experts accepts any size; the grouped product needs multiples of 16 bytes.
    loop = {"experts_implementation": "eager"} if {"num_experts_per_tok", "moe_k", "top_k_experts"} & fields.keys() else {}
    if "attn_logit_softcapping" in fields:  # other implementations ignore the soft cap
        loop["attn_implementation"] = "eager"
    auto = Mistral4ForCausalLM._from_config if config.model_type == "mistral4" else AutoModelForCausalLM.from_config
    model = auto(config, dtype=torch.float32, **loop).float()  # xIELU has a fixed dtype
    with torch.no_grad():  # norms and biases start at 1 and 0, where some errors would not show
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1 or name.endswith("bias"):
                parameter.add_(0.1 * torch.randn_like(parameter))
            if name.endswith("A_log"):  # the initial values forget almost everything at each token
                parameter.copy_(torch.log(0.01 + 0.3 * torch.rand_like(parameter)))
        for name, buffer in model.named_buffers():
            if name.endswith(("e_score_correction_bias", "layer_scalar")):
                buffer.add_(0.1 * torch.randn_like(buffer))
            if name.endswith("tid2eid"):  # distinct experts per token
                buffer.copy_(torch.rand(buffer.shape[0], config.n_routed_experts).argsort(1)[:, : buffer.shape[1]])
    return model.train()


def train(model, data):
    labels = data.shape[1] * (data.shape[2] - 1)
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, foreach=False)
    losses, auxiliary_losses, norms, first_gradients = [], [], [], {}
    for tokens in data:
        optimizer.zero_grad(set_to_none=True)
        loss, auxiliary = loss_sum(model, tokens)
        loss = loss / labels
        (loss + auxiliary).backward()
        if not first_gradients:
            first_gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        norms.append(math.sqrt(sum(float(p.grad.double().pow(2).sum()) for p in parameters if p.grad is not None)))
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=False)
        optimizer.step()
        losses.append(float(loss))
        auxiliary_losses.append(float(auxiliary))
    return losses, auxiliary_losses, norms, first_gradients


def load_case(folder):
    """Returns the model and the tokens of an existing case."""
    config = AutoConfig.from_pretrained(folder)
    auto = Mistral4ForCausalLM if config.model_type == "mistral4" else AutoModelForCausalLM
    model = auto.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager")
    golden = json.loads((folder / "golden.json").read_text())
    return model.train(), torch.tensor(golden["tokens"]).view(STEPS, golden["batch"], golden["sequence"] + 1)


def main():
    unknown = sorted(set(sys.argv[1:]) - set(CASES))
    if unknown or not sys.argv[1:]:
        wrong = f"CASES has no {', '.join(unknown)}" if unknown else "no case is given"
        sys.exit(f"make_golden: {wrong}. Give names of CASES. Their folders are overwritten.")
    torch.set_num_threads(1)
    for number, (name, fields) in enumerate(CASES.items()):
        if name not in sys.argv[1:]:
            continue
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        model = make_model(fields, 1000 + number)
        model.save_pretrained(folder, **({"max_shard_size": "40KB"} if name in SHARDED else {}),
                              save_original_format=name not in STACKED)
        sequence = SEQUENCES.get(name, SEQUENCE)
        data = choices.draw(lambda: torch.randint(fields["vocab_size"], (STEPS, BATCH, sequence + 1)), model, train)
        losses, auxiliary, norms, gradients = train(model, data)
        golden = {"batch": BATCH, "sequence": sequence, "tokens": data.flatten().tolist(), "loss": losses, "grad_norm": norms}
        if any(auxiliary):
            golden["auxiliary"] = auxiliary
        (folder / "golden.json").write_text(json.dumps(golden))
        if name in KEEP_GRADIENTS:
            save_file(gradients, folder / "gradients.safetensors")
        if name in KEEP_FINAL:
            save_file({n: p.detach().clone() for n, p in model.named_parameters()}, folder / "final.safetensors")
        if name in DENSE_NAMES:
            file = folder / "model.safetensors"
            save_file({DENSE.sub(r".mlp.\1", key): value for key, value in load_file(file).items()}, file, {"format": "pt"})
        if name in PUBLISHED:
            file, renamed = folder / "model.safetensors", {}
            for key, value in load_file(file).items():
                for written, published in PUBLISHED[name]:
                    key = key.replace(written, published)
                renamed[key] = value
            save_file(renamed, file, {"format": "pt"})
        for extra in ("generation_config.json",):
            (folder / extra).unlink(missing_ok=True)
        print(name, losses[0], losses[-1], norms[0])


if __name__ == "__main__":
    main()

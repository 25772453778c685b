"""Small models of transformers, with random values that are the same on every rank."""
import torch


def llama(layers=3, tied=False, width=32, **more):
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=64, hidden_size=width, intermediate_size=2 * width, num_hidden_layers=layers,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
                         tie_word_embeddings=tied, **more)
    return LlamaForCausalLM(config)


def tokens(step, rank, rows=2, length=12, vocabulary=64):
    """The tokens of a step on a rank, [rows, length]."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randint(0, vocabulary, (rows, length), generator=generator)

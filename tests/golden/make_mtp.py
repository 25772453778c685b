"""Makes the golden cases of models with multi-token prediction heads.

Run by hand (needs torch 2.11 and transformers 5.24; no test runs it):

    python3 tests/golden/make_mtp.py [CASE...]

transformers has no prediction heads, so the heads are built from its blocks by NeMo AutoModel's rules. Each head computes
its blocks from eh_proj([enorm(embedding of the token predicted last), hnorm(hidden states)]), the first head from the
model's normalized hidden states, and ends with final_layernorm. golden.json holds the loss of each step: the next-token loss
plus `scale` times the mean of the heads' losses. Each head's loss is a sum over its labels divided by the number of
next-token labels. The files store the blocks of all heads as mtp.layers.N.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers.models.nemotron_h.modeling_nemotron_h import NemotronHBlock, NemotronHRMSNorm

import make_golden
from make_golden import BATCH, MAMBA, SEQUENCE, STEPS, train

HERE = pathlib.Path(__file__).parent
SIZES = dict(model_type="nemotron_h", vocab_size=61, hidden_size=28, intermediate_size=38, num_attention_heads=4,
             num_key_value_heads=2, head_dim=10, n_routed_experts=5, num_experts_per_tok=2, moe_intermediate_size=18,
             moe_shared_expert_intermediate_size=14, **MAMBA)
CASES = {
    "nemotron_h_mtp": (dict(SIZES, layers_block_type=["linear_attention", "full_attention"]),
                       dict(depths=2, repeated=False, scale=0.3, layers=["full_attention", "moe"])),
    "nemotron_h_mtp_repeated": (dict(SIZES, layers_block_type=["full_attention", "linear_attention"]),
                                dict(depths=3, repeated=True, scale=0.1, layers=["linear_attention", "mlp"])),
}


class Sublayer(torch.nn.Module):
    def __init__(self, config, index, first, last):
        super().__init__()
        self.block = NemotronHBlock(config, index)
        width, eps = config.hidden_size, config.layer_norm_epsilon
        if first:
            self.enorm, self.hnorm = NemotronHRMSNorm(width, eps), NemotronHRMSNorm(width, eps)
            self.eh_proj = torch.nn.Linear(2 * width, width, bias=False)
        if last:
            self.final_layernorm = NemotronHRMSNorm(width, eps)

    def forward(self, hidden, embedded=None):
        if embedded is not None:
            hidden = self.eh_proj(torch.cat([self.enorm(embedded), self.hnorm(hidden)], -1))
        hidden = self.block(hidden)
        return self.final_layernorm(hidden) if hasattr(self, "final_layernorm") else hidden


class Predicting(torch.nn.Module):
    """The model and its heads, with the combined loss."""

    def __init__(self, fields, mtp, seed):
        super().__init__()
        self.model, self.mtp = make_golden.make_model(fields, seed), mtp
        config, count = self.model.config, len(mtp["layers"])
        own = config.layers_block_type
        heads = 1 if mtp["repeated"] else mtp["depths"]
        config.layers_block_type = own + mtp["layers"]
        self.mtp = torch.nn.ModuleList(Sublayer(config, len(own) + i % count, i % count == 0, i % count == count - 1)
                                       for i in range(heads * count))
        config.layers_block_type = own
        with torch.no_grad():
            for name, parameter in self.mtp.named_parameters():
                if parameter.dim() > 1:
                    parameter.copy_(0.3 * torch.randn_like(parameter))
                elif name.endswith("A_log"):
                    parameter.copy_(torch.log(0.01 + 0.3 * torch.rand_like(parameter)))
                else:
                    parameter.copy_(1 + 0.1 * torch.randn_like(parameter))
            for name, buffer in self.mtp.named_buffers():
                if name.endswith("e_score_correction_bias"):
                    buffer.copy_(0.1 * torch.randn_like(buffer))

    def sum_of(self, hidden, labels):
        logits = self.model.lm_head(hidden)
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")

    def loss_sum(self, tokens):
        given, labels = tokens[:, :-1], tokens[:, 1:]
        hidden = self.model.model(given, use_cache=False).last_hidden_state
        loss, mtp, count = self.sum_of(hidden, labels), self.mtp, len(self.mtp["layers"])
        for depth in range(1, mtp["depths"] + 1):
            later = torch.nn.functional.pad(given[:, depth:], (0, depth))
            wanted = torch.nn.functional.pad(labels[:, depth:], (0, depth), value=-100)
            first = 0 if mtp["repeated"] else (depth - 1) * count
            for i in range(count):
                hidden = self.mtp[first + i](hidden, self.model.model.embeddings(later) if i == 0 else None)
            loss = loss + mtp["scale"] / mtp["depths"] * self.sum_of(hidden, wanted)
        return loss

    def files(self):
        """Returns the heads' tensors by their names in files."""
        out = {}
        for name, tensor in self.mtp.state_dict().items():
            name = "mtp.layers." + name.replace(".block.", ".")
            if ".experts." not in name:
                out[name] = tensor.clone()
                continue
            where, product = name.rsplit(".", 1)
            for expert, matrix in enumerate(tensor):
                out[f"{where}.{expert}.{product}.weight"] = matrix.clone()
        return out


def main():
    torch.set_num_threads(1)
    for number, (name, (fields, mtp)) in enumerate(CASES.items()):
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        folder = HERE / name
        model = Predicting(fields, mtp, 2000 + number)
        model.model.save_pretrained(folder)
        weights = folder / "model.safetensors"
        save_file({**load_file(weights), **model.files()}, weights, {"format": "pt"})
        config = json.loads((folder / "config.json").read_text())
        config.update(num_nextn_predict_layers=mtp["depths"], mtp_layers_block_type=mtp["layers"],
                      mtp_use_repeated_layer=mtp["repeated"], mtp_loss_scaling_factor=mtp["scale"])
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        (folder / "generation_config.json").unlink(missing_ok=True)
        data = torch.randint(fields["vocab_size"], (STEPS, BATCH, SEQUENCE + 1))
        make_golden.loss_sum = lambda of, tokens: (of.loss_sum(tokens), 0.0)
        losses, _, norms, _ = train(model, data)
        golden = {"batch": BATCH, "sequence": SEQUENCE, "tokens": data.flatten().tolist(), "loss": losses, "grad_norm": norms}
        (folder / "golden.json").write_text(json.dumps(golden))
        print(name, losses[0], losses[-1], norms[0])


if __name__ == "__main__":
    main()

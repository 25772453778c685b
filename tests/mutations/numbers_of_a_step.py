"""Mutations of layers, the optimizer's step and adapters."""
from mutation import CORE, Mutation, plugin

OPTIMIZER = "core AdamW*:Updater*:Step*:Clipping*:Norm*:SideOutput*"
LAYERS = "core Registry/Operators*:Rotary*:TokenLoss*:Attention*:MatrixProduct*"

MUTATIONS = [
    Mutation("train-norm-of-a-rank", "lib/train/optimizer/norm.cpp",
             "    for (Communicator* axis : groups_[i].reduces) axis->all_reduce(parts[i], reduce)->wait();\n",
             "    if (groups_.size() > 2)\n"
             "      for (Communicator* axis : groups_[i].reduces) axis->all_reduce(parts[i], reduce)->wait();\n",
             "each rank clips by the norm of its own shards", OPTIMIZER, (CORE,)),
    Mutation("train-clip-small", "lib/train/optimizer/norm.cpp",
             "  return at::clamp_min((norm + 1e-6) / max_norm, 1.0).to(at::kFloat);",
             "  return ((norm + 1e-6) / max_norm).to(at::kFloat);",
             "gradients with a norm below max_norm are scaled up to max_norm", OPTIMIZER, (CORE,)),
    Mutation("train-coupled-decay", "lib/train/optimizer/adamw.cpp",
             "!config_.decoupled && decay != 0", "decay != 0",
             "weight decay is added to the gradient", OPTIMIZER, (CORE,)),
    Mutation("train-bias-correction", "lib/train/optimizer/adamw.cpp",
             "1 / std::sqrt(1 - std::pow(config_.beta2, count))", "1.0",
             "the first steps lack the bias correction of the second moment", OPTIMIZER, (CORE,)),
    Mutation("train-tokens-of-a-rank", "lib/train/step.cpp",
             "    return {mine, counted, is_first};", "    return {mine, nullptr, is_first};",
             "the loss is divided by the label tokens of one rank", "plugin Ddp.*:Fsdp2.*:HostLoop*", (CORE,)),
    Mutation("train-master-weights", "lib/train/optimizer/updater.cpp",
             "  store_masters(/*without_gradient=*/false);\n", "",
             "bfloat16 weights with master weights never change", OPTIMIZER, (CORE,)),
    Mutation("nn-norm-epsilon", "lib/nn/cpu/rms_norm_cpu.cpp",
             "std::sqrt(squares / static_cast<W>(width) + static_cast<W>(eps))",
             "(std::sqrt(squares / static_cast<W>(width)) + static_cast<W>(eps))",
             "epsilon is added outside of the square root", LAYERS, (CORE,)),
    Mutation("nn-rotary-sign", "lib/nn/cpu/rotary_cpu.cpp",
             "s = direction * static_cast<W>(sin[i]);", "s = static_cast<W>(sin[i]);",
             "the gradient of RoPE is rotated in the direction of the forward", LAYERS, (CORE,)),
    Mutation("nn-soft-cap-gradient", "lib/nn/soft_cap.h",
             "gradient.mul_(1 - tanh_ * tanh_)", "gradient",
             "the gradient passes a soft cap unchanged", LAYERS, (CORE,)),
    Mutation("nn-split-loss-peak", "lib/nn/token_loss_rows.cpp",
             "(all.select(2, 1) * (peaks - peak).exp_()).sum(0)", "all.select(2, 1).sum(0)",
             "sums of exponentials with different maxima are added", "plugin SplitTokenLoss*:Tensor.*", (CORE,)),
    Mutation("lora-scale", "plugins/lora/adapters.cpp",
             "batch) * shape_.scale;", "batch);", "adapters lack the factor alpha / rank", "plugin Lora*",
             plugin("lora")),
    Mutation("lora-dora-dropout", "plugins/lora/adapters.cpp",
             "  return base - own + scaled_rows(", "  return scaled_rows(",
             "DoRA drops inputs of the layer's own output", "plugin Dora*:Lora*", plugin("lora")),
]

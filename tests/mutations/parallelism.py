"""Mutations of tensor, context, expert and pipeline parallelism."""
from mutation import BASE, CORE, Mutation, plugin

TENSOR = "plugin Tensor*"
CONTEXT = "plugin Context*"
EXPERTS = "plugin ExpertParallel*:Dispatch*:Capacity*:ExpertTensorParallel*"
PIPELINE = "plugin Pipeline*:SplitBackward*"

MUTATIONS = [
    Mutation("tensor-no-all-reduce", "plugins/tensor/regions.cpp",
             "  return region(std::move(part), add_up, pass, 0, ranks);",
             "  return region(std::move(part), keep, pass, 0, ranks);",
             "the output of a row-parallel layer is not summed over ranks", TENSOR, plugin("tensor")),
    Mutation("tensor-sequence-partial", "plugins/tensor/layers.cpp",
             "*border.ranks, Gradient::part);", "*border.ranks, Gradient::whole);",
             "the gradient of a split sequence is not summed over ranks", TENSOR, plugin("tensor")),
    Mutation("tensor-overlapped-rows", "plugins/tensor/overlap.cpp",
             "        const int64_t begin = rank * chunk + first;",
             "        const int64_t begin = rank * (total / ranks.size()) + first;",
             "an overlapped sum has wrong rows if ranks do not divide them", TENSOR, plugin("tensor")),
    Mutation("context-chunks", "plugins/context/assignment.cpp",
             "tail = documents[i + 1] - (rank + 1) * chunk;", "tail = documents[i + 1] - (ranks - rank) * chunk;",
             "the last chunks go to the ranks in the order of the first: work is uneven", "plugin ContextSequence*",
             ("tests/heddle_plugin_tests",)),
    Mutation("context-causal-offset", "plugins/context/sequence.cpp",
             "options.causal ? token + 1 :", "options.causal ? token + 2 :",
             "a token attends to the next token if another rank holds it", CONTEXT, plugin("context")),
    Mutation("context-ring-gradient", "plugins/context/ring.cpp",
             "      if (step > 0) mine.add_(sums.arrived());", "      if (step > 1) mine.add_(sums.arrived());",
             "the gradient of keys loses a rank's part", CONTEXT, plugin("context")),
    Mutation("moe-padding", "lib/nn/experts/load_balance.cpp",
             "  return x.masked_fill(x.dim() == 2 ? padding.unsqueeze(1) : padding, 0);", "  return x;",
             "padding counts in the load-balancing loss of experts", "plugin Padding*", (CORE,)),
    Mutation("moe-capacity", "plugins/moe/capacity.cpp",
             "at::where(place < most, sorted, -1)", "at::where(place <= most, sorted, -1)",
             "an expert gets one token more than its capacity", "plugin Capacity*", ("tests/heddle_plugin_tests",)),
    Mutation("moe-inverse-permutation", "plugins/moe/token_exchange.cpp",
             "out.index_copy_(0, sorted.slots, rows.reshape({-1}));",
             "out.narrow(0, 0, rows.numel()).copy_(rows.reshape({-1}));",
             "gradients of router weights go to other tokens", EXPERTS, plugin("moe")),
    Mutation("pipeline-order", "plugins/pipeline/one_forward_one_backward.cpp",
             "      table[rank].push_back({Action::backward, rank, backward});\n"
             "      if (backward + ahead < sizes.microbatches)\n"
             "        table[rank].push_back({Action::forward, rank, backward + ahead});\n",
             "      if (backward + ahead < sizes.microbatches)\n"
             "        table[rank].push_back({Action::forward, rank, backward + ahead});\n"
             "      table[rank].push_back({Action::backward, rank, backward});\n",
             "1F1B holds one microbatch more than it declares", "plugin Schedules*", plugin("pipeline")),
    Mutation("pipeline-dropped-gradient", "lib/train/runner.cpp",
             "gradients.push_back(gradient.defined() ? std::move(gradient) : at::zeros_like(input.detach()));",
             "gradients.push_back(at::zeros_like(input.detach()));",
             "a stage gets zeros as the gradient of its output", "core Runner*", (CORE,)),
    Mutation("pipeline-microbatch-scale", "lib/train/runner.cpp",
             "? scale / cut_.microbatches", "? scale / (cut_.microbatches + 1)",
             "gradients are divided by the number of microbatches plus one", "core Runner*:Program*:Step*", (CORE,)),
    Mutation("schedule-microbatches", "core/schedule/microbatches.cpp",
             "  if (samples >= 1 && samples % config.microbatch_size == 0)", "  if (samples >= 1)",
             "the last rows of a batch belong to no microbatch", "words Microbatches*", (BASE,)),
]

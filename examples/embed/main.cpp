// Embeds the engine in a program with its own torch::nn model and training loop. A strategy from YAML makes
// the model parallel. Usage: embed STRATEGY RANKS [own]. Trains alone first, then on RANKS threads, and
// compares the losses. The checkpoint saved half-way is resumed on one rank. With `own` the model's own
// forward runs the units, and every second step skips the middle layer.
#include <torch/torch.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <stdexcept>

#include "heddle/adapters/torch_nn.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/engine/engine.h"
#include "heddle/transport/threads.h"
#include "loop.h"

namespace {

namespace nn = torch::nn;
constexpr int64_t kVocabulary = 61, kWidth = 24, kBatch = 4, kSequence = 12, kLayers = 3;
constexpr int kSteps = 12;

struct BlockImpl : nn::Module {
  nn::Linear up = register_module("up", nn::Linear(kWidth, 3 * kWidth));
  nn::Linear down = register_module("down", nn::Linear(3 * kWidth, kWidth));
  nn::LayerNorm norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  torch::Tensor forward(torch::Tensor x) { return x + down(torch::gelu(up(norm(x)))); }
};
TORCH_MODULE(Block);

struct NetImpl : nn::Module {
  nn::Embedding embedding = register_module("embedding", nn::Embedding(kVocabulary, kWidth));
  nn::ModuleList layers = register_module("layers", nn::ModuleList());
  nn::Linear head = register_module("head", nn::Linear(kWidth, kVocabulary));
  NetImpl() {
    for (int64_t i = 0; i < kLayers; ++i) layers->push_back(Block());
  }
  // `model` runs the layers as units.
  torch::Tensor forward(heddle::adapters::TorchModel& model, const torch::Tensor& tokens, bool skip) {
    torch::Tensor x = embedding(tokens);
    for (int64_t i = 0; i < kLayers; ++i)
      if (!skip || i != kLayers / 2) x = model.run(layers->ptr<BlockImpl>(i), x);
    return head(x);
  }
};
TORCH_MODULE(Net);

// Returns equal values on every rank. Threads take turns, because torch has one generator per process.
Net make_net() {
  static std::mutex turn;
  const std::lock_guard lock(turn);
  torch::manual_seed(7);
  return Net();
}

// Computes the loss in float32, whatever the dtype of the logits: fsdp2 computes in bfloat16 by default.
torch::Tensor loss_sum(const torch::Tensor& logits, const torch::Tensor& labels) {
  namespace F = nn::functional;
  return F::cross_entropy(logits.flatten(0, 1).to(torch::kFloat), labels.flatten(),
                          F::CrossEntropyFuncOptions().reduction(torch::kSum));
}

// Batch of step `step` of a synthetic language in which each token determines the next.
heddle::Batch batch_of(int step) {
  const torch::Tensor start = torch::arange(kBatch).unsqueeze(1) * 7 + step * 3;
  const torch::Tensor sequence = (start + torch::arange(kSequence + 1) * 5) % kVocabulary;
  heddle::Batch batch;
  batch.tokens = sequence.narrow(1, 0, kSequence).contiguous();
  batch.labels = sequence.narrow(1, 1, kSequence).contiguous();
  return batch;
}

torch::optim::AdamWOptions rates() {
  return torch::optim::AdamWOptions(1e-2).weight_decay(0.1);
}

// The layers are units; the embedding and the head belong to the root.
heddle::adapters::TorchModel model_of(const Net& net) {
  std::vector<std::string> units;
  for (int64_t i = 0; i < kLayers; ++i) units.push_back("layers." + std::to_string(i));
  return {net.ptr(), std::move(units)};
}

bool skips(int step, bool own) {
  return own && step % 2 == 1;
}

std::vector<double> train_alone(bool own) {
  Net net = make_net();
  heddle::adapters::TorchModel model = model_of(net);
  torch::optim::AdamW optimizer(net->parameters(), rates());
  std::vector<double> losses;
  for (int step = 0; step < kSteps; ++step) {
    const heddle::Batch batch = batch_of(step);
    const torch::Tensor logits = net->forward(model, batch.tokens, skips(step, own));
    const torch::Tensor loss = loss_sum(logits, batch.labels) / (kBatch * kSequence);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

// Splits the model into pieces that are gathered, run and released one after another.
heddle::Units units_of(const Net& net) {
  using heddle::Batch;
  using heddle::Tensors;
  std::vector<heddle::adapters::TorchPiece> pieces;
  pieces.push_back({"embedding", net->embedding.ptr(),
                    [embedding = net->embedding.ptr()](Tensors, const Batch& batch) -> Tensors {
                      return {embedding->forward(batch.tokens)};
                    }});
  for (int64_t i = 0; i < kLayers; ++i) {
    auto layer = std::dynamic_pointer_cast<BlockImpl>(net->layers->ptr(i));
    pieces.push_back({"layers." + std::to_string(i), layer,
                      [layer](Tensors x, const Batch&) -> Tensors { return {layer->forward(x[0])}; }});
  }
  pieces.push_back(
      {"head", net->head.ptr(), [head = net->head.ptr()](Tensors x, const Batch& batch) -> Tensors {
         return {loss_sum(head->forward(x[0]), batch.labels)};
       }});
  return heddle::adapters::torch_units(std::move(pieces));
}

namespace fs = std::filesystem;
using heddle::checkpoint::Part;

// Returns this rank's boxes of a checkpoint: its shards, AdamW's state of each shard, and the strategy's
// state.
std::vector<Part> parts_of(heddle::Stages& stages, torch::optim::AdamW& optimizer) {
  std::vector<Part> parts = heddle::checkpoint::model_parts(stages);
  for (Part& part : heddle::adapters::adamw_parts(stages, optimizer)) parts.push_back(std::move(part));
  for (Part& part : heddle::checkpoint::strategy_parts(stages)) parts.push_back(std::move(part));
  return parts;
}

// Called by all ranks together. Every value is written once, and the directory appears when it is complete.
void save(const fs::path& to, std::span<const Part> parts, heddle::Rendezvous& rendezvous) {
  namespace checkpoint = heddle::checkpoint;
  checkpoint::on_first(rendezvous, "stage", [&] { checkpoint::open_stage(to); });
  checkpoint::write_sharded(checkpoint::stage_of(to), "state", parts, rendezvous, "state");
  checkpoint::on_first(rendezvous, "publish", [&] { checkpoint::publish(to); });
}

// Supports any number of ranks and any strategy: each rank reads its own boxes.
void load(const fs::path& from, heddle::Stages& stages, torch::optim::AdamW& optimizer) {
  heddle::checkpoint::ShardedReader reader(from);
  for (const Part& part : heddle::checkpoint::model_parts(stages)) reader.read(part);
  for (const Part& part : heddle::checkpoint::strategy_parts(stages)) reader.read(part);
  heddle::adapters::read_adamw(reader, stages, optimizer);
  for (const auto& stage : stages) stage->parameters_changed(heddle::ParametersChange::resumed);
}

// Trains on one rank with the engine's second entry point and the host's own loop. Begins at step `first`,
// from a checkpoint unless that is 0. If it is 0, saves a checkpoint half-way.
std::vector<double> train(const std::string& distributed, heddle::Rendezvous& rendezvous,
                          const fs::path& checkpoint, int first, bool own) {
  const auto yaml =
      heddle::config::read_text("distributed: {" + distributed + "}\ndist_env: {backend: gloo}", "embed");
  heddle::PluginRegistry plugins(heddle::plugin::search_path({}));
  Net net = make_net();
  heddle::adapters::TorchModel own_model = model_of(net);
  heddle::engine::ModelHost host{
      .rendezvous = rendezvous,
      .make_units = [&](const heddle::Setup&) { return own ? own_model.units() : units_of(net); },
      .source = {}};
  heddle::engine::Model model = heddle::engine::model(yaml, plugins, host);
  heddle::Stages& stages = model.stages;

  std::vector<torch::Tensor> mine;
  for (const heddle::Shard* shard : stages.shards())
    if (shard->tensor.numel() > 0) mine.push_back(shard->tensor);
  torch::optim::AdamW optimizer(mine, rates());
  if (first > 0) load(checkpoint, stages, optimizer);

  int step = first;
  const auto forward = [&](heddle::ParallelStage& stage, const heddle::Batch& batch) {
    return own_model.forward(stage, batch, [&] {
      return loss_sum(net->forward(own_model, batch.tokens, skips(step, own)), batch.labels);
    });
  };
  embed::Loop loop(stages, model.mesh, /*max_norm=*/0, own ? embed::Forward(forward) : embed::run_units);
  const int64_t ranks = model.mesh.size("dp"), rank = model.mesh.rank("dp");
  const int64_t row = kBatch * rank / ranks, rows = kBatch * (rank + 1) / ranks - row;
  std::vector<double> losses;
  for (; step < kSteps; ++step) {
    if (first == 0 && step == kSteps / 2) save(checkpoint, parts_of(stages, optimizer), rendezvous);
    heddle::Batch batch = batch_of(step);
    batch.tokens = batch.tokens.narrow(0, row, rows);
    batch.labels = batch.labels.narrow(0, row, rows);
    const embed::Report report = loop.step({batch}, [&] {
      optimizer.step();
      optimizer.zero_grad();
    });
    losses.push_back(report.loss);
  }
  return losses;
}

// Returns the losses of rank 0.
std::vector<double> train_on(int ranks, const std::string& distributed, const fs::path& checkpoint, int first,
                             bool own) {
  std::vector<double> out;
  heddle::ThreadWorld::run(ranks, [&](heddle::Rendezvous& rendezvous) {
    std::vector<double> losses = train(distributed, rendezvous, checkpoint, first, own);
    if (rendezvous.rank() == 0) out = std::move(losses);
  });
  return out;
}

// A directory for the checkpoint, deleted at the end, also after an error.
class Room {
 public:
  Room() {
    std::string place = (fs::temp_directory_path() / "embed_XXXXXX").string();
    if (mkdtemp(place.data()) == nullptr)
      throw std::runtime_error(place + ": cannot be created: " + std::strerror(errno));
    path_ = place;
  }
  ~Room() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

int compare(const std::string& distributed, int ranks, const fs::path& checkpoint, bool own) {
  const std::vector<double> alone = train_alone(own);
  const std::vector<double> together = train_on(ranks, distributed, checkpoint, 0, own);
  const std::vector<double> later = train_on(1, "strategy: single", checkpoint, kSteps / 2, own);
  double worst = 0;
  std::printf("step  torch::nn alone  {%s} on %d  resumed on 1\n", distributed.c_str(), ranks);
  for (int step = 0; step < kSteps; ++step) {
    const bool gone_on = step >= kSteps / 2;
    std::printf("%4d  %15.9f  %.9f", step, alone[step], together[step]);
    gone_on ? std::printf("  %.9f\n", later[step - kSteps / 2]) : std::printf("\n");
    worst = std::max(worst, std::abs(together[step] / alone[step] - 1));
    if (gone_on) worst = std::max(worst, std::abs(later[step - kSteps / 2] / alone[step] - 1));
  }
  std::printf("largest difference: %.1e relative\n", worst);
  if (worst > 1e-5)
    std::printf("(without mp_policy: {param_dtype: float32, ...} fsdp2 computes in bfloat16)\n");
  // The order of float32 sums differs between numbers of ranks and processors.
  return worst <= 1e-5 && alone.back() < 0.8 * alone.front() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const bool own = argc == 4 && std::string(argv[3]) == "own";
  if (argc != 3 && !own)
    return std::fprintf(stderr, "usage: embed DISTRIBUTED RANKS [own], such as: embed 'strategy: ddp' 2\n"),
           2;
  try {
    const Room room;
    return compare(argv[1], std::atoi(argv[2]), room.path() / "half", own);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

// `heddle train` in this process: the whole trainer on ranks that are threads, with its files.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "run/data/token_files.h"

namespace heddle::tests {

// A number of ranks and the section `distributed:` that runs on them.
struct Topology {
  std::string name;
  int ranks = 1;
  std::string distributed;
  std::string more = {};  // sections of its own
};

// What the metrics say, step by step.
struct Told {
  std::vector<int64_t> steps;
  std::vector<double> losses, norms;
};

// A directory with a token file, shuffled by the runs: 41 samples of seven tokens in an epoch, a vocabulary
// of 53.
class WholeRuns {
 public:
  WholeRuns();
  std::filesystem::path operator/(const std::string& name) const { return place_ / name; }

  // Twelve samples a step, so that the fourth of an epoch has five, on an odd Qwen2 with heads for four
  // ranks. Checkpoints lie in the directory `run`, after every fourth step and the last. restore_from: a
  // directory beside it, or LATEST. refusals: takes what each rank says that cannot go on, or what is said
  // before they start; without it, that is thrown.
  Told train(const Topology& topology, const std::string& run, int steps,
             const std::string& restore_from = "", std::vector<std::string>* refusals = nullptr) const;
  // What others do between the look at the checkpoints and the start of the ranks.
  std::function<void()> meanwhile = [] {};
  // Its config.json; any other model that is to be trained.
  std::string model =
      "{model_type: qwen2, vocab_size: 53, hidden_size: 14, intermediate_size: 23, num_hidden_layers: 3, "
      "num_attention_heads: 4, num_key_value_heads: 4, head_dim: 6, max_position_embeddings: 16}";

  std::string pretrained;  // a directory beside the runs whose model is trained in its place; empty: none
  std::string lr = "0.01";

 private:
  std::string configuration(const Topology& topology, const std::string& run, int steps,
                            const std::string& restore_from) const;

  ScratchDirectory place_;
};

// Runs the recipe on ranks that are threads. refusals: takes what prepare_run() or a rank throws; without it,
// that is thrown. meanwhile: called between prepare_run() and the start of the ranks.
void train_recipe(
    const std::string& yaml, int ranks, std::vector<std::string>* refusals = nullptr,
    const std::function<void()>& meanwhile = [] {});

// The steps of a metrics file.
Told read_metrics(const std::filesystem::path& training_jsonl);

// The tensors of a checkpoint's model/ or optim/, whole.
std::map<std::string, at::Tensor> tensors_of(const std::filesystem::path& directory);

// The manifests of a checkpoint, which hold the checksums of all of its bytes.
std::string checksums_of(const std::filesystem::path& checkpoint);

}  // namespace heddle::tests

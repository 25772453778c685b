// `heddle train` in this process: the whole trainer on ranks that are threads, with its files.
#pragma once

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "data/token_files.h"

namespace heddle::tests {

// Fields of `distributed:`: fsdp2 in fp32, without the closing brace; two stages.
inline const std::string kFp32Policy = "mp_policy: {param_dtype: float32, reduce_dtype: float32}";
inline const std::string kFsdp2InFp32 = "{strategy: fsdp2, " + kFp32Policy;
inline std::string two_stages(const std::string& schedule) {
  return "pp_size: 2, pipeline: {pp_schedule: " + schedule + ", pp_microbatch_size: 1}";
}

// A number of ranks, and the section `distributed:` for them.
struct Topology {
  std::string name;
  int ranks = 1;
  std::string distributed;
  std::string more = {};  // additional sections
};

// Metrics per step.
struct Told {
  std::vector<int64_t> steps;
  std::vector<double> losses, norms;
};

// A directory with a token file that the runs shuffle: 41 samples of seven tokens per epoch, vocabulary size
// 53.
class WholeRuns {
 public:
  WholeRuns();
  std::filesystem::path operator/(const std::string& name) const { return place_ / name; }

  // Trains an odd Qwen2, with heads for four ranks, on twelve samples per step, so that the fourth step of an
  // epoch has five. Checkpoints are saved in the directory `run`, after every fourth step and the last.
  // restore_from: a directory beside it, or LATEST. refusals: receives the error of each rank that cannot
  // continue, or the error before ranks start. Without refusals, errors are thrown.
  Told train(const Topology& topology, const std::string& run, int steps,
             const std::string& restore_from = "", std::vector<std::string>* refusals = nullptr) const;
  // Returns the error of the first rank that cannot continue, in a run of one step or of the steps after
  // `restore_from`. Empty: the run succeeded.
  std::string refusal(const Topology& topology, const std::string& run = "refused",
                      const std::string& restore_from = "") const;
  // Returns the warnings of a run before its ranks start. Throws errors of that phase.
  std::vector<std::string> warnings(const Topology& topology, const std::string& run, int steps) const;
  // Called between the check of the checkpoints and the start of the ranks.
  std::function<void()> meanwhile = [] {};
  // The model's config.json. Tests may replace it.
  std::string model =
      "{model_type: qwen2, vocab_size: 53, hidden_size: 14, intermediate_size: 23, num_hidden_layers: 3, "
      "num_attention_heads: 4, num_key_value_heads: 4, head_dim: 6, max_position_embeddings: 16}";

  std::string pretrained;  // directory beside the runs with the model to train instead; empty: none
  std::string lr = "0.01";
  std::string checkpoint;  // further keys of the section checkpoint: ", accept_other_base: true"

 private:
  std::string configuration(const Topology& topology, const std::string& run, int steps,
                            const std::string& restore_from) const;

  ScratchDirectory place_;
};

// Losses agree to 2e-5, norms to 2e-4.
void expect_alike(const Told& got, const Told& want);

// Pairs of a number of ranks and a section `distributed:`.
using Places = std::vector<std::pair<int, std::string>>;

// Runs five steps with the sections `more` on one rank and on each of the places, and compares losses, norms
// and the saved model.
void expect_alike_on(const WholeRuns& runs, const std::string& more, const Places& places);

// Compares eight steps with four steps that are resumed, bit by bit, and on `others` within tolerances.
void expect_resumes(const WholeRuns& runs, const Topology& topology,
                    const std::vector<Topology>& others = {});

// Resumes a run of four steps on each topology on every other one to eight steps, and compares with one rank
// that never stopped.
void expect_resumes_among(const WholeRuns& runs, const std::vector<Topology>& from,
                          const std::vector<Topology>& to);

// Runs the recipe on ranks that are threads. refusals: receives what prepare_run() or a rank throws; without
// it, errors are thrown. meanwhile: called between prepare_run() and the start of the ranks.
void train_recipe(
    const std::string& yaml, int ranks, std::vector<std::string>* refusals = nullptr,
    const std::function<void()>& meanwhile = [] {});

// Reads the steps of a metrics file.
Told read_metrics(const std::filesystem::path& training_jsonl);

// Returns the whole tensors of a checkpoint's model/ or optim/.
std::map<std::string, at::Tensor> tensors_of(const std::filesystem::path& directory);

// Returns the manifests of a checkpoint, which contain the checksums of all of its bytes.
std::string checksums_of(const std::filesystem::path& checkpoint);

}  // namespace heddle::tests

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

// Fields of `distributed:`. fsdp2 in fp32, without the closing brace; two stages.
inline const std::string kFp32Policy = "mp_policy: {param_dtype: float32, reduce_dtype: float32}";
inline const std::string kFsdp2InFp32 = "{strategy: fsdp2, " + kFp32Policy;
inline std::string two_stages(const std::string& schedule) {
  return "pp_size: 2, pipeline: {pp_schedule: " + schedule + ", pp_microbatch_size: 1}";
}

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
  // What the first rank that cannot go on says of a run of one step, or of the steps after `restore_from`.
  // Empty: it ran.
  std::string refusal(const Topology& topology, const std::string& run = "refused",
                      const std::string& restore_from = "") const;
  // Returns the warnings of a run before its ranks start. Throws what is refused then.
  std::vector<std::string> warnings(const Topology& topology, const std::string& run, int steps) const;
  // What others do between the look at the checkpoints and the start of the ranks.
  std::function<void()> meanwhile = [] {};
  // Its config.json; any other model that is to be trained.
  std::string model =
      "{model_type: qwen2, vocab_size: 53, hidden_size: 14, intermediate_size: 23, num_hidden_layers: 3, "
      "num_attention_heads: 4, num_key_value_heads: 4, head_dim: 6, max_position_embeddings: 16}";

  std::string pretrained;  // a directory beside the runs whose model is trained in its place; empty: none
  std::string lr = "0.01";
  std::string checkpoint;  // further keys of its section: ", accept_other_base: true"

 private:
  std::string configuration(const Topology& topology, const std::string& run, int steps,
                            const std::string& restore_from) const;

  ScratchDirectory place_;
};

// Losses agree to 2e-5, norms to 2e-4.
void expect_alike(const Told& got, const Told& want);

// So many ranks, and `distributed:`.
using Places = std::vector<std::pair<int, std::string>>;

// Five steps with the sections `more` on one rank, and on each of the places: losses, norms, and what is
// saved of the model are alike.
void expect_alike_on(const WholeRuns& runs, const std::string& more, const Places& places);

// Eight steps, and four steps that are resumed to the same bits. others: to the same numbers on these.
void expect_resumes(const WholeRuns& runs, const Topology& topology,
                    const std::vector<Topology>& others = {});

// From four steps on each topology to eight on each other one: with the numbers of one rank that never
// stopped.
void expect_resumes_among(const WholeRuns& runs, const std::vector<Topology>& from,
                          const std::vector<Topology>& to);

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

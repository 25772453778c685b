// Files of a run, its ranks, and its metrics.
#include "plugins/whole_runs.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include <iostream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sstream>

#include "heddle/base/error.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/transport/threads.h"
#include "lib/run/loop/run.h"
#include "lib/run/preflight/preflight.h"
#include "lib/run/spec/stop_request.h"
#include "lib/testing/outcome.h"

namespace heddle::tests {
namespace {

constexpr const char* kRecipe = R"(
seed: 7
lr_scheduler: {lr_decay_style: cosine, lr_warmup_steps: 3, lr_decay_steps: 20}
)";

// Suppresses a run's output.
class Quiet {
 public:
  Quiet() : before_(std::cout.rdbuf(words_.rdbuf())) {}
  ~Quiet() { std::cout.rdbuf(before_); }

 private:
  std::ostringstream words_;
  std::streambuf* before_;
};

}  // namespace

WholeRuns::WholeRuns() {
  std::vector<uint16_t> tokens;
  for (uint32_t i = 0, state = 12345; i < 41 * 7 + 3; ++i) {
    state = state * 1664525u + 1013904223u;
    // Every other token is predictable from the previous one.
    tokens.push_back(i % 2 == 1 ? (tokens.back() * 3 + 1) % 53 : (state >> 16) % 53);
  }
  write_token_file(place_ / "train.bin", {20240520, 1, static_cast<int32_t>(tokens.size())}, tokens);
}

std::string WholeRuns::configuration(const Topology& topology, const std::string& run, int steps,
                                     const std::string& restore_from) const {
  std::string yaml =
      kRecipe + ("optimizer: {weight_decay: 0.1, lr: " + lr + "}\n") +
      ("model: {" +
       (pretrained.empty() ? "config: " + model
                           : "pretrained_model_name_or_path: " + (place_ / pretrained).string()) +
       ", dtype: float32}\n") +
      topology.more + "\ndistributed: " + topology.distributed;
  yaml += "\ndataset: {file_pattern: " + (place_ / "train.bin").string() + ", seq_len: 7}";
  yaml +=
      "\nstep_scheduler: {global_batch_size: 12, local_batch_size: 3, num_epochs: 3, ckpt_every_steps: 4, "
      "save_checkpoint_every_epoch: false, max_steps: " +
      std::to_string(steps) + "}";
  yaml += "\ncheckpoint: {save_consolidated: false, checkpoint_dir: " + (place_ / run).string() + checkpoint;
  if (restore_from == "LATEST") return yaml + ", restore_from: LATEST}\n";
  return yaml +
         (restore_from.empty() ? "}\n" : ", restore_from: " + (place_ / restore_from).string() + "}\n");
}

Told WholeRuns::train(const Topology& topology, const std::string& run, int steps,
                      const std::string& restore_from, std::vector<std::string>* refusals) const {
  train_recipe(configuration(topology, run, steps, restore_from), topology.ranks, refusals, meanwhile);
  return read_metrics(place_ / run / "training.jsonl");
}

std::vector<std::string> WholeRuns::warnings(const Topology& topology, const std::string& run,
                                             int steps) const {
  const Node recipe = config::read_text(configuration(topology, run, steps, ""), "run.yaml");
  PluginRegistry plugins = open_plugins(recipe, Log());
  return prepare_run(read_recipe(recipe, RecipeErrors::kept), plugins, topology.ranks).setup.warnings;
}

std::string WholeRuns::refusal(const Topology& topology, const std::string& run,
                               const std::string& restore_from) const {
  std::vector<std::string> refusals;
  train(topology, run, restore_from.empty() ? 1 : 8, restore_from, &refusals);
  return refusals.empty() ? "" : refusals.front();
}

void expect_alike(const Told& got, const Told& want) {
  ASSERT_EQ(got.steps, want.steps);
  const auto outcome_of = [](const Told& told) {
    kits::Outcome out;
    out.losses = told.losses, out.norms = told.norms;
    return out;
  };
  EXPECT_EQ(kits::differences(outcome_of(got), outcome_of(want)), "");
}

namespace {

void expect_tensors_alike(const std::map<std::string, at::Tensor>& got,
                          const std::map<std::string, at::Tensor>& want, double absolute) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want)
    EXPECT_TRUE(at::allclose(got.at(name), tensor, 1e-3, absolute)) << name;
}

}  // namespace

void expect_alike_on(const WholeRuns& runs, const std::string& more, const Places& places) {
  constexpr int kSteps = 5;
  std::filesystem::remove_all(runs / "alone");
  const Told want = runs.train({"alone", 1, "{strategy: single}", more}, "alone", kSteps);
  ASSERT_EQ(want.steps.size(), kSteps);
  for (const auto& [ranks, distributed] : places) {
    SCOPED_TRACE(more + distributed);
    std::filesystem::remove_all(runs / "other");
    expect_alike(runs.train({"other", ranks, distributed, more}, "other", kSteps), want);
    expect_tensors_alike(tensors_of(runs / "other/LATEST/model"), tensors_of(runs / "alone/LATEST/model"),
                         1e-4);
  }
}

void expect_resumes(const WholeRuns& runs, const Topology& topology, const std::vector<Topology>& others) {
  const Told straight = runs.train(topology, "straight", 8);
  runs.train(topology, "cut", 4);
  const Told resumed = runs.train(topology, "cut", 8);
  EXPECT_EQ(resumed.losses, straight.losses);
  EXPECT_EQ(resumed.norms, straight.norms);
  ASSERT_NE(checksums_of(runs / "straight/epoch_1_step_7"), checksums_of(runs / "straight/epoch_0_step_3"));
  EXPECT_EQ(checksums_of(runs / "cut/epoch_1_step_7"), checksums_of(runs / "straight/epoch_1_step_7"));
  for (const Topology& other : others) {
    SCOPED_TRACE(other.distributed);
    runs.train(topology, "moved" + other.name, 4);
    expect_alike(runs.train(other, "moved" + other.name, 8, "LATEST"), straight);
  }
}

void expect_resumes_among(const WholeRuns& runs, const std::vector<Topology>& from,
                          const std::vector<Topology>& to) {
  static const std::string kEnd = "/epoch_1_step_7/model";
  Told want = runs.train({"single", 1, "{strategy: single}"}, "undisturbed", 8);
  ASSERT_LT(want.losses.back(), want.losses.front());
  for (auto* values : {&want.losses, &want.norms}) values->erase(values->begin(), values->begin() + 4);
  want.steps = {4, 5, 6, 7};
  for (const Topology& one : from) {
    runs.train(one, "from_" + one.name, 4);
    for (const Topology& other : to) {
      SCOPED_TRACE("from " + one.name + " to " + other.name);
      const std::string run = one.name + "_" + other.name;
      expect_alike(runs.train(other, run, 8, "from_" + one.name + "/epoch_0_step_3"), want);
      expect_tensors_alike(tensors_of(runs / (run + kEnd)), tensors_of(runs / ("undisturbed" + kEnd)), 2e-5);
    }
  }
}

void train_recipe(const std::string& yaml, int ranks, std::vector<std::string>* refusals,
                  const std::function<void()>& meanwhile) {
  std::mutex one_at_a_time;
  const auto refused = [&](const Error& error) {
    if (refusals == nullptr) throw;
    const std::lock_guard lock(one_at_a_time);
    refusals->push_back(error.what());
  };
  const Quiet quiet;
  try {
    const Node configuration = config::read_text(yaml, "run.yaml");
    PluginRegistry first = open_plugins(configuration, Log());
    const RunSpec run = prepare_run(read_recipe(configuration, RecipeErrors::kept), first, ranks);
    meanwhile();
    ThreadWorld::run(ranks, [&](Rendezvous& rendezvous) {
      PluginRegistry own = open_plugins(configuration, Log());
      StopRequest request;
      try {
        run_rank(run, own, rendezvous, request);
      } catch (const Error& error) {
        refused(error);
      }
    });
  } catch (const Error& error) {
    refused(error);
  }
}

Told read_metrics(const std::filesystem::path& training_jsonl) {
  Told out;
  std::ifstream file(training_jsonl);
  for (std::string line; std::getline(file, line);) {
    const auto record = nlohmann::json::parse(line);
    out.steps.push_back(record.at("step"));
    out.losses.push_back(record.at("loss"));
    out.norms.push_back(record.at("grad_norm"));
  }
  return out;
}

std::map<std::string, at::Tensor> tensors_of(const std::filesystem::path& directory) {
  checkpoint::ShardedReader reader(directory);
  std::map<std::string, at::Tensor> out;
  for (const auto& [name, saved] : reader.manifest().tensors) {
    const checkpoint::Part part{name, at::empty(saved.shape, saved.dtype), saved.shape,
                                std::vector<int64_t>(saved.shape.size(), 0)};
    reader.read(part);
    out[name] = part.tensor;
  }
  return out;
}

std::string checksums_of(const std::filesystem::path& checkpoint) {
  std::ostringstream out;
  for (const char* part : {"model", "optim"})
    out << std::ifstream(checkpoint / part / checkpoint::kManifest, std::ios::binary).rdbuf();
  return out.str();
}

}  // namespace heddle::tests

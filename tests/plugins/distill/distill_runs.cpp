// Files and recipes of the distillation runs.
#include "plugins/distill/distill_runs.h"

#include <fstream>

namespace heddle::tests {

std::vector<nlohmann::json> lines_of(const std::filesystem::path& file) {
  std::vector<nlohmann::json> out;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) out.push_back(nlohmann::json::parse(line));
  return out;
}

DistillRuns::DistillRuns() {
  golden_ = nlohmann::json::parse(std::ifstream(kGolden / "distill/golden.json"));
  const size_t trained = golden_["steps"].get<size_t>() * golden_["batch"].get<size_t>();
  write_samples("train", 0, trained);
  write_samples("validation", trained, golden_["samples"].size());
}

void DistillRuns::write_samples(const std::string& name, size_t first, size_t end) const {
  std::vector<uint16_t> tokens;
  std::ofstream lengths(place_ / (name + ".lengths"));
  for (size_t i = first; i < end; ++i) {
    const auto sample = golden_["samples"][i].get<std::vector<uint16_t>>();
    tokens.insert(tokens.end(), sample.begin(), sample.end());
    lengths << sample.size() << "\n";
  }
  write_token_file(place_ / (name + ".bin"), {20240520, 1, static_cast<int32_t>(tokens.size())}, tokens);
}

std::string DistillRuns::keys(const std::string& name, const std::string& of_loss) const {
  const nlohmann::json& one = golden_["cases"][name];
  return "teacher_model: {pretrained_model_name_or_path: " + (kGolden / "llama_tied").string() +
         "}\nkd_ratio: " + one["ratio"].dump() +
         "\nkd_loss_fn: {_target_: nemo_automodel.components.loss.kd_loss.KDLoss, ignore_index: -100, "
         "temperature: " +
         one["temperature"].dump() + ", fp32_upcast: true" + of_loss + "}\n";
}

std::string DistillRuns::dataset(const std::string& name) const {
  return "{file_pattern: " + (place_ / (name + ".bin")).string() +
         ", lengths: " + (place_ / (name + ".lengths")).string() + ", seq_len: 12}\n";
}

void DistillRuns::train(const Topology& topology, const std::string& run, int steps,
                        std::vector<std::string>* refusals) const {
  std::string yaml = "seed: 7\nmodel: " + student + "\n" + topology.more;
  if (!recipe.empty()) yaml += "\nrecipe: " + recipe;
  yaml += "\noptimizer: {lr: 0.001, betas: [0.9, 0.95], eps: 1.0e-8, weight_decay: 0}";
  yaml += "\ndistributed: " + topology.distributed + "\ndataloader: {shuffle: false}";
  yaml += "\ndataset: " + dataset("train") + "validation_dataset: " + dataset("validation");
  yaml += "step_scheduler: {global_batch_size: 4, local_batch_size: " + std::to_string(local_batch_size) +
          ", num_epochs: 1, ckpt_every_steps: 2, "
          "save_checkpoint_every_epoch: false, val_every_steps: 5, max_steps: " +
          std::to_string(steps) + "}\ncheckpoint: {" + checkpoint +
          ", checkpoint_dir: " + (place_ / run).string() + "}\n";
  train_recipe(yaml, topology.ranks, refusals);
}

}  // namespace heddle::tests

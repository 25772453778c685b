// Position of a run between two steps, as checkpoints store it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "lib/run/model/identity/model_identity.h"
#include "lib/run/recipe/recipe.h"

namespace heddle {

// All other state of the next step (learning rate, samples, random numbers) follows from these values and the
// configuration.
struct Position {
  int64_t step = 0, epoch = 0;  // the next step to run, and its epoch
  int64_t sample = 0;  // samples since the first step: the position in the data, independent of the topology
  // Values that determine the order of the samples.
  int64_t seed = 0, global_batch_size = 0, dataset_samples = 0, sequence_length = 0;
  bool shuffled = false;
  // Settings that determine the rows: reset_attention_at, lengths, packing. Empty: not recorded.
  std::map<std::string, std::string> rows;
  // Learning rate that the saved run would have used for the next step, and its total steps. Empty: not
  // recorded.
  std::optional<double> next_lr;
  std::optional<int64_t> total_steps;
  // Data and settings that affect results, from content_of() and settings_of(). Empty: not recorded.
  std::map<std::string, std::string> content, settings;
  std::map<std::string, ModelIdentity> bases = {};  // from identities_of(); empty: not recorded, or none
  std::map<std::string, std::string> model;  // keys and values that checkpoints of the same model share
  std::map<std::string, std::string> parts;  // checksums of the manifests of "model" and "optim"
  bool operator==(const Position&) const = default;
};

// Losses by which checkpoints are compared.
struct Losses {
  double training = 0;                       // of the last step
  std::map<std::string, double> validation;  // after that step, by name of the set; NaN: not finite
};

// File next to a checkpoint's model/ and optim/; its presence makes the checkpoint resumable.
inline constexpr const char* kPositionFile = "step_scheduler.json";

std::string to_json(const Position& position);
// Throws Error{input} for a file that is missing, damaged or of a newer version.
Position read_position(const std::filesystem::path& file);

}  // namespace heddle

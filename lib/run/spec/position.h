// Where a run stands between two steps, as a checkpoint keeps it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "lib/run/model/identity/model_identity.h"
#include "lib/run/recipe/recipe.h"

namespace heddle {

// Everything else about the next step (its rates, its samples, its random numbers) follows from these and the
// configuration.
struct Position {
  int64_t step = 0, epoch = 0;  // the next step to run, and its epoch
  int64_t sample = 0;           // samples seen since the first step: the place in the data, on any topology
  // What the order of the samples is made of.
  int64_t seed = 0, global_batch_size = 0, dataset_samples = 0, sequence_length = 0;
  bool shuffled = false;
  // What rows are made of, in words: reset_attention_at, lengths, packing. Empty: not recorded.
  std::map<std::string, std::string> rows;
  // What the run that saved it would have used for the next step, and its length. Empty: not recorded.
  std::optional<double> next_lr;
  std::optional<int64_t> total_steps;
  // What else decides the numbers, as content_of() and settings_of() say. Empty: not recorded.
  std::map<std::string, std::string> content, settings;
  std::map<std::string, ModelIdentity> bases = {};  // as identities_of() says; empty: not recorded, or none
  std::map<std::string, std::string> model;         // keys and values that two checkpoints of one model share
  std::map<std::string, std::string> parts;         // "model" and "optim": the sums of their manifests
  bool operator==(const Position&) const = default;
};

// The losses that a checkpoint is judged by.
struct Losses {
  double training = 0;                       // of its last step
  std::map<std::string, double> validation;  // after that step, by the name of the set; NaN: not finite
};

// The file beside a checkpoint's model/ and optim/; where it stands, the checkpoint is one to resume from.
inline constexpr const char* kPositionFile = "step_scheduler.json";

std::string to_json(const Position& position);
// Throws Error{input}: not there, broken, of a newer version.
Position read_position(const std::filesystem::path& file);

}  // namespace heddle

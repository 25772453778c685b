// Settings that affect a run's results besides the model's shape and the seed: data, tokenizer,
// hyperparameters.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lib/run/spec/run_spec.h"

namespace heddle {

// Returns the first key of the model's signature that differs from the run that saved the checkpoint:
// "hidden_size was 24, now 32"; empty: none. A key that an older version left out of signatures counts as
// different unless the whole model configuration is equal.
std::string changed_model(const Position& there, const RunSpec& run);
inline constexpr const char* kTokenizerFile =
    "tokenizer.json of checksum ";  // prefix of the content "tokenizer"

// Returns "data set" and "tokenizer", each with a checksum; unknown values are left out. File names do not
// matter. Reads at most 4 MiB per token file.
std::map<std::string, std::string> content_of(const RunSpec& run);

// Returns digests of all files that each rank reads itself, by names for messages: file_digests_of() the
// model, the training set, the validation sets, and the checkpoint that the run resumes from. Reads a few
// samples of prepared texts. Throws the errors of reading.
std::map<std::string, std::string> files_of(const RunSpec& run);

// Returns by key: the optimizer, the schedule, batch sizes, clipping, precision, freezing, routers and the
// keys of the model's configuration. Leaves out what does not affect results: ranks, strategy, checkpointing,
// paths. The learning rate is in Position::next_lr.
std::map<std::string, std::string> settings_of(const RunSpec& run);

// Returns a line with both values for each setting that differs between the run that saved the checkpoint
// `name` and this run. Settings that were not recorded (empty) give one line of their own. A field that only
// one of the two strategies has is not compared.
std::vector<std::string> changed_settings(const std::string& name,
                                          const std::map<std::string, std::string>& there,
                                          const std::map<std::string, std::string>& here);

}  // namespace heddle

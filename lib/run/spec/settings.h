// What decides a run's numbers beside the model's shape and the seed: data, tokenizer, settings.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "lib/run/spec/run_spec.h"

namespace heddle {

// The first key of the model's signature that differs between the run that saved a checkpoint and this one:
// "hidden_size was 24, now 32"; empty: none. A key that an older version left out of signatures differs
// unless the whole configuration of the model is the same.
std::string changed_model(const Position& there, const RunSpec& run);
inline constexpr const char* kTokenizerFile =
    "tokenizer.json of checksum ";  // the content "tokenizer" begins so

// "data set" and "tokenizer", each with a checksum; what is not known is left out. Names of files do not
// matter. Reads at most 4 MiB of each token file.
std::map<std::string, std::string> content_of(const RunSpec& run);

// Digests of all files that each rank reads for itself, by names for messages: file_digests_of() the model,
// the training set, the validation sets, and the checkpoint that the run resumes from. Reads a few samples of
// prepared texts. Throws what reading throws.
std::map<std::string, std::string> files_of(const RunSpec& run);

// By key: the optimizer, the schedule, batch sizes, clipping, precision, freezing, routers and the keys of
// the model's configuration. Without what changes no number: ranks, strategy, checkpointing, paths. The
// learning rate has Position::next_lr.
std::map<std::string, std::string> settings_of(const RunSpec& run);

// A line for each setting that differs between the run that saved the checkpoint `name` (empty: not recorded,
// which is a line of its own) and this one, with both values. A field that only one of two strategies has is
// none.
std::vector<std::string> changed_settings(const std::string& name,
                                          const std::map<std::string, std::string>& there,
                                          const std::map<std::string, std::string>& here);

}  // namespace heddle

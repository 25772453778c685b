// Models with a separate head although config.json ties the head to the embedding.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "heddle/config/node.h"
#include "heddle/model/family.h"
#include "heddle/parallel/build.h"
#include "heddle/plugin/registry.h"
#include "lib/checkpoint/quantized/base_weights.h"

namespace heddle {

// A head that config.json ties to the embedding, and the names of both.
struct TiedHead {
  std::string head, embedding;                        // parameter names; empty: the model ties no head
  std::vector<std::string> heads, embeddings;         // tensor names in files, the usual name first
  std::shared_ptr<const ModelSpec> untied = nullptr;  // the same model with a separate head
};

// Returns the tied head of a model. `keys`: the keys of `tied`.
TiedHead find_tied_head(const Node& keys, const ModelSpec& tied, PluginRegistry& plugins);

// Returns the keys with tie_word_embeddings: false, for the model and for its text_config.
Node untied_keys(const Node& keys);

// The head's tensors in the files of a model with a tied head.
struct HeadInFiles {
  std::string head, embedding;  // empty: the files contain only one of the two
  bool differs = false;         // in values or shape, so that transformers 5 does not tie them
};
// Compares the values of head and embedding. Throws Error{input} if they cannot be read.
HeadInFiles head_in_files(const TiedHead& tied, const checkpoint::BaseWeights& weights);

// Whether the adapter in DIRECTORY changes the tied head. Throws Error{input} for damaged files.
bool adapts_head(const TiedHead& tied, const std::filesystem::path& directory);
// Returns a source for the untied model, whose head starts as a copy of the embedding. `base` is for the tied
// model.
ParameterSource with_head_of_embedding(ParameterSource base, const TiedHead& tied);

}  // namespace heddle

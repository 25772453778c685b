// A head of its own in a model whose config.json ties the head to the embedding.
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

// A head that config.json ties to the embedding, by the names of both.
struct TiedHead {
  std::string head, embedding;                        // parameters; empty: the model ties no head
  std::vector<std::string> heads, embeddings;         // tensors in files, the usual name first
  std::shared_ptr<const ModelSpec> untied = nullptr;  // the same model with a head of its own
};

// `keys`: those of `tied`.
TiedHead find_tied_head(const Node& keys, const ModelSpec& tied, PluginRegistry& plugins);

// The keys with tie_word_embeddings: false, for the model and for its text_config.
Node untied_keys(const Node& keys);

// The tensors of the head in the files of a model with a tied head.
struct HeadInFiles {
  std::string head, embedding;  // empty: the files have only one of them
  bool differs = false;         // in values or shape: transformers 5 then does not tie them
};
// Reads the values of both. Throws Error{input} where they cannot be read.
HeadInFiles head_in_files(const TiedHead& tied, const checkpoint::BaseWeights& weights);

// Whether the adapter in DIRECTORY changes the tied head. Throws Error{input} for damaged files.
bool adapts_head(const TiedHead& tied, const std::filesystem::path& directory);
// `base` reads the tied model. What is returned reads the untied one, whose head begins as the embedding.
ParameterSource with_head_of_embedding(ParameterSource base, const TiedHead& tied);

}  // namespace heddle

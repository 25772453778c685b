// Sections and keys of AutoModel's recipes that heddle skips: they configure its Python code, or AutoModel
// does not read them either.
#pragma once

#include <string>
#include <vector>

#include "heddle/config/node.h"

namespace heddle {

struct SkippedKey {
  std::string key, why;  // "ci", "model.trust_remote_code"
};

// Notes that a reader takes in addition to the values of a section.
struct RecipeNotes {
  std::vector<SkippedKey> skipped;
  std::vector<std::string> not_built;  // "checkpoint.is_async: why"
  std::vector<std::string> warnings;
};

// Returns one line with all keys, or one line per key with its reason; empty: no keys.
std::string text_of(const std::vector<SkippedKey>& skipped, bool with_reasons);

namespace recipe {

// Whether the section is skipped or names a feature that is not built; adds a note. Names that begin with _
// are anchors for other sections.
bool skip(const Node& root, const std::string& name, const Node& section, RecipeNotes& notes);

// Returns the keys of multi-token prediction heads of the section `model` as a map; null: none.
Node mtp_keys(const Node& model);

// Returns the number of multi-token prediction heads of the section `model`; null: none.
const Node* mtp_heads(const Node& model);

// Returns the section without the keys that select Python implementations, which are noted. Throws
// Error{config} for a value that AutoModel refuses.
Node without_python_keys(const Node& model, RecipeNotes& notes);

// Returns the keys of model.backend that affect results as keys of config.json; the others select kernels and
// are noted. Throws Error{config} for a key or a value that AutoModel refuses.
std::vector<Node::Entry> keys_of_backend(const Node& backend, RecipeNotes& notes);

}  // namespace recipe
}  // namespace heddle

// Sections and keys of AutoModel's recipes that change nothing here: they steer its Python machinery, or
// AutoModel does not read them either.
#pragma once

#include <string>
#include <vector>

#include "heddle/config/node.h"

namespace heddle {

struct SkippedKey {
  std::string key, why;  // "ci", "model.trust_remote_code"
};

// What a reader notes beside the values of a section.
struct RecipeNotes {
  std::vector<SkippedKey> skipped;
  std::vector<std::string> not_built;  // "checkpoint.is_async: why"
  std::vector<std::string> warnings;
};

// One line that names all of them; empty: there are none. Each with its reason: a line for each.
std::string text_of(const std::vector<SkippedKey>& skipped, bool with_reasons);

namespace recipe {

// Whether the section is skipped, or names what is not built; it is noted then. Names that begin with _
// hold parts that other sections refer to.
bool skip(const Node& root, const std::string& name, const Node& section, RecipeNotes& notes);

// Of the section `model`: the keys of multi-token prediction heads, as a map; null: there are none.
Node mtp_keys(const Node& model);

// Of the section `model`: the number of multi-token prediction heads; null: there are none.
const Node* mtp_heads(const Node& model);

// The section without its keys that choose among implementations in Python, which are noted. Throws
// Error{config} for a value that AutoModel refuses.
Node without_python_keys(const Node& model, RecipeNotes& notes);

// What model.backend says of the numbers that a model computes, as keys of its config.json; the rest chooses
// kernels and is noted. Throws Error{config} for a key or a value that AutoModel refuses.
std::vector<Node::Entry> keys_of_backend(const Node& backend, RecipeNotes& notes);

}  // namespace recipe
}  // namespace heddle

// Reads model.backend.te_fp8. Defaults that AutoModel derives from the machine are those of a machine with a
// GPU.
#include "lib/run/recipe/readers.h"

#include <string>
#include <utility>
#include <vector>

#include "heddle/base/error.h"

namespace heddle::recipe {
namespace {

constexpr const char* kKey = "te_fp8";

const Node* given_in(const Node* map, const char* key) {
  const Node* value = map != nullptr && map->is_map() ? map->find(key) : nullptr;
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string backend_name(const Node& backend, const char* key, const char* without) {
  const Node* value = given_in(&backend, key);
  return value == nullptr ? without : value->as_text();
}

// Whether the dispatcher is torch, for which AutoModel chooses other experts.
bool exchanges_by_torch(const Node& backend) {
  return backend_name(backend, "dispatcher", "deepep") == "torch";
}

Node without_target(const Node& section) {
  const Node* target = section.find("_target_");
  if (target != nullptr && !target->as_text().ends_with("TEFp8Config"))
    throw Error(ErrorCode::config, target->where(), "expected TEFp8Config, got " + target->written(),
                "te_fp8: {recipe: block}");
  return section.without("_target_");
}

}  // namespace

std::optional<Node> te_fp8_section(const Node& root) {
  const Node* backend = given_in(given_in(&root, "model"), "backend");
  const Node* given = given_in(backend, kKey);
  if (given == nullptr) return std::nullopt;
  if (!given->is_map())
    throw Error(ErrorCode::config, given->where(), "expected a map, got " + given->written(),
                "te_fp8: {recipe: block}");
  const std::string linear = backend_name(*backend, "linear", "te"),
                    experts = backend_name(*backend, "experts", "torch_mm");
  const bool by_te = experts == "te" && !exchanges_by_torch(*backend);
  if (linear != "te" && !by_te)
    throw Error(ErrorCode::config, given->where(),
                "te_fp8 requires at least one TE backend (linear='te' or experts='te'), but got linear='" +
                    linear + "', experts='" + (experts == "te" ? "torch_mm" : experts) + "'",
                experts == "te" ? "experts: te needs a dispatcher other than torch"
                                : "write linear: te or experts: te into model.backend");
  return without_target(*given)
      .with("linear", Node::boolean(linear == "te"))
      .with("experts", Node::boolean(by_te));
}

}  // namespace heddle::recipe

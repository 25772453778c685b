// By default a parameter is stored as it is.
#include "heddle/model/family.h"

namespace heddle {

ModelSpec::~ModelSpec() = default;
IModelFamily::~IModelFamily() = default;

std::vector<Node::Entry> IModelFamily::automodel_keys(const std::string&) const {
  return {};
}

StoredParts ModelSpec::stored(const std::string&, std::span<const int64_t>) const {
  return {};
}

std::vector<std::string> ModelSpec::other_names(const std::string&) const {
  return {};
}

bool ModelSpec::passes_over(const std::string&) const {
  return false;
}

std::map<std::string, std::string> ModelSpec::idle_keys() const {
  return {};
}

}  // namespace heddle

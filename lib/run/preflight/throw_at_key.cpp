// Finds the key that an error names in the configuration.
#include "lib/run/preflight/throw_at_key.h"

#include <string_view>

namespace heddle {
namespace {

// Returns the key at a path; null: the configuration has no such key.
const Node* key_at(const Node& configuration, std::string_view path) {
  const Node* at = &configuration;
  while (at != nullptr && !path.empty()) {
    const size_t end = path.find('.');
    at = at->is_map() ? at->find(path.substr(0, end)) : nullptr;
    path = end == path.npos ? "" : path.substr(end + 1);
  }
  return at;
}

Error with_line(const Error& error, const Node& configuration) {
  const Node* key = error.where().empty() ? nullptr : key_at(configuration, error.where());
  return key == nullptr ? Error(error) : Error(error.code(), key->where(), error.message(), error.hint());
}

}  // namespace

void throw_at_key(const Error& error, const Node& configuration) {
  Errors errors;
  if (const auto* list = dynamic_cast<const ErrorList*>(&error))
    for (const Error& one : list->all()) errors.add(with_line(one, configuration));
  else
    errors.add(with_line(error, configuration));
  errors.raise();
  throw;  // unreachable
}

}  // namespace heddle

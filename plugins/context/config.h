// The block `context:` of the section `distributed:`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "heddle/config/schema.h"

namespace heddle::context {

struct Method {
  std::string method = "allgather";
  std::optional<int64_t> ulysses_size;

  // Number of neighboring ranks that split heads among each other. Ranks in equal positions of those groups
  // form rings. Above 0, but not a divisor of cp before check_units() has checked it.
  int64_t ulysses_ranks(int cp) const {
    if (method == "ulysses") return cp;
    return method == "ring_ulysses" ? ulysses_size.value_or(kUlyssesSize) : 1;
  }
  static constexpr int64_t kUlyssesSize = 2;
};

inline ConfigSchema<Method> method_schema() {
  return ConfigSchema<Method>()
      .field("method", &Method::method,
             "How a rank attends to the tokens of other ranks. allgather gathers keys and values, ring "
             "passes them from rank to rank, ulysses splits heads by an all-to-all, and ring_ulysses "
             "combines the last two.",
             OneOf{std::vector<std::string>{"allgather", "ring", "ulysses", "ring_ulysses"}})
      .field("ulysses_size", &Method::ulysses_size,
             "Number of ranks that split heads under ring_ulysses. It must divide cp_size. null: 2.",
             at_least<int64_t>(1))
      .rule([](const Method& words) {
        return !words.ulysses_size || words.method == "ring_ulysses"
                   ? ""
                   : "ulysses_size needs method: ring_ulysses, but the method is " + words.method;
      });
}

struct Config {
  Method context;
};

}  // namespace heddle::context

namespace heddle {

template <>
struct FieldType<context::Method> : SectionField<context::Method, &context::method_schema> {};

namespace context {

inline ConfigSchema<Config> schema() {
  return ConfigSchema<Config>().field("context", &Config::context, "Settings of context parallelism.");
}

}  // namespace context
}  // namespace heddle

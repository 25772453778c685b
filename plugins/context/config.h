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

  // Ranks of cp that deal heads to each other, neighbours in the axis; the others form rings. Any number
  // above 0 until check_units() has seen that it divides cp.
  int64_t ulysses_ranks(int cp) const {
    if (method == "ulysses") return cp;
    return method == "ring_ulysses" ? ulysses_size.value_or(kUlyssesSize) : 1;
  }
  static constexpr int64_t kUlyssesSize = 2;
};

inline ConfigSchema<Method> method_schema() {
  return ConfigSchema<Method>()
      .field("method", &Method::method,
             "How tokens see those of other ranks: keys and values are gathered, travel round, heads are "
             "dealt, or both.",
             OneOf{std::vector<std::string>{"allgather", "ring", "ulysses", "ring_ulysses"}})
      .field("ulysses_size", &Method::ulysses_size,
             "Of ring_ulysses: ranks among which heads are dealt; a divisor of cp_size. null: 2.",
             at_least<int64_t>(1))
      .rule([](const Method& words) {
        return !words.ulysses_size || words.method == "ring_ulysses"
                   ? ""
                   : "ulysses_size is of the method ring_ulysses; the method is " + words.method;
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
  return ConfigSchema<Config>().field("context", &Config::context, "The block of context parallelism.");
}

}  // namespace context
}  // namespace heddle

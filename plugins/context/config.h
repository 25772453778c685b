// The block `context:` of the section `distributed:`.
#pragma once

#include <string>

#include "heddle/config/schema.h"

namespace heddle::context {

struct Method {
  std::string method = "allgather";
};

inline ConfigSchema<Method> method_schema() {
  return ConfigSchema<Method>().field(
      "method", &Method::method,
      "How tokens see those of other ranks: keys and values are gathered, travel round, or heads are dealt.",
      OneOf{std::vector<std::string>{"allgather", "ring", "ulysses"}});
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

// Models read from a config.json, and the config.json that a run exports for them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "checkpoint/folder.h"
#include "heddle/engine/engine.h"
#include "tests/core/engine/setups.h"

namespace heddle::tests {

inline std::shared_ptr<const ModelSpec> read_json(const std::string& json) {
  const Folder folder;
  return engine::read_model(folder.write("config.json", json), built_plugins());
}

inline nlohmann::json exported(const std::string& json) {
  return nlohmann::json::parse(read_json(json)->config_json("float32"));
}

// Expects that the exported config.json repeats the keys, and that it describes the same model.
inline void expect_round_trip(const std::string& json) {
  SCOPED_TRACE(json);
  const auto out = exported(json), given = nlohmann::json::parse(json);
  EXPECT_EQ(exported(out.dump()), out);
  EXPECT_EQ(read_json(out.dump())->signature(), read_json(json)->signature());
  for (const auto& [key, value] : given.items()) {
    if (value.is_null() || !out.contains(key)) continue;
    if (!value.is_object()) {
      EXPECT_EQ(out[key], value) << key;
      continue;
    }
    for (const auto& [inner, number] : value.items())
      if (inner != "type") {
        EXPECT_EQ(out[key][inner], number) << key << "." << inner;
      }
  }
}

// Returns the layers with a parameter of this module.
inline std::set<int64_t> layers_with(const std::string& json, const std::string& module) {
  std::set<int64_t> out;
  for (const auto& unit : read_json(json)->make_units(at::TensorOptions(at::kMeta)))
    for (const ParameterSlot& slot : unit->parameters())
      if (const std::string start = "model.layers."; slot.name.find("." + module) != slot.name.npos)
        out.insert(std::stoll(slot.name.substr(start.size())));
  return out;
}

}  // namespace heddle::tests

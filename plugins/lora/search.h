// Search for the layers and experts of a model that get adapters.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "file_layers.h"
#include "heddle/model/unit.h"
#include "heddle/nn/experts.h"
#include "heddle/nn/linear.h"
#include "matcher.h"

namespace heddle::lora {

struct Found {
  std::string path;
  Linear* layer;
  FileLayer in_files;
};
// Layers that get one adapter: a single layer, or all parts of a file layer in the order of their rows.
using Adapting = std::vector<Found>;
// Layers by parent. Layers with one parent and one input are computed together.
using Blocks = std::map<std::string, std::vector<Adapting>>;

struct FoundExperts {
  std::string path;
  Experts* experts;
  int64_t choices;  // experts per token
};

class Search {
 public:
  // `where`: the section, for errors. spec: the model's files, or null. All arguments must outlive the
  // object.
  Search(const Matcher& matcher, const std::string& where, const ModelSpec* spec)
      : matcher_(matcher), where_(where), spec_(spec) {}

  // Throws Error{config} if nothing matches, or if a unit is a foreign model.
  void look_at(Units& units);
  // Returns warnings about patterns that match nothing.
  std::vector<std::string> warnings() const;

  Blocks blocks;
  std::vector<FoundExperts> experts;
  bool has_experts = false;  // whether the model has experts, with or without adapters

 private:
  void look_at(const std::string& path, Module& module);
  void find_names();
  void choose();
  bool matches(const Pattern& pattern, const Found& layer) const;
  std::string matched(const Pattern& pattern) const;
  [[noreturn]] void refuse_nothing() const;

  const Matcher& matcher_;
  const std::string& where_;
  const ModelSpec* spec_;
  std::vector<Found> linears_;
  std::set<std::string> names_in_files_;              // patterns that match a layer of the files
  std::map<std::string, int64_t> choices_;            // experts per token of routers, by parent
  std::map<std::string, std::string> used_, others_;  // the first module that each pattern matches
};

}  // namespace heddle::lora

// The layers and experts of a model that get adapters.
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
// Layers that get one adapter: one, or all parts of a layer of the files in the order of their rows.
using Adapting = std::vector<Found>;
// Layers with one parent are computed together where they get one input.
using Blocks = std::map<std::string, std::vector<Adapting>>;

struct FoundExperts {
  std::string path;
  Experts* experts;
  int64_t choices;  // experts a token
};

class Search {
 public:
  // `where`: of the section, for errors; spec: of the model's files, or null. All must outlive it.
  Search(const Matcher& matcher, const std::string& where, const ModelSpec* spec)
      : matcher_(matcher), where_(where), spec_(spec) {}

  // Throws Error{config}: nothing matches, or a unit is a foreign model.
  void look_at(Units& units);
  // The patterns that match nothing.
  std::vector<std::string> warnings() const;

  Blocks blocks;
  std::vector<FoundExperts> experts;
  bool has_experts = false;  // the model, whether they are adapted or not

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
  std::map<std::string, int64_t> choices_;            // of routers, by their parent
  std::map<std::string, std::string> used_, others_;  // by pattern, the first module that it matches
};

}  // namespace heddle::lora

// The layers and experts of a model that get adapters.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "heddle/model/unit.h"
#include "heddle/nn/experts.h"
#include "heddle/nn/linear.h"
#include "matcher.h"

namespace heddle::lora {

struct Found {
  std::string path;
  Linear* layer;
};
// Layers with one parent are computed together where they get one input.
using Blocks = std::map<std::string, std::vector<Found>>;

struct FoundExperts {
  std::string path;
  Experts* experts;
  int64_t choices;  // experts a token
};

class Search {
 public:
  // `where`: of the section, for errors. Both must outlive it.
  Search(const Matcher& matcher, const std::string& where) : matcher_(matcher), where_(where) {}

  // Throws Error{config}: nothing matches, or a unit is a foreign model.
  void look_at(Units& units);
  // The patterns that match nothing.
  std::vector<std::string> warnings() const;

  Blocks blocks;
  std::vector<FoundExperts> experts;

 private:
  void look_at(const std::string& path, Module& module);
  std::string matched(const Pattern& pattern) const;
  [[noreturn]] void refuse_nothing() const;

  const Matcher& matcher_;
  const std::string& where_;
  std::vector<std::string> linears_;
  std::map<std::string, int64_t> choices_;            // of routers, by their parent
  std::map<std::string, std::string> used_, others_;  // by pattern, the first module that it matches
};

}  // namespace heddle::lora

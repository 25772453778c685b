// Results of PEFT's training and merging (tests/golden/make_dora.py, make_joined.py), and tensor readers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "heddle/checkpoint/safetensors.h"
#include "heddle/model/family.h"
#include "heddle/parallel/stages.h"

namespace heddle::tests {

// Reads a box of a parameter into ones. Without an offset, reads the whole parameter.
at::Tensor box_of(const ParameterSource& source, const std::string& name, std::vector<int64_t> shape,
                  std::vector<int64_t> offset = {}, const std::vector<int64_t>& size = {});

at::Tensor read_tensor(const SafetensorsFile& file, const std::string& name);

struct PeftGolden {
  std::string base, adapters;  // folders of tests/golden

  SafetensorsFile file(const std::string& name) const;
  std::shared_ptr<const ModelSpec> spec() const;
  // Returns the base merged with the adapters that PEFT saved.
  ParameterSource merged() const;
  // Trains the section's adapters from PEFT's initial A. Losses and norms equal PEFT's.
  void expect_steps(const std::string& section, const std::function<void(Stages&)>& after = {}) const;

 private:
  ParameterSource base_source(const std::shared_ptr<const ModelSpec>& spec) const;
};

}  // namespace heddle::tests

// What PEFT trained and merged (tests/golden/make_dora.py, make_joined.py), and tensors of sources and files.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "heddle/checkpoint/safetensors.h"
#include "heddle/model/family.h"
#include "heddle/parallel/stages.h"

namespace heddle::tests {

// A box of a parameter, on ones; without an offset all of it.
at::Tensor box_of(const ParameterSource& source, const std::string& name, std::vector<int64_t> shape,
                  std::vector<int64_t> offset = {}, const std::vector<int64_t>& size = {});

at::Tensor read_tensor(const SafetensorsFile& file, const std::string& name);

struct PeftGolden {
  std::string base, adapters;  // folders of tests/golden

  SafetensorsFile file(const std::string& name) const;
  std::shared_ptr<const ModelSpec> spec() const;
  // The base with the adapters that PEFT saved.
  ParameterSource merged() const;
  // Trains the section's adapters from PEFT's first A: losses and norms are PEFT's.
  void expect_steps(const std::string& section, const std::function<void(Stages&)>& after = {}) const;

 private:
  ParameterSource base_source(const std::shared_ptr<const ModelSpec>& spec) const;
};

}  // namespace heddle::tests

// Adapters of experts.
#pragma once

#include <string>
#include <vector>

#include "config.h"
#include "heddle/plugin/transform.h"
#include "search.h"

namespace heddle::lora {

// Experts with adapters: their path, and the sizes of the adapters.
struct AdaptedExperts {
  std::string path, in_files;  // in_files: the path of transformers' module
  int64_t count = 0, rank = 0;
  int64_t hidden = 0, width = 0, rows = 0;  // rows: of the first projection
};

// Adds adapters to the experts. The names of the parameters and warnings are added to `out`. spec: as in
// TransformRun. Throws Error{config} at `where` if moe_rank_scaling results in rank 0.
std::vector<AdaptedExperts> adapt_experts(const std::vector<FoundExperts>& found, const Config& config,
                                          const ModelSpec* spec, const std::string& where, Transformed& out);

// Adds the adapters' tensors in PEFT's layout for the parameters of transformers' experts
// (target_parameters): A [experts * rank, in], and B [out, rank * experts], in which the experts alternate.
void add_stored(const AdaptedExperts& experts, std::map<std::string, AddedTensor>& stored);

}  // namespace heddle::lora

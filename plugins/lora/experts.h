// Adapters of experts.
#pragma once

#include <string>
#include <vector>

#include "config.h"
#include "heddle/plugin/transform.h"
#include "search.h"

namespace heddle::lora {

// Adapted experts: their path, and the sizes of their adapters.
struct AdaptedExperts {
  std::string path, in_files;  // in_files: of transformers' module
  int64_t count = 0, rank = 0;
  int64_t hidden = 0, width = 0, rows = 0;  // rows: of the first product
};

// spec: as TransformRun has it. Gives them adapters; the names of the parameters are added to `out`, with
// what there is to warn of. Throws Error{config} at `where` for moe_rank_scaling with a rank of 0.
std::vector<AdaptedExperts> adapt_experts(const std::vector<FoundExperts>& found, const Config& config,
                                          const ModelSpec* spec, const std::string& where, Transformed& out);

// Their tensors as PEFT has them for the parameters of transformers' experts (target_parameters): A [experts
// * rank, in], B [out, rank * experts], in which the experts alternate.
void add_stored(const AdaptedExperts& experts, std::map<std::string, AddedTensor>& stored);

}  // namespace heddle::lora

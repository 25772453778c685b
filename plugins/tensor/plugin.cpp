// The door of tensor parallelism.
#include "heddle/sdk.h"
#include "parallelizer.h"
#include "plan.h"

HEDDLE_PLUGIN("tensor", "0.1.0", "parallelizer tensor", "plan llama") {
  plugin.parallelizer<heddle::tensor::Tensor>("tensor", heddle::tensor::schema()).plan_key = "tp_plan";
  std::vector<std::pair<std::string, std::string>> styles;
  for (const heddle::tensor::Rule& rule : heddle::tensor::llama_rules(false))
    styles.emplace_back(rule.pattern, heddle::tensor::word_of(rule.style));
  plugin.plan("llama", styles);
}

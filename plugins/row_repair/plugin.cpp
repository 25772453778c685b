// row_repair: the section embedding_row_repair of a recipe.
#include <cmath>
#include <string>
#include <utility>

#include "heddle/model/module_unit.h"
#include "heddle/nn/embedding.h"
#include "heddle/nn/linear.h"
#include "heddle/nn/token_loss.h"
#include "heddle/plugin/transform.h"
#include "heddle/sdk.h"
#include "repair.h"

namespace heddle::row_repair {
namespace {

void check_norm(const Node& value) {
  if (const double norm = value.as_real(); !std::isfinite(norm) || norm < 0)
    throw Error(
        ErrorCode::config, value.where(),
        "embedding_row_repair.min_norm must be finite and non-negative, got " + config::to_json(value),
        "set it to 1.0e-6, the default");
}

void check_rows(const Node& value) {
  if (value.as_integer() <= 0)
    throw Error(ErrorCode::config, value.where(),
                "embedding_row_repair.max_rows must be positive, got " + config::to_json(value),
                "set it to 256, the default");
}

ConfigSchema<Config> schema() {
  return ConfigSchema<Config>()
      .field("enabled", &Config::enabled, "Enable the repair. false: the section has no effect.")
      .field("min_norm", &Config::min_norm,
             "Maximum norm of rows of the token embedding that are replaced. Rows with a non-finite norm are "
             "replaced too.",
             Check{"finite, at least 0", check_norm})
      .field("max_rows", &Config::max_rows,
             "Maximum number of damaged rows. More are an error, because the files may be broken.",
             Check{"at least 1", check_rows});
}

// Returns the token embedding and the head's linear layer. Names are empty if the model has none.
Embeddings embeddings_of(const Units& units) {
  Embeddings out;
  const Linear* const head = model::loss_head_of(units).linear;
  const Embedding* tokens = nullptr;
  model::each<Embedding>(units, [&](const std::string&, Embedding& one) {
    if (tokens == nullptr) tokens = &one;
  });
  for (const auto& unit : units)
    for (const ParameterSlot& slot : unit->parameters()) {
      if (tokens != nullptr && slot.tensor == &tokens->weight) out.input = slot.name;
      if (head != nullptr && slot.tensor == &head->weight) out.output = slot.name;
    }
  if (tokens != nullptr) {
    out.shape = tokens->weight.sizes().vec();
    out.dtype = tokens->weight.scalar_type();
  }
  return out;
}

class RowRepair : public ITransform {
 public:
  explicit RowRepair(Config config) : config_(config) {}

  Transformed apply(Units& units, const TransformRun& run) const override {
    if (!config_.enabled) return {};
    Embeddings embeddings = embeddings_of(units);
    if (embeddings.input.empty() || embeddings.output.empty())
      throw Error(ErrorCode::config, run.where,
                  "the model has no token embedding, or no linear layer beside its loss, to repair rows from",
                  "remove embedding_row_repair");
    embeddings.where = run.where;
    Transformed out;
    if (run.model.empty()) {
      out.warnings.push_back(
          run.where + " has no effect: the model starts with random weights, which have no damaged rows");
      return out;
    }
    out.values = [embeddings, config = config_](ParameterSource source) {
      return repaired(std::move(source), embeddings, config);
    };
    out.note = "rows of " + embeddings.input + " of a norm of at most " +
               config::to_json(Node::real(config_.min_norm)) + " are read as scaled rows of " +
               embeddings.output;
    return out;
  }

 private:
  Config config_;
};

}  // namespace
}  // namespace heddle::row_repair

HEDDLE_PLUGIN("row_repair", "0.1.0", "transform embedding_row_repair") {
  using namespace heddle::row_repair;
  auto& offered = plugin.transform<RowRepair>("embedding_row_repair", schema());
  offered.order = -100;  // before transforms that add parameters to the embedding
  offered.refuses = {{"pp", "embedding_row_repair is not currently supported with pipeline parallelism"}};
}

// neftune: noise on the token embeddings in training (NEFTune, Jain et al. 2023).
#include <ATen/TensorOperators.h>

#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "heddle/model/module_unit.h"
#include "heddle/nn/dropout.h"
#include "heddle/nn/embedding.h"
#include "heddle/plugin/transform.h"
#include "heddle/sdk.h"

namespace heddle::neftune {
namespace {

struct Config {
  double noise_alpha = 5;
};

void check_alpha(const Node& value) {
  if (const double alpha = value.as_real(); alpha < 0)
    throw Error(ErrorCode::config, value.where(),
                "noise_alpha must be non-negative, got " + config::to_json(value),
                "set noise_alpha to 5, or to 0 for no noise");
}

ConfigSchema<Config> schema() {
  return ConfigSchema<Config>().field(
      "noise_alpha", &Config::noise_alpha,
      "Scale of the noise, which is uniform in +-noise_alpha / sqrt(row length * hidden_size). 0: no noise.",
      Check{"at least 0", check_alpha});
}

// Child of the embedding without parameters. It tells the run to create Batch::draws. Each operation rounds
// to the embeddings' dtype, as in AutoModel.
class Noise : public Module {
 public:
  Noise(const Embedding& embedding, double alpha)
      : embedding_(embedding), alpha_(alpha), salt_(model::draw_salt("neftune")) {}
  std::string_view kind() const override { return "neftune"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone, .draws = true}; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override {
    if (!batch.draws.defined()) return x;
    const double count = static_cast<double>(whole_sequence_of(batch)) * static_cast<double>(x.size(-1));
    const at::Tensor within = (model::uniform_draws(batch.draws, x.size(-1), salt_) * 2 - 1).view(x.sizes());
    at::Tensor noise = within.to(x.scalar_type()) * (alpha_ / std::sqrt(count));
    if (embedding_.rows) noise = noise.masked_fill(elsewhere(batch).unsqueeze(1), 0);
    return x + noise;
  }

 private:
  // Returns the mask of tokens whose row is on another rank. Only the rank that has a token's row adds noise
  // to it.
  at::Tensor elsewhere(const Batch& batch) const {
    const at::Tensor row = batch.tokens.reshape({-1}) - embedding_.rows->first;
    return row.lt(0).bitwise_or_(row.ge(embedding_.weight.size(0)));
  }

  const Embedding& embedding_;
  double alpha_;
  uint64_t salt_;
};

Embedding* embedding_of(const Units& units) {
  Embedding* first = nullptr;
  model::each<Embedding>(units, [&](const std::string&, Embedding& embedding) {
    if (first == nullptr) first = &embedding;
  });
  return first;
}

class Neftune : public ITransform {
 public:
  explicit Neftune(Config config) : config_(config) {}

  Transformed apply(Units& units, const TransformRun& run) const override {
    Embedding* embedding = embedding_of(units);
    if (embedding == nullptr)
      throw Error(ErrorCode::config, run.where, "the model has no token embedding to add noise to",
                  "remove neftune");
    if (config_.noise_alpha == 0) return {};
    const auto noise = std::make_shared<Noise>(*embedding, config_.noise_alpha);
    transform::add_child(*embedding, "neftune", *noise);
    embedding->output.add(
        [noise](at::Tensor x, const Batch& batch) { return noise->call(std::move(x), batch); });
    Transformed out;
    out.note =
        "noise on the token embeddings, noise_alpha " + config::to_json(Node::real(config_.noise_alpha));
    return out;
  }

 private:
  Config config_;
};

}  // namespace
}  // namespace heddle::neftune

HEDDLE_PLUGIN("neftune", "0.1.0", "transform neftune") {
  using namespace heddle::neftune;
  auto& offered = plugin.transform<Neftune>("neftune", schema());
  // AutoModel also accepts a number instead of a section.
  offered.resolve = [resolve = offered.resolve](const heddle::Node& section) {
    return resolve(section.is_map() ? section : heddle::Node::map({{"noise_alpha", section}}));
  };
}

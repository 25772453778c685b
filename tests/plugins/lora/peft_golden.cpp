// PEFT's base and files, and steps on the rows that PEFT trained on.
#include "plugins/lora/peft_golden.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/parallel/single.h"
#include "heddle/checkpoint/hf_source.h"
#include "heddle/engine/engine.h"
#include "heddle/mesh/call.h"
#include "heddle/train/step.h"
#include "lib/run/model/adapter/adapter.h"
#include "lib/run/model/transforms.h"
#include "plugins/lora/peft_units.h"
#include "tests/core/engine/setups.h"

namespace heddle::tests {

at::Tensor box_of(const ParameterSource& source, const std::string& name, std::vector<int64_t> shape,
                  std::vector<int64_t> offset, const std::vector<int64_t>& size) {
  Shard shard;
  shard.name = name;
  shard.offset = offset.empty() ? std::vector<int64_t>(shape.size(), 0) : std::move(offset);
  shard.tensor = at::ones(size.empty() ? shape : size);
  shard.shape = std::move(shape);
  EXPECT_TRUE(source(shard)) << name;
  return shard.tensor;
}

at::Tensor read_tensor(const SafetensorsFile& file, const std::string& name) {
  const at::Tensor out = at::empty(file.tensors().at(name).shape);
  file.read(name, std::vector<int64_t>(out.dim(), 0), out);
  return out;
}

namespace {

const std::filesystem::path kPeftGolden = std::string(HEDDLE_SOURCE_DIR) + "/tests/golden";

void expect_golden_steps(Stages& stages, const DeviceMesh& mesh, const nlohmann::json& golden) {
  const int64_t batch = golden["batch"], sequence = golden["sequence"];
  const at::Tensor rows =
      at::tensor(golden["tokens"].get<std::vector<int64_t>>(), at::kLong).view({-1, batch, sequence + 1});
  StepConfig config;
  config.optimizer = {1e-2, 0.9, 0.95, 1e-8, 0.1};
  config.max_norm = 1.0;
  Step step(stages, mesh, config);
  for (int64_t i = 0; i < rows.size(0); ++i) {
    Batch one;
    one.tokens = rows[i].narrow(1, 0, sequence).contiguous();
    one.labels = rows[i].narrow(1, 1, sequence).contiguous();
    const StepReport report = step.run(std::span(&one, 1), 1e-2, 0.1);
    const double loss = golden["loss"][i], norm = golden["grad_norm"][i];
    EXPECT_NEAR(report.loss.item<double>(), loss, 2e-5 * loss) << i;
    EXPECT_NEAR(report.grad_norm.item<double>(), norm, 2e-4 * norm) << i;
  }
}

}  // namespace

SafetensorsFile PeftGolden::file(const std::string& name) const {
  return SafetensorsFile(kPeftGolden / adapters / name);
}

std::shared_ptr<const ModelSpec> PeftGolden::spec() const {
  return engine::read_model(kPeftGolden / base / "config.json", built_plugins());
}

ParameterSource PeftGolden::base_source(const std::shared_ptr<const ModelSpec>& spec) const {
  return checkpoint::hf_source(kPeftGolden / base, std::make_shared<HfWeights>(kPeftGolden / base), spec);
}

ParameterSource PeftGolden::merged() const {
  const auto model = spec();
  return with_adapter(base_source(model), kPeftGolden / adapters / "adapter", model);
}

void PeftGolden::expect_steps(const std::string& section, const std::function<void(Stages&)>& after) const {
  const auto model = spec();
  Units units = model->make_units(at::TensorOptions(at::kMeta).dtype(at::kFloat));
  const std::vector<Transformed> changes = {adapt(units, section, model.get())};
  const auto first = std::make_shared<SafetensorsFile>(kPeftGolden / adapters / "first.safetensors");
  const ParameterSource begin = [of_base = base_source(model), first](const Shard& shard) {
    if (shard.name.find(".lora_") == std::string::npos) return of_base(shard);
    if (first->tensors().count(shard.name) == 0) return false;
    first->read(shard.name, shard.offset, shard.tensor.detach());
    return true;
  };
  AloneRendezvous alone;
  const DeviceMesh mesh = mesh::build(std::array<Axis, 1>{Axis{"dp", 1}}, alone, "peft");
  Plan plan;
  plan.strategy = parallel::make_single();
  Stages stages = parallel::build(std::move(units), plan, mesh, with_derived(begin, changes, 0), 42);
  expect_golden_steps(stages, mesh,
                      nlohmann::json::parse(std::ifstream(kPeftGolden / adapters / "golden.json")));
  if (after) after(stages);
}

}  // namespace heddle::tests

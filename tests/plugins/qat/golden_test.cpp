// Twelve steps of models that torchao converted (tests/golden/make_qat.py), on one rank and on two.
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "heddle/checkpoint/hf_source.h"
#include "heddle/plugin/transform.h"
#include "heddle/train/step.h"
#include "plugins/topologies.h"

namespace heddle::tests {
namespace {

struct QatGolden {
  explicit QatGolden(const std::string& name)
      : directory(std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/golden/qat" / name),
        json(nlohmann::json::parse(std::ifstream(directory / "golden.json"))) {}

  std::filesystem::path directory;  // of the model
  nlohmann::json json;

  Training training(const std::string& quantizer) const {
    const std::string section = "{enabled: true, fake_quant_after_n_steps: " + json["after"].dump() +
                                ", qat_config: {" + quantizer + "}}";
    const std::shared_ptr<const ModelSpec> model =
        engine::read_model(directory / "config.json", built_plugins());
    const auto* offered = built_plugins().find<OfferedTransform>("qat");
    const std::shared_ptr<const ITransform> transform =
        offered->make(offered->resolve(config::read_text(section, "run.yaml")).values);
    const std::string layers = "in " + json["layers"].dump() + " linear layers";
    Training run;
    run.make_units = [=](int) {
      Units units = model->make_units(at::TensorOptions(at::kMeta).dtype(at::kFloat));
      EXPECT_THAT(transform->apply(units, {"run.yaml:2 qat"}).note, ::testing::HasSubstr(layers));
      return units;
    };
    run.values = checkpoint::hf_source(directory, std::make_shared<HfWeights>(directory), model);
    return run;
  }

  // Returns the rows of one rank.
  Batch batch(int64_t step, const DeviceMesh& mesh) const {
    const int64_t rows = json["batch"], sequence = json["sequence"], mine = rows / mesh.size("dp");
    const at::Tensor all =
        at::tensor(json["tokens"].get<std::vector<int64_t>>(), at::kLong).view({-1, rows, sequence + 1});
    const at::Tensor own = all[step].narrow(0, mesh.rank("dp") * mine, mine);
    Batch out;
    out.tokens = own.narrow(1, 0, sequence).contiguous();
    out.labels = own.narrow(1, 1, sequence).contiguous();
    out.step = step;
    return out;
  }

  void expect_on(const std::string& topology, const std::string& quantizer) const {
    SCOPED_TRACE(topology);
    on_ranks(on(training(quantizer), topology), [&](Stages& stages, const DeviceMesh& mesh) {
      StepConfig config;
      config.optimizer = {1e-3, 0.9, 0.95, 1e-8, 0.1};
      Step step(stages, mesh, config);
      for (size_t i = 0; i < json["loss"].size(); ++i) {
        const Batch one = batch(static_cast<int64_t>(i), mesh);
        const StepReport report = step.run(std::span(&one, 1), 1e-3, 0.1);
        const double loss = json["loss"][i], norm = json["grad_norm"][i];
        EXPECT_NEAR(report.loss.item<double>(), loss, 2e-5 * loss) << "step " << i;
        EXPECT_NEAR(report.grad_norm.item<double>(), norm, 2e-4 * norm) << "step " << i;
      }
    });
  }
};

// Layers with 15 inputs are not quantized, and fake quantization begins with the third step.
TEST(QatGolden, EqualsTorchaoForInputsAndWeights) {
  const QatGolden golden("inputs_int8");
  for (const std::string topology : {"single", "fsdp2 dp2", "single pp2(1f1b) rows1"})
    golden.expect_on(topology, "quantizer_type: int8_dynact_int4weight, groupsize: 6");
}

// The head shares the embedding's weight.
TEST(QatGolden, EqualsTorchaoForWeights) {
  const QatGolden golden("weights_int4");
  for (const std::string topology : {"single", "fsdp2 dp2"})
    golden.expect_on(topology, "quantizer_type: int4_weight_only, groupsize: 32, inner_k_tiles: 2");
}

}  // namespace
}  // namespace heddle::tests

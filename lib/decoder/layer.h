// One layer of a decoder: mixers of tokens and an MLP or experts, with norms in the order of its description.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "heddle/decoder/description.h"

namespace heddle::decoder {

// Hidden states [tokens, width] in and out. Children "self_attn" (or the mixer's name), the mixers beside it,
// "mlp", and the norms that Layer lists.
class DecoderLayer : public Module {
 public:
  struct Parts {
    std::unique_ptr<LayerPart> mixer;  // null: absent, as below
    std::string mixer_name = "self_attn";
    std::vector<std::pair<std::string, std::unique_ptr<LayerPart>>> beside = {};  // with their names
    std::unique_ptr<Module> feed_forward;  // a FeedForward, or a MoeLayer
  };
  DecoderLayer(const Layer& form, int64_t width, Parts parts, const at::TensorOptions& options);
  std::string_view kind() const override { return "decoder_layer"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  // A part with the norms before and after it; null: none.
  struct Step {
    Module* module = nullptr;
    LayerPart* part = nullptr;  // the module, where it adds itself to the residual
    std::vector<LayerPart*> beside;
    std::unique_ptr<Module> before, after;
  };
  // norms: the names of those before and after; null: none.
  void make_step(Step& step, const Layer& form, std::array<const char*, 2> norms, int64_t width,
                 const at::TensorOptions& options);
  at::Tensor run(Step& step, at::Tensor x, const Batch& batch);
  at::Tensor onto(const at::Tensor& residual, Step& step, at::Tensor x, const Batch& batch);

  double multiplier_;
  bool side_by_side_;
  Parts parts_;
  Step mixer_, feed_forward_;
};

}  // namespace heddle::decoder

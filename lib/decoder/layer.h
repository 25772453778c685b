// One layer of a decoder: mixers of tokens and an MLP or experts, with norms in the order of its description.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "heddle/decoder/description.h"
#include "heddle/model/module_unit.h"
#include "heddle/nn/dropout.h"
#include "lib/decoder/blocks/block_residual.h"
#include "lib/decoder/carried/carried.h"
#include "lib/decoder/carried/layer_input.h"
#include "lib/decoder/streams/hyper_module.h"

namespace heddle::decoder {

// Hidden states [tokens, width] in and out, of a model with hyper-connections [tokens, streams * width].
// Children "self_attn" (or the mixer's name), the mixers beside it, "mlp" and "moe", the norms that Layer
// lists, with dropout "mixer_dropout" and "mlp_dropout", with hyper-connections "attn_hc" and "ffn_hc", with
// blocks of residuals "attn_res" and "mlp_res", and "layer_input"; slot layer_scalar [1] where the
// description has it. Carries what later layers need (carried.h).
class DecoderLayer : public Module, public Carrier {
 public:
  struct Parts {
    std::unique_ptr<LayerPart> mixer;  // null: absent, as below
    std::string mixer_name = "self_attn";
    std::vector<std::pair<std::string, std::unique_ptr<LayerPart>>> beside = {};  // with their names
    std::unique_ptr<Module> feed_forward;  // a FeedForward, or a MoeLayer
    std::unique_ptr<Module> experts;       // beside it: a MoeLayer, which takes the residual
    std::string experts_name = {};
    std::unique_ptr<LayerInput> input;                 // null: the layer has no inputs of its own
    std::unique_ptr<HyperConnection> attn_hc, ffn_hc;  // null: the model has one stream
    std::unique_ptr<BlockResidual> attn_res, mlp_res;  // null: the model has one sum
    bool begins_block = false;                         // with blocks: one begins here
    std::string layer;  // "model.layers.3": tells its dropout from that of others
    Carried carried;
  };
  DecoderLayer(const Layer& form, int64_t width, Parts parts, const at::TensorOptions& options);
  std::string_view kind() const override { return "decoder_layer"; }
  ModuleTraits traits() const override { return {.tokens = TokenUse::each_alone}; }
  void take(Tensors carried) override { parts_.carried.take(std::move(carried)); }
  Tensors give() override { return parts_.carried.give(); }

 protected:
  at::Tensor forward(at::Tensor x, const Batch& batch) override;

 private:
  // A part with the norms before and after it; null: none.
  struct Step {
    Module* module = nullptr;
    LayerPart* part = nullptr;  // the module, where it adds itself to the residual
    std::vector<LayerPart*> beside;
    Module* experts = nullptr;  // beside the module, with the residual for input
    std::unique_ptr<Module> before, after, after_module, after_experts;
    std::unique_ptr<Dropout> dropout;  // null: nothing is dropped
    HyperConnection* streams = nullptr;
  };
  // norms: the names of those before and after; null: none.
  void make_step(Step& step, const Layer& form, std::array<const char*, 2> norms, int64_t width,
                 const at::TensorOptions& options);
  void add_dropout(double p);
  void add_streams();
  void add_experts(const Layer& form, int64_t width, const at::TensorOptions& options);
  at::Tensor parts(at::Tensor x, const Batch& batch);  // mixer and MLP
  at::Tensor run(Step& step, at::Tensor x, const Batch& batch);
  at::Tensor onto(const at::Tensor& residual, Step& step, at::Tensor x, const Batch& batch);
  // What is added to the residual: of what the norm before the part gives.
  at::Tensor output(const at::Tensor& residual, Step& step, at::Tensor x, const Batch& batch);
  at::Tensor run_in_streams(Step& step, const at::Tensor& x, const Batch& batch);
  at::Tensor run_in_blocks(const at::Tensor& x, const Batch& batch);  // mixer and MLP

  double multiplier_;
  bool side_by_side_;
  at::Tensor scalar_;  // undefined: none
  Parts parts_;
  Step mixer_, feed_forward_;
};

}  // namespace heddle::decoder

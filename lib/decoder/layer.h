// Decoder layer: token mixers and an MLP or experts, with norms as its description orders them.
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

// Takes and returns hidden states [tokens, width], with hyper-connections [tokens, streams * width]. Children
// "self_attn" (or the mixer's name), further mixers, "mlp" and "moe", the norms that Layer lists, with
// dropout "mixer_dropout" and "mlp_dropout", with hyper-connections "attn_hc" and "ffn_hc", with block
// residuals "attn_res" and "mlp_res", and "layer_input"; slot layer_scalar [1] if the description has it.
// Carries the tensors that later layers need (carried.h).
class DecoderLayer : public Module, public Carrier {
 public:
  struct Parts {
    std::unique_ptr<LayerPart> mixer;  // null here and below: absent
    std::string mixer_name = "self_attn";
    // parallel mixers with their names
    std::vector<std::pair<std::string, std::unique_ptr<LayerPart>>> beside = {};
    std::unique_ptr<Module> feed_forward;  // a FeedForward, or a MoeLayer
    std::unique_ptr<Module> experts;       // parallel to feed_forward: a MoeLayer that takes the residual
    std::string experts_name = {};
    std::unique_ptr<LayerInput> input;                 // null: no per-layer input
    std::unique_ptr<HyperConnection> attn_hc, ffn_hc;  // null: one stream
    std::unique_ptr<BlockResidual> attn_res, mlp_res;  // null: no block residuals
    bool begins_block = false;                         // with block residuals: a block starts here
    std::string layer;                                 // "model.layers.3": distinguishes the layer's dropout
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
  // A part with the norms before and after it; null: absent.
  struct Step {
    Module* module = nullptr;
    LayerPart* part = nullptr;  // the module, if it adds itself to the residual
    std::vector<LayerPart*> beside;
    Module* experts = nullptr;  // parallel to the module, with the residual as input
    std::unique_ptr<Module> before, after, after_module, after_experts;
    std::unique_ptr<Dropout> dropout;  // null: no dropout
    HyperConnection* streams = nullptr;
  };
  // norms: names of the norms before and after; null: none.
  void make_step(Step& step, const Layer& form, std::array<const char*, 2> norms, int64_t width,
                 const at::TensorOptions& options);
  void add_dropout(double p);
  void add_streams();
  void add_experts(const Layer& form, int64_t width, const at::TensorOptions& options);
  at::Tensor parts(at::Tensor x, const Batch& batch);  // mixer and MLP
  at::Tensor run(Step& step, at::Tensor x, const Batch& batch);
  at::Tensor onto(const at::Tensor& residual, Step& step, at::Tensor x, const Batch& batch);
  // Returns the part's output, which is added to the residual; x is the output of the norm before the part.
  at::Tensor output(const at::Tensor& residual, Step& step, at::Tensor x, const Batch& batch);
  at::Tensor run_in_streams(Step& step, const at::Tensor& x, const Batch& batch);
  at::Tensor run_in_blocks(const at::Tensor& x, const Batch& batch);  // mixer and MLP

  double multiplier_;
  bool side_by_side_;
  at::Tensor scalar_;  // undefined: no scalar
  Parts parts_;
  Step mixer_, feed_forward_;
};

}  // namespace heddle::decoder

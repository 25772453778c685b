// ModelSpec of a decoder, from its description.
#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "heddle/decoder/family.h"
#include "lib/decoder/units.h"

namespace heddle::decoder {
namespace {

constexpr const char* kEmbedding = "model.embed_tokens.weight";
constexpr const char* kHead = "lm_head.weight";

class Spec : public ModelSpec {
 public:
  explicit Spec(ReadModel read) : read_(std::move(read)) {}

  ModelFacts facts() const override { return read_.facts; }
  Units make_units(const at::TensorOptions& options) const override {
    return decoder::make_units(read_.model, options);
  }
  std::map<std::string, std::string> signature() const override { return read_.signature; }
  std::string config_json(const std::string& dtype) const override { return read_.config_json(dtype); }
  double flops_per_token(int64_t sequence) const override {
    return operations_per_token(read_.model, sequence);
  }

  StoredParts stored(const std::string& parameter, std::span<const int64_t> shape) const override {
    return read_.files.parts(parameter, shape, [this](const std::string& other) { return rows_of(other); });
  }
  // A tied head is the embedding; files may contain either name.
  std::vector<std::string> other_names(const std::string& tensor) const override {
    std::vector<std::string> out = read_.files.other_names(tensor);
    if (!read_.model.tied || tensor != read_.files.in_files(kEmbedding)) return out;
    const std::string head = read_.files.in_files(kHead);
    out.push_back(head);
    for (std::string& other : read_.files.other_names(head)) out.push_back(std::move(other));
    return out;
  }
  bool passes_over(const std::string& tensor) const override { return read_.files.ignores(tensor); }
  std::map<std::string, std::string> idle_keys() const override {
    constexpr const char* kWhy =
        "no auxiliary loss is computed; set router_aux_loss_type to layer, sequence, global or model";
    const auto has_no_loss = [](const Layer& layer) {
      const auto* mixture = std::get_if<Mixture>(&layer.feed_forward);
      return mixture != nullptr && mixture->router.balance.form == model::BalanceLoss::Form::none;
    };
    if (std::none_of(read_.model.layers.begin(), read_.model.layers.end(), has_no_loss)) return {};
    return {{"router_aux_loss_coef", kWhy}, {"aux_loss_alpha", kWhy}};
  }

 private:
  // Number of rows of all parameters, computed on first use.
  std::optional<int64_t> rows_of(const std::string& parameter) const {
    std::call_once(once_, [this] {
      for (const auto& unit : make_units(at::TensorOptions(at::kMeta)))
        for (const ParameterSlot& slot : unit->parameters()) rows_[slot.name] = slot.tensor->size(0);
    });
    const auto found = rows_.find(parameter);
    return found == rows_.end() ? std::nullopt : std::optional(found->second);
  }

  ReadModel read_;
  mutable std::once_flag once_;
  mutable std::map<std::string, int64_t> rows_;
};

}  // namespace

std::unique_ptr<ModelSpec> make_spec(ReadModel read) {
  return std::make_unique<Spec>(std::move(read));
}

}  // namespace heddle::decoder

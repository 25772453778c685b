// One walk over the modules before apply(), one after it.
#include "core/plugin/named/named_seams.h"

#include <functional>
#include <utility>

namespace heddle::plugin {
namespace {

void each_seam(const Units& units, const std::function<void(Seam&, const std::string&)>& visitor) {
  for (const auto& unit : units)
    if (Module* root = unit->module(); root != nullptr)
      root->visit(std::string(unit->name()), [&](const std::string& path, Module& module) {
        visitor(module.input, "in its seam before '" + path + "'");
        visitor(module.output, "in its seam after '" + path + "'");
      });
}

}  // namespace

NamedSeams::NamedSeams(const Units& units) {
  each_seam(units, [this](Seam& seam, const std::string&) { before_[&seam] = seam.size(); });
}

void NamedSeams::name(const Units& units, const Author& author) const {
  each_seam(units, [&](Seam& seam, const std::string& place) {
    const auto before = before_.find(&seam);
    const std::string doing = "ran " + place;
    seam.wrap(before == before_.end() ? 0 : before->second, [&](Seam::Transform transform) {
      return [author, doing, transform = std::move(transform)](at::Tensor x, const Batch& batch) {
        return attributed(
            author, doing, [&] { return transform(std::move(x), batch); },
            Keep::errors_and_what_is_no_exception);
      };
    });
  });
}

}  // namespace heddle::plugin

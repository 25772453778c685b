// The file of a unit is that of its vtable, so no one has to say who made it.
#include "core/parallel/checks/name_units.h"

#include <c10/util/Exception.h>
#include <dlfcn.h>
#include <torch/csrc/autograd/function.h>

#include <map>
#include <new>
#include <set>
#include <string>
#include <utility>

#include "core/model/wrapped_unit.h"
#include "heddle/base/error.h"
#include "heddle/base/text.h"
#include "heddle/model/module.h"

namespace heddle::parallel {
namespace {

// The file of the plugin that has the object's class; empty: it is the engine's or the host's.
std::string plugin_of(const void* object) {
  Dl_info info;
  if (object == nullptr || dladdr(*static_cast<void* const*>(object), &info) == 0) return "";
  void* const library = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return "";
  const bool plugin = dlsym(library, "heddle_plugin_offer") != nullptr;
  dlclose(library);  // it stays loaded: only this handle ends
  return plugin ? info.dli_fname : "";
}

class NamedUnit final : public model::WrappedUnit {
 public:
  NamedUnit(std::unique_ptr<Unit> unit, std::string file)
      : WrappedUnit(std::move(unit)), file_(std::move(file)) {}
  Tensors forward(Tensors inputs, const Batch& batch) override {
    try {
      return unit_->forward(std::move(inputs), batch);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::internal) throw;
      throw_named(error.message());
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const c10::Error& error) {
      throw_named(error.what_without_backtrace());
    } catch (const std::exception& error) {
      throw_named(error.what());
    }
  }

 private:
  [[noreturn]] void throw_named(const std::string& what) const {
    throw Error(
        ErrorCode::plugin_failed, file_,
        "the model's plugin threw in forward() of the unit '" + std::string(unit_->name()) + "': " + what,
        "tell the plugin's author, or fix it");
  }

  std::string file_;
};

}  // namespace

namespace {

// The files of plugins whose nodes the roots lead to.
std::set<std::string> plugins_of(const std::vector<torch::autograd::Edge>& roots) {
  std::set<std::string> files;
  std::set<torch::autograd::Node*> seen;
  std::map<const void*, std::string> file_of;  // by the vtable
  std::vector<torch::autograd::Node*> left;
  const auto add = [&](const torch::autograd::Edge& edge) {
    if (edge.function != nullptr && seen.insert(edge.function.get()).second)
      left.push_back(edge.function.get());
  };
  for (const auto& root : roots) add(root);
  while (!left.empty()) {
    torch::autograd::Node* const node = left.back();
    left.pop_back();
    const auto [found, fresh] = file_of.try_emplace(*static_cast<void* const*>(dynamic_cast<void*>(node)));
    if (fresh) found->second = plugin_of(dynamic_cast<void*>(node));
    if (!found->second.empty()) files.insert(found->second);
    for (const auto& edge : node->next_edges()) add(edge);
  }
  return files;
}

}  // namespace

void blame_backward(const Stages& stages, const std::vector<torch::autograd::Edge>& roots) {
  const auto throw_named = [&](const std::string& what) {
    const std::set<std::string> files = plugins_of(roots);
    const bool strategy = stages.whole() && stages.whole()->strategy != "single";
    if (files.empty() && !strategy) return;
    std::string who = files.empty() ? "" : "nodes of " + text::join(std::vector(files.begin(), files.end()));
    if (strategy)
      who += (who.empty() ? "" : ", and ") + std::string("hooks of the strategy '") +
             stages.whole()->strategy + "'";
    throw Error(ErrorCode::plugin_failed, files.empty() ? stages.whole()->where : *files.begin(),
                "a backward threw: " + what + "; it ran " + who, "tell the plugin's author, or fix it");
  };
  try {
    throw;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) throw_named(error.message());
  } catch (const std::bad_alloc&) {
  } catch (const c10::OutOfMemoryError&) {
  } catch (const c10::Error& error) {
    throw_named(error.what_without_backtrace());
  } catch (const std::exception& error) {
    throw_named(error.what());
  } catch (...) {  // not an error: see model/region.h
  }
}

void name_units(Units& units) {
  for (auto& unit : units) {
    std::string file = plugin_of(dynamic_cast<void*>(unit.get()));
    if (file.empty() && unit->module() != nullptr) file = plugin_of(dynamic_cast<void*>(unit->module()));
    if (!file.empty()) unit = std::make_unique<NamedUnit>(std::move(unit), std::move(file));
  }
}

}  // namespace heddle::parallel

// Chain, which lets several plugins wrap one computation. Each link calls the next, and at most one link
// replaces the computation.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "heddle/base/export.h"

namespace heddle {

namespace model {

// Throw Error{plugin_conflict} for two links that exclude each other. first, second: their plugins.
[[noreturn]] HEDDLE_API void refuse_two_in_place(const char* seam, const std::string& first,
                                                 const std::string& second);
[[noreturn]] HEDDLE_API void refuse_same_order(const char* seam, const std::string& first,
                                               const std::string& second, int order);
// Throws Error{input} for a link without a plugin name or without a function.
HEDDLE_API void check_link(const char* seam, const std::string& plugin, bool has_function);
// Called in a catch clause: rethrows the exception of a link as Error{plugin_failed} with the link's plugin.
// Keeps an Error that already has a place and a message.
HEDDLE_API void blame_link(const std::string& plugin);

}  // namespace model

template <class Signature>
class Chain;

// The links of plugins around the computation of a layer. An `around` link gets the arguments and the rest of
// the chain, which it calls once. The `around` link of the lowest order is called first. An `in_place` link
// replaces the computation of the layer and is innermost. Several layers may share a link.
template <class Result, class... Arguments>
class Chain<Result(Arguments...)> {
 public:
  // The rest of a chain after a link. Valid during the call.
  class Next;
  using Around = std::function<Result(Arguments..., const Next& next)>;
  using InPlace = std::function<Result(Arguments...)>;

  class Link {
   public:
    Link(std::string plugin, int order, Around around, InPlace in_place)
        : plugin(std::move(plugin)), order(order), around(std::move(around)), in_place(std::move(in_place)) {}
    const std::string plugin;
    const int order;
    const Around around;  // either around or in_place is set
    const InPlace in_place;
  };
  using LinkPointer = std::shared_ptr<const Link>;

  static LinkPointer around(std::string plugin, int order, Around call) {
    return std::make_shared<const Link>(std::move(plugin), order, std::move(call), InPlace());
  }
  static LinkPointer in_place(std::string plugin, InPlace call) {
    return std::make_shared<const Link>(std::move(plugin), 0, Around(), std::move(call));
  }

  // Checks the result of each link, and throws an Error with the name of its plugin. Arguments that links
  // take by value are moved from.
  using Check = void (*)(const std::string& plugin, const Result& result, const Arguments&... arguments);
  explicit Chain(const char* seam, Check check = nullptr) : seam_(seam), check_(check) {}

  // Adds a link. Throws Error{plugin_conflict} for a second in_place link, and for a second around link with
  // the same order.
  void add(LinkPointer link) {
    model::check_link(seam_, link ? link->plugin : "", link && (link->around || link->in_place));
    for (const LinkPointer& added : links_) {
      if (link->in_place && added->in_place) model::refuse_two_in_place(seam_, added->plugin, link->plugin);
      if (link->around && added->around && added->order == link->order)
        model::refuse_same_order(seam_, added->plugin, link->plugin, link->order);
    }
    const auto before = [](const LinkPointer& a, const LinkPointer& b) {
      if (a->in_place || b->in_place) return !a->in_place;
      return a->order < b->order;
    };
    links_.insert(std::upper_bound(links_.begin(), links_.end(), link, before), std::move(link));
  }

  bool empty() const { return links_.empty(); }
  // Whether the links are the same. Layers with equal chains and one input can be computed together.
  bool operator==(const Chain& other) const { return links_ == other.links_; }

  // Runs the links around `own`, the computation of the layer.
  template <class Own>
  Result call(Own&& own, Arguments... arguments) const {
    const auto run_own = [](void* context, Arguments... inputs) -> Result {
      return (*static_cast<std::remove_reference_t<Own>*>(context))(std::forward<Arguments>(inputs)...);
    };
    void* const context = const_cast<void*>(static_cast<const void*>(std::addressof(own)));
    const Next all(
        typename Next::Rest{links_.data(), links_.data() + links_.size(), context, run_own, check_});
    return all(std::forward<Arguments>(arguments)...);
  }

 private:
  const char* seam_;
  Check check_;
  std::vector<LinkPointer> links_;  // in the order of the calls
};

template <class Result, class... Arguments>
class Chain<Result(Arguments...)>::Next {
 public:
  Result operator()(Arguments... arguments) const {
    try {
      return step(std::forward<Arguments>(arguments)...);
    } catch (...) {
      threw_ = true;
      throw;
    }
  }

 private:
  friend class Chain<Result(Arguments...)>;
  struct Rest {
    const LinkPointer *begin, *end;
    void* context;
    Result (*own)(void*, Arguments...);
    Check check;  // may be null
  };
  explicit Next(Rest rest) : rest_(rest) {}
  Result step(Arguments... arguments) const {
    if (rest_.begin == rest_.end) return rest_.own(rest_.context, std::forward<Arguments>(arguments)...);
    const Link& link = **rest_.begin;
    if (rest_.check == nullptr) return run(link, std::forward<Arguments>(arguments)...);
    Result result = run(link, std::forward<Arguments>(arguments)...);
    rest_.check(link.plugin, result, arguments...);
    return result;
  }
  // Runs a link. An exception of the rest of the chain is not attributed to the link.
  Result run(const Link& link, Arguments... arguments) const {
    const Next rest(Rest{rest_.begin + 1, rest_.end, rest_.context, rest_.own, rest_.check});
    try {
      if (link.in_place) return link.in_place(std::forward<Arguments>(arguments)...);
      return link.around(std::forward<Arguments>(arguments)..., rest);
    } catch (...) {
      if (!rest.threw_) model::blame_link(link.plugin);
      throw;
    }
  }
  Rest rest_;
  mutable bool threw_ = false;
};

}  // namespace heddle

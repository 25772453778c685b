// The errors about several plugins at one seam.
#include "heddle/model/chain.h"

#include <c10/util/Exception.h>

#include "heddle/base/error.h"

namespace heddle::model {

void refuse_two_in_place(const char* seam, const std::string& first, const std::string& second) {
  throw Error(ErrorCode::plugin_conflict, seam,
              "'" + first + "' and '" + second +
                  "' both compute in place of the layer, so one of them would "
                  "never be called",
              "train without one of them, or let one of them call the other (Chain::around)");
}

void refuse_same_order(const char* seam, const std::string& first, const std::string& second, int order) {
  throw Error(ErrorCode::plugin_conflict, seam,
              "'" + first + "' and '" + second + "' are both around the layer with the order " +
                  std::to_string(order) + ", so nothing says which calls the other",
              "give one of them another order");
}

void check_link(const char* seam, const std::string& plugin, bool has_function) {
  if (!plugin.empty() && has_function) return;
  throw Error(ErrorCode::input, seam,
              plugin.empty() ? "a link without the name of its plugin"
                             : "the link of '" + plugin + "' has no function",
              "make links with Chain::around or Chain::in_place");
}

void blame_link(const std::string& plugin) {
  const auto throw_named = [&plugin](const std::string& what, const std::string& hint) {
    throw Error(ErrorCode::plugin_failed, plugin,
                "the plugin '" + plugin + "' threw in its link around a layer: " + what, hint);
  };
  const std::string author = "tell the plugin's author, or fix it";
  try {
    throw;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::internal) throw_named(error.message(), error.hint());
  } catch (const c10::Error& error) {
    throw_named(error.what_without_backtrace(), author);
  } catch (const std::exception& error) {
    throw_named(error.what(), author);
  } catch (...) {  // the end of a recomputed forward, which no one may take for an error
  }
}

}  // namespace heddle::model

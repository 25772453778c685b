// The errors about several plugins at one seam.
#include "heddle/model/chain.h"

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

}  // namespace heddle::model

// Checks that a link of Experts::instead returns a row for each token; else names its plugin.
#include <sstream>
#include <string>

#include "heddle/base/error.h"
#include "heddle/nn/experts.h"

namespace heddle {

void Experts::check_result(const std::string& plugin, const at::Tensor& result, const at::Tensor& x,
                           const model::Routing&, Experts&, const Batch&, model::Meanwhile&) {
  if (result.defined() && result.sizes() == x.sizes() && result.scalar_type() == x.scalar_type()) return;
  const auto described = [](const at::Tensor& tensor) {
    std::ostringstream out;
    if (tensor.defined())
      out << tensor.sizes() << " of " << tensor.scalar_type();
    else
      out << "an undefined tensor";
    return out.str();
  };
  throw Error(ErrorCode::plugin_failed, "Experts::instead",
              "the link of '" + plugin + "' returned " + described(result) + " for tokens " + described(x),
              "return a row for each token of x, in its order and dtype");
}

}  // namespace heddle

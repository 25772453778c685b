// The guards around every backward of the layers.
#include "heddle/model/autograd_node.h"

#include "heddle/base/error.h"

namespace heddle::model {

LayerNode::~LayerNode() = default;

Gradients LayerNode::apply(Gradients&& gradients) {
  if (at::GradMode::is_enabled())
    throw Error(ErrorCode::internal, "model", std::string(name_) + " has no second derivative",
                "call backward without create_graph");
  bool any = false;
  for (const at::Tensor& gradient : gradients) any = any || gradient.defined();
  if (!any) return Gradients(num_outputs());
  at::AutoDispatchBelowADInplaceOrView below;
  return backward(std::move(gradients));
}

}  // namespace heddle::model

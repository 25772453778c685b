// Traversal of an autograd graph.
#include "reach.h"

#include <unordered_set>

#include "heddle/model/autograd_node.h"

namespace heddle::ddp {

using torch::autograd::Node;

std::vector<bool> reach(std::span<const std::weak_ptr<Node>> roots,
                        const std::unordered_map<const Node*, int>& places) {
  std::vector<bool> reached(places.size());
  std::unordered_set<const Node*> seen;
  std::vector<const Node*> open;
  const auto visit = [&](const Node* node) {
    if (node != nullptr && seen.insert(node).second) open.push_back(node);
  };
  for (const std::weak_ptr<Node>& root : roots) visit(root.lock().get());
  while (!open.empty()) {
    const Node* node = open.back();
    open.pop_back();
    if (const auto place = places.find(node); place != places.end()) reached[place->second] = true;
    if (dynamic_cast<const model::LayerNode*>(node) == nullptr && node->name() == "RecomputeBackward")
      return std::vector<bool>(places.size(), true);
    for (const torch::autograd::Edge& edge : node->next_edges()) visit(edge.function.get());
  }
  return reached;
}

}  // namespace heddle::ddp

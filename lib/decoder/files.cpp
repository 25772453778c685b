// Rules for tensor names and layouts in checkpoint files.
#include "heddle/decoder/files.h"

#include <algorithm>
#include <string_view>

#include "heddle/base/error.h"

namespace heddle::decoder {
namespace {

// Returns the position at which whole path segments equal `name`; npos: none.
size_t find_segments(const std::string& path, const std::string& name) {
  for (size_t at = path.find(name); at != std::string::npos; at = path.find(name, at + 1)) {
    const size_t end = at + name.size();
    if ((at == 0 || path[at - 1] == '.') && (end == path.size() || path[end] == '.')) return at;
  }
  return std::string::npos;
}

std::string replaced(const std::string& path, size_t at, const std::string& name, const std::string& by) {
  return path.substr(0, at) + by + path.substr(at + name.size());
}

// Returns one expert's matrix in a parameter with a matrix per expert, or with gate and up per expert.
StoredPart part_of(std::string tensor, std::span<const int64_t> shape, int64_t expert, int64_t which) {
  const int64_t rows = shape[shape.size() - 2], columns = shape.back();
  if (shape.size() == 3)
    return {std::move(tensor), {rows, columns}, {0, 0}, {1, 2}, {expert, 0, 0}, {1, rows, columns}};
  return {std::move(tensor), {rows, columns}, {0, 0}, {2, 3}, {expert, which, 0, 0}, {1, 1, rows, columns}};
}

// Maps gate and up of all experts [experts, 2, width, hidden] to a tensor [experts, 2 width, hidden].
StoredParts halves(const std::string& tensor, std::span<const int64_t> shape) {
  StoredParts out;
  for (int64_t which = 0; which < 2; ++which)
    out.push_back({tensor,
                   {shape[0], 2 * shape[2], shape[3]},
                   {0, which * shape[2], 0},
                   {0, 2, 3},
                   {0, which, 0, 0},
                   {shape[0], 1, shape[2], shape[3]}});
  return out;
}

// Maps to one tensor of all experts per projection.
StoredParts apart(const ExpertFiles& files, const std::string& layer, std::span<const int64_t> shape) {
  if (shape.size() == 3) return stored::whole(layer + "." + files.down + ".weight", shape);
  StoredParts out;
  for (int64_t which = 0; which < 2; ++which)
    out.push_back({layer + "." + (which == 0 ? files.gate : files.up) + ".weight",
                   {shape[0], shape[2], shape[3]},
                   {0, 0, 0},
                   {0, 2, 3},
                   {0, which, 0, 0},
                   {shape[0], 1, shape[2], shape[3]}});
  return out;
}

// Returns the parts of a router's parameter; empty: not a router's parameter.
StoredParts of_router(const ExpertFiles& files, const std::string& parameter,
                      std::span<const int64_t> shape) {
  const std::pair<std::string_view, std::string> kParts[] = {
      {".mlp.gate.weight", files.router + ".weight"},
      {".mlp.gate.bias", files.router + ".bias"},
      {".mlp.gate.e_score_correction_bias", files.correction}};
  for (const auto& [end, name] : kParts) {
    if (!parameter.ends_with(end)) continue;
    const std::string tensor =
        parameter.substr(0, parameter.size() - end.size()) + "." + files.layer + "." + name;
    const bool row = files.correction_row && end == kParts[2].first;
    return row ? stored::element(tensor, shape, 0, 0, 1) : stored::whole(tensor, shape);
  }
  return {};
}

// Files have a tensor per expert and projection ("mlp.experts.3.up_proj.weight"; Mixtral:
// "block_sparse_moe.experts.3.w3.weight"), memory has one for all experts. Empty: not a parameter of experts
// or routers.
StoredParts of_experts(const ExpertFiles& files, const std::string& parameter,
                       std::span<const int64_t> shape) {
  const std::string kGateUp = "." + files.memory + ".experts.gate_up_proj",
                    kDown = "." + files.memory + ".experts.down_proj";
  const auto layer_of = [&](std::string_view end) {
    return parameter.substr(0, parameter.size() - end.size()) + "." + files.layer;
  };
  if (StoredParts parts = of_router(files, parameter, shape); !parts.empty()) return parts;
  const bool gate_up = parameter.ends_with(kGateUp);
  if (!gate_up && !parameter.ends_with(kDown)) return {};
  if (files.stacked) {
    if (files.apart) return apart(files, layer_of(gate_up ? kGateUp : kDown), shape);
    if (files.transposed) return stored::transposed(stored::whole(parameter, shape));
    return shape.size() == 4 ? halves(parameter, shape) : stored::whole(parameter, shape);
  }
  const std::string experts = layer_of(gate_up ? kGateUp : kDown) + ".experts.";
  StoredParts parts;
  for (int64_t e = 0; e < shape[0]; ++e) {
    const std::string expert = experts + std::to_string(e) + ".";
    if (gate_up) {
      if (shape.size() == 4) parts.push_back(part_of(expert + files.gate + ".weight", shape, e, 0));
      parts.push_back(part_of(expert + files.up + ".weight", shape, e, 1));
    } else {
      parts.push_back(part_of(expert + files.down + ".weight", shape, e, 0));
    }
  }
  return parts;
}

// Splits a slice of a joined tensor into one run of rows per group.
StoredParts runs(StoredParts slice, int64_t groups) {
  if (groups == 1) return slice;
  StoredParts out;
  for (int64_t group = 0; group < groups; ++group) {
    StoredPart one = slice.front();
    one.size[0] /= groups;
    one.offset[0] = group * one.size[0];
    one.first[0] = (group * one.shape[0] + one.first[0]) / groups;
    out.push_back(std::move(one));
  }
  return out;
}

int64_t rows_of_part(const Files::Rows& rows, const std::string& parameter) {
  if (const auto count = rows(parameter)) return *count;
  throw Error(ErrorCode::internal, "model",
              "a rule in Files::joined joins '" + parameter + "', which is not a parameter of the model",
              "list only modules in Files::joined that have the parameter");
}

}  // namespace

Files& Files::joined(std::string module, std::vector<std::string> parts) {
  joined_.push_back({std::move(module), std::move(parts)});
  return *this;
}

Files& Files::in_turn(std::string module, std::vector<std::string> parts, int64_t groups) {
  joined_.push_back({std::move(module), std::move(parts), groups});
  return *this;
}

Files& Files::transposed(std::string module) {
  transposed_.push_back(std::move(module));
  return *this;
}

Files& Files::renamed(std::string name, std::string in_files) {
  renamed_.emplace_back(std::move(name), std::move(in_files));
  return *this;
}

Files& Files::widened(std::string parameter, size_t before, size_t behind) {
  widened_.push_back({std::move(parameter), before, behind});
  return *this;
}

Files& Files::experts(ExpertFiles files) {
  experts_ = std::move(files);
  return *this;
}

Files& Files::ignored(std::string ending) {
  ignored_.push_back(std::move(ending));
  return *this;
}

Files& Files::ignored_module(std::string module) {
  ignored_modules_.push_back(std::move(module));
  return *this;
}

Files& Files::otherwise(std::string beginning, std::string instead) {
  otherwise_.emplace_back(std::move(beginning), std::move(instead));
  return *this;
}

StoredParts Files::structure(const std::string& parameter, std::span<const int64_t> shape,
                             const Rows& rows) const {
  if (StoredParts parts = of_experts(experts_, parameter, shape); !parts.empty()) return parts;
  for (const Joined& joined : joined_)
    for (const std::string& part : joined.parts) {
      const size_t at = find_segments(parameter, part);
      if (at == std::string::npos) continue;
      if (!rows(parameter)) return stored::whole(parameter, shape);
      int64_t first = 0, whole = 0;
      for (const std::string& other : joined.parts) {
        if (other == part) first = whole;
        whole += rows_of_part(rows, replaced(parameter, at, part, other));
      }
      return runs(stored::slice(replaced(parameter, at, part, joined.module), shape, 0, first, whole),
                  joined.groups);
    }
  for (const Widened& one : widened_) {
    if (find_segments(parameter, one.parameter) == std::string::npos) continue;
    StoredPart part = stored::whole(parameter, shape).front();
    const size_t dims = one.before + 1 + one.behind;
    part.first.assign(dims, 0);
    part.dims.assign(dims, -1), part.dims[one.before] = 0;
    part.shape.assign(dims, 1), part.shape[one.before] = shape[0];
    return {std::move(part)};
  }
  return stored::whole(parameter, shape);
}

StoredParts Files::parts(const std::string& parameter, std::span<const int64_t> shape,
                         const Rows& rows) const {
  StoredParts parts = structure(parameter, shape, rows);
  const auto lies_transposed = [&](const std::string& module) {
    return find_segments(parts.front().tensor, module) != std::string::npos;
  };
  if (parts.size() == 1 && shape.size() == 2 &&
      std::any_of(transposed_.begin(), transposed_.end(), lies_transposed))
    parts = stored::transposed(std::move(parts));
  for (StoredPart& part : parts) part.tensor = in_files(std::move(part.tensor));
  if (parts == stored::whole(parameter, shape)) return {};
  return parts;
}

std::string Files::in_files(std::string name) const {
  for (const auto& [in_memory, written] : renamed_)
    if (const size_t at = find_segments(name, in_memory); at != std::string::npos)
      name = replaced(name, at, in_memory, written);
  return name;
}

std::vector<std::string> Files::other_names(const std::string& tensor) const {
  std::vector<std::string> out;
  for (const auto& [beginning, instead] : otherwise_)
    if (tensor.starts_with(beginning)) out.push_back(instead + tensor.substr(beginning.size()));
  return out;
}

bool Files::ignores(const std::string& tensor) const {
  const auto ends = [&](const std::string& ending) { return tensor.ends_with(ending); };
  const auto holds = [&](const std::string& module) {
    return find_segments(tensor, module) != std::string::npos;
  };
  return std::any_of(ignored_.begin(), ignored_.end(), ends) ||
         std::any_of(ignored_modules_.begin(), ignored_modules_.end(), holds);
}

}  // namespace heddle::decoder

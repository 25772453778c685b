// Parameters that differ from the stored tensors (transposed, stacked, split): load, shard and export.
#include "heddle/model/stored.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "checkpoint/folder.h"
#include "checkpoint/toy_spec.h"
#include "checkpoint/write_safetensors.h"
#include "heddle/checkpoint/hf_source.h"
#include "heddle/checkpoint/sharded.h"
#include "heddle/mesh/call.h"
#include "heddle/transport/threads.h"
#include "lib/checkpoint/huggingface/export.h"
#include "lib/checkpoint/huggingface/shard_hf.h"

namespace heddle {
namespace {

using tests::error_of;
using tests::Folder;
using tests::ToySpec;
using Named = std::vector<std::pair<std::string, at::Tensor>>;
using Shape = std::vector<int64_t>;

at::Tensor stored_numbers(const Shape& shape, double from) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return (at::arange(count, at::kFloat) + from).view(shape);
}

// "plain" is stored unchanged, "turned" [5, 3] transposed. "gate_up" [7, 4] concatenates two stored tensors.
// "experts" [3, 4, 5] stacks transposed stored experts. "q" and "k" are transposed slices of one stored
// tensor. "first" and "second" are the halves of a stacked tensor.
std::shared_ptr<ToySpec> every_kind() {
  auto spec = std::make_shared<ToySpec>();
  spec->parameters = {{"plain", {3, 2}}, {"turned", {5, 3}}, {"gate_up", {7, 4}}, {"experts", {3, 4, 5}},
                      {"q", {6, 4}},     {"k", {2, 4}},      {"first", {2, 3}},   {"second", {2, 3}}};
  spec->place = [](const std::string& name, std::span<const int64_t> shape) -> StoredParts {
    const std::vector<std::string> halves = {"gate", "up"}, experts = {"e.0", "e.1", "e.2"};
    if (name == "turned") return stored::transposed(stored::whole("conv", shape));
    if (name == "gate_up") return stored::concatenated(halves, Shape{3, 4}, shape, 0);
    if (name == "experts") return stored::transposed(stored::stacked(experts, shape, 0));
    if (name == "q") return stored::transposed(stored::slice("qk", shape, 0, 0, 8));
    if (name == "k") return stored::transposed(stored::slice("qk", shape, 0, 6, 8));
    if (name == "first") return stored::element("pair", shape, 0, 0, 2);
    if (name == "second") return stored::element("pair", shape, 0, 1, 2);
    return {};
  };
  return spec;
}

Named files_of_every_kind() {
  return {{"conv", stored_numbers({3, 5}, 100)},    {"e.0", stored_numbers({5, 4}, 200)},
          {"e.1", stored_numbers({5, 4}, 300)},     {"e.2", stored_numbers({5, 4}, 400)},
          {"extra", stored_numbers({2}, 800)},      {"gate", stored_numbers({3, 4}, 500)},
          {"pair", stored_numbers({2, 2, 3}, 900)}, {"plain", stored_numbers({3, 2}, 0)},
          {"qk", stored_numbers({4, 8}, 600)},      {"up", stored_numbers({4, 4}, 700)}};
}

std::map<std::string, at::Tensor> parameters_of_every_kind() {
  std::map<std::string, at::Tensor> file;
  for (const auto& [name, tensor] : files_of_every_kind()) file[name] = tensor;
  return {{"plain", file["plain"]},
          {"turned", file["conv"].t()},
          {"gate_up", at::cat({file["gate"], file["up"]})},
          {"experts", at::stack({file["e.0"].t(), file["e.1"].t(), file["e.2"].t()})},
          {"q", file["qk"].t().narrow(0, 0, 6)},
          {"k", file["qk"].t().narrow(0, 6, 2)},
          {"first", file["pair"][0]},
          {"second", file["pair"][1]}};
}

// Calls `body` with every non-empty box of a parameter.
void for_each_box(const Shape& shape,
                  const std::function<void(const Shape& offset, const Shape& size)>& visit) {
  Shape offset(shape.size(), 0), size(shape.size(), 1);
  const std::function<void(size_t)> along = [&](size_t dim) {
    if (dim == shape.size()) return visit(offset, size);
    for (offset[dim] = 0; offset[dim] < shape[dim]; ++offset[dim])
      for (size[dim] = 1; offset[dim] + size[dim] <= shape[dim]; ++size[dim]) along(dim + 1);
    offset[dim] = 0, size[dim] = 1;
  };
  along(0);
}

at::Tensor box_of(at::Tensor whole, const Shape& offset, const Shape& size) {
  for (size_t d = 0; d < size.size(); ++d) whole = whole.narrow(static_cast<int64_t>(d), offset[d], size[d]);
  return whole;
}

TEST(Stored, IsReadInEveryBox) {
  const Folder folder;
  tests::write_safetensors(folder / "model.safetensors", files_of_every_kind());
  const auto spec = every_kind();
  const auto source = checkpoint::hf_source(folder.path(), std::make_shared<HfWeights>(folder.path()), spec);
  for (const auto& [name, whole] : parameters_of_every_kind()) {
    int boxes = 0;
    for_each_box(whole.sizes().vec(), [&](const Shape& offset, const Shape& size) {
      const at::Tensor out = at::full(size, -1.0).set_requires_grad(true);
      ASSERT_TRUE(source({name, out, whole.sizes().vec(), offset, {}, {}, {}}));
      ASSERT_TRUE(at::equal(out, box_of(whole, offset, size))) << name;
      ++boxes;
    });
    EXPECT_GT(boxes, 10) << name;
  }
}

TEST(Stored, IsMadeShardedAndExportedAgainByteForByte) {
  const Folder folder;
  std::filesystem::create_directories(folder / "hf");
  tests::write_safetensors(folder / "hf/model.safetensors", files_of_every_kind());
  const auto spec = every_kind();
  for (const int ranks : {1, 2, 5}) {
    const auto place = folder / ("sharded" + std::to_string(ranks));
    const auto back = folder / ("back" + std::to_string(ranks));
    std::filesystem::create_directories(place);
    const checkpoint::BaseWeights weights("", std::make_shared<const HfWeights>(folder / "hf"), std::nullopt);
    ThreadWorld::run(ranks, [&](Rendezvous& rendezvous) {
      checkpoint::shard_hf(weights, place, rendezvous, "shard", spec.get());
      checkpoint::HfExport what;
      what.sharded = place;
      what.directory = back;
      what.model = spec;
      checkpoint::export_hf(what, rendezvous, "export");
    });
    checkpoint::ShardedReader reader(place);
    for (const auto& [name, whole] : parameters_of_every_kind()) {
      const at::Tensor out = at::zeros(whole.sizes());
      reader.read({name, out, whole.sizes().vec(), Shape(whole.dim(), 0)});
      EXPECT_TRUE(at::equal(out, whole)) << name << " on " << ranks;
    }
    EXPECT_FALSE(reader.has("qk"));
    const HfWeights exported(back);
    for (const auto& [name, tensor] : files_of_every_kind()) {
      const at::Tensor out = at::zeros(tensor.sizes());
      exported.read(name, Shape(tensor.dim(), 0), out);
      EXPECT_TRUE(at::equal(out, tensor)) << name << " on " << ranks;
    }
    EXPECT_EQ(exported.names(), weights.names());
  }
}

TEST(Stored, NamesWhatIsMissingAndWhatHasAnotherShape) {
  const Folder folder;
  Named files = files_of_every_kind();
  files[0].second = stored_numbers({3, 6}, 0);  // the tensor "conv"
  std::erase_if(files, [](const auto& file) { return file.first == "e.1"; });
  tests::write_safetensors(folder / "model.safetensors", files);
  const auto spec = every_kind();
  const auto weights = std::make_shared<HfWeights>(folder.path());
  const auto source = checkpoint::hf_source(folder.path(), weights, spec);
  const auto read = [&](const std::string& name, const Shape& shape) {
    return error_of(folder, [&] {
      source({name, at::zeros(shape), shape, Shape(shape.size(), 0), {}, {}, {}});
    });
  };
  EXPECT_EQ(read("turned", {5, 3}),
            "error[input] FOLDER: tensor \"conv\" has the shape [3, 6], the model needs [3, 5]\n"
            "  hint: do config.json and the weights belong together?");
  EXPECT_NE(read("experts", {3, 4, 5}).find("the weights hold no tensor \"e.1\""), std::string::npos);
  const std::vector<std::string> names = weights->names();
  EXPECT_EQ(checkpoint::unused(names, spec->make_units(at::kMeta), spec.get()),
            std::vector<std::string>{"extra"});
}

// An export cannot write a tensor of which the parameters cover only a part.
TEST(Stored, RefusesToExportAPartOfATensor) {
  ToySpec spec;
  spec.place = [](const std::string&, std::span<const int64_t> shape) {
    return stored::slice("wide", shape, 0, 1, 4);
  };
  checkpoint::Manifest manifest;
  manifest.tensors["part"] = {at::kFloat, {3, 2}, {}};
  const Folder folder;
  EXPECT_EQ(error_of(folder, [&] { checkpoint::plan_hf(manifest, {}, {}, &spec); }),
            "error[internal] wide: the model's parameters hold 6 of its 8 elements");
}

TEST(Stored, SaysWhatIsWrongWithParts) {
  const Shape shape{4, 3};
  const std::vector<std::string> two = {"a", "b"};
  EXPECT_EQ(stored::fault(stored::whole("a", shape), shape), "");
  EXPECT_EQ(stored::fault(stored::transposed(stored::whole("a", shape)), shape), "");
  EXPECT_EQ(stored::fault(stored::concatenated(two, Shape{1, 2}, shape, 0), shape),
            "its parts have 9 elements, the parameter 12");
  StoredParts twice = stored::concatenated(two, Shape{2, 2}, shape, 0);
  twice[1].offset[0] = 0;
  EXPECT_EQ(stored::fault(twice, shape), "'a' and 'b' hold the same elements");
  EXPECT_EQ(stored::fault(stored::slice("a", shape, 0, 3, 6), shape),
            "the part lies outside 'a' along its dim 0");
  EXPECT_EQ(stored::fault(stored::whole("a", Shape{4}), shape), "the numbers of dims of 'a' do not agree");
  StoredParts one_dim = stored::whole("a", shape);
  one_dim[0].dims = {0, 0};
  EXPECT_EQ(stored::fault(one_dim, shape), "dim 1 of 'a' runs along no dim of its own");
}

}  // namespace
}  // namespace heddle

// What the plugin nccl says is missing, in the order in which a person would look.
#include <gtest/gtest.h>

#include "plugins/nccl/presence.h"

namespace heddle::nccl {
namespace {

Sight complete() {
  Sight sight;
  sight.driver = true;
  sight.gpus = 2;
  sight.torch_directory = "/torch/lib";
  sight.torch_has_cuda = true;
  return sight;
}

TEST(NcclPresence, AGpuIsThereWhenNothingIsMissing) {
  EXPECT_EQ(why_absent(complete()), "");
  Sight one = complete();
  one.visible = "1";
  EXPECT_EQ(why_absent(one), "");
}

TEST(NcclPresence, EachThingThatIsMissingIsNamed) {
  Sight sight = complete();
  sight.torch_has_cuda = false;
  EXPECT_EQ(why_absent(sight),
            "the LibTorch in '/torch/lib' has no libtorch_cuda.so: it is built for the CPU");
  sight.visible = "";
  EXPECT_EQ(why_absent(sight), "CUDA_VISIBLE_DEVICES is '', which hides every GPU");
  sight.visible = "-1";
  EXPECT_EQ(why_absent(sight), "CUDA_VISIBLE_DEVICES is '-1', which hides every GPU");
  sight.gpus = 0;
  EXPECT_EQ(why_absent(sight), "there is an NVIDIA driver, and no GPU");
  sight.driver = false;
  EXPECT_EQ(why_absent(sight),
            "there is no NVIDIA driver (neither libnvidia-ml.so.1 nor libcuda.so.1 opens)");
}

}  // namespace
}  // namespace heddle::nccl

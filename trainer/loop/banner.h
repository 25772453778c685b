// What a person is told before the first step: the model, the batch, the run, the memory.
#pragma once

#include <string>

#include "trainer/loop/job.h"
#include "trainer/loop/model_size.h"

namespace heddle {

std::string banner(const Job& job, const ModelSize& size);

}  // namespace heddle

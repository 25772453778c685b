// HEDDLE_API, which exports a symbol. All other symbols are hidden.
#pragma once

#define HEDDLE_API __attribute__((visibility("default")))

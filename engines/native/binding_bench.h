// The part of the extension module that measures. Owns nothing. Needs: nanobind. Never: a model.
#pragma once
#include <nanobind/nanobind.h>

void bind_bench(nanobind::module_ &m);

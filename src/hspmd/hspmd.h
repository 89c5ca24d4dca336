// The public API: write a program for one device, say how it is laid out, run it on all devices.
//
//   Graph graph;
//   const ValueId x = graph.placeholder("x", {{kBatch, 16}, DType::kFloat});
//   const ValueId w = graph.parameter("w", {32, 16}, Initializer::normal(0.02));
//   const ValueId loss = ops::sumsq(graph, ops::dot(graph, "bh,fh->bf", x, w));
//   Plan plan;
//   plan.set_tensor("x", parse_annotation("top S0 {0: | 1:}"));
//   ...
//   ThreadRun run(graph, plan, {0, 1}, options, Cluster::uniform(2));
//
// In CMake: find_package(hspmd REQUIRED), then target_link_libraries(... hspmd::hspmd). What is not included here may
// change without notice.
#pragma once

#include "hspmd/annotation/annotation.h"
#include "hspmd/cluster/cluster.h"
#include "hspmd/comm/comm_plan.h"
#include "hspmd/graph/autodiff.h"
#include "hspmd/graph/graph.h"
#include "hspmd/graph/plan.h"
#include "hspmd/models/llama.h"
#include "hspmd/models/training_step.h"
#include "hspmd/ops/ops.h"
#include "hspmd/runtime/thread_run.h"
#include "hspmd/specialize/check.h"
#include "hspmd/specialize/strategy.h"

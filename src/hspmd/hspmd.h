// The public C++ API: what a program includes that builds a graph of its own and runs it.
//
//   annotation, plan     who holds what
//   graph, ops           the program, written for one device
//   strategy             a compact choice, and the plan it stands for
//   specialize, check    a program for each device, and the proof that they fit
//   resolve              how a tensor gets from one layout to another
//   device_run           all devices as threads of this process, or one a process
//   errors               what is thrown
//
//   resolve(parse_annotation("{0-1: Px2}"), parse_annotation("{0-1: Dx2}"), {10, 6}, Cluster::uniform(2))
//     an AllReduce, 480 bytes
#pragma once

#include "hspmd/annotation/annotation.h"
#include "hspmd/base/errors.h"
#include "hspmd/cluster/cluster.h"
#include "hspmd/comm/comm_plan.h"
#include "hspmd/graph/autodiff.h"
#include "hspmd/graph/graph.h"
#include "hspmd/graph/layouts.h"
#include "hspmd/graph/plan.h"
#include "hspmd/models/llama.h"
#include "hspmd/models/training_step.h"
#include "hspmd/ops/ops.h"
#include "hspmd/runtime/device_run.h"
#include "hspmd/specialize/check.h"
#include "hspmd/specialize/program.h"
#include "hspmd/specialize/strategy.h"

// A graph of one's own, on devices that are not alike: an MLP learns sin(x) + cos(y). Two data-parallel groups: devices
// 0 and 1 share the hidden layer by 2 : 1, device 2 holds all of it and takes a smaller part of the batch.
#include <cmath>
#include <cstdio>

#include "hspmd/hspmd.h"

using namespace hspmd;

int main() {
  constexpr std::int64_t kHidden = 48;

  // The program, written for one device. A Reshard names the one point where the layout changes.
  Graph g;
  const ValueId x = g.placeholder("x", {{kBatch, 2}, DType::kFloat});
  const ValueId y = g.placeholder("y", {{kBatch, 1}, DType::kFloat});
  const ValueId w1 = g.parameter("w1", {kHidden, 2}, Initializer::normal(1.0));
  const ValueId b1 = g.parameter("b1", {kHidden}, Initializer::zeros());
  const ValueId w2 = g.parameter("w2", {1, kHidden}, Initializer::normal(0.15));
  const ValueId hidden = ops::tanh(g, ops::add_bias(g, ops::dot(g, "bi,fi->bf", x, w1), b1));
  const ValueId output = g.reshard("output", ops::dot(g, "bf,of->bo", hidden, w2));
  const ValueId loss = ops::squared_error(g, output, y);
  const ValueId count = ops::squared_error(g, g.placeholder("ones", {{kBatch}, DType::kFloat}),
                                           g.placeholder("zeros", {{kBatch}, DType::kFloat}));
  ModelRoles roles;
  build_training_step(g, {loss, count}, {0.9, 0.99, 1e-8, 0, 0}, roles);

  // The plan: each leaf and each Reshard. All other layouts follow.
  Plan plan;
  const auto set = [&](const char* name, const char* layout) { plan.set_tensor(name, parse_annotation(layout)); };
  for (const char* data : {"x", "y", "ones", "zeros"}) set(data, "top S0 {0-1: Dx2 | 2:}");
  set("w1", "top D {0-1: S0x2w2:1 | 2:}");
  set("b1", "top D {0-1: S0x2w2:1 | 2:}");
  set("w2", "top D {0-1: S1x2w2:1 | 2:}");
  set("optimizer", "{0-2: Dx3}");
  plan.set_reshard("output", parse_annotation("top S0 {0-1: Dx2 | 2:}"));
  for (const auto& [name, role] : roles.reshards)
    plan.set_reshard(name, parse_annotation(role.addends ? "{0-2: Px3}" : "{0-2: Dx3}"));

  // Pipelines have micro-batches of their own: 2 of 12 sequences, and 1 of 8.
  RunOptions options;
  options.micro_batch_sizes = {{12, 12}, {8}};
  options.backend = Backend::kReference;
  const Cluster cluster = Cluster::uniform(3);
  DeviceRun run(g, plan, {0, 1, 2}, options, cluster);
  run.initialise();
  for (int step = 1; step <= 400; ++step) {
    run.step([&](const FeedRequest& request) {
      auto* data = static_cast<float*>(request.data);
      const std::string& name = request.feed->name;
      if (name == "optimizer") {
        const double t = step;
        data[0] = 0.01F;
        data[1] = static_cast<float>(1 - std::pow(0.9, t));
        data[2] = static_cast<float>(1 - std::pow(0.99, t));
        return;
      }
      for (std::int64_t b = (*request.box)[0].begin; b < (*request.box)[0].end; ++b) {
        const auto sample = static_cast<double>(step * 32 + request.pipeline * 24 + request.micro_batch * 12 + b);
        const double u = std::fmod(sample * 0.618, 4.0) - 2, v = std::fmod(sample * 0.414, 4.0) - 2;
        if (name == "x") *data++ = static_cast<float>(u), *data++ = static_cast<float>(v);
        if (name == "y") *data++ = static_cast<float>(std::sin(u) + std::cos(v));
        if (name == "ones") *data++ = 1;
        if (name == "zeros") *data++ = 0;
      }
    });
    if (step == 1 || step % 100 == 0)
      std::printf("step %3d  mean squared error %.5f\n", step, run.output("loss") / run.output("tokens"));
  }
  return run.output("loss") / run.output("tokens") < 0.05 ? 0 : 1;
}

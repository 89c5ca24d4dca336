// A linear map learns the identity on two unlike devices: device 0 has three of four rows of each batch.
#include <hspmd/hspmd.h>

#include <cstdio>

namespace {

using namespace hspmd;

struct Net {
  Graph graph;
  Plan plan;
};

Net build() {
  Net net;
  Graph& graph = net.graph;
  const ValueId x = graph.placeholder("x", {{kBatch, 4}, DType::kFloat});
  const ValueId w = graph.parameter("w", {4, 4}, Initializer::normal(0.1));
  const ValueId rows = graph.placeholder("rows", {{kBatch, 1}, DType::kInt32});
  const ValueId y = ops::dot(graph, "bh,fh->bf", x, w);
  ModelRoles roles;
  build_training_step(graph, {ops::squared_error(graph, y, x), ops::count_tokens(graph, rows)}, {}, roles);

  const Annotation batch = parse_annotation("top S0 {0: | 1:}");
  const Annotation copies = parse_annotation("top D {0: | 1:}");
  const Annotation addends = parse_annotation("top P {0: | 1:}");
  for (const char* name : {"x", "rows"}) net.plan.set_tensor(name, batch);
  for (const char* name : {"w", "optimizer"}) net.plan.set_tensor(name, copies);
  for (const auto& [name, role] : roles.reshards) net.plan.set_reshard(name, role.addends ? addends : copies);
  return net;
}

// Row r of micro-batch m of pipeline p: one of the four unit vectors.
void feed(const FeedRequest& request, int step) {
  auto* values = static_cast<float*>(request.data);
  if (request.feed->name == "optimizer") {
    const float inputs[] = {0.05f, 1, 1};  // learning rate, no bias correction
    for (int i = 0; i < 3; ++i) values[i] = inputs[i];
    return;
  }
  const Box& box = *request.box;
  for (auto row = box[0].begin; row < box[0].end; ++row) {
    const auto hot = (row + step + request.pipeline) % 4;
    if (request.feed->name == "rows") {
      static_cast<std::int32_t*>(request.data)[row - box[0].begin] = 1;
      continue;
    }
    for (int h = 0; h < 4; ++h) *values++ = h == hot ? 1.0f : 0.0f;
  }
}

}  // namespace

int main() {
  const Net net = build();
  RunOptions options;
  options.backend = Backend::kReference;
  options.sequence_length = 1;
  options.micro_batch_sizes = {{3}, {1}};
  const Cluster cluster = Cluster::uniform(2);
  DeviceRun run(net.graph, net.plan, {0, 1}, options, cluster);
  run.initialise();
  double first = 0;
  double last = 0;
  for (int step = 0; step < 200; ++step) {
    run.step([&](const FeedRequest& request) { feed(request, step); });
    last = run.output("loss") / run.output("tokens");
    if (step == 0) first = last;
  }
  std::printf("loss %.4f -> %.4f\n", first, last);
  return last < 0.1 * first ? 0 : 1;
}

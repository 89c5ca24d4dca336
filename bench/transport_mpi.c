/* A peer of bench/transport: the lines of bench/transport.cc, over Open MPI. Every rank reads them from a pipe of its own
 * (DIRECTORY/RANK), so that it sleeps between them; rank 0 answers. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMostBytes = 64 << 20, kMostRanks = 16 };

static float *data, *into;
static int rank, ranks, elements;
static int parts[kMostRanks];

static float brought(int owner, int i) { return (float)(i % 31) * (float)(owner + 1); }

static void ping_pong(void) {
  const int peer = rank ^ 1;
  if (rank % 2 == 0) {
    MPI_Send(data, elements, MPI_FLOAT, peer, 1, MPI_COMM_WORLD);
    MPI_Recv(into, elements, MPI_FLOAT, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else {
    MPI_Recv(into, elements, MPI_FLOAT, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(data, elements, MPI_FLOAT, peer, 1, MPI_COMM_WORLD);
  }
  float* const sent = data;
  data = into, into = sent;
}

static void once(const char* operation) {
  if (strcmp(operation, "point-to-point") == 0) {
    ping_pong();
  } else if (strcmp(operation, "all-reduce") == 0) {
    MPI_Allreduce(MPI_IN_PLACE, data, elements, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (strcmp(operation, "reduce-scatter") == 0) {
    /* Faster than MPI_Reduce_scatter_block of the same parts. */
    MPI_Reduce_scatter(data, into, parts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else {
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, elements / ranks, MPI_FLOAT, MPI_COMM_WORLD);
  }
}

static int is_right(const char* operation) {
  const int part = elements / ranks, sum = ranks * (ranks + 1) / 2;
  int right = 1;
  for (int i = 0; i < elements; ++i) data[i] = brought(rank, i);
  once(operation);
  for (int i = 0; i < elements; ++i) {
    if (strcmp(operation, "point-to-point") == 0) {
      right &= data[i] == brought(rank ^ 1, i);
    } else if (strcmp(operation, "all-reduce") == 0) {
      right &= data[i] == brought(sum - 1, i);
    } else if (strcmp(operation, "all-gather") == 0) {
      right &= data[i] == brought(i / part, i);
    } else if (i < part) {
      right &= into[i] == brought(sum - 1, rank * part + i);
    }
  }
  MPI_Allreduce(MPI_IN_PLACE, &right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return right;
}

static double seconds(const char* operation, int times) {
  memset(data, 0, elements * sizeof(float));
  once(operation);
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  for (int i = 0; i < times; ++i) once(operation);
  double taken = MPI_Wtime() - begin;
  MPI_Allreduce(MPI_IN_PLACE, &taken, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return taken;
}

int main(int argc, char** argv) {
  char path[4096], line[256], task[32], operation[32];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  data = aligned_alloc(4096, kMostBytes);
  into = aligned_alloc(4096, kMostBytes);
  snprintf(path, sizeof(path), "%s/%d", argc > 1 ? argv[1] : ".", rank);
  FILE* lines = fopen(path, "r");
  if (ranks > kMostRanks || lines == NULL || data == NULL || into == NULL) MPI_Abort(MPI_COMM_WORLD, 2);
  if (rank == 0) puts("ready"), fflush(stdout);
  while (fgets(line, sizeof(line), lines) != NULL) {
    int bytes = 0, times = 0;
    const int words = sscanf(line, "%31s %31s %d %d", task, operation, &bytes, &times);
    if (words < 3 || bytes > kMostBytes) MPI_Abort(MPI_COMM_WORLD, 2);
    elements = bytes / (int)sizeof(float);
    for (int i = 0; i < ranks; ++i) parts[i] = elements / ranks;
    if (strcmp(task, "check") == 0) {
      const int right = is_right(operation);
      if (rank == 0) puts(right ? "right" : "wrong");
    } else {
      const double taken = seconds(operation, times);
      if (rank == 0) printf("%.9f\n", taken);
    }
    fflush(stdout);
  }
  MPI_Finalize();
  return 0;
}

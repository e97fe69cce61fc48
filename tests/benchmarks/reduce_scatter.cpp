// Prints, as one JSON object a line, the time of MPI's own sum over ranks: what bench_ranks is
// compared with. Run it under the mpirun of the MPI that it was built for.
#include <algorithm>
#include <cstdio>
#include <vector>

#include <mpi.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (const int elements : {1 << 10, 1 << 20, 1 << 24}) {
    const int shard = elements / size;
    const std::vector<float> values(
        static_cast<std::size_t>(shard) * static_cast<std::size_t>(size), 1);
    std::vector<float> sum(static_cast<std::size_t>(shard));
    double best = 1e9;
    for (int i = 0; i < 20; ++i) {
      MPI_Barrier(MPI_COMM_WORLD);
      const double start = MPI_Wtime();
      MPI_Reduce_scatter_block(values.data(), sum.data(), shard, MPI_FLOAT, MPI_SUM,
                               MPI_COMM_WORLD);
      best = std::min(best, MPI_Wtime() - start);
    }
    if (rank == 0)
      std::printf(
          "{\"what\": \"MPI_Reduce_scatter_block\", \"ranks\": %d, \"bytes\": %zu, "
          "\"milliseconds\": %.3f}\n",
          size, static_cast<std::size_t>(elements) * sizeof(float), best * 1e3);
  }
  MPI_Finalize();
}

/*
 * A rank of gloo, PyTorch's collectives, over its ibverbs transport: sums of arrays of several sizes, each
 * element compared.
 */
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <gloo/allreduce_ring_chunked.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/ibverbs/device.h>

class Sum : public gloo::AllreduceRingChunked<float> {
public:
	using AllreduceRingChunked::AllreduceRingChunked;

	/* Waits for all that was sent, which gloo does not: its buffers abort if a last ACK is late. */
	void settle() {
		for (auto buffer : {sendDataBuf_[0].get(), sendDataBuf_[1].get(), sendNotificationBuf_.get()}) {
			try {
				for (;;) buffer->waitSend();
			} catch (const gloo::EnforceNotMet &) {
				/* No send to wait for. */
			}
		}
	}
};

int main(int argc, char **argv) {
	if (argc != 8) {
		fprintf(stderr, "usage: %s RANK RANKS DEVICE GID_INDEX DIRECTORY ROUNDS SECONDS\n", argv[0]);
		return 2;
	}
	const int rank = atoi(argv[1]), ranks = atoi(argv[2]), rounds = atoi(argv[6]);
	try {
		gloo::transport::ibverbs::attr attributes{argv[3], 1, atoi(argv[4])};
		auto device = gloo::transport::ibverbs::CreateDevice(attributes);
		auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
		context->setTimeout(std::chrono::seconds(atoi(argv[7])));
		gloo::rendezvous::FileStore store(argv[5]);
		context->connectFullMesh(store, device);
		std::vector<std::vector<float>> arrays;
		for (int count : {1, 1000, 1 << 20}) arrays.emplace_back(count);
		std::vector<std::unique_ptr<Sum>> sums;
		for (auto &array : arrays)
			sums.emplace_back(new Sum(context, {array.data()}, array.size()));
		for (int round = 1; round <= rounds; round++) {
			for (size_t at = 0; at < sums.size(); at++) {
				auto &array = arrays[at];
				for (size_t i = 0; i < array.size(); i++) array[i] = rank + i % 100 + round;
				sums[at]->run();
				for (size_t i = 0; i < array.size(); i++) {
					const float sum = ranks * (ranks - 1) / 2 + ranks * (i % 100 + round);
					if (array[i] == sum) continue;
					printf("rank %d: element %zu of %zu is %g, not %g\n", rank, i, array.size(), array[i], sum);
					return 1;
				}
			}
			if (round == 1) printf("rank %d: round 1 is right\n", rank);
			fflush(stdout);
		}
		for (auto &sum : sums) sum->settle();
		/* The last completions of all ranks must precede the end of any algorithm. */
		store.set("done " + std::to_string(rank), {'1'});
		std::vector<std::string> all;
		for (int each = 0; each < ranks; each++) all.push_back("done " + std::to_string(each));
		store.wait(all);
		printf("rank %d: %d rounds are right\n", rank, rounds);
	} catch (const std::exception &error) {
		printf("rank %d: %s\n", rank, error.what());
		return 1;
	}
	return 0;
}

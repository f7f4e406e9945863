# A thin face over the CMake presets (see README.md for the presets themselves).
#   make            build (release)              make demo      the story, in four acts
#   make test       build and run every test     make check     sanitizers, lints and all tests
#   make check-long the long forms of tests      make accuracy  fp32 and q4 (ACCURACY=--quick)
#   make decentralised  gossip, local steps and servers beside all-reduce (DECENTRALISED=--quick)
#   make fuzz SECONDS=10  hostile bytes into everything that reads bytes, so long each
#   make soak HOURS=8  random programs and chaos for a night
#   make peers      PyTorch beside Redpoll       make bench     the benchmarks of bench/
#   make bench-compare REF  this state beside REF on this machine; 5 % down fails (WRITE=1: its table)
#   make install    cmake --install              make wheel     the Python package, into build/wheels
#   make site       the documents as pages, into build/site

PREFIX ?= /usr/local
RELEASE := build/release

HOURS ?= 8
SECONDS ?= 10

.PHONY: all build demo test check check-long fuzz soak accuracy decentralised peers bench bench-compare wheel site install format clean
all: build

build: $(RELEASE)/build.ninja
	cmake --build --preset release

$(RELEASE)/build.ninja:
	cmake --preset release

demo:
	@sh tools/setup.sh demo
	@$(MAKE) --no-print-directory build
	@sh tools/demo.sh $(RELEASE)/src/cli/redpoll

# Tests of processes, deadlines and lost peers wait, while groups of Python, which compute, have
# three slots each.
test:
	@sh tools/setup.sh test
	@$(MAKE) --no-print-directory build
	@sh tools/run_tests.sh $(RELEASE) -j "$$((4 * $$(sh tools/cores.sh)))"

check:
	@sh tools/setup.sh check
	@sh tools/check.sh

# Tests join it by LONG in redpoll_test() and redpoll_python_test(), or by redpoll_long_test().
check-long:
	@sh tools/setup.sh check
	@$(MAKE) --no-print-directory build
	@sh tools/run_tests.sh $(RELEASE) -C Long -L '^long$$'
	@sh tools/onednn3.sh || [ $$? -eq 77 ]
	@sh tools/check.sh asan
	@sh tools/tidy.sh --deep
	@sh tools/fuzz.sh 600

fuzz:
	@sh tools/fuzz.sh $(SECONDS)

soak: build
	@sh tools/soak.sh $(RELEASE) $(HOURS)

accuracy: build
	@sh tools/accuracy.sh $(RELEASE)/src/cli/redpoll $(ACCURACY)

decentralised: build
	@sh tools/decentralised.sh $(RELEASE)/src/cli/redpoll $(DECENTRALISED)

peers: build
	@sh bench/peers/compare.sh $(RELEASE)
	@"$$(sh tools/torch_venv.sh)" bench/peers/compare_models.py $(RELEASE)/bench/engine_bench
	@"$$(sh tools/torch_venv.sh)" bench/peers/generate.py $(RELEASE)/src/cli/redpoll

bench: build
	@sh bench/run.sh $(RELEASE)

# Also REF=..., and BENCH_ONLY=codec,step, BENCH_ROUNDS=5, BENCH_RUN='chrt -f 1' (root, on a machine that
# others use, too), WRITE=1.
ifeq ($(firstword $(MAKECMDGOALS)),bench-compare)
REF ?= $(word 2,$(MAKECMDGOALS))
$(filter-out bench-compare build,$(MAKECMDGOALS)): ;@:
endif
bench-compare: build
	@python3 bench/compare/bench_compare.py $(REF) --new $(RELEASE) --only '$(BENCH_ONLY)' \
		--rounds $(or $(BENCH_ROUNDS),3) --run '$(BENCH_RUN)' $(if $(WRITE),--write)

wheel:
	python3 -m pip wheel --quiet --no-deps --wheel-dir build/wheels .

site:
	@sh tools/site.sh

install: build
	cmake --install $(RELEASE) --prefix $(PREFIX)

format:
	git ls-files '*.[ch]' '*.cu' '*.cuh' '*.cpp' | xargs clang-format -i

clean:
	rm -rf build
